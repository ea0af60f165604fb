"""The simulator: volumes, losses and times by hand, and every constraint that a policy could break."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from testbed.errors import RequestError, TestbedError
from testbed.scheduling.model import Decision, Job, Limits, Pair, State
from testbed.systems.p4inc.policies.catalogue import make
from testbed.systems.p4inc.simulator.fluid import Simulated, simulate

LIMITS = Limits.uniform(3, 2, 1, 40.0, 120.0, host_gbps=20.0, reconfiguration_s=0.1)
LINK = {(0, 1): 1}


@dataclass
class Planned:
    """A policy that says what it was told to, the last decision again and again."""

    decisions: Sequence[Decision]
    shown: list[State] = field(default_factory=list)
    name: str = "planned"

    def decide(self, state: State) -> Decision:
        self.shown.append(state)
        return self.decisions[min(state.slot, len(self.decisions) - 1)]


def run(jobs: Iterable[Job], *decisions: Decision, ports: Mapping[Pair, int] | None = None) -> Simulated:
    return simulate(LIMITS, jobs, Planned(decisions), ports or {}, record=True)


def test_a_job_loses_the_time_of_a_reconfiguration_once() -> None:
    # 18 Gb in slot 0 and 20 in slot 1 are 38; 0.25 s of update follow
    outcome = run([Job(1, ((0, 2),), 1, 38.0, 0.25)], Decision({1: 20.0}, ports=LINK))
    assert outcome.finish_s == {1: 2.25}
    assert outcome.ct_bti_s == outcome.total_jct_s == 2.25
    assert (outcome.reconfigured_connections, outcome.reconfigurations, outcome.slots) == (1, 1, 2)
    assert run([Job(1, ((0, 2),), 1, 38.01)], Decision({1: 20.0}, ports=LINK)).slots == 3
    assert run([Job(1, ((0, 2),), 1, 40.0)], Decision({1: 20.0}, ports=LINK), ports=LINK).slots == 2


def test_the_update_is_the_switches_with_inc() -> None:
    assert run([Job(1, ((0, 2),), 1, 20.0, 9.0)], Decision({1: 20.0}, {1: 0})).finish_s == {1: 1.0}


def test_a_rate_that_grows_over_circuits_that_do_not_loses_nothing() -> None:
    decisions = Decision({1: 10.0}, ports=LINK), Decision({1: 20.0}, ports={(0, 1): 1, (1, 2): 1})
    outcome = run([Job(1, ((0, 2),), 1, 29.0)], *decisions)
    assert outcome.slots == 2  # 9 + 20
    assert (outcome.reconfigured_connections, outcome.reconfigurations) == (2, 2)


def test_completion_counts_from_arrival_and_the_batch_from_the_first_slot_with_a_rate() -> None:
    # nothing runs in slot 3: that decision stays in force until the next arrival
    jobs = [Job(2, ((2, 2),), 2, 40.0, arrival=7), Job(1, ((0, 2),), 0, 20.0, arrival=3)]
    outcome = run(jobs, *[Decision()] * 7, Decision({1: 20.0, 2: 20.0}), Decision({2: 20.0}))
    assert outcome.finish_s == {1: 8.0, 2: 9.0}
    assert outcome.ct_bti_s == 2.0
    assert outcome.total_jct_s == 5.0 + 2.0


def test_empty_slots_are_passed_over_and_recorded() -> None:
    policy = make("noinc-fcfs")
    jobs = [Job(1, ((0, 2),), 1, 18.0, arrival=3), Job(2, ((0, 2),), 1, 20.0, arrival=100_000)]
    seen: list[tuple[int, int]] = []
    outcome = simulate(
        LIMITS, jobs, policy, {(0, 2): 1}, record=True, on_slot=lambda slot, done: seen.append((slot, done))
    )
    assert seen == [(3, 1), (100_000, 2)]
    assert outcome.schedule is not None
    decisions = outcome.schedule.decisions
    assert len(decisions) == outcome.slots == 100_001
    assert decisions[2] == Decision(ports={(0, 2): 1})
    assert decisions[50_000] == Decision(ports={(0, 1): 1, (0, 2): 1})
    assert outcome.reconfigured_connections == 1


def test_the_policy_sees_jobs_in_the_order_of_arrival_and_the_circuits_lit() -> None:
    jobs = [Job(3, ((0, 1),), 0, 15.0), Job(2, ((0, 1),), 0, 15.0, arrival=1), Job(1, ((1, 1),), 1, 15.0)]
    policy = Planned(
        (Decision({3: 10.0, 1: 20.0}), Decision({2: 20.0, 3: 10.0}, ports=LINK), Decision({2: 20.0}))
    )
    simulate(LIMITS, jobs, policy, {(0, 2): 1})
    assert [(state.slot, [p.job.id for p in state.jobs], dict(state.ports)) for state in policy.shown] == [
        (0, [3, 1], {(0, 2): 1}),
        (1, [3, 2], {}),
    ]


def test_the_policys_time_is_counted_with_the_clock_given() -> None:
    ticks = iter(range(100))
    jobs = [Job(1, ((0, 1),), 0, 40.0)]
    assert (
        simulate(LIMITS, jobs, Planned((Decision({1: 20.0}),)), {}, clock=lambda: next(ticks)).policy_s == 2.0
    )
    assert simulate(LIMITS, jobs, Planned((Decision({1: 20.0}),)), {}).policy_s is None


def test_waiting_for_ever_is_an_error() -> None:
    with pytest.raises(
        TestbedError, match=r"^planned, slot 2: 2 jobs wait, none runs and none is to come: .* job 7$"
    ):
        run([Job(7, ((0, 1),), 0, 1.0), Job(8, ((0, 1),), 0, 1.0, arrival=2)], Decision())


A = Job(1, ((0, 2),), 1, 100.0)
B = Job(2, ((0, 1), (2, 1)), 2, 100.0)
BOTH = Decision({1: 20.0}, ports=LINK)


@pytest.mark.parametrize(
    ("decisions", "message"),
    [
        ([BOTH, Decision(ports=LINK)], "slot 1: job 1 is stopped before it is finished"),
        ([BOTH, Decision({1: 20.0}, {1: 0})], "slot 1: job 1 changes its mode from INC in unit None to 0"),
        ([Decision({1: 20.0}, {1: 1})], r"slot 0: job 1 may not use INC in unit 1; it may in \(0,\)"),
        ([Decision({2: 20.0}, {2: 0}, LINK)], r"slot 0: job 2 may not use INC in unit 0; it may in \(\)"),
        (
            [Decision({1: 20.1}, ports=LINK)],
            r"slot 0: job 1 has a rate of 20.1 Gb/s; at most 20.0 is possible",
        ),
        (
            [Decision({1: 0.0}, ports=LINK)],
            r"slot 0: job 1: rate: 0.0; a number above 0 and up to 1e\+15 is accepted",
        ),
        (
            [Decision({1: 20.0, 9: 1.0}, ports=LINK)],
            "slot 0: job 9 has a rate, but is finished or has not arrived",
        ),
        ([Decision({1: 20.0}, ports={(0, 1): 3})], "slot 0: unit 0 has 3 circuits, and 2 ports"),
        (
            [Decision({1: 20.0}, ports={(1, 0): 1})],
            r"slot 0: circuits between units: \(1, 0\); two of units 0 to 2, the smaller first",
        ),
        (
            [Decision({1: 20.0}, ports={(0, 1): 1, (0, 2): -1})],
            r"slot 0: circuits between units 0 and 2: -1; a whole number from 0 ",
        ),
        ([Decision({1: 20.0})], r"slot 0: the link \(0, 1\) has 40.0 Gb/s, and circuits for 0.0"),
        (
            [Decision({1: 20.0, 3: 20.0, 4: 20.0}, {3: 0, 4: 0}, LINK)],
            "slot 0: unit 0 has 2 INC jobs, and room for 1",
        ),
        (
            [Decision({1: 20.0, 3: 20.0, 4: 20.0}, {3: 0}, LINK)],
            "slot 0: the switch of unit 0 has 140.0 Gb/s, and 120.0",
        ),
    ],
)
def test_a_policy_that_breaks_a_constraint_is_stopped(decisions: list[Decision], message: str) -> None:
    jobs = [A, B, Job(3, ((0, 3),), 0, 100.0), Job(4, ((0, 1),), 0, 100.0)]
    with pytest.raises(TestbedError, match=f"^planned, {message}"):
        run(jobs, *decisions)


def test_requests_that_make_no_run() -> None:
    with pytest.raises(RequestError, match="there are no jobs"):
        run([], Decision())
    with pytest.raises(RequestError, match=r"^simulate: job 1: id: of two jobs; one of its own is accepted$"):
        run([A, A], Decision())
    with pytest.raises(
        TestbedError, match="the circuits lit at the start: unit 0 has 3 circuits, and 2 ports"
    ):
        run([A], BOTH, ports={(0, 1): 3})
