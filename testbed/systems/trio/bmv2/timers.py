"""The timers of a P4 switch that sums by block records: a thread that ticks blocks to which nobody has
contributed for their job's timeout (docs/trio.md). A switch of stages has no timers of its own: its control
plane reads the marks of all its records at once, and remembers when it saw each change.
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

VISITS = 4  # of each mark within a timeout
BLOCK_SHIFT, SLOT_SHIFT = 24, 8  # of a mark: the block, the slot, and how many sources came
_BUSY = 3  # where reading takes long: times as long as that is waited between two readings, at least
_MOST_DOUBLED = 6  # how often the time until a tick comes again is doubled


@dataclass(frozen=True, slots=True)
class TimedTree:
    """A tree of job `number` whose blocks age out, and its records."""

    number: int
    entry: Entry
    row: BlockRow

    @property
    def timeout_s(self) -> float:
        """Return how long a block of it waits."""
        return terms_of(self.entry).age_out_ms / 1e3


class SeenMarks:
    """The marks of a switch's records as they were seen last, and since when. Pure."""

    def __init__(self) -> None:
        self._marks = np.zeros(P4_RECORDS, np.int64)
        self._since = np.zeros(P4_RECORDS)
        self._due = np.full(P4_RECORDS, np.inf)
        self._ticks = np.zeros(P4_RECORDS, np.int64)  # that were due for what a mark says
        self._starts: dict[int, tuple[int, int, int]] = {}  # of jobs' trees, by the row that each has

    def due(self, read: Sequence[int], now: float, timed: Iterable[TimedTree]) -> list[tuple[Entry, Tick]]:
        """Return the ticks that are due by marks which were read at `now`, in seconds."""
        marks, timed = np.array(read, np.int64), list(timed)
        changed = marks != self._marks
        for tree in timed:  # one that starts again has the marks of the one that was here
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
        """One that comes again, since a source was not ready for it, comes twice as seldom each time."""
        mark, entry = int(self._marks[at]), tree.entry
        self._ticks[at] = min(self._ticks[at] + 1, _MOST_DOUBLED)
        self._due[at] = now + tree.timeout_s * (1 << int(self._ticks[at]))
        slot, sources = mark >> SLOT_SHIFT & (1 << BLOCK_SHIFT - SLOT_SHIFT) - 1, mark & (1 << SLOT_SHIFT) - 1
        age_ms = round((now - float(self._since[at])) * 1e3)
        block = mark >> BLOCK_SHIFT
        return entry, Tick(tree.number, entry.generation, entry.tree, slot, block, age_ms, sources)


class MarkTimers:
    """The timers of one switch: a thread, from the first tree that is given to it on. `send` has the switch
    work on a frame. `failed` is told what keeps ticks from it, other than that it has ended or is away.
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
        """Have the blocks of a tree of job `number` age out as its entry says."""
        with self._lock:
            self._timed[number, entry.tree] = TimedTree(number, entry, row)
            if self._thread is None:
                self._ends = False
                self._thread = threading.Thread(target=self._run, name="block timers", daemon=True)
                self._thread.start()
        self._wake.set()

    def forget(self, number: int, tree: int) -> None:
        """Have a tree's blocks age out no more."""
        with self._lock:
            self._timed.pop((number, tree), None)

    def close(self) -> None:
        """End the thread."""
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
                        pass  # it ended, or is being started again, or is asked again in a moment
                    except TestbedError as error:
                        self._failed(str(error))
                took = time.monotonic() - began
                period = min((each.timeout_s for each in timed), default=None)
                self._wake.wait(None if period is None else max(period / VISITS - took, _BUSY * took))
                self._wake.clear()
        finally:
            client.close()

    def _look(self, client: SwitchClient, timed: list[TimedTree]) -> None:
        """Read all marks, and send the ticks that are due by them."""
        marks = client.register("block_marks")
        for entry, tick in self._seen.due(marks, time.monotonic(), timed):
            self._send(tick_frame(tick, entry))
