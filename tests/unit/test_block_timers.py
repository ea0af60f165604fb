"""The timers of block records, on a table in memory that no program has: what they tick, and what not."""

from __future__ import annotations

import mmap
import os
import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest

from testbed.aggregation.entries import Entry
from testbed.systems.trio.contract import BLOCK, BUCKET, BUCKET_RECORD
from testbed.systems.trio.xdp.timers import MappedTable, Timers
from testbed.wire import spec
from testbed.wire.frame import Frame
from tests.vectors.blocks import job, terms

BUCKETS, RECORD, SERIAL, JOB = 64, 5, 77, 9
LATE_S = 20.0


class Table:
    """Buckets and records as the programs would have them."""

    def __init__(self) -> None:
        kinds = BUCKET_RECORD.dtype(), BLOCK.dtype(spec.LANES)
        self.fds, self._maps = [], []
        views = []
        for kind, count in zip(kinds, (BUCKETS, BUCKET * BUCKETS), strict=True):
            fd = os.memfd_create("table")
            os.truncate(fd, -(-kind.itemsize * count // mmap.PAGESIZE) * mmap.PAGESIZE)
            self.fds.append(fd)
            views.append(np.frombuffer(mmap.mmap(fd, 0), kind, count))
        self.buckets, self.records = views

    def wait(self, number: int, fragment: int, sources: int, slot: int, serial: int = SERIAL) -> None:
        """Have a record wait with so many sources."""
        bucket, place = divmod(number, BUCKET)
        self.records[number]["touched_ns"] = time.monotonic_ns()
        self.records[number]["job"], self.records[number]["slot"] = RECORD, slot
        self.buckets[bucket]["keys"][place] = serial << 33 | fragment
        self.buckets[bucket]["marks"][place] = (fragment << 9 | sources) & 0xFFFFFFFF

    def done(self, number: int) -> None:
        self.buckets[number // BUCKET]["marks"][number % BUCKET] = 0


def entry(age_out_ms: float) -> Entry:
    return job(3, terms=terms(age_out_ms=age_out_ms))


@pytest.fixture
def table() -> Iterator[Table]:
    made = Table()
    yield made
    for fd in made.fds:
        os.close(fd)


@pytest.fixture(params=[1, 16, 100])
def timed(request: pytest.FixtureRequest, table: Table) -> Iterator[tuple[Timers, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    timers = Timers(
        MappedTable(*table.fds, BUCKETS, BLOCK.dtype(spec.LANES).itemsize), 12, ours, request.param
    )
    try:
        theirs.settimeout(LATE_S)
        yield timers, theirs
    finally:
        timers.close()
        theirs.close()


def test_a_block_that_nobody_contributes_to_is_ticked(
    table: Table, timed: tuple[Timers, socket.socket]
) -> None:
    timers, ticks = timed
    timers.set(RECORD, SERIAL, JOB, entry(20.0))
    began = time.monotonic()
    table.wait(13, 2**31 + 12345, 2, slot=18)
    data = ticks.recv(1 << 16)
    waited_s = time.monotonic() - began
    assert int.from_bytes(data[6:10], "little") == 12, "the device that stands for the place"
    frame = Frame.parse(data)  # its checksum is right
    header = frame.header
    assert (header.op, header.job, header.tree) == (spec.Op.TICK, JOB, 0)
    assert (header.fragment, header.slot, header.contributors) == (2**31 + 12345, 18, 2)
    assert waited_s >= 0.02
    assert header.age >= 20
    assert not frame.lanes.any()


def test_sources_that_blocks_waited_for_in_vain_are_told_once(
    table: Table, timed: tuple[Timers, socket.socket]
) -> None:
    timers, ticks = timed
    timers.set(RECORD, SERIAL, JOB, entry(20.0))
    table.records[13]["awaits"], table.records[13]["sources"] = (0b1011, 0, 0, 1), (0b0010, 0, 0, 0)
    table.wait(13, 7, 1, slot=1)
    assert timers.lacked(RECORD) == 0
    ticks.recv(1 << 16)
    table.done(13)
    assert timers.lacked(RECORD) == 0b1001 | 1 << 192
    assert timers.lacked(RECORD) == 0


def test_a_contribution_begins_the_wait_again(table: Table, timed: tuple[Timers, socket.socket]) -> None:
    timers, ticks = timed
    timers.set(RECORD, SERIAL, JOB, entry(100.0))
    for sources in (1, 2, 3):
        table.wait(13, 7, sources, slot=1)
        time.sleep(0.03)
    assert Frame.parse(ticks.recv(1 << 16)).header.contributors == 3
    table.done(13)


def test_a_block_does_not_inherit_the_wait_of_a_gone_job(
    table: Table, timed: tuple[Timers, socket.socket]
) -> None:
    """A job that starts again numbers its blocks as before, and their places and marks are the same."""
    timers, ticks = timed
    timers.set(RECORD, SERIAL, JOB, entry(100.0))
    table.wait(13, 7, 1, slot=1, serial=SERIAL - 1)
    time.sleep(0.2)
    began = time.monotonic()
    table.wait(13, 7, 1, slot=1)
    ticks.recv(1 << 16)
    assert time.monotonic() - began >= 0.1


def test_what_is_complete_or_of_no_job_is_left_alone(
    table: Table, timed: tuple[Timers, socket.socket]
) -> None:
    timers, ticks = timed
    timers.set(RECORD, SERIAL, JOB, entry(5.0))
    table.wait(13, 7, 1, slot=1, serial=SERIAL + 1)  # another job's, which is gone
    table.wait(14, 8, 1, slot=2)
    table.done(14)
    table.wait(500, 9, 1, slot=3)
    assert Frame.parse(ticks.recv(1 << 16)).header.fragment == 9
    timers.forget(RECORD)
    while True:  # what was sent before
        ticks.setblocking(False)
        try:
            assert Frame.parse(ticks.recv(1 << 16)).header.fragment == 9
        except BlockingIOError:
            break
    counts = timers.counts()
    assert counts.visited > 0
    assert counts.ticks >= 1


def test_a_tick_that_does_nothing_comes_again_less_and_less_often(
    table: Table, timed: tuple[Timers, socket.socket]
) -> None:
    timers, ticks = timed
    timers.set(RECORD, SERIAL, JOB, entry(5.0))
    table.wait(13, 7, 1, slot=1)
    ages = [Frame.parse(ticks.recv(1 << 16)).header.age for _ in range(5)]
    assert all(age >= least for age, least in zip(ages, (5, 10, 20, 40, 80), strict=True)), ages
