"""An optimizer node tells how far it is: rates are of the time since the last look, room of the credits."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from testbed.wire import service_status
from workloads.luwu.errors import LuwuError
from workloads.luwu.rates import Rates
from workloads.luwu.standing import DiskNow, Now, StatusWriter, StreamCredit, standing

GIVEN = {"ack": 5, "next": 7, "credit": 69}
GOTTEN = {"ack": 11, "next": 3, "credit": 67}
NOW = Now(
    iteration=4,
    layers=3,
    call="pull",
    layer="blocks.1",
    pulls=2,
    pushes=1,
    given=GIVEN,
    gotten=GOTTEN,
    disks=(DiskNow("/a", (1, 2, 3), 7_000_000, 9_000_000), DiskNow("/b", (0, 0, 0), 0, 0)),
)


def test_rates_are_since_the_last_look() -> None:
    later = replace(NOW, disks=(replace(NOW.disks[0], read_bytes=12_000_000), NOW.disks[1]))
    shown = standing(later, NOW, 0.5)
    assert [(disk.read_mb_s, disk.write_mb_s) for disk in shown.disks] == [(10.0, 0.0), (0.0, 0.0)]
    assert shown.credit_fragments == StreamCredit(parameters=62, gradients=56)
    assert shown.lines == (
        "iteration 4 whole; now pull of layer blocks.1; under way: 2 pulls, 1 pushes",
        "credit for 62 fragments of parameters, 56 of gradients",
        "disk /a: reads 10.0, writes 0.0 MB/s; queues: parameters 1, states 2, writes 3",
        "disk /b: reads 0.0, writes 0.0 MB/s; queues: parameters 0, states 0, writes 0",
    )
    assert standing(NOW, None, 0.5).disks[0].read_mb_s == 0.0, "nothing is known before the first look"


def test_many_disks_have_room_on_a_slate() -> None:
    many = replace(NOW, disks=tuple(DiskNow(f"/states/{n}" + "x" * 80, (1, 2, 3), n, n) for n in range(40)))
    memory = memoryview(bytearray(service_status.SLATE_BYTES))
    service_status.write(memory, standing(many, many, 1.0))
    read = service_status.read(memory)
    assert read is not None
    assert read["lines"][-1] == "and 24 disks more"


def test_a_teller_writes_until_it_ends() -> None:
    fd = os.memfd_create("slate", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, service_status.SLATE_BYTES)
        looks: list[int] = []

        def look() -> Now:
            looks.append(1)
            return replace(NOW, iteration=len(looks))

        with StatusWriter(fd, look, every_s=0.01):
            end = time.monotonic() + 20
            while len(looks) < 3 and time.monotonic() < end:
                time.sleep(0.01)
        read = service_status.read(memoryview(os.pread(fd, service_status.SLATE_BYTES, 0)))
        assert read is not None
        assert read["iteration"] == len(looks) >= 3
        with StatusWriter(-1, look):
            pass
        assert read["iteration"] == len(looks), "without a slate nobody looks"
    finally:
        os.close(fd)


def test_rates_are_read_from_a_line() -> None:
    assert Rates.parsed("reads=2.2e9,write_states=1e9").scaled(100) == Rates(reads=22e6, write_states=1e7)
    for text in ("", "reads", "reads=x", "reads=1,reads=2", "writes=1", "reads=nan"):
        with pytest.raises(LuwuError, match="accepted is NAME=BYTES_A_SECOND, each once, of read_parameters"):
            Rates.parsed(text)
    for scale in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(LuwuError, match="accepted is a number above 0"):
            Rates(reads=1.0).scaled(scale)
