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
    """A sum that a place holds: a slot, or a program's equivalent."""

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
    """A program's part of one reference aggregator, made with that one's slots."""

    has_slots: bool  # whether its trees have segments of the slots

    def admit(self, number: int, entry: Entry) -> None:
        """Add a tree of job `number`; state of the same generation stays."""

    def release(self, number: int, tree: int) -> None:
        """Remove a tree; do nothing if it is unknown."""


@runtime_checkable
class SummingPart(ModelPart, Protocol):
    """A part of a program that sums by other means than slots; packets may be of any of its trees."""

    unknown: frozenset[spec.Op]  # operations that a switch rejects for its trees

    def add(self, packet: Frame) -> Summed:
        """Add a contribution."""

    def tick(self, packet: Frame) -> Summed:
        """Complete a sum without its missing sources."""

    def keep(self, packet: Frame) -> None:
        """Store a result from the parent."""


@runtime_checkable
class PassingPart(ModelPart, Protocol):
    """A part of a program whose trees have packets of their own at switches, and no ticks. Packets with the
    operations in `passes` are forwarded to a tree's group, with that verdict.
    """

    passes: Mapping[int, Verdict]

    def react(self, packet: Frame) -> tuple[Verdict, Frame | None]:
        """Process a packet addressed to this switch; return the verdict, and the packet to send up,
        or None.
        """


MakePart = Callable[[MutableSequence[Slot]], ModelPart]
