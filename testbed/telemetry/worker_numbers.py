"""Read numbers from workers' statistics, which are user data. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from testbed.messages.statistics import Statistics

RETRANSMITS = "retransmits"
BESIDE = (RETRANSMITS, "asked")
"""Packets of the same size that workers send besides each fragment's first push."""


def sent_beside(workers: Iterable[Statistics | None]) -> int:
    """Count the packets that workers sent besides first pushes: retransmissions and questions."""
    return round(sum(number(left, key) for left in workers for key in BESIDE))


def retransmits(workers: Iterable[Statistics | None]) -> int:
    """Count the packets that workers sent again."""
    return round(sum(number(left, RETRANSMITS) for left in workers))


def number(statistics: Statistics | None, *keys: str) -> float:
    """Return a number from a worker's statistics; 0 if there is no valid one."""
    value: Any = statistics
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) and 0 <= value < 2**63 else 0.0
