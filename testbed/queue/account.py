"""A session's rules and its counters. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import index

from testbed.messages.submission import PortCounts, RotationRecord, SlotRecord, TurnRecord
from testbed.queue.submission import REPLAN
from testbed.scheduling.model import Limits, Pair, Rotation

_SLOT = re.compile(r"slot \d+")
_MOST_COMPLAINTS = 20


def kind_of(complaint: str) -> str:
    """Return a complaint without its slot number, so that complaints that recur each time slot compare
    equal.
    """
    return _SLOT.sub("slot", complaint)


@dataclass(frozen=True, slots=True)
class Rules:
    """A session's rules: its policy (the requested name and the policy's own name), the limits that the
    policy sees, the seed of all draws, and whether circuits whose links go down are kept (`KEEP`) or planned
    anew (`REPLAN`).
    """

    asked_policy: str
    policy: str
    limits: Limits
    seed: int
    on_failure: str = REPLAN


@dataclass(slots=True)
class Account:
    """Counters of a session's decisions and complaints, for results and `status`."""

    connections: int = 0
    reconfigurations: int = 0
    policy_s: list[float] = field(default_factory=list)
    overruns: int = 0
    failures: int = 0  # time slots in which the policy gave no valid decision
    last_failure: str | None = None
    late_slots: int = 0
    # by kind, the most recent kinds last: the latest text, and the count
    complaints_by_kind: dict[str, tuple[str, int]] = field(default_factory=dict)
    slots: list[SlotRecord] = field(default_factory=list)

    def fail(self, why: str) -> None:
        """Count a missing or invalid decision."""
        self.failures, self.last_failure = self.failures + 1, why

    def complain(self, text: str) -> None:
        """Count a complaint together with those of its kind, which differ only in their slot number."""
        kind = kind_of(text)
        _, count = self.complaints_by_kind.pop(kind, ("", 0))
        self.complaints_by_kind[kind] = text, count + 1
        while len(self.complaints_by_kind) > _MOST_COMPLAINTS:
            del self.complaints_by_kind[next(iter(self.complaints_by_kind))]

    @property
    def complaints(self) -> list[str]:
        """The most recent complaints, each kind once, with its latest text and its count."""
        return [
            text if count == 1 else f"{text} ({count} times)"
            for text, count in self.complaints_by_kind.values()
        ]


def port_counts(ports: Mapping[Pair, int]) -> PortCounts:
    """Convert circuits to their form in a result, ordered by units."""
    return tuple(sorted(_indices(ports)))


def rotation_record(rotation: Rotation) -> RotationRecord:
    """Convert a rotation to its form in a result."""
    turns = (TurnRecord(_indices(turn.ports), float(turn.lasts_ms)) for turn in rotation.turns)
    return RotationRecord(float(rotation.guard_ms), tuple(turns))


def _indices(ports: Mapping[Pair, int]) -> PortCounts:
    return tuple((index(a), index(b), index(count)) for (a, b), count in ports.items())
