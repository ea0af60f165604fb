"""The number of examples of a property test that asks for another number than hypothesis' default."""

from __future__ import annotations

from hypothesis import settings

OWN = settings.get_profile("default").max_examples


def examples(count: int) -> int:
    """Scale `count` by the active profile's share of hypothesis' default number, to at least one. All
    profiles but the quick check's (tests/quick.py) leave it unchanged.
    """
    return max(1, count * settings().max_examples // OWN)
