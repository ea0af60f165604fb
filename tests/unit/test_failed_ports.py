"""Ports that go down under a policy's running jobs: what the jobs keep, and that a decision still fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.ocs.circuits import circuit
from testbed.ocs.exact import nearest
from testbed.queue.shortage import Shortage
from testbed.scheduling.constraints import check_decision
from testbed.scheduling.failed_ports import Remainder, feasible, remainder
from testbed.scheduling.model import Decision, Job, Limits, Progress, State, UnitIndex
from testbed.systems.p4inc.policies.catalogue import NAMES, make
from tests.examples import examples
from tests.unit.test_ocs import ports

A, B, C, D = map(UnitIndex, range(4))
LIMITS = Limits.uniform(4, 2, 2, 20.0, host_gbps=40.0, ps_gbps=80.0, step_gbps=5.0)


def running(id_: int, workers: dict[UnitIndex, int], ps: UnitIndex, gbps: float) -> Progress:
    return Progress(Job(id_, tuple(workers.items()), ps, 1e3), 1e3, 0, None, gbps)


def test_a_job_keeps_what_one_of_two_circuits_carries() -> None:
    down = replace(LIMITS, ports=(2, 2, 1, 2))
    job = running(1, {A: 2}, C, 20.0)
    assert remainder(LIMITS, [job], {(A, C): 2}, {(A, C): 2}) == Remainder()
    assert remainder(LIMITS, [job], {(A, C): 2}, {(A, C): 1}) == Remainder(), "another port is free"
    assert remainder(down, [job], {(A, C): 2}, {(A, C): 1}) == Remainder({1: 10.0})
    assert remainder(LIMITS, [job], {(A, C): 2}, {(A, C): 1}, True) == Remainder({1: 10.0})


def test_a_job_without_a_port_is_cut_off_and_keeps_its_other_circuits() -> None:
    down = replace(LIMITS, ports=(2, 2, 1, 2))
    jobs = [running(1, {A: 1, B: 1}, C, 20.0), running(2, {A: 1}, D, 20.0)]
    left = remainder(down, jobs, {(A, C): 1, (B, C): 1, (A, D): 1}, {(B, C): 1, (A, D): 1})
    assert left == Remainder({1: 0.0}, {(B, C): 1})
    assert left.cut_off == [1]
    assert left.limits(down).ports == (2, 1, 0, 2)
    assert left.circuits({(B, C): 2, (A, D): 1}) == {(B, C): 1, (A, D): 1}


def test_the_job_whose_circuit_is_lit_keeps_it() -> None:
    down = replace(LIMITS, ports=(1, 2, 2, 2))
    jobs = [running(1, {A: 1}, B, 20.0), running(2, {A: 1}, C, 20.0)]
    assert remainder(down, jobs, {(A, B): 1, (A, C): 1}, {(A, C): 1}) == Remainder({1: 0.0})


def test_jobs_of_one_pair_share_its_circuit() -> None:
    down = replace(LIMITS, ports=(1, 2, 2, 2))
    jobs = [running(1, {A: 1}, B, 30.0), running(2, {A: 1}, B, 10.0)]
    assert remainder(down, jobs, {(A, B): 2}, {(A, B): 1}) == Remainder({1: 15.0, 2: 5.0})


def test_a_pair_without_circuits_uses_the_core() -> None:
    core = replace(LIMITS, ports=(0, 0, 0, 0), core_gbps=10.0)
    job = running(1, {A: 1}, B, 5.0)
    assert remainder(core, [job], {}, {}) == Remainder()
    assert remainder(core, [job], {(A, B): 1}, {}) == Remainder({1: 0.0})


@st.composite
def failing(draw: st.DrawFn) -> tuple[Decision, State]:
    """Let a policy start jobs with all ports, and then take some ports away."""
    policy = make(draw(st.sampled_from(NAMES)))
    units = st.sampled_from([A, B, C, D])
    jobs = [
        Job(number, tuple(sorted(draw(st.dictionaries(units, st.integers(1, 2), min_size=1)).items())),
            draw(units), draw(st.sampled_from([10.0, 300.0, 1000.0])))
        for number in range(draw(st.integers(1, 4)))
    ]  # fmt: skip
    lit = LIMITS.full_mesh() | {(A, B): 1, (C, D): 1}
    progress = [Progress(job, job.gigabits) for job in jobs]
    first = policy.decide(State(LIMITS, 0, tuple(progress), lit))
    for each in progress:
        if each.job.id in first.rates:
            each.started, each.inc, each.rate_gbps = 0, first.inc.get(each.job.id), first.rates[each.job.id]
    alive = {pair: draw(st.integers(0, count)) for pair, count in first.ports.items()}
    used = [sum(count for pair, count in alive.items() if unit in pair) for unit in LIMITS.units]
    counts = tuple(draw(st.integers(least, 2)) for least in used)
    rest = {pair: count for pair, count in alive.items() if count}
    after = State(replace(LIMITS, ports=counts), 1, tuple(progress), rest)
    return first, after


@settings(max_examples=examples(300))
@given(failing(), st.sampled_from(NAMES))
def test_policies_decide_as_ever_with_what_remains(case: tuple[Decision, State], name: str) -> None:
    """Waiting jobs get decisions that hold, whatever policy started those that ran before."""
    decided, state = case
    jobs = [replace(progress) for progress in state.jobs]
    started = [progress for progress in jobs if progress.started is not None]
    left = remainder(state.limits, started, decided.ports, state.ports, name.endswith("norecon"))
    for progress in jobs:
        had = progress.rate_gbps
        progress.rate_gbps = left.rates.get(progress.job.id, had)
        assert progress.rate_gbps <= had
    seen = tuple(progress for progress in jobs if progress.job.id not in left.cut_off)
    now = State(left.limits(state.limits), 1, seen, left.circuits(state.ports))
    assert min(now.limits.ports) >= 0
    check_decision(now, make(name).decide(now), name)


def test_with_all_ports_nothing_changes() -> None:
    jobs = [running(1, {A: 1, B: 1}, C, 20.0), running(2, {D: 2}, D, 40.0)]
    assert remainder(LIMITS, jobs, {(A, C): 1, (B, C): 1}, {(A, C): 1, (B, C): 1}) == Remainder()


def test_what_needs_a_circuit_that_cannot_be_lit_waits_and_the_rest_is_done() -> None:
    waiting = Progress(Job(3, ((A, 1),), C, 1e3), 1e3)
    local = Progress(Job(4, ((D, 2),), D, 1e3), 1e3)
    raised, lowered = running(1, {A: 1}, C, 5.0), running(2, {B: 1}, C, 10.0)
    state = State(LIMITS, 3, (raised, lowered, waiting, local), {(A, C): 1, (B, C): 1})
    decision = Decision({1: 10.0, 2: 5.0, 3: 5.0, 4: 40.0}, {4: D}, {(A, C): 2, (B, C): 1})
    assert feasible(state, decision, {(A, C)}) == replace(decision, rates={1: 5.0, 2: 5.0, 4: 40.0})
    table = ports(4, 2)
    lit = frozenset({circuit("u1o1", "u3o1")})
    target, lacking = nearest(lit, {(1, 3): 2, (2, 4): 1}, table, {"u1o2"})
    assert (target, lacking) == ({circuit("u1o1", "u3o1"), circuit("u2o1", "u4o1")}, {(1, 3): 1})


def test_a_job_gets_its_rate_back_unless_a_policy_set_another() -> None:
    lit = [circuit("u1o1", "u3o1")]
    decision = Decision({1: 20.0}, {}, {(A, C): 2})
    for decided, then in ((10.0, 20.0), (5.0, 5.0)):
        shortage, down = Shortage(), replace(LIMITS, ports=(2, 2, 1, 2))
        job = running(1, {A: 2}, C, 20.0)
        assert shortage.update(down, [job], decision, lit, frozenset({"u3o2"})).rates == {1: 10.0}
        assert job.rate_gbps == 10.0
        assert shortage.loss(1, {"u3o2"}, {1, 3}) == "u3o2 is down: it has 10 of 20 Gb/s"
        assert shortage.lasting(decision).rates == {1: 10.0}
        shortage.decided({1: decided})
        for missing, limits, gbps in (
            (frozenset({"u3o2"}), down, min(then, 10.0)),
            (frozenset(), LIMITS, then),
        ):
            job = running(1, {A: 2}, C, decided)
            shortage.update(limits, [job], decision, lit, missing)
            assert job.rate_gbps == gbps
            shortage.decided({1: gbps})


@pytest.mark.parametrize(("refused", "gbps"), [(frozenset({"u3o2"}), 10.0), (frozenset({"u1o2"}), 20.0)])
def test_a_policy_that_replaces_no_circuit_has_what_is_lit(refused: frozenset[str], gbps: float) -> None:
    shortage = Shortage()
    shortage.refuse(refused)
    job = running(1, {A: 2}, C, 20.0)
    decision = Decision({1: 20.0}, {}, {(A, C): 2})
    shortage.update(LIMITS, [job], decision, [circuit("u1o1", "u3o1")], frozenset({"u3o2"}))
    assert job.rate_gbps == gbps
