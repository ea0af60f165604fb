"""The host endpoint of a worker process: sums vectors over the workers, by the aggregation protocol
(docs/protocol.md).

The protocol itself is in workloads/native/. This module opens that library, passes it vectors, and waits for
results. Vectors are summed in the order in which they are submitted, which is the same on all workers;
several are under way at once. Each tree of the job's forest carries its fraction of the fragments.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed import native
from testbed.wire import endpoint as contract
from testbed.wire import mapping, spec
from testbed.wire.endpoint import Event, Vector
from testbed.wire.records import Kind, Record
from testbed.wire.recovery import Recovery
from testbed.wire.settings import EndpointSettings, TreeSettings
from testbed.wire.votes import Ballot
from workloads.job_env import Board
from workloads.outcome import Outcome
from workloads.quantiser import DisagreementError, Floats, NotFiniteError, PartMissingError, UnheardError

Lanes = npt.NDArray[np.uint32]

_COPIED = (  # fields of EndpointSettings that struct settings has, too
    *("ring_fd", "wake_fd", "job", "worker", "sender", "workers", "generation", "first_tree"),
    *("lanes", "slots", "vote_slots", "window", "vote_window", "spare_bits", "port"),
    *("ring_entries", "ring_lanes"),
)

_LIBRARY = Path(__file__).with_name("_endpoint" + EXTENSION_SUFFIXES[0])
_MAX_UNDER_WAY = 128
_AFTER_GOOD_END_S = 5.0  # without a result: longer than a busy machine delays a process
_WARN_AFTER_S = 20.0  # without a result; then after 60 s, 180 s, ...


class PeersMissingError(RuntimeError):
    """No result arrived within the time limit, or a worker ended. The message names the job and the missing
    workers.
    """


class OvertakenError(RuntimeError):
    """The other workers' sums went on without this one for so long that places have replaced results that it
    needs.
    """


class RejoinError(RuntimeError):
    """A worker process started again in a generation in which it had run before."""


_KINDS: dict[Kind, Any] = {
    Kind.U16: ctypes.c_uint16,
    Kind.U32: ctypes.c_uint32,
    Kind.U64: ctypes.c_uint64,
    Kind.S32: ctypes.c_int32,
    Kind.BE32: ctypes.c_uint32,
    Kind.F64: ctypes.c_double,
    **dict.fromkeys((Kind.U32_IN, Kind.F64_IN, Kind.WAYS_IN, Kind.U64_OUT), ctypes.c_void_p),
}


def _fields(record: Record) -> list[tuple[str, Any]]:
    return [(member.name, _KINDS[member.kind]) for member in record.members]


class _Settings(ctypes.Structure):
    """struct settings."""

    _fields_ = _fields(contract.SETTINGS)


class _Way(ctypes.Structure):
    """struct way."""

    _fields_ = _fields(contract.WAY)


class Counters(ctypes.Structure):
    """An endpoint's counters: struct counters. Windows are in packets."""

    _fields_ = _fields(contract.COUNTERS)


def library() -> ctypes.CDLL:
    """Load the compiled endpoint. Raises RuntimeError where it is missing, does not load, or was compiled
    from other sources.
    """
    if why := native.ENDPOINT.why_stale(_LIBRARY):
        raise RuntimeError(why)
    try:
        compiled = ctypes.CDLL(str(_LIBRARY), use_errno=True)
    except OSError as error:
        raise RuntimeError(f"{_LIBRARY.name} does not load ({error}); run: sudo make setup") from error
    pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
    settings_bytes = getattr(compiled, "endpoint_settings_bytes", int)()
    if settings_bytes != ctypes.sizeof(_Settings):  # it would misread them and hang
        raise RuntimeError(f"{_LIBRARY.name} was compiled from other sources; run: sudo make setup")
    compiled.endpoint_open.restype = pointer
    compiled.endpoint_open.argtypes = [ctypes.POINTER(_Settings)]
    compiled.endpoint_submit.restype = ctypes.c_int64
    compiled.endpoint_submit.argtypes = [pointer, pointer, u64, ctypes.c_uint32, u64, u64, pointer, pointer]
    compiled.endpoint_run.argtypes = [
        pointer,
        ctypes.POINTER(u64),
        ctypes.POINTER(ctypes.c_uint32),
        ctypes.POINTER(ctypes.c_int64),
    ]
    compiled.endpoint_counters.argtypes = [pointer, ctypes.POINTER(Counters)]
    compiled.endpoint_close.argtypes = [pointer]
    compiled.endpoint_encode.argtypes = [pointer, pointer, u64, ctypes.c_int32, ctypes.c_uint32]
    compiled.endpoint_encode.restype = ctypes.c_uint32
    compiled.endpoint_decode.argtypes = [pointer, pointer, u64, ctypes.c_double, ctypes.c_uint32]
    return compiled


@dataclass(frozen=True, slots=True)
class _Vector:
    """A vector under way, with the array into which its fragments' numbers of contributors are written."""

    array: np.ndarray
    contributors: npt.NDArray[np.uint32]
    timeout_s: float
    number: int


class Endpoint:
    """One worker's endpoint.

    `settings` comes from the admission (`worker_env`). If it has a `socket_fd`, the endpoint takes over that
    bound socket. One thread calls `submit`, one calls `finish`; they may be the same.
    """

    def __init__(self, settings: EndpointSettings, board: Board, timeout_s: float = 30.0) -> None:
        self._job, self._lanes = settings.job, settings.lanes
        self._worker, self._workers = settings.worker, settings.workers
        self._board = board
        self.timeout_s = timeout_s  # for vectors that are submitted from now on
        self._library = library()
        self._under_way: collections.deque[_Vector] = collections.deque()
        self._room = threading.Semaphore(_MAX_UNDER_WAY)
        self._silent_s, self._warn_after_s = 0.0, _WARN_AFTER_S
        self._broken: Exception | None = None  # the error after which no vector can be summed any more
        self.check: Callable[[], None] = lambda: None  # raises if the workers' calls differ
        trees = settings.trees
        self._places = mapping.places(self._job, settings.slots - settings.vote_slots)
        self._pattern = mapping.pattern([tree.fraction for tree in trees])
        ballot = Ballot.of(self._workers, self._lanes)
        self._cells, self._tops = ballot.cells(), ballot.tops()
        self._ways = (_Way * len(trees))(*(_way(tree, settings.queue_packets or 0) for tree in trees))
        with contextlib.ExitStack() as stack:
            udp = stack.enter_context(_socket(settings))
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            udp.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, spec.ECT)  # links may mark these packets
            event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            stack.callback(os.close, event)
            handed = _Settings(
                socket_fd=udp.fileno(),
                event_fd=event,
                first_vote=mapping.FIRST_VOTE,
                rate_mbps=settings.rate_mbps or 0.0,
                places=self._places.ctypes.data,
                trees=len(trees),
                ways=ctypes.addressof(self._ways),
                parts=self._pattern.size,
                pattern=self._pattern.ctypes.data,
                parallel=board.parallel_address(),
                rate_now=board.rate_address(),
                progress=board.progress_address(),
                cells=self._cells.ctypes.data,
                tops=self._tops.ctypes.data,
                buckets=self._tops.size,
                count_bits=ballot.bits,
                block_fragments=ballot.block_fragments,
                page_blocks=ballot.page_blocks,
                asks=settings.recovery is Recovery.INTEGRITY,
                lossless=settings.recovery is Recovery.NONE,
                **{name: getattr(settings, name) for name in _COPIED},
            )
            self._handle = self._library.endpoint_open(ctypes.byref(handed))
            if not self._handle:
                code = ctypes.get_errno()
                if code == errno.EEXIST:
                    raise RejoinError(
                        f"job {self._job}: worker {self._worker} has been in generation "
                        f"{settings.generation} before; a worker that"
                        " starts again needs a new generation: testbed run --restarts N starts the whole job "
                        "again"
                    )
                raise OSError(code, f"job {self._job}: open the endpoint: {os.strerror(code)}")
            stack.callback(self._library.endpoint_close, self._handle)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Unmap and close everything. No other call may follow."""
        self._stack.close()

    def submit(self, array: Floats) -> None:
        """Submit a contiguous binary32 vector, to be replaced by its sum; `finish` waits for it. Blocks while
        _MAX_UNDER_WAY vectors are under way.

        If a sum lacks workers, the result is the mean of the contributors, times the number of workers.
        """
        self._submit(array, Vector.FLOATS)

    def submit_lanes(self, lanes: Lanes) -> None:
        """Submit raw lanes, to be replaced by the sum of the contributors' lanes, without scaling; sums must
        stay below 2**32.
        """
        self._submit(lanes, Vector.LANES)

    def _submit(self, array: np.ndarray, kind: Vector) -> None:
        assert array.flags.c_contiguous
        assert array.itemsize == 4
        self._room.acquire()
        contributors = np.zeros(max(1, -(-array.size // self._lanes)), np.uint32)
        number = -1
        if not self._broken:  # else `finish` raises it
            number = self._library.endpoint_submit(
                self._handle,
                array.ctypes.data,
                array.size,
                int(kind),
                0,
                array.nbytes,
                contributors.ctypes.data,
                None,
            )
            if number < 0:
                self._room.release()
                raise RuntimeError(f"job {self._job}: the endpoint takes no more vectors")
        self._under_way.append(_Vector(array, contributors, self.timeout_s, number))

    def finish(self) -> Outcome:
        """Wait for the oldest vector that is submitted and not finished, and return the contributors of its
        sum.

        Raises NotFiniteError, DisagreementError, and PeersMissingError when no result arrives within the time
        limit or a peer ended.
        """
        if not self._under_way:
            raise RuntimeError(f"job {self._job}: nothing was submitted to wait for")
        try:
            return self._finish(self._under_way[0])
        finally:
            self._under_way.popleft()
            self._room.release()

    def _finish(self, vector: _Vector) -> Outcome:
        number, detail, silent_ns = ctypes.c_uint64(), ctypes.c_uint32(), ctypes.c_int64()
        if self._broken:
            raise self._broken
        event = int(Event.QUIET)
        while event == Event.QUIET:
            event = self._library.endpoint_run(
                self._handle, ctypes.byref(number), ctypes.byref(detail), ctypes.byref(silent_ns)
            )
            if event == Event.QUIET:
                self._check_peers(silent_ns.value / 1e9, vector.timeout_s)
        assert event != Event.IDLE
        assert number.value == vector.number
        if event != Event.DONE:
            first = int(vector.contributors[0])
            raise self._explained(Event(event), detail.value, first, vector.array.size)
        return Outcome(self._workers, self._lanes, vector.contributors)

    def addresses(self) -> tuple[int, int, int, int]:
        """Return the addresses of the endpoint and of its functions to submit and to run, and its lanes per
        packet.

        Code that sums without Python uses these. It alternates with `submit` and `finish`, and must have no
        vector under way when these are called.
        """
        submit, run = (
            ctypes.cast(function, ctypes.c_void_p).value or 0
            for function in (self._library.endpoint_submit, self._library.endpoint_run)
        )
        return int(self._handle), submit, run, self._lanes

    def failure_of(self, vector: Any) -> Exception | None:
        """Return the error that prevented the sum of a vector of the compiled backend; None while a sum may
        still come. Raises the error after which no vector can be summed.
        """
        if vector.event == Event.QUIET:
            self._check_peers(vector.silent_s, vector.limit_s)
            return None
        return self._explained(Event(vector.event), vector.detail, vector.first_contributors, vector.lanes)

    def is_broken(self) -> bool:
        """Return whether no vector can be summed any more."""
        return self._broken is not None

    def _explained(self, event: Event, detail: int, first: int, size: int) -> Exception:
        """Return the error for a vector of `size` elements that has no sum; `first` is the number of
        contributors of its first fragment.

        Errors other than NotFiniteError and PartMissingError end the endpoint, because the workers no longer
        agree.
        """
        if event == Event.NOT_FINITE:
            what = f"{detail} of {self._workers} workers have NaN or infinity in their gradients"
            if 0 < first < self._workers:  # the others may sum it without this worker
                self._broken = UnheardError(what)
                return self._broken
            return NotFiniteError(what)
        if event == Event.LACKING:
            return PartMissingError(f"{detail} of {self._workers} workers are in a fragment that is gathered")
        if event == Event.IMPOSSIBLE:
            self._broken = RuntimeError(
                f"job {self._job}: a result names {detail} contributors of {self._workers} workers"
            )
        elif event == Event.REFUSED:
            self._broken = OSError(
                detail, f"job {self._job}: worker {self._worker} sends gradients: {os.strerror(detail)}"
            )
        elif event == Event.OVERTAKEN:
            self._broken = OvertakenError(
                f"job {self._job}: the others went on without worker {self._worker} for longer than results "
                "are kept: those that it needs were replaced"
            )
        else:
            self._broken = DisagreementError(
                f"the workers reduce arrays of different lengths; this one has {size} elements"
            )
        return self._broken

    def allreduce(self, array: Floats) -> Outcome:
        """Submit a vector and wait for its sum."""
        self.submit(array)
        return self.finish()

    def sum_lanes(self, lanes: Lanes) -> Lanes:
        """Sum raw lanes over the workers into a new array, without scaling; sums must stay below 2**32."""
        out = np.ascontiguousarray(lanes, np.uint32).copy()
        self.submit_lanes(out)
        self.finish()
        return out

    @property
    def counters(self) -> Counters:
        """Return a copy of the endpoint's counters."""
        counters = Counters()
        self._library.endpoint_counters(self._handle, ctypes.byref(counters))
        return counters

    def _check_peers(self, silent_s: float, timeout_s: float) -> None:
        if silent_s < self._silent_s:  # results came in between: a new wait
            self._warn_after_s = _WARN_AFTER_S
        self._silent_s = silent_s
        try:
            self.check()
        except RuntimeError as error:  # from the compiled backend, whose text begins with the type's name
            self._broken = DisagreementError(str(error).removeprefix("DisagreementError: "))
            raise self._broken from error
        # a peer that ended with code 0 has its results, and the switch still stores them for this worker
        ended = [
            peer
            for peer in self._board.missing()
            if peer.exit_code or silent_s > min(_AFTER_GOOD_END_S, timeout_s)
        ]
        if ended:
            self._broken = PeersMissingError(f"job {self._job}: {'; '.join(str(peer) for peer in ended)}")
            raise self._broken
        if silent_s < self._warn_after_s and silent_s <= timeout_s:
            return
        progress = self._board.progress()
        mine = progress[self._worker] if progress else 0
        behind = [self._board.who(rank) for rank in self._board.behind() if rank != self._worker]
        what = f"after fragment {mine}; behind: " + (
            ", ".join(behind)
            or "nobody, all have pushed what comes next, so the network or a place that sums"
        )
        if silent_s > timeout_s:
            self._broken = PeersMissingError(f"job {self._job}: no result in {timeout_s:g} s {what}")
            raise self._broken
        print(
            f"job {self._job}: no result for {silent_s:.0f} s {what}; this is an error after {timeout_s:g} s",
            file=sys.stderr,
            flush=True,
        )
        self._warn_after_s *= 3


def _socket(settings: EndpointSettings) -> socket.socket:
    """Return the bound socket that sends packets and receives wake-ups.

    It is not connected: a result that wakes this process comes from whichever place made the last sum.
    """
    if settings.socket_fd is not None:
        return socket.socket(fileno=settings.socket_fd)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        udp.bind(("", settings.port))
    except OSError:
        udp.close()
        raise
    return udp


def _way(tree: TreeSettings, queue_packets: int) -> _Way:
    """Return a tree's `struct way`. A tree's share of the packets that may be queued is its share of the
    fragments, so that all trees together fill no queue.
    """
    return _Way(
        address=int.from_bytes(socket.inet_aton(tree.address), "little"),
        slot_base=tree.slot_base,
        takes_empties=tree.takes_empties,
        queue_packets=max(1, int(queue_packets * tree.fraction)) if queue_packets else 0,
    )
