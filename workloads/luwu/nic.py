"""Run an end of an owned tree next to the process that submits requests to it: the paper's WorkerNIC and
AggNIC.

Owns the memory that both share, and the end's process or thread. Imports the contract and nothing of torch.
`python -m workloads.luwu.nic` is the end's process, which only `Nic` starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed import native
from testbed.interpreters import isolated
from testbed.wire.records import Kind, Record
from workloads.luwu.contract import (
    MEMORY,
    REQUEST,
    REQUESTS,
    SETTINGS,
    STREAM,
    Direction,
    Format,
    Role,
    State,
    Wrong,
)
from workloads.luwu.errors import LuwuError

_PACKAGES = Path(__file__).parents[2]  # the folder of the packages `workloads` and `testbed`
_LIBRARY = Path(__file__).parents[1] / f"_endpoint{EXTENSION_SUFFIXES[0]}"
_LOOK_NS = 200_000_000  # how often a waiting thread checks that the end still runs
_STOP_S = 60.0
_PAGE = mmap.PAGESIZE
_KINDS: dict[Kind, Any] = {
    Kind.U32: ctypes.c_uint32,
    Kind.U64: ctypes.c_uint64,
    Kind.S32: ctypes.c_int32,
    Kind.BE32: ctypes.c_uint32,
    Kind.F64: ctypes.c_double,
}


def _fields(record: Record) -> list[tuple[str, Any]]:
    return [(member.name, _KINDS[member.kind]) for member in record.members]


class _Settings(ctypes.Structure):
    _fields_ = _fields(SETTINGS)


class _Memory(ctypes.Structure):
    _fields_ = _fields(MEMORY)


class _Stream(ctypes.Structure):
    _fields_ = _fields(STREAM)


class _Request(ctypes.Structure):
    _fields_ = _fields(REQUEST)


class _Head(ctypes.Structure):
    """The head of the memory, laid out as in ends.h."""

    _fields_ = (
        ("memory", _Memory),
        ("streams", _Stream * len(Direction)),
        ("requests", _Request * REQUESTS * len(Direction)),
    )


@dataclass(frozen=True, slots=True)
class Tree:
    """The settings of an end of its job's owned tree. docs/luwu-network.md explains the times. An owner's
    `worker` has no meaning.

    Raises LuwuError for numbers that are too small, a depth beyond an owner's slots, and times that
    contradict each other.
    """

    role: Role
    job: int
    generation: int
    worker: int
    workers: int
    lanes: int
    slots: int
    address: str  # of a worker's place or, for the owner, of the tree's group
    port: int
    tree: int = 0
    slot_base: int = 0
    depth: int = 128
    burst: int = 16
    beat_us: int = 1000
    detect_us: int = 20_000
    stagger_us: int = 2_000
    rate_mbps: float = 0.0

    def __post_init__(self) -> None:
        for name, least in (("depth", 1), ("burst", 1), ("beat_us", 1), ("detect_us", 1), ("stagger_us", 0)):
            if getattr(self, name) < least:
                raise LuwuError(f"{name} {getattr(self, name)}: accepted is {least} or more")
        if self.role is Role.OWNER and self.depth > self.slots:
            raise LuwuError(f"depth {self.depth}: accepted is at most {self.slots}, the slots of the tree")
        if self.detect_us <= self.beat_us:
            raise LuwuError(f"detect_us {self.detect_us}: accepted is more than beat_us {self.beat_us}")


def library() -> ctypes.CDLL:
    """Load the compiled end. Raises LuwuError where it is missing, does not load, or was compiled from other
    sources.
    """
    if why := native.ENDPOINT.why_stale(_LIBRARY):
        raise LuwuError(why)
    try:
        compiled = ctypes.CDLL(str(_LIBRARY), use_errno=True)
    except OSError as problem:
        raise LuwuError(f"{_LIBRARY.name} does not load ({problem}); run: sudo make setup") from problem
    for name, size in (("ends_settings_bytes", _Settings), ("ends_head_bytes", _Head)):
        function = getattr(compiled, name, None)
        if function is None or function() != ctypes.sizeof(size):
            raise LuwuError(f"{_LIBRARY.name} was compiled from other sources; run: sudo make setup")
    pointer, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    compiled.ends_open.restype = pointer
    compiled.ends_open.argtypes = [ctypes.POINTER(_Settings)]
    compiled.ends_run.argtypes = [pointer]
    compiled.ends_run.restype = None
    compiled.ends_close.argtypes = [pointer]
    compiled.ends_close.restype = None
    compiled.ends_submit.restype = ctypes.c_int64
    compiled.ends_submit.argtypes = [
        *(pointer, ctypes.c_int, u32, u32, u32, u64, u64, ctypes.c_int32, ctypes.c_double)
    ]
    compiled.ends_scale.argtypes = [pointer, ctypes.c_int, u64, ctypes.c_int32]
    compiled.ends_scale.restype = None
    compiled.ends_wait.argtypes = [pointer, u32, u64, u32, u64]
    compiled.ends_wait.restype = u32
    compiled.ends_stop.argtypes = [pointer, ctypes.c_int]
    compiled.ends_stop.restype = None
    return compiled


def scale_of(exponent: int, workers: int) -> int:
    """Return the exponent s of the scale 2**s that makes integers of values with at most this biased
    exponent, so that the sum of W of them stays within 2**30; at most 126.
    """
    return min(126, 30 - (workers - 1).bit_length() - (exponent - 126))


def bound(scale: int, workers: int) -> float:
    """Return the largest |sum - exact sum|, before the sum is rounded to binary32."""
    return workers * 2.0 ** (-scale - 1)


@dataclass(eq=False, slots=True)
class Request:
    """A request of a stream. Call `wait` once; afterwards its entry is reused."""

    nic: Nic
    direction: Direction
    number: int
    what: str

    @property
    def is_done(self) -> bool:
        """Return whether the request is done. Valid until REQUESTS more requests were submitted."""
        return self.nic.peek(self) >= State.DONE

    def measured(self) -> int:
        """Wait until the values are measured, and return their largest exponent."""
        self.nic.wait(self, State.MEASURED)
        return self.nic.exponent(self)

    def scale(self, scale: int) -> None:
        """Set the scale of measured values, so that they are sent."""
        self.nic.set_scale(self, scale)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the buffer is the caller's again. Raises LuwuError if the request fails, TimeoutError
        after `timeout` seconds.
        """
        self.nic.wait(self, State.DONE, timeout)


@dataclass(frozen=True, slots=True)
class Facts:
    """An end's counters; workloads/luwu/contract.py describes them."""

    given: Mapping[str, int]
    gotten: Mapping[str, int]
    dropped: int
    refused: int
    busy_ns: int
    events: int


class Nic:
    """An end that carries out requests on buffers in `memory`, of `room_bytes` bytes. A context manager.

    With `host` the end is a thread of this process, else a process of its own. `udp` is bound; the end owns
    it from now on. `why` returns a line that says why nothing more will arrive, or None.
    """

    def __init__(
        self,
        tree: Tree,
        udp: socket.socket,
        room_bytes: int,
        host: bool = False,
        why: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._library = library()
        self._why = why
        self._host = host
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        with contextlib.ExitStack() as stack:
            stack.enter_context(udp)
            self._memory_fd = os.memfd_create("luwu", os.MFD_CLOEXEC)
            stack.callback(os.close, self._memory_fd)
            self.offset = -(-ctypes.sizeof(_Head) // _PAGE) * _PAGE
            os.ftruncate(self._memory_fd, self.offset + -(-room_bytes // _PAGE) * _PAGE)
            self._mapped = mmap.mmap(self._memory_fd, 0)
            self._head = _Head.from_buffer(self._mapped)
            self._at = ctypes.addressof(self._head)
            self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            stack.callback(os.close, self._event_fd)
            self.memory = memoryview(self._mapped)[self.offset : self.offset + room_bytes]
            settings = _Settings(
                memory_fd=self._memory_fd,
                socket_fd=udp.fileno(),
                event_fd=self._event_fd,
                role=int(tree.role),
                address=int.from_bytes(socket.inet_aton(tree.address), "little"),
                beat_us=tree.beat_us,
                detect_us=tree.detect_us + tree.stagger_us * (tree.worker if tree.role is Role.WORKER else 0),
                rate_mbps=tree.rate_mbps,
                **{
                    name: getattr(tree, name)
                    for name in (
                        *("job", "generation", "worker", "workers", "lanes", "slots", "port", "tree"),
                        *("slot_base", "depth", "burst"),
                    )
                },
            )
            if host:
                self._start_thread(settings)
            else:
                self._start_process(settings)
            stack.callback(self._end)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Stop the end. Requests under way are never done."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Return the id of the end's process, None where it is a thread."""
        return None if self._process is None else self._process.pid

    def give(self, what: str, offset: int, size: int) -> Request:
        """Send the bytes at `offset` of `memory`."""
        return self._submit(Direction.GIVEN, State.READY, Format.BYTES, what, offset, size, 0, 0.0)

    def give_numbers(self, what: str, offset: int, count: int, format: Format = Format.BINARY32) -> Request:
        """Send the numbers at `offset` of `memory`, once they are `measured` and have a `scale`."""
        return self._submit(Direction.GIVEN, State.SUBMITTED, format, what, offset, count, 0, 0.0)

    def get(self, what: str, offset: int, size: int) -> Request:
        """Receive bytes at `offset` of `memory`."""
        return self._submit(Direction.GOTTEN, State.READY, Format.BYTES, what, offset, size, 0, 0.0)

    def get_numbers(self, what: str, offset: int, count: int, factor: float) -> Request:
        """Receive sums in binary32 at `offset` of `memory`: the integers, multiplied by `factor`."""
        return self._submit(Direction.GOTTEN, State.READY, Format.BINARY32, what, offset, count, 0, factor)

    def forget(self, offset: int, size: int) -> None:
        """Free whole pages of `memory`: they are zeros until written again."""
        self._mapped.madvise(mmap.MADV_REMOVE, self.offset + offset, size)

    def peek(self, request: Request) -> int:
        return self._wait(request, State.FREE, 0)

    def exponent(self, request: Request) -> int:
        return int(self._entry(request).exponent)

    def set_scale(self, request: Request, scale: int) -> None:
        self._library.ends_scale(self._at, self._event_fd, request.number, scale)

    def wait(self, request: Request, least: State, timeout: float | None = None) -> None:
        end = None if timeout is None else time.monotonic() + timeout
        while (state := self._wait(request, least, _LOOK_NS)) < least:
            self._check()
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"{request.what}: not done after {timeout:g} s")
        if state == State.FAILED:
            entry = self._entry(request)
            if entry.error == Wrong.EARLIER:
                raise LuwuError(f"{request.what}: an earlier request of its stream has failed")
            ours = entry.elements if entry.format != Format.BYTES else -(-entry.elements // 4)
            theirs = f"{entry.theirs} came" if entry.theirs else "more, or another length, came"
            raise LuwuError(f"{request.what}: {ours} lanes were asked for, {theirs}")

    @property
    def facts(self) -> Facts:
        """Return the end's counters so far."""
        given, gotten = (
            {name: int(getattr(stream, name)) for name, _ in _Stream._fields_}
            for stream in self._head.streams
        )
        memory = self._head.memory
        return Facts(given, gotten, memory.dropped, memory.refused, memory.busy_ns, memory.events)

    def _submit(
        self,
        direction: Direction,
        state: State,
        format: Format,
        what: str,
        offset: int,
        elements: int,
        scale: int,
        factor: float,
    ) -> Request:
        size = elements * {Format.BYTES: 1, Format.BINARY32: 4}.get(format, 2)
        if offset < 0 or offset % 4 or offset + size > len(self.memory):
            raise LuwuError(
                f"{what}: {size} bytes at {offset}: accepted is a multiple of 4, and an end before "
                f"{len(self.memory)}"
            )
        with self._lock:
            number = self._library.ends_submit(
                *(
                    self._at,
                    self._event_fd,
                    direction,
                    state,
                    format,
                    self.offset + offset,
                    elements,
                    scale,
                    factor,
                )
            )
        if number < 0:
            raise LuwuError(f"{what}: {REQUESTS} requests are under way: wait for one")
        return Request(self, direction, number, what)

    def _entry(self, request: Request) -> Any:
        return self._head.requests[request.direction][request.number % REQUESTS]

    def _wait(self, request: Request, least: State, limit_ns: int) -> int:
        return int(self._library.ends_wait(self._at, request.direction, request.number, least, limit_ns))

    def _check(self) -> None:
        """Raise LuwuError if nothing more will arrive: a send failed, the process ended, or `why` has a
        reason.
        """
        if error := int(self._head.memory.error):
            raise LuwuError(f"the NIC sends: {os.strerror(error)}: nothing more is sent or received")
        if self._process is not None and (code := self._process.poll()) is not None:
            raise LuwuError(f"the process of the NIC ended with {code}: nothing more is sent or received")
        if (reason := self._why()) is not None:
            raise LuwuError(reason)

    def _start_thread(self, settings: _Settings) -> None:
        names = ("memory_fd", "socket_fd", "event_fd")
        fds = [os.dup(getattr(settings, name)) for name in names]
        for name, fd in zip(names, fds, strict=True):
            setattr(settings, name, fd)
        end = self._library.ends_open(ctypes.byref(settings))
        problem = None if end else _not_open()

        def run() -> None:
            if end:
                self._library.ends_run(end)
                self._library.ends_close(end)
            for fd in fds:
                os.close(fd)

        if problem is not None:
            run()
            raise problem
        self._thread = threading.Thread(target=run, name="luwu nic", daemon=True)
        self._thread.start()

    def _start_process(self, settings: _Settings) -> None:
        settled = {name: getattr(settings, name) for name, _ in _Settings._fields_}
        fds = tuple(settled[name] for name in ("memory_fd", "socket_fd", "event_fd"))
        argv = isolated("-m", "workloads.luwu.nic", json.dumps(settled))
        environ = {**os.environ, "PYTHONPATH": str(_PACKAGES)}
        self._process = subprocess.Popen(argv, pass_fds=fds, stdin=subprocess.PIPE, env=environ)

    def _end(self) -> None:
        self._library.ends_stop(self._at, self._event_fd)
        if self._thread is not None:
            self._thread.join()
        if self._process is not None:
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()


def _not_open() -> LuwuError:
    return LuwuError(f"the end of a tree does not open: {os.strerror(ctypes.get_errno())}")


def _end_with_parent() -> None:
    """End this process when the parent, which never writes, closes the pipe."""
    os.read(0, 1)
    os._exit(0)


def main(argv: list[str] | None = None) -> int:
    """Run an end in this process, with the settings in the argument. Return the exit code."""
    (settled,) = argv or sys.argv[1:]
    compiled = library()
    threading.Thread(target=_end_with_parent, name="luwu parent", daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's SIGINT is for the parent
    end = compiled.ends_open(ctypes.byref(_Settings(**json.loads(settled))))
    if not end:
        print(f"luwu nic: {_not_open()}", file=sys.stderr)
        return 1
    compiled.ends_run(end)
    compiled.ends_close(end)
    return 0


if __name__ == "__main__":
    sys.exit(main())
