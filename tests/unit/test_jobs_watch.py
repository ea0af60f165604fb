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
    Pulse,
    Standing,
    cause,
    ended_before,
    in_vain,
    lacking,
)
from tests.unit.test_calls import tables_of

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


UNSEEN = Pulse()


class Machine:
    """Processes that do one thing all the time, and a watch that looks at them all the time."""

    def __init__(self, **acts: str) -> None:
        self.acts = {int(name.removeprefix("w")): act for name, act in acts.items()}
        self.now, self.watch = 100.0, Lookout()
        self.said: list[tuple[float, str]] = []

    def doing(self, rank: int) -> Doing:
        act = self.acts.get(rank, ASLEEP)
        return Doing("stopped" if act == STOPPED else "", self.now if act == BUSY else 7.0)

    def see(self, seconds: float, *workers: Standing, pulse: Pulse = UNSEEN) -> Standing | None:
        """Return the worker for whom the job has to end, as soon as there is one."""
        began = self.now
        while self.now <= began + seconds:
            lines, left = self.watch.look(self.now, workers, self.doing, pulse)
            self.said += [(round(self.now - began, 1), line) for line in lines]
            if left is not None:
                return left
            self.now += STEP_S
        return None


def test_who_sleeps_while_others_wait_is_named_within_five_seconds_and_then_ever_more_rarely() -> None:
    machine = Machine()
    workers = worker(0, asked=6, waits_for=6), worker(1, asked=6, waits_for=6), worker(2, asked=5)
    assert machine.see(60, *workers) is None, "who sleeps may wake"
    account = "workers 0, 1 wait in collective 6, worker 2 sleeps since collective 5"
    assert machine.said == [
        (5.0, f"waiting for worker 2 on u1h3 (sleeping for 5 s) in collective 6: {account}"),
        (15.0, f"waiting for worker 2 on u1h3 (sleeping for 15 s) in collective 6: {account}"),
        (45.0, f"waiting for worker 2 on u1h3 (sleeping for 45 s) in collective 6: {account}"),
    ]
    assert machine.watch.line == machine.said[-1][1]
    awake = [replace(each, asked=6, waits_for=0) for each in workers]
    machine.see(1, *awake)
    assert machine.watch.line == "", "it is true no longer"
    assert machine.watch.totals(machine.now, awake) == ["the others waited 60 s for worker 2 on u1h3"]


@pytest.mark.parametrize(("act", "word"), [(ASLEEP, "sleeping"), (BUSY, "running"), (STOPPED, "stopped")])
def test_what_it_does_is_said(act: str, word: str) -> None:
    machine = Machine(w2=act)
    machine.see(6, worker(0, asked=2, waits_for=2), worker(1, asked=2, waits_for=2), worker(2, asked=1))
    does = {ASLEEP: "sleeps", BUSY: "computes", STOPPED: "is stopped"}[act]
    assert [line for _, line in machine.said] == [
        f"waiting for worker 2 on u1h3 ({word} for 5 s) in collective 2: workers 0, 1 wait in collective 2, "
        f"worker 2 {does} since collective 1"
    ]


def test_the_first_that_it_has_not_asked_for_is_said_of_many() -> None:
    machine = Machine()
    machine.see(6, worker(0, asked=9, waits_for=9), worker(1, asked=4))
    assert [line for _, line in machine.said] == [
        "waiting for worker 1 on u1h2 (sleeping for 5 s) in collective 5: worker 0 waits in collective 9, "
        "worker 1 sleeps since collective 4"
    ]


def test_a_worker_is_not_named_while_it_goes_on() -> None:
    machine = Machine(w1=BUSY)
    for turn in range(20):  # three seconds a turn, all of which the other waits
        assert machine.see(3, worker(0, asked=turn + 1, waits_for=turn + 1), worker(1, asked=turn)) is None
    assert machine.said == []
    assert machine.watch.totals(machine.now, ()) == []


def test_who_stops_after_it_has_asked_is_named_too() -> None:
    machine = Machine(w1=STOPPED)
    machine.see(6, *(worker(rank, asked=9, waits_for=9) for rank in range(3)))
    assert machine.said == [
        (
            5.0,
            "waiting for worker 1 on u1h2 (stopped for 5 s) in collective 9: "
            "workers 0 to 2 wait in collective 9",
        )
    ]


def test_who_waits_itself_is_not_named() -> None:
    machine = Machine()  # worker 1 waits for what worker 0 asked for before it asked for more
    machine.see(9, worker(0, asked=6, waits_for=6), worker(1, asked=5, waits_for=5), worker(2, asked=4))
    heads = [line.partition(":")[0] for _, line in machine.said]
    assert all("worker 2" in head and "worker 1" not in head for head in heads)
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
    assert sleeper.said[0][1] == (
        "waiting for worker 2 on u1h3 (sleeping for 5 s) to join the process group: "
        "workers 0, 1 wait for the process group, worker 2 has not joined the process group"
    )
    assert sleeper.said[0][0] == FIRST_S
    assert [when for when, _ in starter.said] == [STARTING_S]


def test_many_are_named_in_one_line() -> None:
    machine = Machine(w3=STOPPED)
    machine.see(6, worker(0, asked=1, waits_for=1), *(worker(rank) for rank in range(1, 8)))
    ((_, line),) = machine.said
    assert line.startswith(
        "waiting for worker 1 on u1h2 (sleeping for 5 s), worker 2 on u1h3 (sleeping for 5 s)"
    )
    assert "worker 3 on u1h4 (stopped for 5 s)" in line
    assert line.endswith(
        "and 3 others in collective 1: worker 0 waits in collective 1, "
        "workers 1, 2, 4 to 7 sleep before the first collective, "
        "worker 3 is stopped before the first collective"
    )


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


STILL = Pulse(b"the same", waits=True)


def test_a_job_that_stands_still_is_told_though_nobody_is_late() -> None:
    machine = Machine()
    machine.see(60, *(worker(rank, asked=9, waits_for=9) for rank in range(3)), pulse=STILL)
    assert machine.said == [(at, "workers 0 to 2 wait in collective 9") for at in (5.0, 15.0, 45.0)]
    machine.see(1, *(worker(rank, asked=9) for rank in range(3)), pulse=Pulse(b"another"))
    assert machine.watch.line == ""


def test_a_job_whose_network_goes_on_is_not_told() -> None:
    machine = Machine()
    for turn in range(20):
        waits = (worker(rank, asked=9, waits_for=9) for rank in range(3))
        machine.see(4, *waits, pulse=Pulse(bytes([turn]), waits=True))
    assert machine.said == []


def test_one_late_and_a_job_that_stands_still_are_one_line() -> None:
    machine, workers = Machine(), (worker(0, asked=6, waits_for=6), worker(1, asked=5))
    machine.see(1, *workers, pulse=Pulse(b"fragments are still summed", waits=True))
    machine.see(60, *workers, pulse=STILL)
    assert len(machine.said) == 3, machine.said


def test_workers_that_meet_in_vain_are_told_after_fifteen_seconds() -> None:
    machine, tables = Machine(), tables_of(3)
    for rank in range(3):
        tables.say_meets(rank, "localhost:12355, since the script set MASTER_ADDR to localhost")
    pulse = Pulse(b"the same", waits=True, tables=lambda: tables)
    machine.see(20, *(worker(rank, GroupState.MEETING) for rank in range(3)), pulse=pulse)
    assert machine.said == [
        (
            15.0,
            "nobody has joined the process group after 15 s: workers 0 to 2 wait for it at localhost:12355, "
            "since the script set MASTER_ADDR to localhost",
        )
    ]


def test_who_has_joined_is_told_while_others_meet() -> None:
    machine = Machine()
    machine.see(16, worker(0), worker(1), worker(2, GroupState.MEETING), pulse=STILL)
    assert machine.said == [
        (15.0, "only workers 0, 1 have joined the process group after 15 s: worker 2 waits for it")
    ]


def test_who_waits_in_another_group_is_not_named() -> None:
    machine = Machine()
    pulse = Pulse(b"the same", waits=True, in_calls=frozenset({0, 1}))
    machine.see(6, worker(0, asked=6, waits_for=6), worker(1, asked=5), pulse=pulse)
    assert [line.partition(" ")[0] for _, line in machine.said] == ["worker"]


def test_a_job_of_which_all_sleep_is_told_though_nobody_is_known_to_wait() -> None:
    machine = Machine()
    machine.see(50, worker(0, asked=3), worker(1, asked=3), pulse=Pulse(b"the same"))
    assert machine.said == [
        (at, "no worker does anything: workers 0, 1 sleep since collective 3") for at in (15.0, 45.0)
    ]


def test_a_job_of_which_one_computes_is_not_told() -> None:
    machine, looked = Machine(w1=BUSY), list[int]()
    machine.see(200, worker(0, asked=3), worker(1, asked=3), pulse=Pulse(b"the same"))
    assert machine.said == []

    def look_at(rank: int) -> Doing:
        looked.append(rank)
        return Doing("", machine.now)

    for _ in range(2000):
        machine.watch.look(machine.now, [worker(0, asked=4)], look_at, Pulse(b"another"))
        machine.now += STEP_S
    assert len(looked) < 20, "it costs a file's reading each time"


def test_a_script_that_never_joined_may_sleep() -> None:
    machine = Machine()
    machine.see(50, *(worker(rank, GroupState.ALONE) for rank in range(2)), pulse=Pulse(b"the same"))
    assert machine.said == []
