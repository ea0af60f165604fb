"""The interfaces of a program's own part of the reference aggregator. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from testbed.aggregation.entries import Entry
from testbed.reference_model.slots import Slot
from testbed.wire import spec
from testbed.wire.frame import Frame
from testbed.wire.verdicts import Verdict


class HeldSum(Protocol):
    """A sum that a place holds: a slot, or what a program has in its stead."""

    @property
    def final(self) -> bool: ...
    @property
    def degraded(self) -> bool: ...
    @property
    def marked(self) -> bool: ...
    @property
    def contributors(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def age(self) -> int: ...
    @property
    def lanes(self) -> npt.NDArray[np.uint32]: ...


Summed = tuple[Verdict, HeldSum | None]
"""The verdict on a packet, and the sum that is sent because of it."""


class ModelPart(Protocol):
    """A program's part of one reference aggregator; it is made with that one's slots."""

    has_slots: bool  # whether its trees have segments of them

    def admit(self, number: int, entry: Entry) -> None:
        """Take a tree of job `number`; what is there of its generation stays."""

    def release(self, number: int, tree: int) -> None:
        """Take the tree away; nothing if it is not here."""


@runtime_checkable
class SummingPart(ModelPart, Protocol):
    """A part of a program that sums by other means than slots; packets are those of any tree."""

    unknown: frozenset[spec.Op]  # operations that a switch does not take for its trees

    def add(self, packet: Frame) -> Summed:
        """Add a contribution."""

    def tick(self, packet: Frame) -> Summed:
        """Complete a sum without those that are missing."""

    def keep(self, packet: Frame) -> None:
        """Keep a result that came from above."""


@runtime_checkable
class PassingPart(ModelPart, Protocol):
    """A part of a program whose trees have packets of their own at switches, and are not ticked. Those of the
    operations in `passes` go on to a tree's group, and get that verdict.
    """

    passes: Mapping[int, Verdict]

    def react(self, packet: Frame) -> tuple[Verdict, Frame | None]:
        """Return the verdict on a packet that is for this switch, and what goes up because of it."""


MakePart = Callable[[MutableSequence[Slot]], ModelPart]
