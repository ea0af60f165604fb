"""The reference of an owned tree: what its places and its ends do, without a wire format.
docs/luwu-network.md says the same in words.

Parameters go down from the owner, gradients up to it, and beats against both. Pure: no I/O; the time is an
argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Lanes = tuple[int, ...]
Beat = tuple[int, int]
"""The next fragment that a receiver lacks, and the first one that it has no room for."""


MOST_RUN = 16  # fragments that are sent again at once


class OverflowedError(Exception):
    """A fragment came to a receiver without room for it."""


class Receiver:
    """Room for `depth` fragments of one stream."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._held: dict[int, Lanes] = {}
        self.ack = 0
        self.taken = 0

    @property
    def beat(self) -> Beat:
        return self.ack, self.taken + self._depth

    def receive(self, fragment: int, lanes: Lanes) -> bool:
        """Keep a fragment; False if it was here before. OverflowedError if there is no room."""
        if fragment < self.ack or fragment in self._held:
            return False
        if fragment >= self.taken + self._depth:
            raise OverflowedError(f"fragment {fragment}; room is before {self.taken + self._depth}")
        self._held[fragment] = lanes
        while self.ack in self._held:
            self.ack += 1
        return True

    def take(self) -> Lanes | None:
        """Return the next fragment, which leaves the room; None where it is not here."""
        if self.taken == self.ack:
            return None
        lanes = self._held.pop(self.taken)
        self.taken += 1
        return lanes


class OwnedSender:
    """One stream's fragments, kept until they are acknowledged. `detect` is its own, its stagger included."""

    def __init__(self, fragments: Sequence[Lanes], detect: int) -> None:
        self._fragments = fragments
        self._detect = detect
        self._next = 0  # what is sent when it may be
        self._again = range(0)  # what is sent before that
        self._recover = 0  # behind what was under way when it went back
        self._run = 1
        self._since = 0  # when `ack` grew last, or was gone back to
        self.ack = self.credit = 0

    @property
    def is_done(self) -> bool:
        return self.ack == len(self._fragments)

    def hear(self, beat: Beat, now: int) -> None:
        """Heed a beat. One that was overtaken changes nothing."""
        if beat[0] > self.ack:
            self.ack, self._since = beat[0], now
            self._next = max(self._next, self.ack)
            if self.ack < self._recover:
                self._send_again(2 * self._run)
            else:
                self._again, self._recover = range(0), 0
        self.credit = max(self.credit, beat[1])

    def send(self, now: int) -> tuple[int, Lanes] | None:
        """Return what goes out now, if anything does."""
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
        """Have so many sent again, from the first that is not acknowledged."""
        self._run = min(run, MOST_RUN)
        self._again = range(self.ack, min(self.ack + self._run, self._recover))


@dataclass(slots=True)
class OwnedSlot:
    """A fragment's sum at a place."""

    fragment: int = -1
    came: set[int] = field(default_factory=set)
    lanes: Lanes = ()


class OwnedPlace:
    """Sums what its members send, and sends up the minimum of their beats."""

    def __init__(self, members: Iterable[int], size: int) -> None:
        self._members = frozenset(members)
        self._size = size
        self.reset()

    def reset(self) -> None:
        """Lose everything, as a switch that restarts."""
        self._slots = [OwnedSlot() for _ in range(self._size)]
        self._beats: dict[int, Beat] = {}
        self._sent = (0, 0)

    def contribute(self, member: int, fragment: int, lanes: Lanes) -> tuple[str, Lanes | None]:
        """Return the verdict on a contribution, and the sum if that goes up."""
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
        """Return the beat that goes up because of a member's, if one does."""
        ack, credit = self._beats.get(member, (0, 0))
        self._beats[member] = max(ack, beat[0]), max(credit, beat[1])
        if len(self._beats) < len(self._members):
            return None
        least = min(ack for ack, _ in self._beats.values()), min(credit for _, credit in self._beats.values())
        if least == self._sent and member != min(self._members):
            return None
        self._sent = least
        return least
