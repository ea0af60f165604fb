"""Numbers in what a worker left, which is its user's business. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def number(statistics: Mapping[str, Any] | None, *keys: str) -> float:
    """Return a number that a worker left, 0 where there is no sensible number."""
    value: Any = statistics
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) and 0 <= value < 2**63 else 0.0
