"""The choices that a job has for its packets. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.contract.recovery import Recovery


@dataclass(frozen=True, slots=True)
class Packets:
    """The choices of a job: how many `lanes` a packet has, None: as many as fit; how lost ones come again;
    and how long a sum waits for a worker, where places sum by blocks, 0: as long as it takes, None: as its
    system says.
    """

    lanes: int | None = None
    recovery: Recovery = Recovery.WINDOW
    age_out_ms: float | None = None


AS_USUAL = Packets()
