"""Report an optimizer node's progress for `testbed status`: call, layer, the tree's credits, the disks'
queues and rates. Writes the job's slate (testbed/wire/service_status.py), and imports nothing of torch.
"""

from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from testbed.wire import service_status

_EVERY_S = 0.5
_MOST_DISKS = 16  # disks with a line of their own


@dataclass(frozen=True, slots=True)
class DiskNow:
    """A disk at one moment: the requests that wait in each queue, the most urgent queue first, and the bytes
    read and written so far.
    """

    folder: str
    waiting: tuple[int, int, int]
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, slots=True)
class Now:
    """A node at one moment.

    `layer` is empty for a call that has none. `given` and `gotten` are the streams of the tree's end
    (workloads/luwu/contract.py): parameters are given, gradients gotten.
    """

    iteration: int
    layers: int
    call: str
    layer: str
    pulls: int
    pushes: int
    given: Mapping[str, int]
    gotten: Mapping[str, int]
    disks: tuple[DiskNow, ...]


@dataclass(frozen=True, slots=True)
class DiskStanding:
    """A disk in the node's status: the requests that wait in each queue, and the rates since the last
    status.
    """

    folder: str
    waiting: tuple[int, int, int]
    read_mb_s: float
    write_mb_s: float


@dataclass(frozen=True, slots=True)
class StreamCredit:
    """Each stream's credit, in fragments."""

    parameters: int
    gradients: int


@dataclass(frozen=True, slots=True)
class Streams:
    """The counters of each stream of the tree's end."""

    parameters: Mapping[str, int]
    gradients: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStanding:
    """A node's part of its job's status; `lines` are for people."""

    lines: tuple[str, ...]
    iteration: int
    layers: int
    call: str
    layer: str
    pulls: int
    pushes: int
    streams: Streams
    credit_fragments: StreamCredit
    disks: tuple[DiskStanding, ...]


def standing(now: Now, before: Now | None, passed_s: float) -> NodeStanding:
    """Make a node's status from its present state, with rates since the state `before`, `passed_s` seconds
    ago.
    """
    disks = list[DiskStanding]()
    for number, disk in enumerate(now.disks):
        moved = (0, 0)
        if before is not None and passed_s > 0:
            old = before.disks[number]
            moved = (disk.read_bytes - old.read_bytes, disk.written_bytes - old.written_bytes)
        read, written = (round(each / max(passed_s, 1e-9) / 1e6, 3) for each in moved)
        disks.append(DiskStanding(disk.folder, disk.waiting, read, written))
    credit = StreamCredit(
        parameters=max(0, now.given["credit"] - now.given["next"]),
        gradients=max(0, now.gotten["credit"] - now.gotten["ack"]),
    )
    return NodeStanding(
        lines=tuple(_lines(now, credit, disks)),
        iteration=now.iteration,
        layers=now.layers,
        call=now.call,
        layer=now.layer,
        pulls=now.pulls,
        pushes=now.pushes,
        streams=Streams(now.given, now.gotten),
        credit_fragments=credit,
        disks=tuple(disks),
    )


def _lines(now: Now, credit: StreamCredit, disks: Sequence[DiskStanding]) -> list[str]:
    of = f" of layer {now.layer}" if now.layer else ""
    lines = [
        f"iteration {now.iteration} whole; now {now.call}{of}; under way: {now.pulls} pulls, "
        f"{now.pushes} pushes",
        f"credit for {credit.parameters} fragments of parameters, {credit.gradients} of gradients",
    ]
    for disk in disks[:_MOST_DISKS]:
        reads, states, writes = disk.waiting
        lines.append(
            f"disk {disk.folder}: reads {disk.read_mb_s:.1f}, writes {disk.write_mb_s:.1f} MB/s; "
            f"queues: parameters {reads}, states {states}, writes {writes}"
        )
    if (more := len(disks) - _MOST_DISKS) > 0:
        lines.append(f"and {more} disks more")
    return lines


class StatusWriter:
    """Writes a node's status to the slate of descriptor `fd` every `every_s` seconds, from a thread of its
    own; writes nothing if `fd` is negative. A context manager.
    """

    def __init__(self, fd: int, look: Callable[[], Now], every_s: float = _EVERY_S) -> None:
        self._fd, self._look, self._every_s = fd, look, every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="luwu status", daemon=True)

    def __enter__(self) -> Self:
        if self._fd >= 0:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._fd >= 0:
            self._thread.join()

    def _run(self) -> None:
        before, at_s = None, time.monotonic()
        with mmap.mmap(self._fd, service_status.SLATE_BYTES) as mapped, memoryview(mapped) as memory:
            while not self._over.is_set():
                now, now_s = self._look(), time.monotonic()
                service_status.write(memory, standing(now, before, now_s - at_s))
                before, at_s = now, now_s
                self._over.wait(self._every_s)
