"""A darkness at an optical port as probes saw it, and what follows from that. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turned:
    """The darkness of ports that were turned: when it begins and when it ends, CLOCK_MONOTONIC."""

    dark_at_ns: int
    lit_at_ns: int


@dataclass(frozen=True, slots=True)
class Darkness:
    """A darkness as it was measured: it began after `after_ns`; its length in nanoseconds is at most
    `longest_ns`, and at least that less `resolution_ns`.
    """

    after_ns: int
    longest_ns: int
    resolution_ns: int


@dataclass(frozen=True, slots=True)
class Glimpses:
    """The times of four probes, in nanoseconds of the clock that made the darkness; 0: no such probe. They
    are the last one before it, the first and the last in the dark, the first after it.
    """

    lit_ns: int
    dark_ns: int
    still_dark_ns: int
    lit_again_ns: int

    def darkness(self, began_ns: int, seen_ns: int) -> Darkness:
        """Return how long it was. Where no probe saw an end of it, `began_ns` is when it should have begun,
        and at `seen_ns` it was over.
        """
        last = self.lit_again_ns or seen_ns
        if not self.dark_ns:  # nobody looked while it was dark, and who saw light may have come after it
            first = min(self.lit_ns or began_ns, began_ns)
            return Darkness(first, last - first, last - first)
        first = self.lit_ns or began_ns
        return Darkness(first, last - first, (self.dark_ns - first) + (last - self.still_dark_ns))
