"""The parts of the policies: room within limits, circuits that stay, matchings of INC, ideal windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.scheduling.free_capacity import Loads, Room
from testbed.scheduling.model import Job, Limits, Pair, Progress, load
from testbed.systems.p4inc.policies import circuits, matching, windows

LIMITS = Limits.uniform(4, 3, 1, 40.0, 200.0)


def ports_of(ports: Mapping[Pair, int], units: int) -> list[int]:
    used = [0] * units
    for (a, b), count in ports.items():
        used[a] += count
        used[b] += count
    return used


# --- room


def test_a_job_takes_circuits_of_both_ends_and_of_both_switches() -> None:
    room = Room(LIMITS)
    its = load(LIMITS, Job(1, ((0, 2), (1, 1)), 2, 1.0), None)
    assert its.links == (((0, 2), 2), ((1, 2), 1))
    room.take(its, 25.0)  # 50 Gb/s from unit 0: two circuits; 25 from unit 1: one
    assert room.circuits == {(0, 2): 2, (1, 2): 1}
    assert room.ports_used == [2, 1, 3, 0]
    assert room.switch_used == [50.0, 25.0, 75.0, 0.0]
    assert room.fits(its, 15.0)  # to the brim of its circuits
    assert not room.fits(its, 15.1)  # unit 2 has no fourth port


def test_a_switch_is_filled_to_the_brim_and_no_further() -> None:
    room = Room(LIMITS)
    its = load(LIMITS, Job(1, ((0, 4),), 1, 1.0), 0)
    assert room.fits(its, 50.0)
    assert not room.fits(its, 50.1)
    room.take(its, 30.0)
    assert room.largest(its, 100.0) == 20.0


def test_fixed_circuits_are_all_that_links_have() -> None:
    its = load(LIMITS, Job(1, ((0, 2),), 1, 1.0), None)
    room = Room(LIMITS, {(0, 1): 1})
    assert room.limit(its) == 20.0
    assert room.fits(its, 20.0)
    assert not room.fits(its, 20.1)
    assert room.largest(its, 100.0) == 20.0
    assert Room(LIMITS, {}).largest(its, 100.0) == 0.0


@st.composite
def crowded(draw: st.DrawFn) -> tuple[Room, Job]:
    """Room with some taken, and a job."""
    limits = Limits.uniform(
        4, draw(st.integers(0, 4)), 1, 40.0, draw(st.sampled_from((100.0, 300.0, math.inf)))
    )
    room = Room(limits)
    for number in range(draw(st.integers(0, 4))):
        its = load(limits, draw(some_jobs(number)), None)
        if its.limit_gbps > 0:
            room.take(its, room.largest(its, draw(st.floats(0, 60))))
    return room, draw(some_jobs(99))


@st.composite
def some_jobs(draw: st.DrawFn, number: int, units: int = 4) -> Job:
    at = draw(st.lists(st.integers(0, units - 1), min_size=1, max_size=3, unique=True))
    workers = tuple((unit, draw(st.integers(1, 4))) for unit in sorted(at))
    return Job(number, workers, draw(st.integers(0, units - 1)), draw(st.floats(0.1, 200)))


@given(crowded())
def test_the_largest_rate_fits_and_no_larger_one(given_: tuple[Room, Job]) -> None:
    room, job = given_
    its = load(room.limits, job, None)
    rate = room.largest(its, 500.0)
    assert 0 <= rate <= 500
    assert not rate or room.fits(its, rate)
    assert rate == 500 or not room.fits(its, rate + 1e-4)


# --- circuits


def test_idle_circuits_stay_while_there_are_ports() -> None:
    lit = {(0, 1): 2, (2, 3): 1}
    assert circuits.kept(lit, {(0, 1): 1}, (3, 3, 3, 3)) is lit
    assert circuits.kept(lit, {(0, 2): 1}, (3, 3, 3, 3)) == {(0, 1): 2, (2, 3): 1, (0, 2): 1}


def test_a_circuit_whose_two_ends_want_a_port_goes_first() -> None:
    assert circuits.kept({(0, 1): 1, (0, 2): 1, (1, 3): 1}, {(0, 1): 2}, (2, 2, 2, 2)) == {(0, 1): 2}
    # 0 and 1 want a port each; between them is one that neither needs
    now = circuits.kept({(0, 1): 1, (0, 2): 1, (1, 3): 1}, {(0, 3): 1, (1, 2): 1}, (2, 2, 2, 2))
    assert now == {(0, 2): 1, (1, 3): 1, (0, 3): 1, (1, 2): 1}


def test_circuits_with_traffic_stay() -> None:
    now = circuits.kept({(0, 1): 1, (0, 2): 1}, {(0, 1): 1, (0, 3): 1}, (2, 2, 2, 2))
    assert now == {(0, 1): 1, (0, 3): 1}


def test_a_circuit_torn_down_in_vain_stays() -> None:
    """(0, 1) seems to serve both its ends; but 2 and 3 need a port that (1, 2) and (0, 3) have, which then
    serve 0 and 1 too.
    """
    now = circuits.kept({(0, 1): 1, (0, 3): 1, (1, 2): 1}, {(0, 2): 1, (1, 3): 1}, (2, 2, 1, 1))
    assert now == {(0, 1): 1, (0, 2): 1, (1, 3): 1}


@given(
    st.dictionaries(st.sampled_from([(a, b) for a in range(5) for b in range(a + 1, 5)]), st.integers(0, 3)),
    st.dictionaries(st.sampled_from([(a, b) for a in range(5) for b in range(a + 1, 5)]), st.integers(0, 3)),
    st.integers(0, 2),
)
def test_needed_circuits_are_lit_and_no_other_is_torn_down_for_nothing(
    lit: dict[Pair, int], needed: dict[Pair, int], more: int
) -> None:
    ports = [max(a, b) + more for a, b in zip(ports_of(lit, 5), ports_of(needed, 5), strict=True)]
    now = circuits.kept(lit, needed, ports)
    assert all(count <= ports[unit] for unit, count in enumerate(ports_of(now, 5)))
    assert all(now.get(p, 0) >= count for p, count in needed.items())
    assert all(count <= max(lit.get(p, 0), needed.get(p, 0)) for p, count in now.items())
    used = ports_of(now, 5)
    for p, count in lit.items():
        if now.get(p, 0) < count:  # it was in the way at one end at least: putting it back would not fit
            assert max(used[unit] + 1 - ports[unit] for unit in p) > 0


# --- matching


def inc(limits: Limits, jobs: Sequence[Job], places: Sequence[int]) -> dict[int, int]:
    return matching.assign(limits, [Progress(job, job.gigabits) for job in jobs], places, Loads())


def test_places_go_to_the_jobs_that_save_most_traffic_between_units() -> None:
    jobs = [
        Job(1, ((0, 2),), 1, 10.0),  # 20 Gb
        Job(2, ((0, 4),), 1, 6.0),  # 24 Gb
        Job(3, ((0, 8),), 0, 90.0),  # none: its PS is there
        Job(4, ((1, 2),), 0, 1.0),
    ]
    assert inc(LIMITS, jobs, [1, 0, 0, 0]) == {2: 0}
    assert inc(LIMITS, jobs, [2, 1, 0, 0]) == {2: 0, 1: 0, 4: 1}
    assert inc(LIMITS, jobs, [3, 0, 0, 0]) == {2: 0, 1: 0, 3: 0}


def test_a_weight_that_is_lost_beside_others_ends_the_rounds() -> None:
    jobs = [Job(1, ((0, 2),), 1, 1e6), Job(2, ((1, 2),), 1, 1e-12)]
    assert inc(LIMITS, jobs, [1, 1, 0, 0])[1] == 0
    assert inc(LIMITS, [*jobs, Job(3, ((1, 2),), 1, 1e-12)], [1, 3, 0, 0])[1] == 0


def test_a_job_in_several_units_takes_one_place() -> None:
    limits = Limits.uniform(3, 3, 1, 40.0, partial_inc=True)
    jobs = [Job(1, ((0, 5), (1, 4)), 2, 10.0), Job(2, ((0, 4),), 2, 10.0)]
    # 40 + 30 are saved by giving up unit 0 for job 1, and 40 by keeping it
    assert inc(limits, jobs, [1, 1, 0]) == {1: 1, 2: 0}
    assert inc(limits, jobs[:1], [1, 1, 0]) == {1: 0}
    assert inc(limits, [Job(1, ((0, 1), (1, 1)), 2, 10.0)], [0, 0, 0]) == {}


@given(st.lists(some_jobs(0, 3), min_size=1, max_size=5), st.lists(st.integers(0, 1), min_size=3, max_size=3))
def test_a_round_has_the_largest_weight_of_all_matchings(jobs: list[Job], places: list[int]) -> None:
    limits = Limits.uniform(3, 9, 1, 40.0, partial_inc=True)
    named = [Job(number, job.workers, job.ps, job.gigabits) for number, job in enumerate(jobs)]

    def weight(chosen: Mapping[int, int]) -> float:
        return sum(
            job.gigabits * matching.saved(load(limits, job, None), load(limits, job, chosen[job.id]))
            for job in named
            if job.id in chosen
        )

    assigned = inc(limits, named, places)
    assert all(unit in named[job_id].inc_units(limits) for job_id, unit in assigned.items())
    assert all(list(assigned.values()).count(unit) <= places[unit] for unit in range(3))
    units = [unit for unit in range(3) if places[unit]]
    best = 0.0
    for taken in permutations([*range(len(named)), *[None] * len(units)], len(units)):
        chosen = {
            number: unit
            for unit, number in zip(units, taken, strict=True)
            if number is not None and unit in named[number].inc_units(limits)
        }
        best = max(best, weight(chosen))
    assert weight(assigned) == pytest.approx(best, rel=1e-4, abs=1e-2)


# --- windows


def test_a_window_without_updates_is_volume_over_capacity() -> None:
    assert windows.ends([0, 0, 1], [30.0, 10.0, 5.0], [0.0] * 3, [20.0, 10.0, 7.0]).tolist() == [
        2.0,
        0.5,
        0.0,
    ]


def test_a_window_with_an_update_ends_where_its_equation_is_solved() -> None:
    # 20 / t + 10 / (t - 1) = 10 has the solutions 2 +- sqrt 2, of which the update of 1 s leaves one
    (end,) = windows.ends([0, 0], [20.0, 10.0], [0.0, 1.0], [10.0], 1e-9)
    assert end == pytest.approx(2 + math.sqrt(2), abs=1e-8)


def test_an_update_longer_than_all_transfers_bounds_the_window() -> None:
    # the mean transfer takes 0.2 s, and the update 5: the paper's range begins where data would have to be
    # there before they left
    (end,) = windows.ends([0, 0], [1.0, 1.0], [0.0, 5.0], [10.0], 1e-9)
    assert end == pytest.approx(5 + 1 / (10 - 1 / end), abs=1e-6)


def test_a_port_of_no_capacity_never_ends() -> None:
    assert windows.ends([0, 1], [1.0, 1.0], [0.0, 2.0], [0.0, math.inf]).tolist() == [math.inf, 2.0]


FLOWS = st.lists(
    st.tuples(st.integers(0, 3), st.floats(0.01, 100), st.sampled_from((0.0, 0.1, 1.0, 7.0))), min_size=1
)


@given(FLOWS, st.lists(st.floats(1, 100), min_size=4, max_size=4))
def test_windows_are_those_of_a_direct_solution(
    flows: list[tuple[int, float, float]], capacity: list[float]
) -> None:
    at, volume, update = (list(column) for column in zip(*flows, strict=True))
    ends = windows.ends(at, volume, update, capacity, 1e-7)
    for number, end in enumerate(ends):
        mine = [(d, tau) for p, d, tau in flows if p == number]
        if not mine:
            assert end == 0
            continue
        assert end == pytest.approx(bisected(mine, capacity[number]), abs=1e-6)


def bisected(flows: Sequence[tuple[float, float]], capacity: float) -> float:
    """One port alone, to the last bit."""
    low = max(tau for _, tau in flows)
    high = low + sum(d for d, _ in flows) / capacity
    for _ in range(200):
        middle = (low + high) / 2
        if middle > low and sum(d / (middle - tau) for d, tau in flows) <= capacity:
            high = middle
        else:
            low = middle
    return high
