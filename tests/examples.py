"""The number of examples of a property test that does not have hypothesis' own."""

from __future__ import annotations

from hypothesis import settings

OWN = settings.get_profile("default").max_examples


def examples(count: int) -> int:
    """Return the part of `count` that the profile in use has of hypothesis' own number, at least one: all,
    but in the quick check (tests/quick.py).
    """
    return max(1, count * settings().max_examples // OWN)
