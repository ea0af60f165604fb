"""The account of a session of the queue: the rules that it decides by, and what it did. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import index

from testbed.messages.submission import PortCounts, RotationRecord, SlotRecord, TurnRecord
from testbed.scheduling.model import Limits, Pair, Rotation

_SLOT = re.compile(r"slot \d+")
_MOST_COMPLAINTS = 20


def kind_of(complaint: str) -> str:
    """Return a complaint without its slot, which is all that differs in one that comes at every slot."""
    return _SLOT.sub("slot", complaint)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a session: a policy, by the name that it was asked for by and by its own, the limits as
    the policy sees it, and the seed of all draws.
    """

    asked_policy: str
    policy: str
    limits: Limits
    seed: int


@dataclass(slots=True)
class Account:
    """The counts of what a session did, for results and `status`."""

    connections: int = 0
    reconfigurations: int = 0
    policy_s: list[float] = field(default_factory=list)
    overruns: int = 0
    failures: int = 0  # of the policy, to answer with a valid decision
    last_failure: str | None = None
    late_slots: int = 0
    # by kind, the last kinds that came: how it was said last, and how often
    complaints_by_kind: dict[str, tuple[str, int]] = field(default_factory=dict)
    slots: list[SlotRecord] = field(default_factory=list)

    def fail(self, why: str) -> None:
        """Count a decision that there was not, or that was not valid."""
        self.failures, self.last_failure = self.failures + 1, why

    def complain(self, text: str) -> None:
        """Count a complaint, of another slot than those of its kind before."""
        kind = kind_of(text)
        _, count = self.complaints_by_kind.pop(kind, ("", 0))
        self.complaints_by_kind[kind] = text, count + 1
        while len(self.complaints_by_kind) > _MOST_COMPLAINTS:
            del self.complaints_by_kind[next(iter(self.complaints_by_kind))]

    @property
    def complaints(self) -> list[str]:
        """The last complaints, each kind once, as it was said last and with its number."""
        return [
            text if count == 1 else f"{text} ({count} times)"
            for text, count in self.complaints_by_kind.values()
        ]


def port_counts(ports: Mapping[Pair, int]) -> PortCounts:
    """Return what a result says of circuits, in the order of their units."""
    return tuple(sorted(_indices(ports)))


def rotation_record(rotation: Rotation) -> RotationRecord:
    """Return what a result says of a rotation."""
    turns = (TurnRecord(_indices(turn.ports), float(turn.lasts_ms)) for turn in rotation.turns)
    return RotationRecord(float(rotation.guard_ms), tuple(turns))


def _indices(ports: Mapping[Pair, int]) -> PortCounts:
    return tuple((index(a), index(b), index(count)) for (a, b), count in ports.items())
