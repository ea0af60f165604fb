"""Policies of a job's circuits: what a policy sees of each call before it starts, and the built-in ones.

A policy answers with pairs of units or of optical ports, as `workloads.circuits.during` takes them. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.wire.circuit_policies import AHEAD, ON_DEMAND

Circuits = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A worker's call in a group: its kind (torch's name, such as "all_reduce", or "send" or "recv"), the
    bytes of its tensors, the ranks in the job of all that take part, and the unit of each. `number` counts
    the worker's calls from 1.
    """

    kind: str
    size_bytes: int
    members: tuple[int, ...]
    units: tuple[str, ...]
    number: int

    @property
    def is_like(self) -> tuple[str, int, tuple[int, ...]]:
        """What calls of different iterations have in common."""
        return (self.kind, self.size_bytes, self.members)


@dataclass(frozen=True, slots=True)
class Expected:
    """Circuits to ask for ahead. They change when all `members`, by rank, have asked for the same; none:
    this worker alone.
    """

    circuits: Circuits
    members: tuple[int, ...] = ()


class CircuitPolicy(Protocol):
    """A policy of a job's circuits. Each worker has one of its own."""

    def before(self, call: Call) -> Sequence[tuple[str, str]] | None:
        """Return the circuits that a call waits for before it starts; None or none: it starts at once."""

    def after(self, call: Call) -> Expected | None:
        """Return what to ask for now, when a call has ended, for a later call; None: nothing."""


def ring(call: Call) -> Circuits:
    """Return the pairs of units that a ring over the members joins; one pair for two units."""
    units = list(dict.fromkeys(call.units))
    if len(units) < 2:
        return ()
    if len(units) == 2:
        return ((min(units), max(units)),)
    return tuple((a, b) for a, b in zip(units, [*units[1:], units[0]], strict=True))


class OnDemand:
    """Asks for a ring over the units of a call when the call starts."""

    def before(self, call: Call) -> Circuits:
        """Return a ring over the members' units."""
        return ring(call)

    def after(self, call: Call) -> None:
        """Ask for nothing."""


class Ahead:
    """Asks for a ring over the units of the next call when the one before it has ended: the call that
    followed the same two calls the last time.
    """

    def __init__(self) -> None:
        self._following: dict[tuple[object, object], Call] = {}
        self._before_last: Call | None = None
        self._last: Call | None = None

    def before(self, call: Call) -> Circuits:
        """Return a ring over the members' units, and learn what the call followed."""
        if self._last is not None:
            self._following[self._context()] = call
        self._before_last, self._last = self._last, call
        return ring(call)

    def after(self, call: Call) -> Expected | None:
        """Return a ring over the units of the call that is to come, if the last call is the one that ended;
        also if these circuits are lit, since other members may wait for this one's request.
        """
        if self._last is None or call.number != self._last.number:
            return None
        following = self._following.get(self._context())
        circuits = ring(following) if following else ()
        return Expected(circuits, following.members) if following and circuits else None

    def _context(self) -> tuple[object, object]:
        before = self._before_last.is_like if self._before_last else None
        return (before, self._last.is_like if self._last else None)


BUILT_IN: dict[str, type[CircuitPolicy]] = {ON_DEMAND: OnDemand, AHEAD: Ahead}
