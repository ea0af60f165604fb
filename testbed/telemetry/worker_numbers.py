"""Numbers in what a worker left, which is its user's business. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from testbed.messages.statistics import Statistics

RETRANSMITS = "retransmits"
BESIDE = (RETRANSMITS, "asked")
"""What workers sent beside each fragment's first push: packets of the same size."""


def sent_beside(workers: Iterable[Statistics | None]) -> int:
    """Return how many packets workers sent beside first pushes: repetitions, and questions."""
    return round(sum(number(left, key) for left in workers for key in BESIDE))


def retransmits(workers: Iterable[Statistics | None]) -> int:
    """Count the packets that workers sent again."""
    return round(sum(number(left, RETRANSMITS) for left in workers))


def number(statistics: Statistics | None, *keys: str) -> float:
    """Return a number that a worker left, 0 where there is no sensible number."""
    value: Any = statistics
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) and 0 <= value < 2**63 else 0.0
