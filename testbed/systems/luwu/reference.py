"""The reference of an owned tree at a place, packet by packet: slots and members' beats as in `OwnedPlace`,
with the numbers that packets carry. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from testbed.aggregation.entries import NO_IP, Entry
from testbed.reference_model.slots import Slot, difference
from testbed.wire import frame, spec
from testbed.wire.frame import Frame
from testbed.wire.operations import BY_OWNERS
from testbed.wire.verdicts import Verdict

_NO_BEAT = (0, 0)


@dataclass(slots=True)
class OwnedTree:
    """An owned tree of a job at a place; its slots are among `slots`."""

    entry: Entry
    slots: MutableSequence[Slot]
    beats: dict[int, tuple[int, int]] = field(default_factory=dict)  # by member
    sent: tuple[int, int] = _NO_BEAT

    def contribute(self, packet: Frame) -> tuple[Verdict, Frame | None]:
        """Add a push or partial; return the verdict on it, and the packet to send up, or None."""
        header, entry = packet.header, self.entry
        is_push = header.op == spec.Op.PUSH
        expected = entry.workers if is_push else entry.places
        if header.worker >= spec.MAX_WORKERS or not expected >> header.worker & 1:
            return Verdict.BAD_WORKER, None
        offset = (header.slot - entry.base) % 2**32
        if offset >= entry.size:
            return Verdict.BAD_SLOT, None
        held, bit = self.slots[entry.base + offset], 1 << header.worker
        newer = difference(header.fragment, held.fragment) if held.generation == entry.generation else 1
        if newer < 0:
            return Verdict.STALE, None
        if newer > 0:
            held = self.slots[entry.base + offset] = Slot(
                entry.generation, header.fragment, lanes=np.zeros(entry.lanes, np.uint32)
            )
        elif held.complete:
            return Verdict.RESENT, self._sum(held, packet, offset)
        elif held.members & bit:
            return Verdict.DUPLICATE, None
        held.lanes = held.lanes + packet.lanes  # modulo 2**32
        held.members |= bit
        held.contributors = (held.contributors + (1 if is_push else header.contributors)) % 2**32
        held.marked |= packet.is_marked
        held.is_end |= bool(header.flags & spec.Flag.END)
        held.count = header.count
        if held.members != entry.members:
            return Verdict.AGGREGATED, None
        held.complete = True
        return Verdict.COMPLETED, self._sum(held, packet, offset, frame.CE if held.marked else 0)

    def _sum(self, held: Slot, packet: Frame, offset: int, tos: int = 0) -> Frame:
        entry = self.entry
        header = replace(
            packet.header,
            op=spec.Op.SUM if entry.up_ip == NO_IP else spec.Op.PARTIAL,
            flags=spec.Flag.END if held.is_end else 0,
            worker=entry.number,
            contributors=held.contributors % 2**16,
            slot=entry.up_base + offset,
            count=held.count,
            age=0,
            reserved=0,
        )
        return replace(
            packet,
            header=header,
            lanes=held.lanes,
            source_ip=entry.self_ip,
            destination_ip=entry.to_ip,
            ttl=frame.TTL,
            tos=packet.tos | tos,
        )

    def hear(self, packet: Frame) -> tuple[Verdict, Frame | None]:
        """Process a member's beat; return the verdict on it, and the beat to send up, or None."""
        header, entry = packet.header, self.entry
        member = header.worker
        if member >= spec.MAX_WORKERS or not entry.members >> member & 1:
            return Verdict.BAD_WORKER, None
        came = header.fragment, header.slot
        ack, credit = self.beats.get(member, came)
        self.beats[member] = (
            came[0] if difference(came[0], ack) > 0 else ack,
            came[1] if difference(came[1], credit) > 0 else credit,
        )
        if sum(1 << each for each in self.beats) != entry.members:
            return Verdict.BEAT, None
        own = self.beats[member]
        least = (
            min((ack for ack, _ in self.beats.values()), key=lambda ack: difference(ack, own[0])),
            min((credit for _, credit in self.beats.values()), key=lambda credit: difference(credit, own[1])),
        )
        if least == self.sent and member != min(self.beats):
            return Verdict.BEAT, None
        self.sent = least
        return Verdict.BEAT, replace(
            packet,
            header=replace(header, flags=0, worker=entry.number, fragment=least[0], slot=least[1]),
            source_ip=entry.self_ip,
            destination_ip=entry.to_ip,
            ttl=frame.TTL,
        )


class ReferenceOwned:
    """The owned trees of a reference aggregator, by job and tree."""

    has_slots = True
    passes: Mapping[int, Verdict] = MappingProxyType(
        {op: Verdict.RESULT if op == spec.Op.PARAMETERS else Verdict.BEAT for op in BY_OWNERS}
    )

    def __init__(self, slots: MutableSequence[Slot]) -> None:
        self._slots = slots
        self._trees: dict[tuple[int, int], OwnedTree] = {}

    def admit(self, number: int, entry: Entry) -> None:
        """Add a tree without beats; a tree of the same generation keeps its state."""
        known = self._trees.get((number, entry.tree))
        if known and known.entry.generation == entry.generation:
            known.entry = entry
        else:
            self._trees[number, entry.tree] = OwnedTree(entry, self._slots)

    def release(self, number: int, tree: int) -> None:
        """Remove a tree; do nothing if it is unknown."""
        self._trees.pop((number, tree), None)

    def react(self, packet: Frame) -> tuple[Verdict, Frame | None]:
        """Process a contribution or a beat; return the verdict on it, and the packet to send up, or None."""
        tree, op = self.tree(packet.header.job, packet.header.tree), packet.header.op
        if op in (spec.Op.PUSH, spec.Op.PARTIAL):
            return tree.contribute(packet)
        return tree.hear(packet) if op == spec.Op.PARAMETER_BEAT else (Verdict.MALFORMED, None)

    def tree(self, number: int, tree: int = 0) -> OwnedTree:
        """Return the state of a tree."""
        return self._trees[number, tree]
