"""The sampler on a made-up clock and made-up counters, and the kernel's counters that it reads."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest

from testbed.errors import TestbedError
from testbed.local import counters
from testbed.telemetry.counters import BUSY, MachineReading
from testbed.telemetry.sampler import Sampler
from testbed.telemetry.samples import Recording
from testbed.telemetry.verdict import verdict
from tests.unit.recordings import RATE_MBPS, evidence_of, made

DEADLINE_S = 60.0


@dataclass(frozen=True)
class Link:
    rate_mbps: float | None
    bytes_ab: int
    bytes_ba: int
    drops: int = 0
    device_drops: int = 0
    backlog_bytes: int = 0
    is_up: bool = True


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

    def machine(self) -> MachineReading:
        return MachineReading(np.zeros((2, 4)), np.zeros((2, 2), np.int64), math.nan)

    def sampler(self, interval_s: float) -> Sampler:
        return Sampler(self, self.segments, self.machine, interval_s, self.clock)

    def await_samples(self, recording: Recording, count: int) -> None:
        until(lambda: len(recording.samples) >= count, f"{count} samples")

    def await_next_deadline(self) -> None:
        """Wait until the sampler waits: it asks once after a sample how far behind it is, then twice each
        time that it looks.
        """
        asked = self.asked
        until(lambda: self.asked >= asked + 3, "the sampler waits")


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        time.sleep(0.001)


def test_deadlines_are_absolute_and_those_that_passed_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # links that cost little are read at each deadline, and here reading is what takes long
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
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
    sampler = Sampler(world, world.segments, counters.reading, 0.005)
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
    sampler = Sampler(world, world.segments, world.machine, 0.005)

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


def test_a_link_that_is_down_has_the_rate_0_meanwhile() -> None:
    world = World()

    def down(queues_only: bool = False) -> Mapping[str, Link]:
        world.read += 1
        shaped = Link(RATE_MBPS, 0, 0, is_up=world.read == 1)
        return {"u1h1": shaped, "u1h2": Link(None, 0, 0, is_up=False)}

    world.statistics = down  # type: ignore[method-assign]
    with Sampler(world, world.segments, world.machine, 0.005).recording() as recording:
        world.await_samples(recording, 3)
    assert recording.rates_mbps == (RATE_MBPS, None)
    readings = [sample.links for sample in recording.samples if sample.links is not None]
    rates = [reading.rates_mbps.tolist() for reading in readings[1:] if reading.rates_mbps is not None]
    assert rates
    assert all(shaped == 0 and math.isnan(other) for shaped, other in rates)


def test_links_that_cost_much_are_read_less_often() -> None:
    def slow() -> None:
        end = time.thread_time() + 0.002
        while time.thread_time() < end:
            pass

    world = World(before_read=slow)
    sampler = Sampler(world, world.segments, world.machine, 0.005)
    with sampler.recording() as recording:
        world.await_samples(recording, 12)
    read = [at for at, sample in enumerate(recording.samples) if sample.links is not None]
    assert (read[0], read[-1]) == (0, len(recording.samples) - 1)
    # 2 ms are a hundredth of 40 intervals; a busy machine may let more than 12 samples come
    assert all(at >= 40 * turn for turn, at in enumerate(read[1:-1], 1))


def test_each_sample_says_which_job_holds_which_host() -> None:
    world, held = World(), {"u1h1": 7}
    sampler = Sampler(world, world.segments, world.machine, 0.005, holders=lambda: dict(held))
    with sampler.recording() as recording:
        world.await_samples(recording, 3)
        held["u1h2"] = 8
        world.await_samples(recording, len(recording.samples) + 2)
    assert recording.samples[0].holders == {"u1h1": 7}
    assert recording.samples[-1].holders == {"u1h1": 7, "u1h2": 8}


def test_a_failure_ends_sampling_and_is_told() -> None:
    world = World()
    sampler = Sampler(world, world.segments, world.machine, 0.005)
    with sampler.recording() as recording:
        world.await_samples(recording, 3)
        world.fails = True
        until(lambda: recording.failure is not None, "the failure is told")
    assert recording.failure == "TestbedError: the fabric is gone"
    assert "sampling failed (TestbedError: the fabric is gone)" in verdict(evidence_of(recording), None).line
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
    before, after = counters.reading(), counters.reading()
    assert before.cores.shape == (len(before.softnet), 4)
    assert (after.cores[:, BUSY] >= before.cores[:, BUSY]).all()
    assert (after.softnet >= before.softnet).all()


def test_the_last_seconds_are_those_that_were_asked_for() -> None:
    world = World()
    sampler = world.sampler(0.1)
    assert sampler.recent(1.0) is None
    whole = made([0.5] * 30, [0.5] * 30)
    sampler._recordings = [whole, made([0.5] * 2, [0.5] * 2)]
    recent = sampler.recent(1.0)
    assert recent is not None
    assert recent.samples == whole.samples[-11:], "of the longest recording"
    assert (recent.names, recent.rates_mbps) == (whole.names, whole.rates_mbps)
    whole.samples[-12:] = [replace(sample, links=None) for sample in whole.samples[-12:-2]] + whole.samples[
        -2:
    ]
    recent = sampler.recent(1.0)
    assert recent is not None
    assert len(recent.samples) == 2, "from one that has links on"
    sampler._recordings = [made([], [])]
    assert sampler.recent(1.0) is None, "links were read once"
