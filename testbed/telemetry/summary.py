"""The telemetry in a job's result: a summary for its JSON, and the whole series as a compressed NumPy file.
Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, fields
from operator import attrgetter

import numpy as np

from testbed.messages.result import (
    CoreShares,
    JobTelemetry,
    Lateness,
    LinkTelemetry,
    MedianAndMax,
    SoftnetCounts,
)
from testbed.telemetry.counters import BUSY, DROPPED, IOWAIT, SOFTIRQ, SQUEEZED, STEAL
from testbed.telemetry.evidence import Evidence
from testbed.telemetry.samples import BACKLOG, BYTES_AB, BYTES_BA, QUEUE_DROPS, Recording
from testbed.telemetry.series import Series
from testbed.telemetry.timelines import Round
from testbed.telemetry.verdict import by_core


def summary(recording: Recording, evidence: Evidence) -> JobTelemetry:
    """Summarise the samples. Shares are of the time in which links carried traffic; `late_ms` is over all
    samples.
    """
    seconds = evidence.seconds
    columns = [by_core(seconds, attrgetter(each.name)) for each in fields(CoreShares) if each.name != "core"]
    waiting = [second.waiting for second in seconds if second.waiting is not None]
    late_ms = [late_s * 1e3 for late_s in evidence.late_s]
    late = spread(late_ms)
    return JobTelemetry(
        interval_s=recording.interval_s,
        samples=len(recording.samples),
        sampled_s=round(evidence.sampled_s, 3),
        unsampled_s=round(evidence.unsampled_s, 3),
        traffic_s=round(evidence.active_s, 3),
        cost_share=round(recording.cost_s / evidence.sampled_s, 5) if evidence.sampled_s else None,
        cores=tuple(
            CoreShares(core, *map(spread, by_state))
            for core, by_state in enumerate(zip(*columns, strict=True))
        ),
        waiting=spread(waiting),
        late_ms=Lateness(late.median, late.max, _p99(late_ms)),
        softnet=SoftnetCounts(evidence.softnet_dropped, evidence.softnet_squeezed),
        device_drops=dict(evidence.device_drops),
        segments_max=dict(evidence.segments_max),
        links=tuple(
            LinkTelemetry(**asdict(link) | {"utilisation": _pair(link.utilisation)})
            for link in evidence.links
        ),
    )


def spread(values: Sequence[float]) -> MedianAndMax:
    """Return median and maximum; None for no values."""
    if not values:
        return MedianAndMax(None, None)
    return _pair((statistics.median(values), max(values)))


def _pair(values: tuple[float, float]) -> MedianAndMax:
    return MedianAndMax(round(values[0], 4), round(values[1], 4))


def _p99(values: Sequence[float]) -> float | None:
    return round(float(np.percentile(values, 99)), 4) if values else None


def series(recording: Recording, rounds: Sequence[Round] = ()) -> bytes:
    """Make the .npz file of the samples (testbed/telemetry/series.py)."""
    samples = recording.samples
    origin = samples[0].at_s
    read = [sample.links for sample in samples if sample.links is not None]
    values = np.array([links.values for links in read])
    carried = np.flatnonzero((values[-1] - values[0])[:, [BYTES_AB, BYTES_BA, QUEUE_DROPS]].any(axis=1))
    values = values[:, carried]
    cores = np.array([sample.machine.cores for sample in samples])
    switches = sorted({switch for sample in samples for switch in sample.segments})
    return Series(
        began_unix=np.array(recording.began_unix, np.float64),
        time_s=np.array([sample.at_s - origin for sample in samples[1:]], np.float32),
        late_ms=np.array([(sample.late_s or 0.0) * 1e3 for sample in samples[1:]], np.float32),
        cores=np.diff(cores[:, :, [BUSY, SOFTIRQ, STEAL, IOWAIT]], axis=0).round(3).astype(np.float32),
        softnet=_counts(np.array([sample.machine.softnet for sample in samples])[:, :, [DROPPED, SQUEEZED]]),
        waiting_s=np.diff([sample.machine.waiting_s for sample in samples]).round(4).astype(np.float32),
        links=np.array([recording.names[at] for at in carried], np.str_),
        rates_mbps=np.array([recording.rates_mbps[at] or 0.0 for at in carried], np.float32),
        link_time_s=np.array(
            [(links.began_s + links.ended_s) / 2 - origin for links in read[1:]], np.float32
        ),
        sent=_counts(values[:, :, [BYTES_AB, BYTES_BA]]),
        queue_drops=_counts(values[:, :, QUEUE_DROPS]),
        backlog=values[1:, :, BACKLOG].astype(np.uint32),
        switches=np.array(switches, np.str_),
        segments=np.array(
            [[s.segments.get(switch, 0) for switch in switches] for s in samples[1:]], np.uint16
        ),
        round_end_s=np.array([each.ended_s - origin for each in rounds], np.float64),
        round_ms=np.array([each.took_ms for each in rounds], np.float64),
    ).npz()


def _counts(totals: np.ndarray) -> np.ndarray:
    return np.diff(totals, axis=0).clip(0).astype(np.uint32)
