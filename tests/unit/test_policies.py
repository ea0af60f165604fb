"""FCFS and TW: small examples computed by hand, and random ones in which every constraint must hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import RequestError
from testbed.scheduling.free_capacity import Loads, Room
from testbed.scheduling.model import Decision, Job, Limits, Pair, Progress, State, load
from testbed.systems.p4inc.checker import check
from testbed.systems.p4inc.policies import matching, windows
from testbed.systems.p4inc.policies.catalogue import NAMES, TITLES, make
from testbed.systems.p4inc.policies.fcfs import Fcfs
from testbed.systems.p4inc.policies.time_window import TimeWindow
from testbed.systems.p4inc.simulator.fluid import simulate
from tests.worlds import World, worlds

# Two ports a unit of 40 Gb/s, one place for INC; TS of 1 s without loss.
LIMITS = Limits.uniform(3, 2, 1, 40.0, reconfiguration_s=0.0)
OURS = tuple(name for name in NAMES if not name.endswith("+"))


def waiting(*jobs: Job) -> list[Progress]:
    return [Progress(job, job.gigabits) for job in jobs]


def planned(
    name: str, jobs: Sequence[Progress], ports: Mapping[Pair, int] | None = None, limits: Limits = LIMITS
) -> Decision:
    return make(name, 0).decide(State(limits, 0, jobs, ports or {}))


# --- FCFS


def test_fcfs_gives_the_first_all_that_fits_and_the_next_the_rest() -> None:
    first, second = Job(1, ((0, 2),), 1, 400.0), Job(2, ((2, 1),), 1, 400.0)
    decision = planned("noinc-fcfs", waiting(first, second))
    # both ports between 0 and 1 for the two workers of the first: nothing is left at unit 1
    assert decision == Decision({1: 40.0}, {}, {(0, 1): 2})
    assert planned("noinc-fcfs", waiting(second, first)) == Decision({2: 80.0}, {}, {(1, 2): 2})


def test_fcfs_lets_nobody_pass_the_first_that_waits() -> None:
    first, second, third = (
        Job(1, ((0, 2),), 1, 400.0),
        Job(2, ((2, 1),), 1, 400.0),
        Job(3, ((2, 1),), 2, 400.0),
    )
    limits = replace(LIMITS, host_gbps=40.0)
    assert planned("noinc-fcfs", waiting(first, second, third), limits=limits).rates == {1: 40.0}
    assert planned("noinc-fcfs", waiting(first, third, second), limits=limits).rates == {1: 40.0, 3: 40.0}


def test_fcfs_keeps_whole_steps_and_the_rates_of_running_jobs() -> None:
    running = Progress(Job(1, ((0, 1),), 1, 400.0), 300.0, started=0, rate_gbps=25.0)
    decision = planned("noinc-fcfs", [running, *waiting(Job(2, ((0, 1),), 1, 400.0))], {(0, 1): 1})
    assert decision == Decision({1: 25.0, 2: 50.0}, {}, {(0, 1): 2})  # 55 are left: five steps of 10


def test_fcfs_gives_inc_while_there_is_a_place_and_then_the_ps() -> None:
    jobs = waiting(Job(1, ((0, 1),), 0, 1.0), Job(2, ((0, 1),), 1, 400.0))
    limits = replace(LIMITS, host_gbps=40.0)
    assert planned("inc-fcfs", jobs, limits=limits) == Decision({1: 40.0, 2: 40.0}, {1: 0}, {(0, 1): 1})
    assert planned("noinc-fcfs", jobs, limits=limits) == Decision({1: 40.0, 2: 40.0}, {}, {(0, 1): 1})


@pytest.mark.parametrize("name", ["noinc-fcfs", "noinc-tw"])
def test_a_job_gets_the_steps_that_it_needs_or_all_that_fit(name: str) -> None:
    limits = Limits.uniform(3, 2, 0, 40.0)
    state = State(limits, 0, (Progress(Job(1, ((0, 1),), 1, 25.0), 25.0),), {})
    assert make(name, steps="needed").decide(state).rates == {1: 30.0}
    assert make(name, steps="all").decide(state).rates == {1: 80.0}


def test_fcfs_with_the_steps_needed_gives_what_finishes_a_job_in_a_slot() -> None:
    state = State(LIMITS, 0, waiting(Job(1, ((0, 1),), 1, 25.0)), {})
    assert Fcfs(inc=False).decide(state).rates == {1: 80.0}
    assert Fcfs(inc=False, steps="needed").decide(state).rates == {1: 30.0}


def test_fcfs_with_nothing_that_bounds_a_rate_takes_what_a_slot_needs() -> None:
    assert planned("inc-fcfs", waiting(Job(1, ((0, 3),), 1, 95.0))) == Decision({1: 100.0}, {1: 0}, {})


# --- TW


def test_tw_gives_steps_to_the_job_that_would_end_last() -> None:
    # 80 Gb/s are between the units. After one step 300 and 100 Gb take 30 s and 10: steps go 1 1 1 2 1 1 1 2,
    # so that both take 50 / 3 s
    jobs = waiting(Job(1, ((0, 1),), 1, 300.0), Job(2, ((0, 1),), 1, 100.0))
    assert planned("noinc-tw", jobs) == Decision({1: 60.0, 2: 20.0}, {}, {(0, 1): 2})


def test_tw_counts_the_update_of_a_ps() -> None:
    # equal volumes, but 40 s more after the data of the second
    jobs = waiting(Job(1, ((0, 1),), 1, 300.0), Job(2, ((0, 1),), 1, 300.0, update_s=40.0))
    assert planned("noinc-tw", jobs).rates == {2: 80.0}


def test_tw_gives_no_step_that_ends_nothing_earlier() -> None:
    jobs = waiting(Job(1, ((0, 1),), 1, 15.0), Job(2, ((0, 1),), 1, 5.0))
    assert planned("noinc-tw", jobs).rates == {1: 20.0, 2: 10.0}


def test_tw_starts_a_job_behind_one_that_does_not_fit() -> None:
    running = Progress(Job(1, ((0, 2),), 1, 400.0), 300.0, started=0, rate_gbps=40.0)
    jobs = [running, *waiting(Job(2, ((2, 1),), 1, 400.0), Job(3, ((2, 1),), 2, 15.0))]
    assert planned("noinc-tw", jobs, {(0, 1): 2}).rates == {1: 40.0, 3: 20.0}


def test_tw_gives_inc_to_the_job_that_saves_most_and_starts_the_other_with_its_ps() -> None:
    jobs = waiting(Job(1, ((0, 1),), 1, 15.0), Job(2, ((0, 2),), 1, 15.0))
    assert planned("inc-tw", jobs) == Decision({1: 20.0, 2: 20.0}, {2: 0}, {(0, 1): 1})


def test_tw_serves_the_port_with_the_longest_window_first() -> None:
    # unit 2's two ports are wanted by both; 0 has 200 Gb for it, and 1 has 100: job 2 gets steps after job 1
    # until no port is left
    jobs = waiting(Job(2, ((1, 1),), 2, 100.0), Job(1, ((0, 1),), 2, 200.0))
    decision = planned("noinc-tw", jobs)
    assert decision.rates == {1: 40.0, 2: 40.0}
    assert decision.ports == {(0, 2): 1, (1, 2): 1}


def test_tw_raises_a_running_job_only() -> None:
    running = Progress(Job(1, ((0, 1),), 1, 400.0), 300.0, started=0, rate_gbps=60.0)
    decision = planned("noinc-tw", [running, *waiting(Job(2, ((0, 1),), 1, 9000.0))], {(0, 1): 2})
    assert decision.rates == {1: 60.0, 2: 20.0}


def test_norecon_keeps_the_circuits_and_steps_within_them() -> None:
    lit = {(0, 1): 1, (1, 2): 1, (0, 2): 1}
    jobs = waiting(Job(1, ((0, 5),), 1, 400.0))
    limits = replace(LIMITS, inc=(0, 0, 0))
    assert planned("inc-tw", jobs, lit, limits) == Decision({1: 16.0}, {}, {(0, 1): 2})
    assert planned("inc-tw-norecon", jobs, lit, limits) == Decision({1: 8.0}, {}, lit)


# --- all


@pytest.mark.parametrize("name", ["inc-fcfs", "inc-tw"])
def test_a_running_job_keeps_its_place(name: str) -> None:
    running = Progress(Job(1, ((0, 1),), 0, 400.0), 300.0, started=0, inc=0, rate_gbps=40.0)
    limits = replace(LIMITS, host_gbps=40.0)
    decision = planned(name, [running, *waiting(Job(2, ((0, 1),), 1, 400.0))], limits=limits)
    assert decision == Decision({1: 40.0, 2: 40.0}, {1: 0}, {(0, 1): 1})


def test_names() -> None:
    assert [make(name).name for name in OURS] == list(OURS)
    assert TITLES["inc-tw-norecon"] == "INC-TW-NoRecon"
    with pytest.raises(RequestError, match=r"policy 'tw': there is no such policy; there are noinc-fcfs, .*"):
        make("tw")


@given(worlds(), st.sampled_from([name for name in OURS if name != "inc-tw-norecon"]))
@settings(max_examples=120, deadline=None)
def test_every_policy_keeps_every_constraint_and_ends(world: World, name: str) -> None:
    limits, jobs, ports = world
    outcome = simulate(limits, jobs, make(name, 3), ports, record=True)
    assert outcome.schedule is not None
    report = check(outcome.schedule)
    assert report.finish_s == pytest.approx(dict(outcome.finish_s))
    assert report.ct_bti_s == pytest.approx(outcome.ct_bti_s)
    assert report.reconfigured_connections == outcome.reconfigured_connections
    assert report.reconfigurations == outcome.reconfigurations
    assert simulate(limits, jobs, make(name, 3), ports, record=True) == outcome
    # no rate of a job falls
    for before, now in zip(outcome.schedule.decisions, outcome.schedule.decisions[1:], strict=False):
        assert all(now.rates[job] >= rate for job, rate in before.rates.items() if job in now.rates)


@given(worlds())
@settings(max_examples=60, deadline=None)
def test_norecon_keeps_every_constraint_and_sets_up_nothing(
    world: World,
) -> None:
    limits, jobs, _ = world
    ports = limits.full_mesh()
    joined = tuple(job for job in jobs if all(p in ports for p, _ in load(limits, job, None).links))
    if not joined:
        return
    outcome = simulate(limits, joined, make("inc-tw-norecon"), ports, record=True)
    assert outcome.schedule is not None
    assert check(outcome.schedule).reconfigured_connections == outcome.reconfigured_connections == 0


def searched(state: State, with_inc: bool) -> dict[int, float]:
    """The rates by algorithm 2, lines 15 to 32, as they are printed: each port, each job at it, all of them
    again after each step; where units' ports differ, a circuit's rate is the lower of its ends', and it takes
    the faster one's port for all of the time.
    """
    limits = state.limits
    own = limits.unit_port_gbps or (limits.port_gbps,) * len(limits.ports)
    chosen = matching.assign(limits, state.jobs, limits.inc, Loads()) if with_inc else {}
    loads = {p.job.id: load(limits, p.job, chosen.get(p.job.id)) for p in state.jobs}
    left = {p.job.id: p.remaining_gigabits for p in state.jobs}
    at: dict[int, list[tuple[int, float]]] = {port: [] for port in range(2 * len(limits.ports))}
    for number, its in loads.items():
        for unit, count in its.switches:
            at[unit].append((number, count * left[number]))
        for pair, count in its.links:
            for unit in pair:
                taken = own[unit] / min(own[end] for end in pair)
                at[len(limits.ports) + unit].append((number, count * left[number] * taken))
    flows = [(port, volume, loads[job].update_s) for port, shares in at.items() for job, volume in shares]
    capacity = [*limits.switch_gbps, *(count * gbps for count, gbps in zip(limits.ports, own, strict=True))]
    ports, volumes, updates = (
        [flow[0] for flow in flows],
        [flow[1] for flow in flows],
        [flow[2] for flow in flows],
    )
    ends = windows.ends(ports, volumes, updates, capacity)
    room = Room(limits)
    rates = dict.fromkeys(loads, 0.0)
    for port in sorted(at, key=lambda port: (-ends[port], port)):
        here = [job for job, _ in at[port]]
        while here:
            ict = {}
            for job in list(here):
                its, rate = loads[job], rates[job]
                step = min(limits.step_gbps, its.limit_gbps - rate)
                late = rate * limits.reconfiguration_s if its.links else 0.0
                ends_now = rate > 0 and rate * limits.slot_s - late >= left[job]
                if ends_now or step <= 1e-9 * rate or not room.fits(its, step):
                    here.remove(job)
                else:
                    ict[job] = left[job] / (rate + step) + its.update_s
            if ict:
                longest = max(ict, key=lambda job: ict[job])
                step = min(limits.step_gbps, loads[longest].limit_gbps - rates[longest])
                room.take(loads[longest], step)
                rates[longest] += step
    return {job: rate for job, rate in rates.items() if rate}


@given(worlds(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_heap_gives_what_the_papers_repeated_search_gives(world: World, with_inc: bool) -> None:
    limits, jobs, ports = world
    state = State(limits, 0, waiting(*jobs), ports)
    assert TimeWindow(inc=with_inc).decide(state).rates == searched(state, with_inc)
