"""The host endpoint: pushes gradients in windows of packets, reads results in place from the memory that the XDP program fills.

One `Endpoint` serves one worker process; its calls are made from one thread, in the same order on all workers. The protocol:

- Fragments are numbered over the life of the job. A worker has at most `slots` fragments outstanding, contiguous from the oldest one
  that it has no result for, so that a slot is never taken by a fragment whose predecessor somebody still waits for.
- A lost packet shows as a gap (a later fragment's result is there) or as silence. A gap is closed by pushing the missing fragments
  again; silence, by pushing more of the window at each expiry of a timer that backs off. The switch ignores what it has already summed,
  and sends a finished sum again.
"""

from __future__ import annotations

import contextlib
import mmap
import select
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.wire import spec
from testbed.wire.codec import PACKET_DTYPE
from workloads import quantiser
from workloads.job_env import Board

RESULT = np.dtype([("sequence", "=u8"), ("contributors", "=u4"), ("flags", "=u4"), ("lanes", ">u4", (spec.LANES,))])
WAKE = np.dtype([("received", "=u4"), ("wake_at", "=u4")])

_SOL_UDP, _UDP_SEGMENT = 17, 103
_BURST = 44  # packets in one send: a datagram before segmentation has at most 65,507 bytes
_WAKE_EVERY = 32  # results per wake-up while streaming
_RTO_MIN_S, _RTO_MAX_S = 0.005, 0.250  # of silence: no result at all

Lanes = npt.NDArray[np.uint32]


class PeersMissingError(RuntimeError):
    """No result came in time. The message names the job and who is missing."""


@dataclass(slots=True)
class Counters:
    """What an endpoint did, for the job's statistics."""

    pushed: int = 0
    retransmitted: int = 0
    timeouts: int = 0
    wakes: int = 0


class Endpoint:
    """One worker's end of the aggregation protocol. `settings` comes from the engine's admission (`worker_env`)."""

    def __init__(self, settings: Mapping[str, Any], board: Board, timeout_s: float = 30.0) -> None:
        self.workers = int(settings["workers"])
        self._job, self._worker = int(settings["job"]), int(settings["worker"])
        self._slots, self._base = int(settings["slots"]), int(settings["slot_base"])
        self._entries = int(settings["ring_entries"])
        self._board, self._timeout_s = board, timeout_s
        self.counters = Counters()
        if self._entries < 2 * self._slots:
            raise ValueError(f"a ring of {self._entries} results is too small for {self._slots} slots")
        with contextlib.ExitStack() as stack:
            ring = stack.enter_context(_map(int(settings["ring_fd"]), self._entries * RESULT.itemsize))
            self._ring = np.frombuffer(ring, RESULT, self._entries)
            wake = stack.enter_context(_map(int(settings["wake_fd"]), WAKE.itemsize))
            self._wake = np.frombuffer(wake, WAKE, 1)
            self._socket = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            self._socket.bind(("", int(settings["port"])))
            # not connected: a result that wakes this process comes from wherever the last sum was made
            self._switch = (str(settings["address"]), int(settings["port"]))
            self._socket.setblocking(False)
            self._keep = stack.pop_all()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._packets = np.zeros(self._slots, PACKET_DTYPE)
        for name, value in {
            "magic": spec.MAGIC,
            "version": spec.VERSION,
            "op": spec.Op.PUSH,
            "job": self._job,
            "worker": self._worker,
            "contributors": 1,
            "generation": int(settings["generation"]),
            "count": spec.LANES,
        }.items():
            self._packets[name] = value
        self._packets["slot"] = self._base + np.arange(self._slots)
        self._bytes = self._packets.view(np.uint8).data
        self._next_fragment = 0
        self._scratch = np.empty((self._slots, spec.LANES), np.float32)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def allreduce(self, array: quantiser.Floats) -> None:
        """Replaces a contiguous binary32 vector by its sum over all workers.

        Raises NotFiniteError, DisagreementError, and PeersMissingError when no result comes within the time limit or a peer ended.
        """
        length, workers = array.size, self.workers
        vote = quantiser.scale_lanes(quantiser.largest_exponent(array), length)
        votes = np.zeros((1, spec.LANES), np.uint32)

        def write_vote(first: int, packets: np.ndarray) -> None:
            packets["lanes"][...] = vote

        def read_votes(first: int, results: np.ndarray) -> None:
            votes[...] = results["lanes"]

        self._exchange(1, write_vote, read_votes)
        scale = quantiser.scale_of(quantiser.agreed_exponent(votes[0], workers, length), workers)

        whole = length // spec.LANES
        body = array[: whole * spec.LANES].reshape(whole, spec.LANES)
        tail = np.zeros((1, spec.LANES), np.float32)
        tail[0, : length - whole * spec.LANES] = array[whole * spec.LANES :]

        def rows(first: int, count: int) -> quantiser.Floats:
            return body[first : first + count] if first < whole else tail

        def write(first: int, packets: np.ndarray) -> None:
            done = 0
            while done < len(packets):
                part = rows(first + done, len(packets) - done)
                quantiser.encode(
                    part, scale, workers, packets["lanes"][done : done + len(part)], self._scratch[: len(part)]
                )
                done += len(part)

        def read(first: int, results: np.ndarray) -> None:
            done = 0
            while done < len(results):
                part = rows(first + done, len(results) - done)
                quantiser.decode(results["lanes"][done : done + len(part)], scale, workers, workers, part)
                done += len(part)

        fragments = whole + (1 if length > whole * spec.LANES else 0)
        self._exchange(fragments, write, read)
        if length > whole * spec.LANES:
            array[whole * spec.LANES :] = tail[0, : length - whole * spec.LANES]

    def sum_lanes(self, lanes: Lanes) -> Lanes:
        """Sums raw lanes, shape (fragments, LANES), over the workers modulo 2**32, without scaling."""
        out = np.empty_like(lanes)

        def write(first: int, packets: np.ndarray) -> None:
            packets["lanes"][...] = lanes[first : first + len(packets)]

        def read(first: int, results: np.ndarray) -> None:
            out[first : first + len(results)] = results["lanes"]

        self._exchange(len(lanes), write, read)
        return out

    # ---- the protocol ----

    def _exchange(
        self, count: int, write: Callable[[int, np.ndarray], None], read: Callable[[int, np.ndarray], None]
    ) -> None:
        """Pushes `count` fragments and reads their results. `write(i, packets)` fills the lanes of fragments i, i+1, ...; `read(i,
        results)` takes theirs; both get pieces in order, each fragment once."""
        origin = self._next_fragment
        if origin + count > 2**32:
            raise OverflowError(f"job {self._job}: fragment numbers are used up; start the job again")
        self._next_fragment += count
        done = sent = 0  # results read; fragments pushed
        silent = 0  # timer expiries in a row
        rto_s, last_progress = _RTO_MIN_S, time.monotonic()
        gap_pushed_at = 0.0
        while done < count:
            arrived = self._arrived(origin + done, sent - done)
            ready = len(arrived) if arrived.all() else int(arrived.argmin())
            if ready:
                self._take(origin, done, ready, read)
                done += ready
                silent, last_progress = 0, time.monotonic()
                rto_s = _RTO_MIN_S
                self._board.set_progress(origin + done)
            room = min(count - sent, done + self._slots - sent)
            if room and (room >= _BURST or sent + room == count or sent - done < self._slots // 2):
                self._push_new(origin, sent, room, write)
                sent += room
                continue
            if ready:
                continue
            now = time.monotonic()
            missing = np.flatnonzero(~arrived)
            last = int(np.flatnonzero(arrived)[-1]) if len(missing) < len(arrived) else -1
            if int(missing[0]) < last and now - gap_pushed_at > _RTO_MIN_S:
                # links keep order and so do sums: what is behind a result that came is lost
                gap_pushed_at = now
                self._push_again(origin + done, missing[missing < last])
            if self._wait(min(len(missing), _WAKE_EVERY), rto_s):
                continue
            self.counters.timeouts += 1
            silent += 1
            rto_s = min(rto_s * 2, _RTO_MAX_S)
            self._check_peers(origin + done, time.monotonic() - last_progress)
            self._push_again(origin + done, missing[: 1 << min(3 * (silent - 1), 7)])

    def _arrived(self, first: int, outstanding: int) -> npt.NDArray[np.bool_]:
        fragments = np.arange(first, first + outstanding, dtype=np.uint64)
        return np.asarray(self._ring["sequence"][fragments % np.uint64(self._entries)] == fragments + np.uint64(1))

    def _take(self, origin: int, done: int, ready: int, read: Callable[[int, np.ndarray], None]) -> None:
        while ready:
            start = (origin + done) % self._entries
            part = min(ready, self._entries - start)
            read(done, self._ring[start : start + part])
            done, ready = done + part, ready - part

    def _push_new(self, origin: int, sent: int, room: int, write: Callable[[int, np.ndarray], None]) -> None:
        while room:
            start = (origin + sent) % self._slots
            part = min(room, self._slots - start, _BURST)
            packets = self._packets[start : start + part]
            packets["fragment"] = np.arange(origin + sent, origin + sent + part)
            packets["flags"] = 0
            write(sent, packets)
            self._send(start, part)
            sent, room = sent + part, room - part
            self.counters.pushed += part

    def _push_again(self, first: int, offsets: npt.NDArray[np.intp]) -> None:
        for offset in offsets:
            start = (first + int(offset)) % self._slots
            self._packets["flags"][start] = spec.Flag.RETRANSMIT
            self._send(start, 1)
        self.counters.retransmitted += len(offsets)

    def _send(self, start: int, count: int) -> None:
        data = self._bytes[start * spec.PAYLOAD_BYTES : (start + count) * spec.PAYLOAD_BYTES]
        # not sent at all is the same as lost on the way: the timer sees to it
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            self._socket.sendmsg(
                [data], [(_SOL_UDP, _UDP_SEGMENT, spec.PAYLOAD_BYTES.to_bytes(2, "little"))], 0, self._switch
            )

    def _wait(self, results: int, timeout_s: float) -> bool:
        """Sleeps until `results` more are in the ring; False when the time is over first."""
        received = int(self._wake["received"][0])
        target = (received + results) & 0xFFFFFFFF
        self._wake["wake_at"][0] = target
        if int(self._wake["received"][0]) != received:
            return True
        events = self._poll.poll(timeout_s * 1000)
        if events:
            self.counters.wakes += 1
            with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
                while True:
                    self._socket.recv(1)
        return bool(events) or int(self._wake["received"][0]) != received

    def _check_peers(self, fragment: int, silent_s: float) -> None:
        ended = self._board.missing()
        if ended:
            raise PeersMissingError(f"job {self._job}: {'; '.join(str(peer) for peer in ended)}")
        if silent_s > self._timeout_s:
            behind = [rank for rank, at in enumerate(self._board.progress()) if at < fragment and rank != self._worker]
            raise PeersMissingError(
                f"job {self._job}: no result for fragment {fragment} in {self._timeout_s:g} s; behind: "
                + (", ".join(f"worker {rank}" for rank in behind) or "nobody, so the network or the parameter server")
            )


def _map(fd: int, length: int) -> mmap.mmap:
    pages = -(-length // mmap.PAGESIZE) * mmap.PAGESIZE
    return mmap.mmap(fd, pages, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
