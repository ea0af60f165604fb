"""The reference of an owned tree: the behaviour of its places and of its ends, without a wire format.
docs/luwu-network.md describes the same in words.

Parameters flow down from the owner, gradients up to it, and beats (acknowledgement and credit) against both.
Pure: no I/O; the time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Lanes = tuple[int, ...]
Beat = tuple[int, int]
"""An acknowledgement and a credit: the first fragment that a receiver lacks, and the first that it has no
room for.
"""


MOST_RUN = 16  # the most fragments that are sent again in one run


class OverflowedError(Exception):
    """A fragment arrived at a receiver without room for it."""


class Receiver:
    """A receive buffer for `depth` fragments of one stream."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._held: dict[int, Lanes] = {}
        self.ack = 0
        self.taken = 0

    @property
    def beat(self) -> Beat:
        return self.ack, self.taken + self._depth

    def receive(self, fragment: int, lanes: Lanes) -> bool:
        """Store a fragment; return False for a duplicate. OverflowedError if there is no room."""
        if fragment < self.ack or fragment in self._held:
            return False
        if fragment >= self.taken + self._depth:
            raise OverflowedError(f"fragment {fragment}; room is before {self.taken + self._depth}")
        self._held[fragment] = lanes
        while self.ack in self._held:
            self.ack += 1
        return True

    def take(self) -> Lanes | None:
        """Remove and return the next fragment in order; None if it has not arrived."""
        if self.taken == self.ack:
            return None
        lanes = self._held.pop(self.taken)
        self.taken += 1
        return lanes


class OwnedSender:
    """The sender of one stream: it keeps fragments until they are acknowledged. `detect` is its timeout, with
    its own stagger included.
    """

    def __init__(self, fragments: Sequence[Lanes], detect: int) -> None:
        self._fragments = fragments
        self._detect = detect
        self._next = 0  # the next new fragment
        self._again = range(0)  # fragments to send again, before new ones
        self._recover = 0  # end of the fragments that were under way at the last timeout
        self._run = 1
        self._since = 0  # time of the last growth of `ack`, or of the last timeout
        self.ack = self.credit = 0

    @property
    def is_done(self) -> bool:
        return self.ack == len(self._fragments)

    def hear(self, beat: Beat, now: int) -> None:
        """Process a beat; one that arrives out of order changes nothing."""
        if beat[0] > self.ack:
            self.ack, self._since = beat[0], now
            self._next = max(self._next, self.ack)
            if self.ack < self._recover:
                self._send_again(2 * self._run)
            else:
                self._again, self._recover = range(0), 0
        self.credit = max(self.credit, beat[1])

    def send(self, now: int) -> tuple[int, Lanes] | None:
        """Return the fragment to send now, by number and lanes; None if there is none."""
        if self._next == self.ack:
            self._since = now  # nothing is under way
        elif now - self._since >= self._detect:
            self._recover, self._since = self._next, now
            self._send_again(1)
        if self._again:
            fragment, self._again = self._again[0], self._again[1:]
            return fragment, self._fragments[fragment]
        if self._next >= min(self.credit, len(self._fragments)):
            return None
        fragment = self._next
        self._next += 1
        return fragment, self._fragments[fragment]

    def _send_again(self, run: int) -> None:
        """Schedule `run` fragments to be sent again, MOST_RUN at most, from the first
        unacknowledged one on.
        """
        self._run = min(run, MOST_RUN)
        self._again = range(self.ack, min(self.ack + self._run, self._recover))


@dataclass(slots=True)
class OwnedSlot:
    """The sum of one fragment at a place."""

    fragment: int = -1
    came: set[int] = field(default_factory=set)
    lanes: Lanes = ()


class OwnedPlace:
    """A place that adds its members' contributions, and sends up the minimum of their beats."""

    def __init__(self, members: Iterable[int], size: int) -> None:
        self._members = frozenset(members)
        self._size = size
        self.reset()

    def reset(self) -> None:
        """Clear all state, as a restart of the switch does."""
        self._slots = [OwnedSlot() for _ in range(self._size)]
        self._beats: dict[int, Beat] = {}
        self._sent = (0, 0)

    def contribute(self, member: int, fragment: int, lanes: Lanes) -> tuple[str, Lanes | None]:
        """Add a contribution; return the verdict on it, and the sum if that is sent up."""
        slot = self._slots[fragment % self._size]
        if fragment < slot.fragment:
            return "stale", None
        if fragment > slot.fragment:
            slot.fragment, slot.came, slot.lanes = fragment, set(), (0,) * len(lanes)
        if slot.came == self._members:
            return "resent", slot.lanes
        if member in slot.came:
            return "duplicate", None
        slot.came.add(member)
        slot.lanes = tuple(old + new for old, new in zip(slot.lanes, lanes, strict=True))
        return ("completed", slot.lanes) if slot.came == self._members else ("aggregated", None)

    def hear(self, member: int, beat: Beat) -> Beat | None:
        """Process a member's beat; return the beat to send up, or None."""
        ack, credit = self._beats.get(member, (0, 0))
        self._beats[member] = max(ack, beat[0]), max(credit, beat[1])
        if len(self._beats) < len(self._members):
            return None
        least = min(ack for ack, _ in self._beats.values()), min(credit for _, credit in self._beats.values())
        if least == self._sent and member != min(self._members):
            return None
        self._sent = least
        return least
