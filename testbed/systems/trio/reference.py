"""The reference of a place's table of block records: which record a packet uses, when a record is created,
who contributes to it, and when it may be reused (docs/trio.md). Pure; processes one packet at a time.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from testbed.aggregation.entries import Entry, Role
from testbed.reference_model.parts import Summed
from testbed.reference_model.slots import Slot, contributors_of, difference
from testbed.systems.trio.contract import BUCKET, BUCKETS, MOST_SOURCES, Space, salts
from testbed.systems.trio.terms import BlockTerms, terms_of
from testbed.wire import frame, spec
from testbed.wire.codec import Header
from testbed.wire.frame import Frame
from testbed.wire.mapping import FIRST_VOTE
from testbed.wire.verdicts import Verdict

Lanes = npt.NDArray[np.uint32]
_FIRST = (0, FIRST_VOTE)  # block of each space


@dataclass(slots=True)
class Block:
    """A block's sum; the counterpart of a fragment's `Slot`."""

    job: JobRecord
    space: Space
    fragment: int
    awaits: int = 0
    members: int = 0
    count: int = 0
    age: int = 0
    contributors: int = 0
    complete: bool = False
    final: bool = False
    marked: bool = False
    degraded: bool = False
    lanes: Lanes = field(default_factory=lambda: frame.NO_LANES)

    @property
    def is_anybodys(self) -> bool:
        """Return whether the record may be reused for another block."""
        return self.job.is_gone or difference(self.fragment, self.job.floor[self.space]) < 0


@dataclass(slots=True)
class JobRecord:
    """The job record of a tree here."""

    entry: Entry
    terms: BlockTerms
    salt: tuple[int, int]
    floor: list[int] = field(default_factory=lambda: list(_FIRST))
    reached: list[dict[int, int]] = field(default_factory=lambda: [{}, {}])
    out: int = 0  # bitmap of absent sources
    active: int = 0
    made: int = 0
    is_gone: bool = False

    def has(self, space: Space, source: int) -> int:
        """Return the block before which a source has all results."""
        floor, window = self.floor[space], self.terms.window[space]
        reached = self.reached[space].get(source, _FIRST[space]) - window
        return floor if difference(reached, floor) < 0 else reached % 2**32

    def note(self, space: Space, source: int, fragment: int) -> None:
        """Record that a block came from a source."""
        behind = (fragment + 1) % 2**32
        if difference(behind, self.reached[space].get(source, _FIRST[space])) > 0:
            self.reached[space][source] = behind

    def rise(self, space: Space, to: int) -> None:
        """Raise the floor; a lower value is ignored."""
        if difference(to, self.floor[space]) > 0:
            self.floor[space] = to % 2**32


class BlockModel:
    """The records of one place, in `buckets` buckets, a power of two."""

    def __init__(self, buckets: int) -> None:
        self._buckets: list[list[Block | None]] = [[None] * BUCKET for _ in range(buckets)]

    def open(self, number: int, entry: Entry) -> JobRecord:
        """Create a job record for a tree of job `number`."""
        return JobRecord(entry, terms_of(entry), salts(number, entry.tree))

    def active(self, job: JobRecord) -> list[Block]:
        """Return a job's incomplete blocks."""
        blocks = (block for bucket in self._buckets for block in bucket)
        return [block for block in blocks if block and block.job is job and not block.complete]

    def add(
        self, job: JobRecord, header: Header, lanes: Lanes, is_marked: bool
    ) -> tuple[Verdict, Block | None]:
        """Add a contribution; return the verdict and the block that it concerns."""
        entry, source, fragment = job.entry, header.worker, header.fragment
        is_push = header.op == spec.Op.PUSH
        if source >= MOST_SOURCES or not (entry.workers if is_push else entry.places) >> source & 1:
            return Verdict.BAD_WORKER, None
        if header.slot >= entry.size:
            return Verdict.BAD_SLOT, None
        space = _space(job.terms, header.slot)
        block = self._find(job, space, fragment)
        if job.out >> source & 1 and difference(fragment, job.floor[space]) >= 0:
            if space is Space.VOTES and not (block and block.complete):
                job.out &= ~(1 << source)
            elif block is None:
                job.note(space, source, fragment)
                return Verdict.LATE, None
        if block is None:
            verdict, block = self._made(job, space, fragment, job.terms.cap)
            if block is None:
                return verdict, None
            job.active += 1
        job.note(space, source, fragment)
        if block.complete:
            return (Verdict.RESENT if block.members >> source & 1 else Verdict.LATE), block
        if block.members >> source & 1:
            return Verdict.DUPLICATE, block
        if not block.awaits >> source & 1:
            return Verdict.LATE, None
        block.lanes = block.lanes + lanes  # modulo 2**32
        block.members |= 1 << source
        block.contributors = (block.contributors + contributors_of(header)) % 2**32
        block.marked |= is_marked
        block.degraded |= bool(header.flags & spec.Flag.DEGRADED)
        block.count = header.count
        if block.members != block.awaits:
            return Verdict.AGGREGATED, block
        self._complete(block, 0 if is_push else header.age)
        if block.awaits == entry.members:
            job.rise(space, fragment - job.terms.window[space] + 1)
        return Verdict.COMPLETED, block

    def tick(self, job: JobRecord, header: Header) -> tuple[Verdict, Block | None]:
        """Complete a block without its missing sources."""
        if header.slot >= job.entry.size:
            return Verdict.BAD_SLOT, None
        space, fragment = _space(job.terms, header.slot), header.fragment
        block = self._find(job, space, fragment)
        if block is None or block.complete:
            return Verdict.TICK_LATE, None
        if header.contributors not in (0, block.members.bit_count()):
            return Verdict.TICK_LATE, None
        members = [source for source in range(MOST_SOURCES) if job.entry.members >> source & 1]
        for source in members:
            is_missing = not block.members >> source & 1
            has_left = job.out >> source & 1
            most = (job.terms.kept if has_left else job.terms.ahead)[space]
            if is_missing and difference(fragment, job.has(space, source)) >= most:
                return Verdict.TICK_EARLY, None
        least = min(members, key=lambda source: difference(job.has(space, source), job.floor[space]))
        job.rise(space, job.has(space, least))
        block.degraded = True
        self._complete(block, header.age)
        return Verdict.TICKED, block

    def keep(self, job: JobRecord, header: Header, lanes: Lanes) -> None:
        """Store a result from the parent; its slot is valid."""
        space, fragment = _space(job.terms, header.slot), header.fragment
        is_degraded = bool(header.flags & spec.Flag.DEGRADED)
        block = self._find(job, space, fragment) or self._made(job, space, fragment)[1]
        if block is None or block.final:
            return
        if not block.complete and block.members and not is_degraded:
            return  # a block that lacks a source here cannot have such a result
        job.active -= bool(block.members and not block.complete)
        block.lanes, block.count, block.age = lanes.copy(), header.count, header.age
        block.contributors, block.degraded = header.contributors, is_degraded
        block.complete = block.final = True

    @staticmethod
    def _complete(block: Block, age: int) -> None:
        block.complete, block.final, block.age = True, block.job.entry.role is Role.TOP, age
        block.job.active -= 1

    def _bucket(self, job: JobRecord, space: Space, fragment: int) -> list[Block | None]:
        return self._buckets[(fragment + job.salt[space]) % len(self._buckets)]

    def _find(self, job: JobRecord, space: Space, fragment: int) -> Block | None:
        if difference(fragment, job.floor[space]) < 0:
            return None
        for block in self._bucket(job, space, fragment):
            if block and (block.job is job, block.space, block.fragment) == (True, space, fragment):
                return block
        return None

    def _made(
        self, job: JobRecord, space: Space, fragment: int, cap: int | None = None
    ) -> tuple[Verdict, Block | None]:
        """Create a block's record, unless the job already has its maximum of active ones."""
        beyond = difference(fragment, job.floor[space])
        if beyond < 0:
            return Verdict.STALE, None
        if job.out and beyond >= job.terms.kept[space]:
            return Verdict.CAPPED, None
        if beyond >= job.terms.kept[space] + job.terms.window[space]:
            return Verdict.BAD_SLOT, None
        if cap is not None and job.active >= cap and beyond >= cap:
            return Verdict.CAPPED, None
        bucket = self._bucket(job, space, fragment)
        free = [place for place, block in enumerate(bucket) if block is None]
        free += [place for place, block in enumerate(bucket) if block and block.is_anybodys]
        if not free:
            return Verdict.CAPPED, None
        if (gone := bucket[free[0]]) and not gone.complete:
            gone.job.active -= 1
        job.made += 1
        awaits, lanes = job.entry.members & ~job.out, np.zeros(job.entry.lanes, np.uint32)
        made = bucket[free[0]] = Block(job, space, fragment, awaits, lanes=lanes)
        made.degraded = awaits != job.entry.members
        return Verdict.AGGREGATED, made


class ReferenceBlocks:
    """The block records of a reference aggregator, by job and tree."""

    has_slots = False
    unknown = frozenset({spec.Op.EMPTY, spec.Op.QUESTION})

    def __init__(self, _slots: MutableSequence[Slot]) -> None:
        self._table = BlockModel(BUCKETS)
        self._jobs: dict[tuple[int, int], JobRecord] = {}

    def admit(self, number: int, entry: Entry) -> None:
        """Create or update a tree's job record."""
        known = self._jobs.get((number, entry.tree))
        if known and known.entry.generation == entry.generation:
            known.entry, known.terms = entry, terms_of(entry)
        else:
            self._jobs[number, entry.tree] = self._table.open(number, entry)

    def release(self, number: int, tree: int) -> None:
        """Remove a tree's job record; its blocks' records may then be reused."""
        if job := self._jobs.pop((number, tree), None):
            job.is_gone = True

    def add(self, packet: Frame) -> Summed:
        """Add a contribution; return the verdict, and the block if its sum is sent."""
        verdict, block = self._table.add(self._job(packet), packet.header, packet.lanes, packet.is_marked)
        is_sent = verdict in (Verdict.COMPLETED, Verdict.RESENT, Verdict.LATE)
        return verdict, block if is_sent else None

    def tick(self, packet: Frame) -> Summed:
        """Complete a block without its missing sources."""
        return self._table.tick(self._job(packet), packet.header)

    def keep(self, packet: Frame) -> None:
        """Store a result from the parent."""
        self._table.keep(self._job(packet), packet.header, packet.lanes)

    def leave(self, number: int, tree: int, sources: int) -> None:
        """Remove sources (a bitmap) from a tree."""
        self._jobs[number, tree].out |= sources

    def record(self, number: int, tree: int = 0) -> JobRecord:
        """Return the job record of a tree."""
        return self._jobs[number, tree]

    def active(self, job: JobRecord) -> list[Block]:
        """Return a tree's incomplete blocks."""
        return self._table.active(job)

    def _job(self, packet: Frame) -> JobRecord:
        return self._jobs[packet.header.job, packet.header.tree]


def _space(terms: BlockTerms, slot: int) -> Space:
    return Space.VOTES if slot >= terms.data else Space.DATA
