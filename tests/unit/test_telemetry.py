"""Sampling on a made-up clock and made-up counters: what is put together of them, and what a verdict says of
that.
"""

from __future__ import annotations

import dataclasses
import io
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.errors import TestbedError
from testbed.report import timeline
from testbed.telemetry import counters, samples
from testbed.telemetry.bound import Bound, coarse
from testbed.telemetry.counters import Machine
from testbed.telemetry.evidence import Evidence, LinkUse, Second, evidence
from testbed.telemetry.sampler import Sampler
from testbed.telemetry.samples import LinkReading, Recording, Sample
from testbed.telemetry.summary import series, summary
from testbed.telemetry.verdict import LIMITS, verdict

RATE_MBPS = 200.0
STEP_BYTES = round(RATE_MBPS * 1e6 / 8 * 0.1)  # a full link's in a tenth of a second
BURST_BYTES = 50_000
DEADLINE_S = 60.0


@dataclass(frozen=True)
class Link:
    rate_mbps: float | None
    bytes_ab: int
    bytes_ba: int
    drops: int = 0
    device_drops: int = 0
    backlog_bytes: int = 0


def made(
    busy: list[float],
    link: list[float],
    softirq: float = 0.0,
    steal: float = 0.0,
    waiting: float = 0.0,
    drops: int = 0,
    rate_mbps: float | None = RATE_MBPS,
) -> Recording:
    """Samples at 10 Hz of two cores, core 1 as busy as `busy` and core 0 idle, and a link carrying `link` of
    its rate towards b.
    """
    recording = Recording(0.1, ("u1h1", "u1h2"), (rate_mbps, rate_mbps), 1e9)
    cores, carried, lost = np.zeros((2, 4)), 0, 0
    softnet = np.zeros((2, 2), np.int64)
    for at in range(len(busy) + 1):
        if at:
            cores = cores + 0.1 * np.array([[0, 0, 0, 0], [busy[at - 1], softirq, steal, 0]])
            carried += round(link[at - 1] * STEP_BYTES)
            lost += drops
        now = 100 + at / 10
        reading = LinkReading(
            now, now, np.array([[carried, carried // 10, lost, 3000], [0, 0, 0, 0]], np.int64)
        )
        late_s = 0.001 if 0 < at < len(busy) else None
        recording.add(
            Sample(now, late_s, Machine(cores, softnet, at * 0.1 * waiting), reading, {"u1": at % 3})
        )
    return recording


def found(recording: Recording) -> Evidence:
    return evidence(recording, {"u1h1": BURST_BYTES}, {"u1h1": 0}, recording.names)


# ---------------------------------------------------------------- from samples to evidence


def test_a_link_whose_rate_was_lowered_is_full_at_the_lower_rate() -> None:
    recording = made(busy=[0.9] * 20, link=[0.5] * 20)
    lowered = np.array([RATE_MBPS / 2, RATE_MBPS])
    recording.samples = [
        dataclasses.replace(sample, links=dataclasses.replace(sample.links, rates_mbps=lowered))
        for sample in recording.samples
        if sample.links
    ]
    link = next(link for link in found(recording).links if link.name == "u1h1")
    assert link.utilisation[0] == pytest.approx(1.0, abs=0.01)
    assert link.excess < 0.01


def test_only_the_time_with_traffic_is_judged() -> None:
    told = found(
        made([1.0] * 50 + [0.5] * 30 + [1.0] * 20, [0.0] * 50 + [0.5] * 30 + [0.0] * 20, waiting=0.25)
    )
    assert told.sampled_s == pytest.approx(10.0)
    assert told.active_s == pytest.approx(3.0)
    assert np.array([second.busy for second in told.seconds]) == pytest.approx(np.array([(0.0, 0.5)] * 3))
    assert [second.waiting for second in told.seconds] == [pytest.approx(0.25)] * 3
    assert [second.link for second in told.seconds] == [pytest.approx(0.5)] * 3


def test_traffic_that_comes_and_goes_is_put_together() -> None:
    told = found(made([1.0, 0.3] * 20, [0.0, 0.5] * 20))
    assert told.active_s == pytest.approx(2.0)
    assert [second.busy[1] for second in told.seconds] == [pytest.approx(0.3)] * 2


def test_a_short_job_is_judged_by_what_there_is() -> None:
    assert [second.elapsed_s for second in found(made([0.5] * 3, [0.5] * 3)).seconds] == [pytest.approx(0.3)]
    assert found(made([0.5] * 3, [0.0] * 3)).seconds == ()


def test_a_link_in_numbers() -> None:
    (link,) = found(
        made([0.1] * 20, [0.25] * 10 + [0.75] * 10, drops=3)
    ).links  # of two, one carried something
    assert (link.name, link.rate_mbps, link.queue_drops, link.queue_bytes_max) == (
        "u1h1",
        RATE_MBPS,
        60,
        3000,
    )
    assert (link.bytes, link.most_bytes) == pytest.approx((11 * STEP_BYTES, 10 * STEP_BYTES), rel=1e-3)
    assert list(link.utilisation) == pytest.approx([0.5, 0.75], rel=1e-3)


@pytest.mark.parametrize(("hosts", "full"), [(("u1h1", "u1h2"), 1.0), (("u1h2",), None)])
def test_links_that_another_job_fills_are_no_bound(hosts: tuple[str, ...], full: float | None) -> None:
    """All traffic is of u1h1, where nobody's collectives are seen."""
    told = evidence(made([0.1] * 20, [1.0] * 20), {"u1h1": BURST_BYTES}, {}, hosts)
    allowed = coarse(told)
    assert (allowed and allowed.bound_ms) == (None if full is None else pytest.approx(full * 1e3, rel=0.01))
    given = verdict(told, allowed, hosts=hosts)
    assert given.trustworthy is (None if full is None else True)


@pytest.mark.parametrize(("share", "excess"), [(1.0, 0.0), (1.02, 0.0), (1.1, 0.08), (2.0, 0.98)])
def test_a_burst_is_no_excess(share: float, excess: float) -> None:
    (link,) = found(made([0.1] * 5, [share] * 5)).links
    assert link.excess == pytest.approx(excess, abs=1e-3)


def test_gaps_between_samples_are_time_not_sampled() -> None:
    recording = made([0.1] * 20, [0.5] * 20)
    del recording.samples[5:15]
    assert found(recording).unsampled_s == pytest.approx(
        0.9
    )  # 1.1 s between two samples, of which two intervals are allowed


def test_links_read_in_every_third_sample_only() -> None:
    whole, thin = made([0.4] * 30, [0.5] * 30), made([0.4] * 30, [0.5] * 30)
    thin.samples = [
        one if at % 3 == 0 else dataclasses.replace(one, links=None) for at, one in enumerate(thin.samples)
    ]
    shares = np.array([second.busy for second in found(thin).seconds])
    assert shares == pytest.approx(np.array([(0.0, 0.4)] * len(shares)))
    assert found(thin).active_s == pytest.approx(found(whole).active_s)
    assert found(thin).links[0].bytes == found(whole).links[0].bytes


def test_a_long_recording_is_thinned_and_loses_no_byte_and_no_lateness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = found(made([0.4] * 999, [0.5] * 999))
    monkeypatch.setattr(samples, "MOST_SAMPLES", 64)
    recording = made([0.4] * 999, [0.5] * 999)
    assert len(recording.samples) <= 65
    assert recording.interval_s >= 0.1 * 1000 / 65
    told = found(recording)
    assert told.links[0].bytes == whole.links[0].bytes
    assert max(told.late_s) == 0.001
    assert told.unsampled_s == 0
    assert told.sampled_s == pytest.approx(whole.sampled_s)


# ---------------------------------------------------------------- the verdict

QUIET = Second(1.0, (0.2, 0.4), (0.1, 0.2), (0.0, 0.0), (0.0, 0.0), 0.3, 0.6)
LINK = LinkUse("u1h1", RATE_MBPS, 150_000_000, 100_000_000, (0.6, 0.8), 0.0, 0, 0)
GOOD = Evidence(20.0, 0.0, 10.0, (QUIET,) * 10, (0.001,) * 200, (LINK,), 0, 12)


HOSTS = ("u1h1", "u1h2")


def second(**changes: Any) -> Second:
    return dataclasses.replace(QUIET, **changes)


def evidence_with(**changes: Any) -> Evidence:
    return dataclasses.replace(GOOD, **changes)


ALLOWED = Bound(100.0, 104.0, 40, 2, "u1h1 up", 90.0, 12.0, 1.5, False)


def bound_with(**changes: Any) -> Bound:
    return dataclasses.replace(ALLOWED, **changes)


DOUBTS: dict[str, tuple[Evidence, Bound | None, str, str]] = {
    "the machine stretched it": (
        GOOD,
        bound_with(measured_ms=131.0),
        "machine_bound",
        "machine-bound: 1.31 times what the links allow (131 ms a round, 100 allowed); lower the rates about "
        "2.8 times (a larger "
        "scale), or use fewer workers",
    ),
    "links were seldom full, and no sum was seen": (
        GOOD,
        coarse(GOOD),
        "machine_bound",
        "machine-bound: 1.67 times what the links allow (coarse: a link was full 60 % of the time with "
        "traffic, and no sum was seen); "
        "lower the rates about 5.6 times (a larger scale), or use fewer workers",
    ),
    "faster than links can be": (
        GOOD,
        bound_with(measured_ms=90.0),
        "beyond_links",
        "faster than links can be: 0.90 times what the links allow (90 ms a round, 100 allowed); they let "
        "pass more than their rates",
    ),
    "sums too few to judge": (
        GOOD,
        None,
        "no_bound",
        "no sums of this job were seen often enough to compare them with what the links allow",
    ),
    "time not sampled": (
        evidence_with(unsampled_s=5.0),
        ALLOWED,
        "not_sampled",
        "5.0 s of 20.0 s were not sampled (limit 5 %)",
    ),
    "sampling failed": (
        evidence_with(failure="OSError: gone"),
        ALLOWED,
        "not_sampled",
        "sampling failed (OSError: gone)",
    ),
    "above the rate": (
        evidence_with(links=(LINK, dataclasses.replace(LINK, name="u1h2", excess=0.25))),
        ALLOWED,
        "above_rate",
        "link u1h2 sent 25 % more than its 200 Mb/s allow (limit 3 %)",
    ),
    "no rate": (
        evidence_with(links=(dataclasses.replace(LINK, rate_mbps=None, utilisation=(812.0, 900.0)),)),
        None,
        "no_rate",
        "no rates: the machine is what is measured: u1h1 812 Mb/s",
    ),
}


@pytest.mark.parametrize("case", DOUBTS)
def test_a_reason_against_a_result(case: str) -> None:
    told, allowed, name, text = DOUBTS[case]
    given = verdict(told, allowed, hosts=HOSTS)
    assert [(reason.name, reason.text) for reason in given.reasons] == [(name, text)]
    assert given.line == f"verdict: not trustworthy: {text}"
    assert given.trustworthy is False


@pytest.mark.parametrize(
    ("evidence", "bound", "line"),
    [
        (GOOD, ALLOWED, "within 4 % of what the links allow (104 ms a round, 100 allowed)"),
        (
            GOOD,
            bound_with(measured_ms=99.0),
            "within 0 % of what the links allow (99 ms a round, 100 allowed)",
        ),
        (
            evidence_with(links=(dataclasses.replace(LINK, excess=0.03),)),
            ALLOWED,
            "within 4 % of what the links allow",
        ),
        (
            evidence_with(seconds=(second(link=0.95),) * 10),
            coarse(evidence_with(seconds=(second(link=0.95),) * 10)),
            "within 5 % of what the links allow (coarse: a link was full 95 % of the time with traffic, and "
            "no sum was seen)",
        ),
    ],
)
def test_a_result_to_trust(evidence: Evidence, bound: Bound, line: str) -> None:
    given = verdict(evidence, bound, hosts=HOSTS)
    assert given.trustworthy
    assert given.line.startswith(f"verdict: trustworthy: {line}")


@pytest.mark.parametrize("seconds", [(), (second(busy=(1.0, 1.0)),) * 10])
def test_busy_cores_are_no_reason_by_themselves(seconds: tuple[Second, ...]) -> None:
    assert verdict(evidence_with(seconds=seconds), ALLOWED, hosts=HOSTS).trustworthy


@pytest.mark.parametrize("hosts", [("u3h1",), ()])
def test_a_job_that_sent_nothing_has_no_verdict(hosts: tuple[str, ...]) -> None:
    given = verdict(GOOD, None, hosts=hosts)  # the traffic is another job's
    assert given.as_json() == {
        "trustworthy": None,
        "line": "verdict: none: this job sent nothing over links, so there is nothing to judge",
        "reasons": [],
        "notes": [
            {"name": "no_traffic", "text": "this job sent nothing over links, so there is nothing to judge"},
        ],
    }


@pytest.mark.parametrize("bound", [None, ALLOWED, bound_with(measured_ms=900.0)])
def test_a_job_that_sent_next_to_nothing_has_none_either(bound: Bound | None) -> None:
    told = evidence_with(links=(dataclasses.replace(LINK, bytes=60_000, most_bytes=48_400),))
    given = verdict(told, bound, hosts=HOSTS)
    assert given.trustworthy is None
    assert given.line == (
        "verdict: none: this job sent 48.4 kB over its fullest link, which is too little to judge "
        "(limit 100 kB)"
    )
    assert verdict(told, bound, hosts=HOSTS, failure="worker 1 exited with code 1").trustworthy is False


def test_several_reasons_are_all_told() -> None:
    told = evidence_with(unsampled_s=5.0, links=(dataclasses.replace(LINK, excess=0.25),))
    given = verdict(told, bound_with(measured_ms=200.0), hosts=HOSTS, failure="worker 1 exited with code 1")
    assert [reason.name for reason in given.reasons] == [
        "failed",
        "machine_bound",
        "above_rate",
        "not_sampled",
    ]
    assert given.as_json()["reasons"][1]["name"] == "machine_bound"


def test_what_the_machine_was_busy_with_is_told_where_it_shaped_a_result() -> None:
    told = evidence_with(seconds=(second(busy=(0.5, 0.9), steal=(0.0, 0.06)),) * 10)
    assert "processors" not in [note.name for note in verdict(told, ALLOWED, hosts=HOSTS).notes]
    notes = {note.name: note.text for note in verdict(told, bound_with(measured_ms=200.0), hosts=HOSTS).notes}
    assert notes["processors"] == (
        "cores were busy 70 % of the time with traffic, 15 % on packets, 3 % taken by the hypervisor, "
        "some process waited for a core 30 % of it, a worker's script 1.5 ms of a round"
    )


@pytest.mark.parametrize(
    ("steal", "told"),
    [
        ((0.0, 0.03), ""),
        ((0.02, 0.12), "; the hypervisor took 7 % of the cores, some of which may count as computing"),
    ],
)
def test_a_result_to_trust_says_what_the_hypervisor_took(steal: tuple[float, float], told: str) -> None:
    given = verdict(evidence_with(seconds=(second(steal=steal),) * 10), ALLOWED, hosts=HOSTS)
    assert given.trustworthy
    assert given.line == (
        f"verdict: trustworthy: within 4 % of what the links allow (104 ms a round, 100 allowed){told}"
    )
    assert [note.name for note in given.notes] == (["steal"] if told else [])


def test_drops_at_a_full_queue_are_a_note() -> None:
    drops = (
        dataclasses.replace(LINK, queue_drops=40),
        dataclasses.replace(LINK, name="u4h1", queue_drops=60),
    )
    workers = [{"retransmits": 5, "timeouts": 1, "allreduce": {"busy_s": 5.0}}, None, {"retransmits": 2}]
    told = evidence_with(links=drops, device_drops={"u1h1": 1}, softnet_dropped=99)
    given = verdict(told, bound_with(shared=True), workers, hosts=HOSTS, faults=["u1h1 up loss 1%"])
    assert given.trustworthy
    assert [(note.name, note.text) for note in given.notes] == [
        ("faults", "faults were set on links: u1h1 up loss 1%; the bound is without them"),
        (
            "shared",
            "other jobs ran: of optical links this one is allowed what they left, "
            "and at least its fair share",
        ),
        (
            "queue_drops",
            "links dropped 100 frames at a full queue, as a finite buffer does; 60 of them on u4h1",
        ),
        ("softnet_drops", "the kernel dropped 99 frames before it looked at them"),
        ("device_drops", "1 frame was lost where a device had no room, 1 of them at u1h1"),
        ("retransmits", "workers sent 7 packets again, which the bound does not count; 1 timeout"),
    ]


@pytest.mark.parametrize(
    "left", [{"retransmits": "5"}, {"timeouts": None}, {"allreduce": 5}, {"retransmits": math.nan}]
)
def test_what_a_worker_leaves_is_its_own_business(left: dict[str, Any]) -> None:
    assert verdict(GOOD, ALLOWED, [left], hosts=HOSTS).notes == ()


def test_the_limits_are_the_callers() -> None:
    strict = dataclasses.replace(LIMITS, ratio=1.01)
    assert [reason.name for reason in verdict(GOOD, ALLOWED, limits=strict, hosts=HOSTS).reasons] == [
        "machine_bound"
    ]


# ---------------------------------------------------------------- what is written


def test_summary_and_series_say_the_same() -> None:
    recording = made([0.5] * 20, [0.5] * 20, softirq=0.25, drops=1)
    told = summary(recording, found(recording))
    assert told["cores"][1]["busy"] == {"median": 0.5, "max": 0.5}
    assert told["cores"][1]["softirq"]["max"] == 0.25
    assert told["links"][0]["utilisation"] == {"median": 0.5, "max": 0.5}
    assert told["segments_max"] == {"u1": 2}
    with np.load(io.BytesIO(series(recording))) as file:
        assert list(file["links"]) == ["u1h1"]
        assert file["time_s"][-1] == pytest.approx(2.0)
        assert file["sent"].shape == (20, 1, 2)
        assert file["sent"][:, 0].sum() == told["links"][0]["bytes"]
        assert file["queue_drops"].sum() == told["links"][0]["queue_drops"]
        assert file["cores"][:, 1, 0].sum() == pytest.approx(10 * 0.1)
        assert file["segments"].max() == 2


def test_ten_minutes_at_10_hz_are_some_hundred_kilobytes() -> None:
    random = np.random.default_rng(1)
    recording = made(list(random.random(6000)), list(random.random(6000)))
    assert 20_000 < len(series(recording)) < 400_000


def test_samples_as_they_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "job.telemetry.npz"
    path.write_bytes(series(made([0.8] * 40, [0.5] * 40, softirq=0.2)))
    drawn = timeline.Samples.read(path)
    assert drawn.rated
    assert drawn.link == pytest.approx(np.full(40, 0.5), rel=1e-2)
    assert drawn.busy[:, 1] == pytest.approx(np.full(40, 0.8), rel=1e-2)
    assert drawn.softirq[:, 1] == pytest.approx(np.full(40, 0.2), rel=1e-2)
    doubted = {"jobs": {"inc": {"verdict": {"trustworthy": True}}, "ps": {"verdict": {"trustworthy": False}}}}
    assert timeline.finding(doubted)[0] == "The machine may have set the results of ps"


# ---------------------------------------------------------------- the sampler


@dataclass
class World:
    """A clock that a test moves, and a fabric that counts."""

    now: float = 50.0
    read: int = 0
    fails: bool = False
    before_read: Callable[[], None] = lambda: None
    asked: int = 0  # for the time

    def statistics(self, queues_only: bool = False) -> Mapping[str, Link]:
        assert queues_only
        if self.fails:
            raise TestbedError("the fabric is gone")
        self.before_read()
        self.read += 1
        return {"u1h1": Link(RATE_MBPS, 1000 * self.read, 0, drops=5, device_drops=2)}

    def segments(self) -> Mapping[str, int]:
        return {"u1": 1}

    def clock(self) -> float:
        self.asked += 1
        return self.now

    def machine(self) -> Machine:
        return Machine(np.zeros((2, 4)), np.zeros((2, 2), np.int64), math.nan)

    def sampler(self, interval_s: float) -> Sampler:
        return Sampler(self, self.segments, interval_s, self.machine, self.clock)

    def await_samples(self, recording: Recording, count: int) -> None:
        until(lambda: len(recording.samples) >= count, f"{count} samples")

    def await_next_deadline(self) -> None:
        """Until the sampler waits for it: how far behind it is it asks once after a sample, then twice each
        time that it looks.
        """
        asked = self.asked
        until(lambda: self.asked >= asked + 3, "the sampler waits")


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        time.sleep(0.001)


def test_deadlines_are_absolute_and_those_that_passed_are_given_up() -> None:
    world = World()
    with world.sampler(0.010).recording() as recording:

        def slow() -> None:
            world.now = 50.047

        world.before_read = slow
        world.now = 50.012  # due at 50.010; reading takes until 50.047
        world.await_samples(recording, 2)
        world.await_next_deadline()
        world.before_read = lambda: None
        world.now = 50.0505  # of what was due by then, only 50.050 is taken
        world.await_samples(recording, 3)
    assert [(sample.at_s, sample.late_s) for sample in recording.samples] == [
        (50.0, None),
        (50.012, pytest.approx(0.002)),
        (50.0505, pytest.approx(0.0005)),
        (50.0505, None),
    ]
    assert recording.samples[1].links is not None
    assert list(recording.samples[1].links.values[0]) == [2000, 0, 3, 0]
    assert (recording.samples[1].links.began_s, recording.samples[1].links.ended_s) == (50.012, 50.047)


def test_a_real_clock_keeps_the_rate() -> None:
    world = World()
    sampler = Sampler(world, world.segments, 0.005)
    with sampler.recording() as recording:
        world.await_samples(recording, 40)
    due = [sample.at_s - sample.late_s for sample in recording.samples if sample.late_s is not None]
    steps = np.diff(due) / 0.005
    assert (
        np.abs(steps - steps.round()).max() < 1e-6
    )  # every deadline is on one grid, however late a sample was
    assert recording.samples[0].machine.cores.shape[1] == 4
    assert recording.cost_s > 0


def test_two_recordings_share_a_thread_that_ends_with_the_last() -> None:
    world = World()
    sampler = Sampler(world, world.segments, 0.005, world.machine)

    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "telemetry"]

    with sampler.recording() as first:
        with sampler.recording() as second:
            world.await_samples(second, 5)
            assert len(threads()) == 1
            assert sampler.cores_busy() == [0.0, 0.0]
        ended = len(second.samples)
        world.await_samples(first, len(first.samples) + 3)
        assert len(second.samples) == ended
    assert threads() == []
    assert sampler.cores_busy() is None


def test_links_that_cost_much_are_read_less_often() -> None:
    def slow() -> None:
        end = time.thread_time() + 0.002
        while time.thread_time() < end:
            pass

    world = World(before_read=slow)
    sampler = Sampler(world, world.segments, 0.005, world.machine)
    with sampler.recording() as recording:
        world.await_samples(recording, 12)
    read = [at for at, sample in enumerate(recording.samples) if sample.links is not None]
    assert (read[0], read[-1]) == (0, len(recording.samples) - 1)
    # 2 ms are a hundredth of 40 intervals; a busy machine may let more than 12 samples come
    assert all(at >= 40 * turn for turn, at in enumerate(read[1:-1], 1))


def test_each_sample_says_which_job_holds_which_host() -> None:
    world, held = World(), {"u1h1": 7}
    sampler = Sampler(world, world.segments, 0.005, world.machine, holders=lambda: dict(held))
    with sampler.recording() as recording:
        world.await_samples(recording, 3)
        held["u1h2"] = 8
        world.await_samples(recording, len(recording.samples) + 2)
    assert recording.samples[0].holders == {"u1h1": 7}
    assert recording.samples[-1].holders == {"u1h1": 7, "u1h2": 8}


def test_a_failure_ends_sampling_and_is_told() -> None:
    world = World()
    sampler = Sampler(world, world.segments, 0.005, world.machine)
    with sampler.recording() as recording:
        world.await_samples(recording, 3)
        world.fails = True
        until(lambda: recording.failure is not None, "the failure is told")
    assert recording.failure == "TestbedError: the fabric is gone"
    assert "sampling failed (TestbedError: the fabric is gone)" in verdict(found(recording), None).line
    world.fails = False
    with sampler.recording() as again:
        world.await_samples(again, 3)
    assert again.failure is None


def test_an_interval_is_more_than_nothing() -> None:
    with pytest.raises(ValueError, match="interval_s=0: more than 0 is accepted"):
        World().sampler(0)


def test_the_kernels_tables() -> None:
    text = "0174692b 00000003 00004080 00000000\n0178db8c 00000000 000044e9 00000000\n"
    assert counters.softnet(text).tolist() == [[3, 0x4080], [0, 0x44E9]]
    text = (
        "some avg10=1.85 avg60=9.43 avg300=4.54 total=1181338471\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    )
    assert counters.pressure(text) == pytest.approx(1181.338471)


def test_the_counters_of_this_machine() -> None:
    before, after = counters.machine(), counters.machine()
    assert before.cores.shape == (len(before.softnet), 4)
    assert (after.cores[:, counters.BUSY] >= before.cores[:, counters.BUSY]).all()
    assert (after.softnet >= before.softnet).all()
