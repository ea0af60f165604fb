"""The choices that a job has for its packets. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.contract.recovery import Recovery


@dataclass(frozen=True, slots=True)
class Packets:
    """The choices of a job: how many `lanes` a packet has, None: as many as fit, and how lost ones come
    again.
    """

    lanes: int | None = None
    recovery: Recovery = Recovery.WINDOW


AS_USUAL = Packets()
