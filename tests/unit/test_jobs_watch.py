"""Whom the workers of a job wait for, on boards of all kinds: pure, with a clock of the test's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.jobs.board import GroupState
from testbed.jobs.watch import (
    FIRST_S,
    STARTING_S,
    SURE_S,
    Doing,
    Lookout,
    Standing,
    cause,
    ended_before,
    in_vain,
    lacking,
)

STEP_S = 0.125  # no sum of it is rounded
ASLEEP, BUSY, STOPPED = "asleep", "busy", "stopped"


def worker(
    rank: int,
    phase: GroupState = GroupState.JOINED,
    asked: int = 0,
    waits_for: int = 0,
    exit_code: int | None = None,
) -> Standing:
    return Standing(rank, f"worker {rank} on u1h{rank + 1}", phase, asked, waits_for, 0, exit_code)


class Machine:
    """Processes that do one thing all the time, and a watch that looks at them all the time."""

    def __init__(self, **acts: str) -> None:
        self.acts = {int(name.removeprefix("w")): act for name, act in acts.items()}
        self.now, self.watch = 100.0, Lookout()
        self.said: list[tuple[float, str]] = []

    def doing(self, rank: int) -> Doing:
        act = self.acts.get(rank, ASLEEP)
        return Doing("stopped" if act == STOPPED else "", self.now if act == BUSY else 7.0)

    def see(self, seconds: float, *workers: Standing) -> Standing | None:
        """Return the worker for whom the job has to end, as soon as there is one."""
        began = self.now
        while self.now <= began + seconds:
            lines, left = self.watch.look(self.now, workers, self.doing)
            self.said += [(round(self.now - began, 1), line) for line in lines]
            if left is not None:
                return left
            self.now += STEP_S
        return None


def test_who_sleeps_while_others_wait_is_named_within_five_seconds_and_then_ever_more_rarely() -> None:
    machine = Machine()
    workers = worker(0, asked=6, waits_for=6), worker(1, asked=6, waits_for=6), worker(2, asked=5)
    assert machine.see(60, *workers) is None, "who sleeps may wake"
    assert machine.said == [
        (4.0, "waiting for worker 2 on u1h3 (sleeping for 4 s) in collective 6"),
        (12.0, "waiting for worker 2 on u1h3 (sleeping for 12 s) in collective 6"),
        (36.0, "waiting for worker 2 on u1h3 (sleeping for 36 s) in collective 6"),
    ]
    awake = [replace(each, asked=6, waits_for=0) for each in workers]
    machine.see(1, *awake)
    assert machine.watch.totals(machine.now, awake) == ["the others waited 60 s for worker 2 on u1h3"]


@pytest.mark.parametrize(("act", "word"), [(ASLEEP, "sleeping"), (BUSY, "running"), (STOPPED, "stopped")])
def test_what_it_does_is_said(act: str, word: str) -> None:
    machine = Machine(w2=act)
    machine.see(5, worker(0, asked=2, waits_for=2), worker(1, asked=2, waits_for=2), worker(2, asked=1))
    assert [line for _, line in machine.said] == [
        f"waiting for worker 2 on u1h3 ({word} for 4 s) in collective 2"
    ]


def test_the_first_that_it_has_not_asked_for_is_said_of_many() -> None:
    machine = Machine()
    machine.see(5, worker(0, asked=9, waits_for=9), worker(1, asked=4))
    assert [line for _, line in machine.said] == [
        "waiting for worker 1 on u1h2 (sleeping for 4 s) in collective 5"
    ]


def test_a_worker_is_not_named_while_it_goes_on() -> None:
    machine = Machine(w1=BUSY)
    for turn in range(20):  # three seconds a turn, all of which the other waits
        assert machine.see(3, worker(0, asked=turn + 1, waits_for=turn + 1), worker(1, asked=turn)) is None
    assert machine.said == []
    assert machine.watch.totals(machine.now, ()) == []


def test_who_stops_after_it_has_asked_is_named_too() -> None:
    machine = Machine(w1=STOPPED)
    machine.see(5, *(worker(rank, asked=9, waits_for=9) for rank in range(3)))
    assert machine.said == [(4.0, "waiting for worker 1 on u1h2 (stopped for 4 s) in collective 9")]


def test_who_waits_itself_is_not_named() -> None:
    machine = Machine()  # worker 1 waits for what worker 0 asked for before it asked for more
    machine.see(9, worker(0, asked=6, waits_for=6), worker(1, asked=5, waits_for=5), worker(2, asked=4))
    assert all("worker 2" in line and "worker 1" not in line for _, line in machine.said)
    assert machine.said


def test_where_all_wait_and_none_is_stopped_nobody_is_named() -> None:
    machine = Machine()
    machine.see(50, *(worker(rank, asked=9, waits_for=9) for rank in range(3)))
    assert machine.said == []


def test_who_has_not_joined_is_named_at_once_where_it_sleeps_and_later_where_it_runs() -> None:
    workers = worker(0, GroupState.MEETING), worker(1, GroupState.MEETING), worker(2, GroupState.ALONE)
    sleeper, starter = Machine(w2=ASLEEP), Machine(w2=BUSY)
    for machine in (sleeper, starter):
        machine.see(20, *workers)
    assert sleeper.said[0][1] == "waiting for worker 2 on u1h3 (sleeping for 4 s) to join the process group"
    assert sleeper.said[0][0] == FIRST_S
    assert [when for when, _ in starter.said] == [STARTING_S]


def test_many_are_named_in_one_line() -> None:
    machine = Machine(w3=STOPPED)
    machine.see(5, worker(0, asked=1, waits_for=1), *(worker(rank) for rank in range(1, 8)))
    ((_, line),) = machine.said
    assert line.startswith(
        "waiting for worker 1 on u1h2 (sleeping for 4 s), worker 2 on u1h3 (sleeping for 4 s)"
    )
    assert "worker 3 on u1h4 (stopped for 4 s)" in line
    assert line.endswith("and 3 others in collective 1")


def test_who_left_before_the_group_was_there_ends_the_job() -> None:
    machine = Machine()
    meeting = worker(0, GroupState.MEETING), worker(1, GroupState.ALONE)
    left = machine.see(30, *meeting, worker(2, GroupState.ALONE, exit_code=0))
    assert left is not None
    assert left.rank == 2
    assert machine.now - 100 == pytest.approx(SURE_S)
    assert machine.said == []


def test_who_left_in_mid_training_ends_the_job() -> None:
    machine = Machine()
    waits = worker(0, asked=8, waits_for=8)
    left = machine.see(30, waits, worker(1, asked=7), worker(2, GroupState.ALONE, asked=7, exit_code=0))
    assert left is not None
    assert left.rank == 2


def test_who_has_done_its_part_may_leave() -> None:
    machine = Machine()
    done = worker(2, GroupState.ALONE, asked=8, exit_code=0)
    assert machine.see(30, worker(0, asked=8, waits_for=8), worker(1, asked=8), done) is None
    assert machine.see(30, worker(0, GroupState.ALONE, asked=8), done) is None
    assert machine.said == []


def test_a_script_of_some_workers_without_a_group_of_all_may_let_the_others_go() -> None:
    machine = Machine()
    assert machine.see(30, worker(0), worker(1), worker(2, GroupState.ALONE, exit_code=0)) is None


def test_a_system_that_goes_on_without_a_worker_is_no_failure() -> None:
    machine = Machine()
    gone = worker(1, GroupState.ALONE, asked=3, exit_code=0)
    for turn in range(4, 90):  # each sum without it takes half a second
        assert machine.see(0.5, worker(0, asked=turn, waits_for=turn), gone) is None


@pytest.mark.parametrize(
    ("failed", "others", "culprit"),
    [
        # died in a collective that another had left
        (worker(0, asked=5, waits_for=5, exit_code=1), [worker(1, asked=4, exit_code=0)], 1),
        # died in a collective, and another died of itself before it asked for that
        (worker(0, asked=5, waits_for=5, exit_code=1), [worker(1, asked=4, exit_code=1)], 1),
        # the other died in a collective as well, of one that is still to be reaped
        (
            worker(0, asked=5, waits_for=5, exit_code=1),
            [worker(1, asked=4, waits_for=4, exit_code=1), worker(2, asked=3)],
            0,
        ),
        # the other had asked for that collective, and left
        (worker(0, asked=5, waits_for=5, exit_code=1), [worker(1, asked=5, exit_code=0)], 0),
        # died of itself: whoever left has no part in it
        (worker(0, asked=5, exit_code=1), [worker(1, asked=4, exit_code=1)], 0),
        (worker(0, asked=5, exit_code=1), [worker(1, asked=5, exit_code=0)], 0),
        # died while it waited for the group
        (worker(0, GroupState.MEETING, exit_code=1), [worker(1, GroupState.ALONE, exit_code=0)], 1),
        (worker(0, GroupState.JOINED, exit_code=1), [worker(1, GroupState.ALONE, exit_code=0)], 0),
    ],
)
def test_a_failure_is_the_fault_of(failed: Standing, others: list[Standing], culprit: int) -> None:
    assert cause([failed, *others], failed).rank == culprit


def test_a_worker_that_was_asked_to_end_is_nobodys_fault() -> None:
    failed = worker(0, asked=5, waits_for=5, exit_code=1)
    obeys = replace(worker(1, asked=4, exit_code=0), asked_to_end=True)
    assert cause([failed, obeys], failed) is failed
    assert lacking([worker(0, asked=5, waits_for=5), obeys]) == {}


def test_waiting_for_a_group_that_cannot_come_is_in_vain() -> None:
    meeting = worker(0, GroupState.MEETING)
    assert in_vain([meeting, worker(1, GroupState.ALONE, exit_code=1)])
    assert not in_vain([meeting, worker(1, GroupState.ALONE)]), "it may come"
    assert not in_vain([worker(0), worker(1, GroupState.ALONE, exit_code=1)]), "it has something to say"
    assert not in_vain([worker(1, GroupState.ALONE, exit_code=1)])
    assert not in_vain([meeting, worker(1, GroupState.JOINED, exit_code=1)]), "it is there in a moment"


def test_no_process_is_looked_at_while_sums_go_on() -> None:
    machine, looked = Machine(), list[int]()

    def look_at(rank: int) -> Doing:
        looked.append(rank)
        return Doing()

    for turn in range(1, 30):
        workers = [worker(rank, asked=turn, waits_for=turn) for rank in range(3)]
        machine.watch.look(machine.now, workers, look_at)
        machine.now += SURE_S / 2
    assert looked == [], "it costs a file's reading for each worker, ten times a second"


def test_those_that_had_left_are_said_of_a_failure_within_the_group() -> None:
    gone, failed = worker(0, GroupState.ALONE, asked=5, exit_code=0), worker(1, asked=5, exit_code=1)
    assert ended_before([gone, failed], failed) == "; worker 0 on u1h1 had ended with 0 by then"
    assert ended_before([worker(0), failed], failed) == ""
    left = replace(failed, phase=GroupState.ALONE)
    assert ended_before([gone, left], left) == "", "what it did afterwards is its own affair"
