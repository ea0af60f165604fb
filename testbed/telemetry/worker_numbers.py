"""Numbers in what a worker left, which is its user's business. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

BESIDE = ("retransmits", "asked")
"""What workers sent beside each fragment's first push: packets of the same size."""


def sent_beside(workers: Iterable[Mapping[str, Any] | None]) -> int:
    """Return how many packets workers sent beside first pushes: repetitions, and questions."""
    return round(sum(number(left, key) for left in workers for key in BESIDE))


def number(statistics: Mapping[str, Any] | None, *keys: str) -> float:
    """Return a number that a worker left, 0 where there is no sensible number."""
    value: Any = statistics
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) and 0 <= value < 2**63 else 0.0
