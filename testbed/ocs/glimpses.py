"""Measure the dark time of an optical port from the times of four probe packets. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turned:
    """The dark time of ports whose circuits changed: when it begins and ends, by CLOCK_MONOTONIC."""

    dark_at_ns: int
    lit_at_ns: int


@dataclass(frozen=True, slots=True)
class Darkness:
    """A measured dark time: it began after `after_ns`, and lasted between `longest_ns - resolution_ns` and
    `longest_ns` nanoseconds.
    """

    after_ns: int
    longest_ns: int
    resolution_ns: int


@dataclass(frozen=True, slots=True)
class Glimpses:
    """The times of four probes around a dark time, in nanoseconds of the clock that timed it; 0: no such
    probe. In order: the last before it, the first and the last within it, the first after it.
    """

    lit_ns: int
    dark_ns: int
    still_dark_ns: int
    lit_again_ns: int

    def darkness(self, began_ns: int, seen_ns: int) -> Darkness:
        """Compute the dark time and its uncertainty. `began_ns`, the planned beginning, and `seen_ns`, a time
        at which the port was lit again, stand in for missing probes.
        """
        last = self.lit_again_ns or seen_ns
        if not self.dark_ns:  # no probe while it was dark, and lit_ns may come after it
            first = min(self.lit_ns or began_ns, began_ns)
            return Darkness(first, last - first, last - first)
        first = self.lit_ns or began_ns
        return Darkness(first, last - first, (self.dark_ns - first) + (last - self.still_dark_ns))
