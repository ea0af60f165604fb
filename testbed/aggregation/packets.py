"""A job's choices for its packets. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.wire.recovery import Recovery

LEAST_AGE_OUT_MS, MOST_AGE_OUT_MS = 1.0, 100.0
MOST_WINDOW = 16384
USUAL_WINDOW = 512
LEAST_LEAVE_AFTER, MOST_LEAVE_AFTER = 1, 1000


@dataclass(frozen=True, slots=True)
class Packets:
    """A job's choices for its packets:

    - `lanes` of a packet; None: as many as fit;
    - `recovery` of lost packets;
    - for places that sum by blocks, `age_out_ms`: how long a sum waits for a worker; 0: without limit, None:
      as its system says;
    - `window`: the most blocks that a worker has under way; None: USUAL_WINDOW;
    - `leave_after`: after how many checks without a contribution a worker leaves the sums until it comes
      back; None: never.
    """

    lanes: int | None = None
    recovery: Recovery = Recovery.WINDOW
    age_out_ms: float | None = None
    window: int | None = None
    leave_after: int | None = None


AS_USUAL = Packets()
