"""The bound that links set: timelines, and bounds of made-up jobs on a perfect network, on machines that
stretch them, and beside other jobs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.telemetry.bound import Bound, bound
from testbed.telemetry.counters import MachineReading
from testbed.telemetry.demand import Traffic, pushed_frames, tcp_framing
from testbed.telemetry.samples import LinkReading, Recording, Sample
from testbed.telemetry.timelines import ASKED, RESUMED, WAITED, Collective, read, window
from testbed.wire.spec import LANES
from testbed.wire.transports import GLOO, PACKETS
from tests.examples import examples
from tests.forests import p4inc

RATE_MBPS = 100.0
MTU = 1500
BEGAN_S = 50.0
HOSTS = ("u1h1", "u1h2")
IN_ONE_UNIT = Traffic(PACKETS, HOSTS, None, MTU, p4inc([(1, 1), (1, 2)]))


# ---------------------------------------------------------------- timelines


def left(sums: Sequence[Any], rows: Sequence[Any]) -> dict[str, Any]:
    return {"timeline": {"sums": [list(total) for total in sums], "rows": [list(row) for row in rows]}}


GOOD_SUMS = [(400, 1, 30)]
GOOD_ROWS = [(ASKED, 0, 10, 0, 0), (WAITED, 0, 20, 0, 0), (RESUMED, 0, 31, 0, 0)]


@pytest.mark.parametrize(
    "broken",
    [
        None,
        {},
        {"timeline": 5},
        {"timeline": {"sums": [[1, 1, 1]]}},
        left(GOOD_SUMS, [(ASKED, 0, 10, 0)]),
        left(GOOD_SUMS, [(ASKED, 0, 10, 0, math.nan)]),
        left(GOOD_SUMS, [(ASKED, 0, -10, 0, 0)]),
        left(GOOD_SUMS, [(ASKED, 1, 10, 0, 0)]),
        left(GOOD_SUMS, [(7, 0, 10, 0, 0)]),
        left(GOOD_SUMS, [(ASKED, 0, 20, 0, 0), (WAITED, 0, 10, 0, 0)]),
        left(GOOD_SUMS, [(ASKED, 0, 1 << 70, 0, 0)]),
        left([("400", 1, 30)], GOOD_ROWS),
        left([], []),
        left([(400, 5, 30)], GOOD_ROWS),
        {"timeline": {**left(GOOD_SUMS, GOOD_ROWS)["timeline"], "uses": [[1, "disk", 5, 0]]}},
        {"timeline": {**left(GOOD_SUMS, GOOD_ROWS)["timeline"], "uses": [[0, 7, 5, 0]]}},
        {"timeline": {**left(GOOD_SUMS, GOOD_ROWS)["timeline"], "uses": [[0, "disk", -5, 0]]}},
        {"timeline": {**left(GOOD_SUMS, GOOD_ROWS)["timeline"], "uses": 3}},
        {"timeline": {**left(GOOD_SUMS, GOOD_ROWS)["timeline"], "uses": [[0, "disk", 5, 0]] * 9}},
        left(GOOD_SUMS, [(ASKED, 0, 10, 0, 0), (ASKED, 0, 11, 0, 0)]),
    ],
)
def test_what_does_not_read_is_no_timeline(broken: dict[str, Any] | None) -> None:
    assert read(left(GOOD_SUMS, GOOD_ROWS)) is not None
    assert read(broken) is None


# ---------------------------------------------------------------- made-up jobs


@dataclasses.dataclass
class World:
    """Two workers that compute and sum in turn, over one network: perfect, or stretched by a machine.

    `starved_s` is waited for a core in each computing, `slow_s` is what each sum takes longer than its links
    need, `woken_s` what the script takes to go on, of which its thread has a core for `ran_s`.
    """

    rounds: int = 20
    computing_s: float = 0.010
    size_bytes: int = 1440 * 400
    starved_s: float = 0.0
    slow_s: float = 0.0
    woken_s: float = 0.0
    ran_s: float = 0.0
    first_s: float = 0.5  # what the first two rounds take longer
    rate_mbps: float | None = RATE_MBPS
    other_mbps: float | None = RATE_MBPS  # of the second host's link, which sums are as fast as here

    def sum_s(self) -> float:
        return (
            pushed_frames(Collective(self.size_bytes, True, 1), 2, LANES)
            * 1514
            * 8e-6
            / (self.rate_mbps or 1e9)
        )

    def timelines(self) -> list[dict[str, Any]]:
        made = []
        for _ in HOSTS:
            now_s, sums, rows = BEGAN_S, [], []
            for at in range(self.rounds):
                now_s += self.computing_s + self.starved_s + (self.first_s if at < 2 else 0.0)
                rows.append((ASKED, at, round(now_s * 1e9), round(self.starved_s * 1e9), 0))
                rows.append((WAITED, at, round(now_s * 1e9), 0, 0))
                now_s += self.sum_s() + self.slow_s
                sums.append((self.size_bytes, 1, round(now_s * 1e9)))
                now_s += self.woken_s
                rows.append((RESUMED, at, round(now_s * 1e9), 0, round(self.ran_s * 1e9)))
            made.append(left(sums, rows))
        return made

    def recording(
        self, optical_bytes_per_s: float = 0.0, between: str = "u1o1", between_mbps: float | None = None
    ) -> Recording:
        names = (*HOSTS, between, "u2h1")
        other_mbps = self.other_mbps if self.rate_mbps == RATE_MBPS else self.rate_mbps
        rates = (self.rate_mbps, other_mbps, between_mbps or self.rate_mbps, self.rate_mbps)
        recording = Recording(0.1, names, rates, 1e9)
        for at in range(200):
            values = np.zeros((len(names), 4), np.int64)
            values[2, :2] = round(at * 0.1 * optical_bytes_per_s)
            now_s = BEGAN_S - 1 + at * 0.1
            reading = LinkReading(now_s, now_s, values)
            recording.samples.append(
                Sample(now_s, None, MachineReading(np.zeros((2, 4)), np.zeros((2, 2)), 0.0), reading, {})
            )
        return recording

    def bound(self, traffic: Traffic = IN_ONE_UNIT, **carried: Any) -> Bound | None:
        return bound(self.recording(**carried), self.timelines(), traffic, {})


def the(value: Bound | None) -> Bound:
    assert value is not None
    return value


def test_a_job_on_a_perfect_network_is_at_its_bound() -> None:
    world = World()
    allowed = the(world.bound())
    assert allowed.ratio == pytest.approx(1.0, abs=1e-6)
    assert allowed.measured_ms == pytest.approx((world.computing_s + world.sum_s()) * 1e3, rel=1e-6)
    assert (allowed.rounds, allowed.left_out, allowed.shared) == (18, 2, False)
    assert (allowed.computing_ms, allowed.link_ms) == (
        pytest.approx(10.0),
        pytest.approx(world.sum_s() * 1e3),
    )
    assert "the first 2 left out" in allowed.how
    assert allowed.said().ratio == 1.0


def test_what_the_machine_adds_is_not_allowed() -> None:
    perfect = the(World().bound())
    starved, slow = the(World(starved_s=0.005).bound()), the(World(slow_s=0.010).bound())
    woken = the(World(woken_s=0.005).bound())  # as it is where another thread of it holds Python's lock
    for stretched, more_ms in ((starved, 5.0), (slow, 10.0), (woken, 5.0)):
        assert stretched.bound_ms == pytest.approx(perfect.bound_ms, rel=1e-6)
        assert stretched.measured_ms == pytest.approx(perfect.measured_ms + more_ms, rel=1e-6)
    assert starved.starved_ms == pytest.approx(5.0)
    copies = the(World(woken_s=0.005, ran_s=0.004).bound())  # as DDP does after it waited
    assert copies.bound_ms == pytest.approx(perfect.bound_ms + 4.0, rel=1e-6)


@settings(max_examples=examples(60), deadline=None)
@given(
    computing_ms=st.floats(0, 100),
    fragments=st.integers(1, 2000),
    starved_ms=st.floats(0, 50),
    slow_ms=st.floats(0, 50),
    rounds=st.integers(5, 30),
)
def test_load_only_raises_the_ratio(
    computing_ms: float, fragments: int, starved_ms: float, slow_ms: float, rounds: int
) -> None:
    perfect = World(rounds, computing_ms / 1e3, 1440 * fragments)
    stretched = dataclasses.replace(perfect, starved_s=starved_ms / 1e3, slow_s=slow_ms / 1e3)
    assert the(perfect.bound()).ratio == pytest.approx(1.0, abs=1e-4)
    more = 1 + (starved_ms + slow_ms) / the(perfect.bound()).bound_ms
    assert the(stretched.bound()).ratio == pytest.approx(more, rel=1e-3)


def test_a_slower_link_makes_the_same_stretch_smaller() -> None:
    ratios = [the(World(slow_s=0.010, rate_mbps=rate).bound()).ratio for rate in (10.0, 50.0, 100.0, 400.0)]
    assert ratios == sorted(ratios)
    assert ratios[0] < 1.03 < 1.3 < ratios[-1]


def test_the_slowest_of_unequal_links_sets_the_bound() -> None:
    """The bytes are the same at both hosts, and so are the rounds: the slow one's are the bound."""
    equal, unequal = World(), World(other_mbps=RATE_MBPS / 4)
    slow_ms = 4 * equal.sum_s() * 1e3
    bounded = the(dataclasses.replace(unequal, slow_s=3 * equal.sum_s()).bound())
    assert (bounded.link, bounded.link_ms) == ("u1h2 up", pytest.approx(slow_ms))
    assert bounded.ratio == pytest.approx(1.0, abs=1e-6)
    faster = the(dataclasses.replace(equal, other_mbps=RATE_MBPS * 4).bound())
    assert (faster.link, faster.ratio) == ("u1h1 up", pytest.approx(1.0, abs=1e-6))


@pytest.mark.parametrize("between", ["u1o1", "u1r1"])
def test_other_links_count_by_what_they_carried(between: str) -> None:
    world = World(slow_s=World().sum_s())  # half of the rate of a host's link, which is what its circuit has
    length_s = world.computing_s + world.sum_s() + world.slow_s
    sent_per_s = 2 * world.sum_s() * RATE_MBPS * 1.25e5 / length_s
    alone = the(world.bound(optical_bytes_per_s=sent_per_s, between=between))
    assert alone.link == f"{between} up"
    assert alone.ratio == pytest.approx(1.0, abs=0.02)
    narrow = {"optical_bytes_per_s": sent_per_s / 4, "between": between, "between_mbps": RATE_MBPS / 4}
    its_own = the(world.bound(**narrow))
    assert (its_own.link, its_own.ratio) == (f"{between} up", pytest.approx(1.0, abs=0.02)), "its own rate"


# ---------------------------------------------------------------- beside other jobs

ACROSS = Traffic(GLOO, ("u1h1", "u2h1"), None, MTU)
SIZE_BYTES = 1440 * 400
ALONE_S = SIZE_BYTES * tcp_framing(MTU) * 8e-6 / RATE_MBPS  # what a sum needs of a link for itself
COMPUTING_S = 0.010
OWN, OTHER, THIRD = 1, 2, 3  # jobs


@dataclasses.dataclass
class Neighbours:
    """A job of two workers in two units, whose sums take `sum_s`, over an optical link on which others send
    `beside` of its rate in that time, and `between` while it computes. `holders`: their hosts, all of which
    send, as those do that no job holds.
    """

    sum_s: float
    beside: float
    between: float
    holders: dict[str, int] = dataclasses.field(default_factory=lambda: {"u1h2": OTHER, "u2h2": OTHER})
    traffic: Traffic = ACROSS
    strays: tuple[str, ...] = ()
    rounds: int = 40
    others_sent: bool = False  # as other traffic of the job's own hosts is

    def timeline(self) -> dict[str, Any]:
        now_s, sums, rows = BEGAN_S, [], []
        for at in range(self.rounds):
            now_s += COMPUTING_S
            rows += [(what, at, round(now_s * 1e9), 0, 0) for what in (ASKED, WAITED)]
            now_s += self.sum_s
            sums.append((SIZE_BYTES, 1, round(now_s * 1e9)))
            rows.append((RESUMED, at, round(now_s * 1e9), 0, 0))
        return left(sums, rows)

    def bound(self) -> Bound:
        recording, timelines = self.recording(), [self.timeline()] * 2
        result = the(bound(recording, timelines, self.traffic, {}, None, self.others_sent))
        has_neighbours = self.traffic is ACROSS and bool(self.holders or self.strays)
        assert result.shared == has_neighbours, "others' traffic elsewhere is none of its business"
        return result

    def recording(self) -> Recording:
        turn_s = COMPUTING_S + self.sum_s
        full = RATE_MBPS * 1.25e5
        own = ALONE_S * full if self.traffic is ACROSS else 0.0

        def carried(passed_s: float) -> tuple[float, float]:
            """Return the bytes of the job and of the others, by the time since the job began."""
            turns, rest_s = divmod(max(0.0, passed_s), turn_s)
            summing_s = max(0.0, rest_s - COMPUTING_S)
            alone = self.between * full * (turns * COMPUTING_S + min(rest_s, COMPUTING_S))
            together = self.beside * full * (turns * self.sum_s + summing_s)
            return own * (turns + summing_s / self.sum_s), alone + together

        hosts = (*self.traffic.hosts, *self.holders, *self.strays)
        names = (*hosts, "u1o1", "u2o1")
        holders = dict.fromkeys(self.traffic.hosts, OWN) | self.holders
        recording = Recording(0.1, names, (RATE_MBPS,) * len(names), 1e9)
        for at in range(int(self.rounds * turn_s / 0.1) + 3):
            own_bytes, others = carried(at * 0.1)
            values = np.zeros((len(names), 4), np.int64)
            values[: len(self.traffic.hosts), :2] = round(own_bytes)
            values[len(self.traffic.hosts) : len(hosts), :2] = round(others)
            values[len(hosts) :, :2] = round(own_bytes + others)
            now_s = BEGAN_S + at * 0.1
            machine = MachineReading(np.zeros((2, 4)), np.zeros((2, 2)), 0.0)
            reading = LinkReading(now_s, now_s, values)
            recording.samples.append(Sample(now_s, None, machine, reading, {}, holders))
        return recording


@pytest.mark.parametrize("taken", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("stretch", [1.0, 1.25, 2.0])
def test_what_others_send_while_the_machine_holds_a_sum_up_is_not_allowed(
    taken: float, stretch: float
) -> None:
    """The others send at a rate of theirs, however long this job's sums take."""
    needed_s = ALONE_S / (1 - taken)
    result = Neighbours(stretch * needed_s, taken, taken).bound()
    assert result.bound_ms == pytest.approx(1e3 * (COMPUTING_S + needed_s), rel=0.02)
    assert result.ratio == pytest.approx(
        (COMPUTING_S + stretch * needed_s) / (COMPUTING_S + needed_s), rel=0.02
    )


@pytest.mark.parametrize("stretch", [1.0, 1.25, 2.0, 5.0])
def test_a_neighbour_that_takes_all_that_is_left_takes_no_more_than_its_share(stretch: float) -> None:
    fair_s = 2 * ALONE_S
    result = Neighbours(stretch * fair_s, 1 - 0.5 / stretch, 1.0).bound()
    assert result.bound_ms == pytest.approx(1e3 * (COMPUTING_S + fair_s), rel=0.02)


def test_the_more_jobs_cross_a_link_the_less_of_it_is_one_jobs_share() -> None:
    third = {"u1h3": THIRD, "u2h3": THIRD}
    holders = {"u1h2": OTHER, "u2h2": OTHER}
    result = Neighbours(6 * ALONE_S, 5 / 6, 1.0, holders | third).bound()
    assert result.bound_ms == pytest.approx(1e3 * (COMPUTING_S + 3 * ALONE_S), rel=0.02)
    within_a_unit = {"u1h3": THIRD, "u1h4": THIRD}  # no byte of theirs is on the optical link
    result = Neighbours(6 * ALONE_S, 5 / 6, 1.0, holders | within_a_unit).bound()
    assert result.bound_ms == pytest.approx(1e3 * (COMPUTING_S + 2 * ALONE_S), rel=0.02)


def test_optical_links_that_a_job_does_not_cross_are_none_of_its_bound() -> None:
    result = Neighbours(3 * ALONE_S, 1.0, 1.0, traffic=Traffic(GLOO, ("u1h1", "u1h2"), None, MTU),
                       holders={"u1h3": OTHER, "u2h3": OTHER}).bound()  # fmt: skip
    assert result.bound_ms == pytest.approx(1e3 * (COMPUTING_S + ALONE_S), rel=0.02)
    assert result.ratio > 2


def test_whoever_sends_from_a_host_that_no_job_holds_may_cross_any_link() -> None:
    result = Neighbours(4 * ALONE_S, 0.75, 1.0, {}, strays=("u3h1", "u3h2")).bound()
    assert result.bound_ms == pytest.approx(1e3 * (COMPUTING_S + 2 * ALONE_S), rel=0.02)


@pytest.mark.parametrize("taken", [0.0, 0.1, 0.5])
def test_other_traffic_of_the_jobs_own_hosts_excuses_no_delay(taken: float) -> None:
    """It takes its part of the optical links, and sums the longer; the machine adds nothing."""
    result = Neighbours(ALONE_S / (1 - taken), taken, taken, {}, others_sent=True).bound()
    assert result.bound_ms == pytest.approx(1e3 * (COMPUTING_S + ALONE_S), rel=0.001)
    assert result.ratio == pytest.approx(
        (COMPUTING_S + ALONE_S / (1 - taken)) / (COMPUTING_S + ALONE_S), rel=0.001
    )


@pytest.mark.parametrize("rounds", [1])
def test_a_job_too_short_to_judge_has_no_bound(rounds: int) -> None:
    assert World(rounds=rounds).bound() is None


def test_a_short_job_leaves_one_round_out() -> None:
    assert the(World(rounds=3, first_s=0.0).bound()).left_out == 1


def test_a_rate_that_changes_counts_as_it_was() -> None:
    slow = World(rate_mbps=RATE_MBPS / 2)
    recording = slow.recording()
    for sample in recording.samples:
        rates = np.full(len(recording.names), RATE_MBPS / 2 if sample.at_s < BEGAN_S + 2 else RATE_MBPS)
        assert sample.links is not None
        object.__setattr__(sample, "links", dataclasses.replace(sample.links, rates_mbps=rates))
    changed = the(bound(recording, slow.timelines(), IN_ONE_UNIT, {}))
    assert 0.5 * the(slow.bound()).link_ms < changed.link_ms < 0.9 * the(slow.bound()).link_ms


def test_links_without_rates_bound_nothing() -> None:
    assert World(rate_mbps=None).bound() is None


def test_workers_that_say_different_things_have_no_bound() -> None:
    world = World()
    first, other = world.timelines()
    other["timeline"]["sums"][3][0] += 4
    assert bound(world.recording(), [first, other], IN_ONE_UNIT, {}) is None
    assert bound(world.recording(), [first, None], IN_ONE_UNIT, {}) is None


def test_small_sums_between_make_no_rounds() -> None:
    (kept, _), rows = World(rounds=6).timelines(), []
    sums: list[list[int]] = []
    for at, row in enumerate(kept["timeline"]["rows"]):
        if at % 3 == 0:
            small = len(sums)
            sums += [[4, 1, row[2] - 1], kept["timeline"]["sums"][at // 3]]
            rows += [[what, small, row[2] - 1, 0, 0] for what in (ASKED, WAITED, RESUMED)]
        rows.append([row[0], len(sums) - 1, *row[2:]])
    timeline = read(left(sums, rows))
    assert timeline is not None
    span = window([timeline])
    assert span is not None
    assert (span.rounds, span.left_out, span.first, span.last) == (4, 2, 3, 11)
