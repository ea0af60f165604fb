"""Arrivals, placements and settings: what they draw, what a sweep leaves alone, and which numbers are
refused.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import RequestError
from testbed.scheduling.draws import PURPOSES, poisson_s, stream
from testbed.systems.p4inc.simulator.arrivals import Servers, first_slot
from testbed.systems.p4inc.simulator.coflows import Coflow
from testbed.systems.p4inc.simulator.settings import SETTINGS, Setting

FIG8 = SETTINGS["fig8"]
TRACE = tuple(Coflow(n, float(n), tuple(range(1 + n % 5)), ((0, 10.0 + n),)) for n in range(11))


def test_streams_are_repeatable_and_apart() -> None:
    drawn = {purpose: tuple(stream(7, purpose).random(4)) for purpose in PURPOSES}
    assert len(set(drawn.values())) == len(PURPOSES)
    assert drawn["sizes"] == tuple(stream(7, "sizes").random(4)) != tuple(stream(8, "sizes").random(4))


def test_arrivals_come_at_the_rate() -> None:
    times = poisson_s(20_000, 20.0, stream(1, "arrivals"))
    assert times == sorted(times)
    assert times[-1] == pytest.approx(1000, rel=0.03)
    # exponential gaps: as much spread as mean
    gaps = np.diff(times)
    assert float(gaps.std()) == pytest.approx(0.05, rel=0.05)


def test_a_job_is_known_from_the_first_slot_after_it_came() -> None:
    assert [first_slot(time_s, 0.5) for time_s in (0.0, 0.2, 0.5, 0.50001, 1.0)] == [0, 1, 1, 2, 2]


@given(
    st.lists(st.tuples(st.integers(1, 16), st.floats(0, 9), st.floats(0.1, 20)), min_size=1, max_size=60),
    st.integers(0, 999),
)
def test_servers_are_never_given_twice_and_jobs_are_together(
    jobs: list[tuple[int, float, float]], seed: int
) -> None:
    units, servers = 3, 8
    place = Servers(units, servers, np.random.default_rng(seed))
    now, held = 0.0, list[tuple[float, tuple[tuple[int, int], ...]]]()
    for workers, gap, hold in jobs:
        now += gap
        held = [(until, where) for until, where in held if until > now]
        free = [servers - sum(n for _, where in held for u, n in where if u == unit) for unit in range(units)]
        where = place.place(workers, now, now + hold)
        assert sum(count for _, count in where) == workers
        assert [unit for unit, _ in where] == sorted({unit for unit, _ in where})
        if sum(free) >= workers:
            assert all(count <= free[unit] for unit, count in where)
            assert (len(where) == 1) == (max(free) >= workers)
        else:
            # it is given servers of those that would have been free soonest
            held.sort(key=lambda item: item[0])
            while held and sum(free) < workers:
                _, freed = held.pop(0)
                for unit, count in freed:
                    free[unit] += count
        held.append((now + hold, where))


def test_places_are_at_random() -> None:
    place = Servers(16, 1000, np.random.default_rng(1))
    units = [place.place(1, 0.0, 1.0)[0][0] for _ in range(1600)]
    assert all(60 < units.count(unit) < 150 for unit in range(16))


def test_jobs_are_as_the_paper_has_them() -> None:
    jobs = FIG8.having({"job_count": 3000}).jobs(5)
    assert {sum(n for _, n in job.workers) for job in jobs} == {2, 4, 8, 16}
    sizes = [job.gigabits * 125 / FIG8.iterations for job in jobs]
    assert 102 <= min(sizes) < 104
    assert 546 < max(sizes) <= 548
    assert sum(sizes) / len(sizes) == pytest.approx(325, rel=0.03)
    assert max(job.arrival for job in jobs) == pytest.approx(3000 / 20, rel=0.1)
    assert {job.ps for job in jobs} == set(range(64))
    # 25 GB/s of the model's bytes, once an iteration
    assert jobs[0].update_s == pytest.approx(jobs[0].gigabits / 8 / 25)
    assert sum(job.is_local for job in jobs) > 0.9 * len(jobs)


def test_the_same_seed_draws_the_same_jobs() -> None:
    assert FIG8.jobs(3, job_count=200) == FIG8.jobs(3, job_count=200) != FIG8.jobs(4, job_count=200)


def test_more_jobs_begin_with_the_fewer() -> None:
    assert FIG8.jobs(3, job_count=400)[:300] == FIG8.jobs(3, job_count=300)


@pytest.mark.parametrize(
    "changed", [{"inc": 9}, {"ports": 7}, {"reconfiguration_s": 0.1}, {"step_gbps": 3.0}]
)
def test_the_fabric_leaves_jobs_alone(changed: dict[str, float]) -> None:
    assert FIG8.having({"job_count": 300, **changed}).jobs(3) == FIG8.jobs(3, job_count=300)


def test_other_sweeps_leave_the_rest_alone() -> None:
    def without(setting: Setting, *fields: str) -> list[tuple[object, ...]]:
        names = [field.name for field in dataclasses.fields(setting.jobs(3)[0]) if field.name not in fields]
        return [tuple(getattr(job, name) for name in names) for job in setting.jobs(3)]

    few = FIG8.having({"job_count": 200})
    assert without(few, "arrival") == without(few.having({"slot_s": 0.25}), "arrival")
    assert without(few, "arrival") == without(few.having({"slot_s": 2.0}), "arrival")
    assert without(few, "workers", "ps") == without(few.having({"units": 16}), "workers", "ps")


def test_a_slots_length_does_not_move_arrivals() -> None:
    for slot_s in (0.25, 2.0):
        for short, given_ in zip(FIG8.jobs(1, slot_s=slot_s), FIG8.jobs(1, slot_s=0.02), strict=True):
            assert 0 <= short.arrival * slot_s - (given_.arrival - 1) * 0.02 <= slot_s + 0.04


def test_every_setting_has_its_swept_values_and_jobs() -> None:
    for name, setting in SETTINGS.items():
        assert setting.name == name
        assert len(setting.swept()) == len(setting.values) >= 4
        for value, point in setting.swept():
            assert getattr(point, setting.sweep) == value
        jobs = setting.jobs(1, TRACE, job_count=20)
        assert len(jobs) == 20
        assert len(setting.limits.ports) == setting.units


def test_circuits_before_the_first_slot() -> None:
    assert SETTINGS["table1"].initial == {(a, b): 3 for a in range(8) for b in range(a + 1, 8)}
    assert SETTINGS["table1"].having({"circuits": "none"}).initial == {}
    assert FIG8.initial == {}


def test_fields_are_set_from_words() -> None:
    setting = FIG8.reading(
        ["units=8", "slot_s=0.5", "workers=2, 3", "job_count=10,20", "ps_gbps=inf", "circuits=none"]
    )
    assert (setting.units, setting.slot_s, setting.workers, setting.values) == (8, 0.5, (2, 3), (10.0, 20.0))
    assert (setting.ps_gbps, setting.circuits) == (math.inf, "none")
    assert [point.job_count for _, point in setting.swept()] == [10, 20]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("units", "NAME=VALUE is accepted"),
        ("uints=8", "NAME one of .*units"),
        ("units=eight", "'eight'; a whole number is accepted"),
        ("units=8.5", "'8.5'; a whole number is accepted"),
        ("units=0", "units 0; a whole number above 0"),
        ("inc=-1", "inc -1; a whole number of at least 0"),
        ("slot_s=nan", "slot_s nan"),
        ("slot_s=inf", "slot_s inf"),
        ("slot_s=0.01", r"reconfiguration_s 0.02; at most slot_s, 0.01"),
        ("job_count=", "values is empty"),
        ("job_count=7,9,7", r"values: 7.0, 9.0, 7.0; each once"),
        ("schemes=inc-tw,inc-tw", r"schemes: inc-tw, inc-tw; each once"),
        ("workers=2,0", "workers 0; a whole number above 0"),
        ("workers=5000", "workers 5000; at most the 4096 servers"),
        ("megabytes=5", "a smallest and a largest"),
        ("megabytes=5,4", "a smallest and a largest"),
        ("kind=web", "kind 'web'; accepted: dml, mapreduce"),
        ("circuits=ring", "circuits 'ring'; accepted: mesh, none"),
        ("update_gbytes_per_s=0", "update_gbytes_per_s 0; a number above 0"),
        ("schemes=inc-tw,best", "schemes: no 'best'; accepted: .*inc-tw"),
        ("name=x", "no field 'name'"),
    ],
)
def test_what_cannot_be_is_refused(word: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        FIG8.reading([word])


@pytest.mark.parametrize("count", ["10.5", "inf", "nan"])
def test_half_a_job_is_refused(count: str) -> None:
    with pytest.raises(RequestError, match=f"job_count {count}; a whole number above 0"):
        FIG8.reading([f"job_count={count}"]).swept()


def test_mapreduce_needs_a_trace_that_fits() -> None:
    with pytest.raises(RequestError, match=r"--trace FILE"):
        SETTINGS["fig9"].jobs(1)
    with pytest.raises(RequestError, match=r"a job of 5 mappers; at most the 4 servers"):
        SETTINGS["fig9"].jobs(1, TRACE, units=2, servers=2, job_count=30)
