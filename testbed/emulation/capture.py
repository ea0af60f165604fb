"""Capture the frames of one shaped link as they leave it. Owns the packet sockets and their filter.

Frames are captured where the link's inner ends (links.py) send: every frame that crosses the link is an
ordinary one there, and is seen once, after the queue. On switch ports and hosts' interfaces, XDP receives and
sends frames that no packet socket sees. daemon/capture.py decides who may capture into which file.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from testbed.emulation.links import WIRES, WireSpec, inner_devices
from testbed.emulation.namespaces import NETNS_DIR, entered
from testbed.emulation.parts import parts
from testbed.errors import RequestError, TestbedError
from testbed.machine.links import Captured
from testbed.topology.model import Topology
from testbed.wire import pcap

_BUFFER_BYTES = 32 << 20
_POLL_S = 0.1  # interval of checks whether to stop
# linux/if_packet.h, asm-generic/socket.h
_ETH_P_ALL, _SOL_PACKET, _PACKET_STATISTICS, _PACKET_OUTGOING = 3, 263, 6, 4
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 26, 33, 35
# load the packet's type (SKF_AD_OFF + SKF_AD_PKTTYPE); outgoing: accept all of it; else: drop
_OUTGOING_ONLY = (
    (0x20, 0, 0, 0xFFFFF004),
    (0x15, 0, 1, _PACKET_OUTGOING),
    (0x06, 0, 0, 0xFFFFFFFF),
    (0x06, 0, 0, 0),
)


def link(topology: Topology, name: str) -> WireSpec:
    """Return the link of this name. RequestError for an unknown link, and for one without a rate, where
    nothing can be captured.
    """
    wires = {wire.name: wire for wire in parts(topology).wires}
    if name not in wires:
        raise RequestError(f"link {name}: there is none; links are {_listed(list(wires))}")
    if wires[name].rate_mbps is None:
        raise RequestError(
            f"link {name}: it has no rate, so XDP hands its frames over where no capture sees them; give it "
            f"a rate to capture on it"
        )
    return wires[name]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names if len(names) <= 24 else [*names[:12], "...", names[-1]])


class Tap:
    """Two packet sockets on a link's inner ends, open during the block."""

    def __init__(self, wire: WireSpec) -> None:
        self._wire, self.link = wire, wire.name
        self.is_from_tor = wire.a.namespace is None
        self._stack = ExitStack()
        self._sockets: list[socket.socket] = []  # frames towards end b, frames towards end a

    def __enter__(self) -> Self:
        towards_a, towards_b = inner_devices(self._wire)
        with ExitStack() as stack, (NETNS_DIR / WIRES).open("rb") as namespace, entered(namespace.fileno()):
            self._sockets = [stack.enter_context(_listen(device)) for device in (towards_b, towards_a)]
            self._arrivals = stack.enter_context(selectors.DefaultSelector())
            for tap in self._sockets:
                self._arrivals.register(tap, selectors.EVENT_READ)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def capture(
        self, write: Callable[[bytes], object], count: int, seconds: float, stop: Callable[[], bool]
    ) -> Captured:
        """Write a capture file's bytes, until `count` frames are captured, `seconds` have passed, or `stop`
        returns true.
        """
        done, began = Captured(), time.monotonic()
        write(pcap.HEADER)
        held: list[tuple[int, int, bytes]] = []
        while not stop():
            left = seconds - (time.monotonic() - began)
            if left <= 0 or done.forward + done.backward >= count:
                break
            self._arrivals.select(min(left, _POLL_S))
            before_ns = time.time_ns()
            held += [frame for side in (0, 1) for frame in self._read(side, before_ns)]
            held.sort(key=lambda frame: frame[0])
            # later frames wait: the other socket may still deliver earlier ones
            due = [frame for frame in held if frame[0] <= before_ns]
            self._write(write, due[: count - done.forward - done.backward], done)
            del held[: len(due)]
        # frames that had left when the end was requested, and were not read yet
        held += [frame for side in (0, 1) for frame in self._read(side, time.time_ns())]
        held.sort(key=lambda frame: frame[0])
        self._write(write, held[: count - done.forward - done.backward], done)
        done.seconds = time.monotonic() - began
        done.missed = sum(_dropped(each) for each in self._sockets)
        return done

    def _read(self, side: int, until_ns: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield all frames that left before this time, and at most one more."""
        time_ns = 0
        while time_ns <= until_ns:
            try:
                data, ancillary, _, _ = self._sockets[side].recvmsg(pcap.SNAP_BYTES, socket.CMSG_SPACE(16))
            except BlockingIOError:
                return
            except OSError as error:
                raise TestbedError(f"capture {self._wire.name}: {error.strerror}") from error
            seconds, nanoseconds = struct.unpack("=qq", ancillary[0][2])
            time_ns = seconds * 1_000_000_000 + nanoseconds
            yield time_ns, side, data

    @staticmethod
    def _write(
        write: Callable[[bytes], object], frames: Sequence[tuple[int, int, bytes]], done: Captured
    ) -> None:
        if not frames:
            return
        write(b"".join(pcap.record(time_ns, data) for time_ns, _, data in frames))
        backward = sum(side for _, side, _ in frames)
        done.forward += len(frames) - backward
        done.backward += backward


def _listen(device: str) -> socket.socket:
    """Open a socket that receives the frames sent by a device of the calling thread's network namespace."""
    made = socket.socket(
        socket.AF_PACKET, socket.SOCK_RAW, 0
    )  # protocol 0: nothing arrives before it is bound
    try:
        program = ctypes.create_string_buffer(
            b"".join(struct.pack("=HBBI", *code) for code in _OUTGOING_ONLY)
        )
        fprog = struct.pack("HL", len(_OUTGOING_ONLY), ctypes.addressof(program))
        made.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)
        made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        made.setblocking(False)
        made.bind((device, _ETH_P_ALL))
    except OSError as error:
        made.close()
        raise RequestError(f"capture on {device}: {os.strerror(error.errno or 0)}") from error
    return made


def _dropped(each: socket.socket) -> int:
    return int(struct.unpack("=II", each.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1])
