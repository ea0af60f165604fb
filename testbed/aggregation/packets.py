"""The choices that a job has for its packets. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.wire.recovery import Recovery

LEAST_AGE_OUT_MS, MOST_AGE_OUT_MS = 1.0, 100.0
MOST_WINDOW = 16384
USUAL_WINDOW = 512
LEAST_LEAVE_AFTER, MOST_LEAVE_AFTER = 1, 1000


@dataclass(frozen=True, slots=True)
class Packets:
    """The choices of a job: how many `lanes` a packet has, None: as many as fit; how lost ones come again;
    and where places sum by blocks, how long a sum waits for a worker, 0: as long as it takes, None: as its
    system says, how many blocks a worker has under way at most, None: as many as is usual, and after how many
    looks in vain a worker leaves its sources until it comes back, None: never.
    """

    lanes: int | None = None
    recovery: Recovery = Recovery.WINDOW
    age_out_ms: float | None = None
    window: int | None = None
    leave_after: int | None = None


AS_USUAL = Packets()
