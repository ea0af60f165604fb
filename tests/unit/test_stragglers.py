"""The Slow Worker Pattern: what it draws, what is refused, where its points are, and what is said of it."""

from __future__ import annotations

import contextlib
import math
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import RequestError
from testbed.messages.result import WorkerDelays
from testbed.queue import submission
from testbed.telemetry.delays import delays
from testbed.wire.stragglers import LEAST, MOST, POINTS, Slowed, SlowWorkers
from workloads import stragglers
from workloads.stragglers import BACKWARD, FIRST, FORWARD, SUM, DelayPoints, Delays, Hooks

EVERY = [(iteration, point) for iteration in range(101) for point in range(len(POINTS))]


def drawn(pattern: SlowWorkers, rank: int, world_size: int = 7) -> list[float]:
    return [pattern.factor(rank, world_size, *at) for at in EVERY]


# ------------------------------------------------------------------ draws


def test_draws_are_those_of_the_pattern() -> None:
    pattern = SlowWorkers(0.16, seed=3)
    factors = [factor for rank in range(61) for factor in drawn(pattern, rank)]
    slow = [factor for factor in factors if factor]
    # 18,483 draws from one seed: the bounds are four standard deviations wide, and the draws never change
    assert len(slow) / len(factors) == pytest.approx(0.16, abs=0.011)
    assert all(LEAST <= factor <= MOST for factor in slow)
    assert statistics.fmean(slow) == pytest.approx(1.25, abs=0.033)
    assert statistics.pstdev(slow) == pytest.approx(1.5 / math.sqrt(12), abs=0.02)


def test_a_run_repeats_and_no_workers_draws_depend_on_anothers() -> None:
    pattern = SlowWorkers(0.16, seed=1)
    assert drawn(pattern, 2) == drawn(SlowWorkers(0.16, seed=1), 2)
    assert drawn(pattern, 2, world_size=3) == drawn(pattern, 2, world_size=64)
    assert drawn(pattern, 2) != drawn(pattern, 3)
    assert drawn(pattern, 2) != drawn(SlowWorkers(0.16, seed=2), 2)


def test_a_larger_probability_keeps_the_delays_of_a_smaller_one() -> None:
    few, more = drawn(SlowWorkers(0.05), 1), drawn(SlowWorkers(0.16), 1)
    assert all(a in (0.0, b) for a, b in zip(few, more, strict=True))
    assert sum(map(bool, few)) < sum(map(bool, more))


def test_at_0_nobody_is_slow_and_at_1_everybody_always() -> None:
    assert not any(drawn(SlowWorkers(0.0), 0))
    assert all(drawn(SlowWorkers(1.0), 0))


def test_one_worker_at_a_point_is_drawn_alike_by_all() -> None:
    every = [drawn(SlowWorkers(1.0, workers=Slowed.ONE), rank) for rank in range(7)]
    assert all(sum(map(bool, at)) == 1 for at in zip(*every, strict=True))
    assert all(30 < sum(map(bool, mine)) < 60 for mine in every), "each in its turn: 43 of 303"


@given(
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
    st.sampled_from(Slowed),
    st.none() | st.integers(1, 10**7).map(lambda tenths: tenths / 1e4),
)
def test_the_text_of_a_pattern_reads_as_the_same(
    p: float, seed: int, workers: Slowed, iteration_s: float | None
) -> None:
    pattern = SlowWorkers(float(f"{p:.12g}"), seed, workers, iteration_s)
    again = SlowWorkers.parse(str(pattern))
    assert (again.p, again.seed, again.workers) == (pattern.p, seed, workers)
    assert (again.iteration_s is None) == (iteration_s is None)
    if iteration_s is not None:
        assert again.iteration_s == pytest.approx(iteration_s, rel=1e-9)


def test_what_need_not_be_said() -> None:
    assert SlowWorkers.parse("p=0.16") == SlowWorkers(0.16, 1, Slowed.EACH, None)
    assert SlowWorkers.parse("seed=5, p=1, workers=one, iteration=1.5s") == SlowWorkers(
        1.0, 5, Slowed.ONE, 1.5
    )
    assert SlowWorkers.parse("p=.5,iteration=120ms").iteration_s == pytest.approx(0.12)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p=1.5", "stragglers: p=1.5; a number from 0 to 1 is accepted"),
        ("p=-0.1", "stragglers: p=-0.1; a number from 0 to 1 is accepted"),
        ("p=nan", "stragglers: p=nan; a number from 0 to 1"),
        ("p=1e-400x", "stragglers: p=1e-400x; a number"),
        ("p=16%", "stragglers: p=16%; a number from 0 to 1"),
        ("p=", "stragglers: p=; a number"),
        ("seed=1", "stragglers: seed=1; p is missing"),
        ("p=0.1,seed=-1", "stragglers: seed=-1; a whole number from 0 to 4294967295"),
        ("p=0.1,seed=4294967296", "stragglers: seed=4294967296; a whole number"),
        ("p=0.1,seed=1.5", "stragglers: seed=1.5; a whole number"),
        ("p=0.1,seed=²", "stragglers: seed=²; a whole number"),
        ("p=0.1,p=0.2", "stragglers: p=0.1,p=0.2; p is there twice"),
        ("p=0.1,sed=1", "stragglers: sed=1; did you mean seed.* p, seed, iteration, workers"),
        ("0.16", "stragglers: 0.16; KEY=VALUE is accepted, with the keys p, seed"),
        ("p=0.1,", "stragglers: ; KEY=VALUE"),
        ("p=0.1,iteration=0.1", "stragglers: iteration=0.1; a time such as 120ms"),
        ("p=0.1,iteration=0s", "stragglers: iteration=0s; a time"),
        ("p=0.1,iteration=2h", "stragglers: iteration=2h; a time"),
        ("p=0.1,iteration=3601s", "stragglers: iteration=3601s; a time .*to 3600s"),
        ("p=0.1,workers=two", "stragglers: workers=two; each or one is accepted"),
        ("", "stragglers: ; a text such as p=0.16,seed=1"),
        (None, "stragglers: None; a text"),
        ({"p": 0.1}, "stragglers: .*; a text"),
        (0.16, "stragglers: 0.16; a text"),
    ],
)
def test_what_is_not_accepted_is_named(text: Any, said: str) -> None:
    with pytest.raises(RequestError, match=f"^--{said}") as refused:
        SlowWorkers.parse(text, "--")
    assert "\n" not in str(refused.value)


def test_copies_of_a_queued_job_are_slow_at_different_times() -> None:
    job = {"script": "x.py", "iterations": 1, "megabytes": 1, "workers": 2, "copies": 3}
    made = submission.parse({"jobs": [{**job, "stragglers": "p=0.16,seed=4294967295"}]}).jobs
    assert [spec.options.slow_workers and spec.options.slow_workers.seed for spec in made] == [
        2**32 - 1,
        0,
        1,
    ]
    (plain, *_) = submission.parse({"jobs": [job]}).jobs
    assert plain.options.slow_workers is None
    for wrong in ("p=2", {"p": 0.1}):
        with pytest.raises(RequestError, match=r"^jobs\[0\]\.stragglers: "):
            submission.parse({"jobs": [{**job, "stragglers": wrong}]})


# ------------------------------------------------------------------ the delays of a worker


class Clock:
    """A clock that sleeping moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 10**9
        monkeypatch.setattr("workloads.stragglers.time.monotonic_ns", lambda: self.now_ns)

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def iterate(made: Delays, clock: Clock, iterations: int, computing_s: float = 0.1) -> None:
    for _ in range(iterations):
        number = made.begin()
        for point in range(len(POINTS)):
            made.take(number, point)
        clock.sleep(computing_s)


def test_the_typical_time_is_measured_where_nobody_is_slow(clock: Clock) -> None:
    made = Delays(SlowWorkers(1.0), 0, 1, clock.sleep)
    for slow_s in (5.0, 3.0):  # torch's first call, DDP's first layout
        iterate(made, clock, 1, slow_s)
    for took_s in (0.1, 0.1, 0.1, 0.1, 7.0):  # once the machine paused
        iterate(made, clock, 1, took_s)
    assert made.summary().typical_s is None
    assert made.summary().count == 0
    iterate(made, clock, 3)
    left = made.summary()
    assert left.typical_s == pytest.approx(0.1), "the median, without the first two"
    assert left.iterations == 10
    assert [row[:2] for row in left.rows] == [(i, point) for i in (8, 9) for point in range(3)]
    assert left.first == FIRST == 8


def test_a_declared_time_is_taken_from_the_first_iteration_on(clock: Clock) -> None:
    pattern = SlowWorkers(0.5, seed=2, iteration_s=0.2)
    made = Delays(pattern, 3, 5, clock.sleep)
    iterate(made, clock, 20)
    left = made.summary()
    expected = [
        (i, point, 0.2 * pattern.factor(3, 5, i, point))
        for i in range(20)
        for point in range(3)
        if pattern.factor(3, 5, i, point)
    ]
    assert 15 < left.count == len(expected) < 45
    for (iteration, point, _, asked_ns, slept_ns), (i, at, seconds) in zip(left.rows, expected, strict=True):
        assert (iteration, point) == (i, at)
        assert asked_ns == slept_ns == pytest.approx(seconds * 1e9, abs=1)
    assert left.seconds == pytest.approx(sum(seconds for _, _, seconds in expected), abs=1e-5)
    assert made.slept_s == pytest.approx(left.seconds, abs=1e-5)
    assert left.first == 0


def test_a_delay_in_which_a_script_ends_counts_as_far_as_it_went(clock: Clock) -> None:
    def ends(_seconds: float) -> None:
        clock.sleep(0.05)
        raise KeyboardInterrupt

    made = Delays(SlowWorkers(1.0, iteration_s=1.0), 0, 1, ends)
    with pytest.raises(KeyboardInterrupt):
        made.take(made.begin(), 0)
    (row,) = made.summary().rows
    assert row[4] == 50_000_000
    assert 5e8 <= row[3] <= 2e9


def test_only_so_many_are_recorded_and_all_are_counted(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.stragglers.MOST_ROWS", 5)
    made = Delays(SlowWorkers(1.0, iteration_s=0.1), 0, 1, clock.sleep)
    iterate(made, clock, 7)
    assert (made.summary().count, len(made.summary().rows)) == (21, 5)


# ------------------------------------------------------------------ where an unchanged script has its points


class Taken:
    """The points that hooks took."""

    def __init__(self) -> None:
        self.iterations, self.points = 0, list[tuple[int, int]]()

    def begin(self) -> int:
        self.iterations += 1
        return self.iterations - 1

    def take(self, iteration: int, point: int) -> None:
        self.points.append((iteration, point))


def hooks() -> tuple[Taken, Hooks]:
    taken = Taken()
    made: Any = taken
    return taken, Hooks(made)


def all_of(iterations: int) -> list[tuple[int, int]]:
    return [(iteration, point) for iteration in range(iterations) for point in range(3)]


def test_an_iteration_of_ddp_has_three_points_whatever_else_it_sums() -> None:
    taken, at = hooks()
    for backward in range(5):
        at.forward()
        assert taken.points[-1] == (backward, FORWARD)
        at.forward_is_done()
        assert taken.points[-1] == (backward, BACKWARD)
        for _ in range(4):  # its buckets
            at.sums(backward)
            assert taken.points[-1] == (backward, SUM)
        at.stepped()
        at.sums(-1)  # a mean of losses
    assert taken.points == all_of(5)


def test_passes_that_sum_nothing_belong_to_the_iteration_that_does() -> None:
    taken, at = hooks()
    for backward in range(3):
        for _ in range(4):  # the last one sums
            at.forward()
            at.forward_is_done()
        at.sums(backward)
    assert taken.points == all_of(3)


def test_without_ddp_the_points_come_before_the_first_sum_of_a_backward_pass() -> None:
    taken, at = hooks()
    at.sums(-1)  # before any training
    for backward in (4, 9, 11):
        at.sums(backward)
        at.sums(backward)
        at.stepped()
        at.sums(-1)
    assert taken.points == all_of(3)


def test_a_script_that_sums_after_its_backward_pass_has_points_from_its_second_step_on() -> None:
    taken, at = hooks()
    for _ in range(4):
        at.sums(-1)
        at.sums(-1)
        at.stepped()
    assert taken.points == all_of(3)


def test_sums_alone_are_no_iterations() -> None:
    taken, at = hooks()
    for _ in range(9):
        at.sums(-1)
    assert taken.points == []


def test_an_iteration_that_ends_in_the_middle_has_the_points_that_it_passed() -> None:
    taken, at = hooks()
    at.forward()
    at.forward_is_done()
    assert taken.points == [(0, FORWARD), (0, BACKWARD)]


# ------------------------------------------------------------------ a script's own points


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stragglers, "_all", [])
    monkeypatch.setattr(stragglers, "_hooks", None)
    monkeypatch.setattr(stragglers, "_asked", None)
    monkeypatch.setattr("workloads.stragglers.atexit.register", lambda *_: None)


def test_a_scripts_own_points_are_three_and_those_not_taken_come_at_the_end() -> None:
    slow = DelayPoints(p=1.0, seed=7, iteration_s=1e-4, rank=1, world_size=3)
    with slow.iteration() as point:
        point()
    with slow.iteration() as point:
        for _ in range(3):
            point()
        with pytest.raises(RuntimeError, match="iteration 1 has 3 delay points"):
            point()
    left = stragglers.summary()
    assert left is not None
    assert [row[:2] for row in left.rows] == all_of(2)
    pattern = SlowWorkers(1.0, 7, iteration_s=1e-4)
    assert [row[3] for row in left.rows] == [round(1e5 * pattern.factor(1, 3, *at)) for at in all_of(2)]
    assert slow.slept_s == stragglers.slept_s() > 6 * 0.5e-4


def test_an_iteration_that_fails_takes_no_further_points() -> None:
    slow = DelayPoints(p=1.0, iteration_s=1e-4, rank=0, world_size=1)
    with contextlib.suppress(ZeroDivisionError), slow.iteration() as point:
        point()
        raise ZeroDivisionError
    left = stragglers.summary()
    assert left is not None
    assert left.count == 1


def test_a_scripts_own_points_take_what_the_command_says() -> None:
    asked = Delays(SlowWorkers(1.0, iteration_s=1e-4), 0, 2)
    at = Hooks(asked)
    stragglers._all.append(asked)
    stragglers._hooks, stragglers._asked = at, asked
    slow = DelayPoints(p=0.0)
    at.forward()  # which stands back now
    assert asked.summary().count == 0
    with slow.iteration():
        pass
    assert asked.summary().count == 3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"p": 1.5}, "p=1.5; a number from 0 to 1 is accepted"),
        ({"p": -1}, "p=-1; a number"),
        ({"p": math.nan}, "p=nan; a number"),
        ({"p": 0.1, "seed": -1}, "seed=-1; a whole number"),
        ({"p": 0.1, "iteration_s": 0}, "iteration=0; a time"),
        ({"p": 0.1, "workers": "two"}, "two"),
        ({"p": "a lot"}, "str"),
    ],
)
def test_what_a_script_cannot_ask_for(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        DelayPoints(**wrong)
    assert stragglers.summary() is None


# ------------------------------------------------------------------ what is said


def left(count: int, seconds: float, **others: Any) -> dict[str, Any]:
    record = {"asked": "p=0.16,seed=1", "count": count, "seconds": seconds, "iterations": 100, "first": 8}
    return {"delays": {**record, "typical_s": 0.1, **others}}


def test_a_line_says_how_many_by_whom_and_how_long() -> None:
    slept = delays([left(3, 0.5), None, left(1, 2.25), left(0, 0)], "p=0.16,seed=1")
    assert slept is not None
    assert slept.line == (
        "slow workers (p=0.16,seed=1): 4 delays of 2.75 s in all were injected: worker 2 2.25 s in 1, "
        "worker 0 0.50 s in 3; they count as computing, not as the network's time"
    )
    assert slept.said().workers[1] == WorkerDelays(
        rank=2, delays=1, seconds=2.25, iterations=100, typical_s=0.1
    )
    many = delays([left(1, rank) for rank in range(1, 8)], None)
    assert many is not None
    assert "worker 3 4.00 s in 1, and 3 others;" in many.line
    single = delays([left(1, 0.25)], None)
    assert single is not None
    assert single.short == "1 delay of 0.25 s was injected"


@pytest.mark.parametrize(
    ("statistics", "why"),
    [
        ([None, {}], "no worker left a record"),
        ([left(0, 0, iterations=0, typical_s=None)], "no iteration was seen"),
        ([left(0, 0, iterations=5, typical_s=None)], "in the first 8 iterations, and there were 5"),
        ([left(0, 0), left(0, 0)], "none was drawn in 100 iterations"),
    ],
)
def test_a_line_says_why_there_was_none(statistics: list[Any], why: str) -> None:
    slept = delays(statistics, "p=0,seed=1")
    assert slept is not None
    assert slept.line.startswith("slow workers (p=0,seed=1): no delay was injected: ")
    assert why in slept.line


def test_nothing_is_said_where_nothing_was_asked_for_and_nonsense_counts_as_none() -> None:
    assert delays([None, {}, {"delays": 3}], None) is None
    nonsense = {"asked": "a\nb" * 99, "count": "x", "seconds": -1, "iterations": [], "first": None, "rows": 7}
    slept = delays([{"delays": nonsense}], None)
    assert slept is not None
    assert (slept.count, slept.seconds) == (0, 0)
    assert "\n" not in slept.line
    assert len(slept.asked) <= 100


def test_documents_name_every_key() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "training.md").read_text()
    section = page.partition("## Slow workers")[2].partition("\n## ")[0]
    for key in ("p=", "seed=", "iteration=", "workers=", "DelayPoints", "stragglers"):
        assert f"`{key}" in section, key
