"""The core's program: it sums a tree in a segment of each place's slots. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from testbed.aggregation.forest import Forest
from testbed.aggregation.packets import Packets
from testbed.aggregation.program import SUM, Capacity, Grant, Key, PlacePool
from testbed.aggregation.segments import Segments
from testbed.aggregation.system import Layout
from testbed.errors import RequestError
from testbed.topology.units import Unit
from testbed.wire.mapping import MIN_SLOTS
from testbed.wire.places import GROUP_SLOTS
from testbed.wire.records import Record
from testbed.wire.recovery import Recovery

_GROUP_SIZES = GROUP_SLOTS // 6, GROUP_SLOTS // 12  # slots of a group's segments: the first that fits


@dataclass(frozen=True, slots=True)
class SlotPool:
    """The segments of one place, as a program's pool."""

    segments: Segments

    def take(self, key: Key, size: int, terms: object | None, is_lent: bool) -> int:
        return (self.segments.lend if is_lent else self.segments.take)(key, size)

    def free(self, key: Key) -> None:
        self.segments.free(key)

    def jobs(self) -> int:
        return self.segments.jobs()


class SlotProgram:
    """Gives each tree a segment: an equal share of a place's slots, or as many as its job requests."""

    name, shares = SUM, "slots"
    sources: Mapping[str, Path] = MappingProxyType({"xdp": Path("sum.h"), "bmv2": Path("sum.p4")})
    parts: Mapping[str, str] = MappingProxyType({})
    maps: Mapping[str, Record] = MappingProxyType({})

    def check(self, layout: Layout, packets: Packets, engines: Mapping[Unit, str]) -> None:
        """Raise RequestError for choices that slots do not support: options of other programs, and questions
        to a program that is not the core's own.
        """
        if packets.recovery is Recovery.INTEGRITY and self.name != SUM:
            raise RequestError(
                f"--recovery {packets.recovery}: program {self.name!r} answers no questions; "
                f"{Recovery.WINDOW} is accepted"
            )
        if packets.choices:
            first = min(packets.choices, key=lambda choice: choice.flag)
            raise RequestError(first.refusal(layout.system))

    def grant(
        self, job: int, forest: Forest, packets: Packets, capacity: Capacity, size: int | None
    ) -> Grant:
        """Grant segments of `size` slots, or of an equal share divided among the job's trees."""
        trees = len(forest.trees)
        if size is None:
            size = Segments(capacity.slots, capacity.topology.inc.jobs).default_size // trees
        if not MIN_SLOTS <= size <= capacity.slots // trees:
            among = f" for each of {trees} trees" if trees > 1 else ""
            raise RequestError(
                f"job {job}: a segment of {size} slots{among}; {MIN_SLOTS} to {capacity.slots // trees} are "
                f"accepted"
            )
        return Grant(size)

    def grants_of_groups(self, grant: Grant, trees: int) -> Sequence[Grant]:
        """Return a sixth of the slots that are reserved for groups, and a twelfth; groups never use jobs'
        slots.
        """
        return [Grant(max(size // trees, MIN_SLOTS)) for size in _GROUP_SIZES]

    def pool(self, capacity: Capacity, slots: int) -> PlacePool:
        return SlotPool(Segments(slots, capacity.topology.inc.jobs, GROUP_SLOTS))
