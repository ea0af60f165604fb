"""The timers of a P4 switch that sums by block records: a thread that sends a tick for each block without a
contribution during its job's timeout (docs/trio.md). A pipelined switch has no timers of its own: its control
plane reads the marks of all records at once, and remembers when it saw each change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.aggregation.entries import Entry, Tick
from testbed.aggregation.ticks import tick_frame
from testbed.dataplanes.bmv2.control_port import AwayError
from testbed.dataplanes.bmv2.switch_client import NoAnswerError, SwitchClient
from testbed.errors import TestbedError
from testbed.systems.trio.bmv2.records import BlockRow
from testbed.systems.trio.contract import P4_RECORDS
from testbed.systems.trio.terms import terms_of
from testbed.topology.addresses import Dpid

VISITS = 4  # readings of each mark within a timeout
BLOCK_SHIFT, SLOT_SHIFT = 24, 8  # fields of a mark: block, slot, and sources received
_BUSY = 3  # wait at least this many times as long as a reading took before the next one
_MOST_DOUBLED = 6  # how often the time until the next tick is doubled at most


@dataclass(frozen=True, slots=True)
class TimedTree:
    """A tree of job `number` with blocks that age out, and its records."""

    number: int
    entry: Entry
    row: BlockRow

    @property
    def timeout_s(self) -> float:
        """The seconds that its blocks wait."""
        return terms_of(self.entry).age_out_ms / 1e3


class SeenMarks:
    """The marks of a switch's records at the last reading, and since when each has been unchanged. Pure."""

    def __init__(self) -> None:
        self._marks = np.zeros(P4_RECORDS, np.int64)
        self._since = np.zeros(P4_RECORDS)
        self._due = np.full(P4_RECORDS, np.inf)
        self._ticks = np.zeros(P4_RECORDS, np.int64)  # ticks sent for the present mark
        self._starts: dict[int, tuple[int, int, int]] = {}  # (job, tree, generation) by first record

    def due(self, read: Sequence[int], now: float, timed: Iterable[TimedTree]) -> list[tuple[Entry, Tick]]:
        """Return the ticks that are due, given marks read at time `now`, in seconds."""
        marks, timed = np.array(read, np.int64), list(timed)
        changed = marks != self._marks
        for tree in timed:  # a new start inherits the marks of the row's earlier tree
            start = tree.number, tree.entry.tree, tree.entry.generation
            changed[tree.row.first : tree.row.end] |= self._starts.get(tree.row.first) != start
            self._starts[tree.row.first] = start
        self._marks, self._since[changed], self._ticks[changed] = marks, now, 0
        ticks = []
        for tree in timed:
            row = slice(tree.row.first, tree.row.end)
            self._due[row][changed[row]] = now + tree.timeout_s
            waiting = np.flatnonzero((marks[row] != 0) & (self._due[row] <= now)) + tree.row.first
            ticks += [self._tick(tree, int(at), now) for at in waiting]
        return ticks

    def _tick(self, tree: TimedTree, at: int, now: float) -> tuple[Entry, Tick]:
        """Make the tick for a record. A tick repeats, since a source may not have been ready for it; the
        interval doubles each time.
        """
        mark, entry = int(self._marks[at]), tree.entry
        self._ticks[at] = min(self._ticks[at] + 1, _MOST_DOUBLED)
        self._due[at] = now + tree.timeout_s * (1 << int(self._ticks[at]))
        slot, sources = mark >> SLOT_SHIFT & (1 << BLOCK_SHIFT - SLOT_SHIFT) - 1, mark & (1 << SLOT_SHIFT) - 1
        age_ms = round((now - float(self._since[at])) * 1e3)
        block = mark >> BLOCK_SHIFT
        return entry, Tick(tree.number, entry.generation, entry.tree, slot, block, age_ms, sources)


class MarkTimers:
    """The timers of one switch: a thread that starts with the first tree. `send` passes a frame to the
    switch. `failed` is called with the reason when ticks cannot be sent, unless the switch has ended or is
    unreachable.
    """

    def __init__(self, dpid: Dpid, send: Callable[[bytes], None], failed: Callable[[str], object]) -> None:
        self._dpid, self._send, self._failed = dpid, send, failed
        self._timed: dict[tuple[int, int], TimedTree] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ends = False
        self._thread: threading.Thread | None = None
        self._seen = SeenMarks()

    def set(self, number: int, entry: Entry, row: BlockRow) -> None:
        """Let the blocks of a tree of job `number` age out by its entry's terms."""
        with self._lock:
            self._timed[number, entry.tree] = TimedTree(number, entry, row)
            if self._thread is None:
                self._ends = False
                self._thread = threading.Thread(target=self._run, name="block timers", daemon=True)
                self._thread.start()
        self._wake.set()

    def forget(self, number: int, tree: int) -> None:
        """Stop ageing out a tree's blocks."""
        with self._lock:
            self._timed.pop((number, tree), None)

    def close(self) -> None:
        """Stop the thread."""
        with self._lock:
            self._timed.clear()
            self._ends, thread = True, self._thread
            self._thread = None
        self._wake.set()
        if thread:
            thread.join()

    def _run(self) -> None:
        client = SwitchClient(self._dpid)
        try:
            while not self._ends:
                with self._lock:
                    timed = list(self._timed.values())
                began = time.monotonic()
                if timed:
                    try:
                        self._look(client, timed)
                    except (NoAnswerError, AwayError):
                        pass  # the switch ended or restarts; or the next round asks again
                    except TestbedError as error:
                        self._failed(str(error))
                took = time.monotonic() - began
                period = min((each.timeout_s for each in timed), default=None)
                self._wake.wait(None if period is None else max(period / VISITS - took, _BUSY * took))
                self._wake.clear()
        finally:
            client.close()

    def _look(self, client: SwitchClient, timed: list[TimedTree]) -> None:
        """Read all marks, and send the ticks that are due."""
        marks = client.register("block_marks")
        for entry, tick in self._seen.due(marks, time.monotonic(), timed):
            self._send(tick_frame(tick, entry))
