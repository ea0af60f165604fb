"""Recordings of chosen counters at chosen times, and the evidence of jobs in them."""

from __future__ import annotations

import numpy as np

from testbed.telemetry.counters import MachineReading
from testbed.telemetry.evidence import Evidence, evidence
from testbed.telemetry.samples import LinkReading, Recording, Sample

RATE_MBPS = 200.0
STEP_BYTES = round(RATE_MBPS * 1e6 / 8 * 0.1)  # carried by a full link in 0.1 s
BURST_BYTES = 50_000


def made(
    busy: list[float],
    link: list[float],
    softirq: float = 0.0,
    steal: float = 0.0,
    waiting: float = 0.0,
    drops: int = 0,
    rate_mbps: float | None = RATE_MBPS,
) -> Recording:
    """Return samples at 10 Hz of two cores and one link. Core 1 is `busy` (share by sample) and core 0 idle;
    the link carries `link` of its rate towards b.
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
            Sample(now, late_s, MachineReading(cores, softnet, at * 0.1 * waiting), reading, {"u1": at % 3})
        )
    return recording


def evidence_of(recording: Recording) -> Evidence:
    """Return the evidence of a job that has all hosts of a recording."""
    return evidence(recording, {"u1h1": BURST_BYTES}, {"u1h1": 0}, recording.names)
