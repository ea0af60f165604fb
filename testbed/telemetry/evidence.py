"""Derive a verdict's evidence from samples. Pure.

A job computes on the cores that also carry its packets, and its start-up, before the first gradient, uses all
of them. So processors are judged only in the time in which links carried traffic, aggregated second by
second.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from testbed.telemetry.counters import BUSY, DROPPED, IOWAIT, SOFTIRQ, SQUEEZED, STEAL
from testbed.telemetry.samples import BACKLOG, BYTES_AB, QUEUE_DROPS, Recording, Sample

ACTIVE_SHARE = 0.01  # share of a link's rate, in either direction, from which it counts as carrying traffic
ACTIVE_MBPS = 1.0  # the same for a link without a rate
SECOND_S = 1.0  # the kernel counts processor time in ticks of 4 to 10 ms, too coarse for one sample

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Second:
    """A second (approximately) in which links carried traffic, as shares of its time, by core. `waiting`: the
    share in which a runnable task had no core, None if the kernel does not report it. `link`: the utilisation
    of the job's fullest link.
    """

    elapsed_s: float
    busy: tuple[float, ...]
    softirq: tuple[float, ...]
    steal: tuple[float, ...]
    iowait: tuple[float, ...]
    waiting: float | None
    link: float


@dataclass(frozen=True, slots=True)
class LinkUse:
    """A link that carried something: `most_bytes` in the busier direction, `bytes_up` from its first end to
    the other (from a host, out of a rack or a unit).

    `utilisation` is (median, largest) relative to its rate while links carried traffic, in each sample's
    busier direction; in Mb/s if it has no rate. `excess` is the most that a sample exceeded the rate plus one
    burst, relative to the rate.
    """

    name: str
    rate_mbps: float | None
    bytes: int
    most_bytes: int
    utilisation: tuple[float, float]
    excess: float
    queue_drops: int
    queue_bytes_max: int
    bytes_up: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence in a job's samples. `unsampled_s` is the time by which gaps between samples exceeded two
    intervals.

    `device_drops`: by device or host, frames lost because their receiver was late, rather than at a full
    queue. `strangers`: links that may have carried other jobs' traffic, and so prove nothing about this job.
    """

    sampled_s: float
    unsampled_s: float
    active_s: float
    seconds: tuple[Second, ...]
    late_s: tuple[float, ...]
    links: tuple[LinkUse, ...]
    softnet_dropped: int
    softnet_squeezed: int
    segments_max: Mapping[str, int] = field(default_factory=dict)
    device_drops: Mapping[str, int] = field(default_factory=dict)
    failure: str | None = None
    strangers: frozenset[str] = frozenset()

    @property
    def frames(self) -> float:
        """Estimate the frames that crossed links: bytes divided by the usual MTU."""
        return sum(link.bytes for link in self.links) / 1500


def evidence(
    recording: Recording, bursts: Mapping[str, int], device_drops: Mapping[str, int], hosts: Collection[str]
) -> Evidence:
    """Derive the evidence on a job on these `hosts`. `bursts`: by link, the bytes that its shaper may send at
    once.
    """
    samples = recording.samples
    strangers = _strangers(recording, hosts)
    steps = _Steps(recording, [name not in strangers for name in recording.names])
    gaps = np.diff([sample.at_s for sample in samples]) - 2 * recording.interval_s
    first, last = samples[0].machine, samples[-1].machine
    softnet = (last.softnet - first.softnet).sum(axis=0)
    return Evidence(
        sampled_s=samples[-1].at_s - samples[0].at_s,
        unsampled_s=float(gaps.clip(0).sum()),
        active_s=float(steps.elapsed_s[steps.active].sum()),
        seconds=tuple(steps.seconds()),
        late_s=tuple(sample.late_s for sample in samples if sample.late_s is not None),
        links=tuple(steps.links(bursts)),
        softnet_dropped=int(softnet[DROPPED]),
        softnet_squeezed=int(softnet[SQUEEZED]),
        segments_max=_most(samples),
        device_drops={name: count for name, count in device_drops.items() if count},
        failure=recording.failure,
        strangers=strangers,
    )


def _strangers(recording: Recording, hosts: Collection[str]) -> frozenset[str]:
    """Return all links except those of these hosts if other hosts sent or received anything; otherwise none,
    since all traffic over optics is then this job's.
    """
    read = [sample.links.values for sample in recording.samples if sample.links is not None]
    carried = np.flatnonzero((read[-1] - read[0])[:, BYTES_AB:QUEUE_DROPS].any(axis=1))
    others = frozenset(recording.names) - frozenset(hosts)
    busy_hosts = [recording.names[at] for at in carried if "h" in recording.names[at]]
    return frozenset() if others.isdisjoint(busy_hosts) else others


def _most(samples: list[Sample]) -> dict[str, int]:
    most: dict[str, int] = {}
    for sample in samples:
        for switch, count in sample.segments.items():
            most[switch] = max(count, most.get(switch, 0))
    return most


class _Steps:
    """The steps between consecutive readings of the links. `own` says for each link whether it carries only
    the job's traffic.
    """

    def __init__(self, recording: Recording, own: Sequence[bool]) -> None:
        read = [(sample, sample.links) for sample in recording.samples if sample.links is not None]
        self._recording = recording
        self._values = np.array([links.values for _, links in read])
        began, ended = (
            np.array([getattr(links, name) for _, links in read]) for name in ("began_s", "ended_s")
        )
        self._shortest_s = (began[1:] - ended[:-1]).clip(1e-6)
        self._longest_s = ended[1:] - began[:-1]
        self._cores = np.diff([sample.machine.cores for sample, _ in read], axis=0)
        self._waiting_s = np.diff([sample.machine.waiting_s for sample, _ in read])
        self.elapsed_s: Floats = np.diff([sample.at_s for sample, _ in read])
        sent = np.diff(self._values[:, :, :QUEUE_DROPS], axis=0).max(
            axis=2
        )  # (steps, links), the busier direction
        middle_s = (self._shortest_s + self._longest_s) / 2
        self._mbps: Floats = sent * 8e-6 / middle_s[:, None]
        first = np.array([math.nan if rate is None else rate for rate in recording.rates_mbps])
        by_reading = np.array([first if links.rates_mbps is None else links.rates_mbps for _, links in read])
        rates = np.fmax(
            by_reading[:-1], by_reading[1:]
        )  # (steps, links): of a rate that changes, the higher one
        # 0 at both readings: nothing was sent, so any rate will do
        self._rates: Floats = np.where(rates == 0, np.fmax(np.fmax.reduce(by_reading), 1.0), rates)
        self._shares: Floats = np.nan_to_num(self._mbps / self._rates)
        least = np.where(np.isnan(self._rates), ACTIVE_MBPS, self._rates * ACTIVE_SHARE)
        self._own = np.array(own)
        self.active: npt.NDArray[np.bool_] = (self._mbps >= least)[:, self._own].any(axis=1)
        self._sent_most = sent

    def seconds(self) -> Iterator[Second]:
        """Aggregate the active steps into seconds; a remainder below half a second is dropped, unless it is
        all there is.
        """
        group: list[int] = []
        length_s, has_any = 0.0, False
        for step in np.flatnonzero(self.active):
            group.append(int(step))
            length_s += self.elapsed_s[step]
            if length_s >= SECOND_S - 1e-6:
                yield self._second(group, length_s)
                group, length_s, has_any = [], 0.0, True
        if length_s >= SECOND_S / 2 or (group and not has_any):
            yield self._second(group, length_s)

    def _second(self, steps: list[int], length_s: float) -> Second:
        cores = (self._cores[steps].sum(axis=0) / length_s).clip(0, 1)
        waiting = float(self._waiting_s[steps].sum() / length_s)
        busy, softirq, steal, iowait = (
            tuple(map(float, cores[:, at])) for at in (BUSY, SOFTIRQ, STEAL, IOWAIT)
        )
        shares = self._shares[:, self._own]
        link = float((shares[steps] * self.elapsed_s[steps, None]).sum(axis=0).max() / length_s)
        return Second(
            length_s, busy, softirq, steal, iowait, None if math.isnan(waiting) else min(waiting, 1.0), link
        )

    def links(self, bursts: Mapping[str, int]) -> Iterator[LinkUse]:
        for at, (name, rate) in enumerate(
            zip(self._recording.names, self._recording.rates_mbps, strict=True)
        ):
            total = self._values[-1, at] - self._values[0, at]
            carried = total[BYTES_AB:QUEUE_DROPS]
            if not carried.any():
                continue
            rates = np.ones(len(self._mbps)) if rate is None else self._rates[:, at]
            used = (self._mbps[:, at] / rates)[self.active] if self.active.any() else np.zeros(1)
            most_bytes = self._longest_s * rates * 1.25e5
            excess = (
                0.0
                if rate is None
                else ((self._sent_most[:, at] - most_bytes - bursts.get(name, 0)) / most_bytes).max()
            )
            yield LinkUse(
                name,
                rate,
                int(carried.sum()),
                int(carried.max()),
                (float(np.median(used)), float(used.max())),
                max(0.0, float(excess)),
                int(total[QUEUE_DROPS]),
                int(self._values[:, at, BACKLOG].max()),
                int(total[BYTES_AB]),
            )
