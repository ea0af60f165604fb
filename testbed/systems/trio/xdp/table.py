"""A place's table of block records in the XDP programs' maps, and the records of the jobs that share it
(docs/trio.md). Not thread-safe, except for methods that only read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from testbed.aggregation.entries import Entry
from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.syscall import (
    F_INNER_MAP,
    F_MMAPABLE,
    MAP_TYPE_ARRAY,
    map_create,
    map_delete,
    map_lookup,
    map_update,
    u32,
)
from testbed.systems.trio.contract import (
    BLOCK,
    BUCKET,
    BUCKET_RECORD,
    JOB_RECORD,
    MOST_JOB_RECORDS,
    MOST_SOURCES,
    buckets_for,
    salts,
)
from testbed.systems.trio.parts import BlockCounts
from testbed.systems.trio.standing import Reached, TreeStanding
from testbed.systems.trio.terms import terms_of
from testbed.systems.trio.xdp.shared_records import SharedRecords
from testbed.systems.trio.xdp.timers import MappedTable, TimerCounts, Timers, control_socket
from testbed.wire.mapping import FIRST_VOTE
from testbed.wire.places import MAX_AGGREGATORS
from testbed.wire.records import Column, columns, filled

Key = tuple[int, int]  # a job's number, and one of its trees
_FLAGS = F_MMAPABLE | F_INNER_MAP
_WORDS = MOST_SOURCES // 64
_RECORD = JOB_RECORD.dtype()


@dataclass(frozen=True, slots=True, eq=False)
class JobCounts:
    """The members of a job record (JOB_RECORD) that a place reads."""

    workers: Column
    places: Column
    out: Column
    floor: Column
    serial: np.uint32
    active: np.uint32
    made: np.uint32
    missed: Column
    reached: Column


class BlockTable:
    """The table of one place."""

    has_slots = False

    def __init__(self, cells: Cells, ifindex: int) -> None:
        """Create the table. `ifindex` is the device that represents the place; its timers send
        ticks there.
        """
        self._ifindex = ifindex
        self._timers: Timers | None = None
        self._cells, self._programs = cells, cells.programs
        self.buckets = buckets = buckets_for(self._programs.lanes, cells.inc.blocks)
        self._records: dict[Key, int] = {}
        cells.add_kind("tables", "tables of block records", MAX_AGGREGATORS)
        job_records = "job records of trees that are summed by blocks"
        cells.add_kind("job_records", job_records, MOST_JOB_RECORDS)
        self._cell = cells.take("tables")
        self._fds: list[int] = []
        sizes = {
            "block_buckets": (BUCKET_RECORD.dtype().itemsize, buckets),
            "block_tables": (BLOCK.dtype(self._programs.lanes).itemsize, BUCKET * buckets),
        }
        try:
            for name, (item, count) in sizes.items():
                fd = map_create(MAP_TYPE_ARRAY, 4, item, count, _FLAGS, name)
                self._fds.append(fd)
                map_update(self._programs.map_fd(name), u32(self._cell), u32(fd))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the memory and the job records."""
        if self._timers:
            self._timers.close()
            self._timers = None
        for key in list(self._records):
            self.release(*key)
        for name in ("block_buckets", "block_tables"):
            map_delete(self._programs.map_fd(name), u32(self._cell))
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()
        if "_shared" in self.__dict__:
            self._shared.close()
        self._cells.free("tables", self._cell)

    def admit(self, number: int, entry: Entry, is_new: bool) -> Mapping[str, int]:
        """Write the job record of a tree of job `number`, unless it exists. Return the indices of the table
        and of the record.
        """
        key = (number, entry.tree)
        if is_new or key not in self._records:
            if key not in self._records:
                self._records[key] = self._cells.take("job_records")
            serial = self._cells.serial()
            record = self._record(number, entry, serial)
            map_update(self._programs.map_fd("job_records"), u32(self._records[key]), record.tobytes())
            if terms_of(entry).age_out_ms:
                self._made_timers().set(self._records[key], serial, number, entry)
        return {"aggregator": self._cell, "record": self._records[key]}

    def _record(self, number: int, entry: Entry, serial: int) -> np.ndarray:
        terms = terms_of(entry)
        return filled(
            _RECORD,
            workers=_words(entry.workers),
            places=_words(entry.places),
            serial=serial,
            expected=entry.members.bit_count(),
            table=self._cell,
            buckets=self.buckets,
            cap=terms.cap,
            salt=salts(number, entry.tree),
            data=terms.data,
            slots=entry.size,
            window=terms.window,
            kept=terms.kept,
            ahead=terms.ahead,
            floor=(0, FIRST_VOTE),
            reached=[0] * MOST_SOURCES + [FIRST_VOTE] * MOST_SOURCES,
        )

    def release(self, number: int, tree: int) -> None:
        """Free the job record of a tree, if there is one. Its blocks' records may then be reused."""
        index = self._records.pop((number, tree), None)
        if index is not None:
            if self._timers:
                self._timers.forget(index)
            empty = bytes(_RECORD.itemsize)
            map_update(self._programs.map_fd("job_records"), u32(index), empty)
            self._cells.free("job_records", index)

    def timer_counts(self) -> TimerCounts | None:
        """Return the counters of the timers; None if there are none."""
        return self._timers.counts() if self._timers else None

    def failure(self) -> str | None:
        """Return why blocks no longer age out; None if they do, or if there are no timers."""
        return self._timers.failure() if self._timers else None

    def _made_timers(self) -> Timers:
        if self._timers is None:
            record_bytes = BLOCK.dtype(self._programs.lanes).itemsize
            mapped = MappedTable(self._fds[0], self._fds[1], self.buckets, record_bytes)
            self._timers = Timers(mapped, self._ifindex, control_socket(), self._cells.inc.timers)
        return self._timers

    def counts(self, number: int, tree: int) -> BlockCounts | None:
        """Return the counts of a tree's blocks; None for an unknown tree."""
        if (index := self._records.get((number, tree))) is None:
            return None
        job = self._job(index)
        if not job.serial:  # released meanwhile
            return None
        missed = {int(source): int(job.missed[source]) for source in np.flatnonzero(job.missed)}
        return BlockCounts(int(job.made), int(job.active), missed)

    def standing(self, number: int, tree: int) -> TreeStanding | None:
        """Return the standing of a tree's sources; None for an unknown tree or one without timers. Each call
        reports `lacked` only since the previous call.
        """
        if (index := self._records.get((number, tree))) is None or self._timers is None:
            return None
        job = self._job(index)
        if not job.serial:
            return None
        workers, places, out = (_bitmap(words) for words in (job.workers, job.places, job.out))
        members = [source for source in range(MOST_SOURCES) if (workers | places) >> source & 1]
        reached = {
            source: (int(job.reached[source]), int(job.reached[MOST_SOURCES + source])) for source in members
        }
        return TreeStanding(self._timers.lacked(index), out, reached, int(job.made))

    def leave(self, number: int, tree: int, sources: int) -> None:
        """Remove sources (a bitmap) from a tree, one word at a time: programs may clear bits at the same
        moment.
        """
        if (index := self._records.get((number, tree))) is not None:
            for place in range(_WORDS):
                if word := sources >> 64 * place & (1 << 64) - 1:
                    self._shared.set_bits(index, place, word)

    def hear(self, number: int, tree: int, source: int, reached: Reached) -> None:
        """Record a source's progress, if it exceeds what its own packets showed. If a packet updates it at
        the same moment, either value may remain; neither is too large.
        """
        if (index := self._records.get((number, tree))) is not None:
            self._shared.note(index, source, reached)

    def rise(self, number: int, tree: int, floors: Reached) -> None:
        """Raise the floors of a tree; lower values are ignored."""
        if (index := self._records.get((number, tree))) is not None:
            self._shared.rise(index, floors)

    @cached_property
    def _shared(self) -> SharedRecords:
        return SharedRecords(self._programs.map_fd("job_records"))

    def job(self, number: int, tree: int = 0) -> JobCounts:
        """Read the job record of a tree from the map."""
        return self._job(self._records[number, tree])

    def _job(self, index: int) -> JobCounts:
        raw = map_lookup(self._programs.map_fd("job_records"), u32(index), _RECORD.itemsize)
        return columns(JobCounts, np.frombuffer(raw or b"", _RECORD)[0])


def _words(bitmap: int) -> list[int]:
    return [bitmap >> 64 * word & (1 << 64) - 1 for word in range(_WORDS)]


def _bitmap(words: np.ndarray) -> int:
    return sum(int(word) << 64 * place for place, word in enumerate(words))
