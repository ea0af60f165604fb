"""Made-up settings of a worker, in which a test can replace fields."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.wire.recovery import Recovery
from testbed.wire.settings import (
    BoardSettings,
    EndpointSettings,
    SumSettings,
    TreeSettings,
    WorkerSettings,
)

ENDPOINT = EndpointSettings(
    engine="xdp",
    port=5555,
    job=7,
    generation=3,
    worker=0,
    sender=0,
    workers=2,
    lanes=360,
    recovery=Recovery.WINDOW,
    slots=64,
    vote_slots=2,
    window=0,
    vote_window=0,
    spare_bits=0,
    first_tree=0,
    trees=(TreeSettings("10.0.1.254", 0, 1.0, True),),
    rate_mbps=None,
    queue_packets=None,
    ring_fd=0,
    ring_entries=64,
    ring_lanes=360,
    wake_fd=0,
)
RING = SumSettings("ring", "gloo", None, None, None)


def endpoint(**changes: Any) -> EndpointSettings:
    """Return the settings of an endpoint."""
    return replace(ENDPOINT, **changes)


def worker(board: BoardSettings, folder: Path, **changes: Any) -> WorkerSettings:
    """Return the settings of a worker that writes its statistics to a folder."""
    made = WorkerSettings(
        testbed="t",
        job_id=7,
        generation=3,
        rank=0,
        hosts=("u1h1",),
        board=board,
        stats=str(folder / "stats.json"),
        sums=RING,
    )
    return replace(made, **changes)
