"""Frames of one shaped link as they leave it, for a capture file. Owns the packet sockets and the filter on
them.

Looked at where the link's inner ends (links.py) send: there every frame that crosses the link is an ordinary
one, and it is seen once, after the queue. On a switch port and on a host's interface XDP takes and sends
frames that no packet socket sees.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed.client.runtime import Caller
from testbed.contract import pcap
from testbed.emulation.layout import layout
from testbed.emulation.links import WIRES, WireSpec, inner_devices
from testbed.emulation.namespaces import NETNS_DIR, entered
from testbed.errors import RequestError, TestbedError
from testbed.jobs.ready import ready
from testbed.jobs.request import absolute
from testbed.jobs.user_files import UserFiles
from testbed.topology.fields import shown
from testbed.topology.model import Topology

MOST_FRAMES, MOST_SECONDS = 1_000_000, 3600.0
_BUFFER_BYTES = 32 << 20
_POLL_S = 0.1  # between two looks at whether to stop
# linux/if_packet.h, asm-generic/socket.h
_ETH_P_ALL, _SOL_PACKET, _PACKET_STATISTICS, _PACKET_OUTGOING = 3, 263, 6, 4
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 26, 33, 35
# load the packet's type (SKF_AD_OFF + SKF_AD_PKTTYPE); outgoing: keep all of it; else: nothing
_OUTGOING_ONLY = (
    (0x20, 0, 0, 0xFFFFF004),
    (0x15, 0, 1, _PACKET_OUTGOING),
    (0x06, 0, 0, 0xFFFFFFFF),
    (0x06, 0, 0, 0),
)


@dataclass(slots=True)
class Captured:
    """What a capture came to. Forward is from end a of the link: from the host, or from the ToR to the
    optical switch.
    """

    forward: int = 0
    backward: int = 0
    missed: int = 0  # frames that crossed and that the capture was too slow for
    seconds: float = 0.0


def link(topology: Topology, name: str) -> WireSpec:
    """The link of this name. RequestError for none such, and for one without a rate, which has no place to
    look.
    """
    wires = {wire.name: wire for wire in layout(topology).wires}
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


def answer(
    topology: Topology,
    caller: Caller,
    request: Mapping[str, Any],
    emit: Callable[[dict[str, Any]], None],
    stop: Callable[[], bool],
    files: UserFiles,
) -> dict[str, Any]:
    """The daemon's request `capture`: writes the file that it names, as `caller`."""
    wire = link(topology, str(request.get("link")))
    count, seconds = request.get("count"), request.get("seconds")
    if not isinstance(count, int) or not 1 <= count <= MOST_FRAMES:
        raise RequestError(f"--count {shown(count)}: 1 to {MOST_FRAMES} frames are accepted")
    if not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        raise RequestError(
            f"--seconds {shown(seconds)}: more than 0, and at most {MOST_SECONDS:g}, is accepted"
        )
    path = absolute(request.get("output"), "--output")
    with Tap(wire) as tap, _file(path, caller, files) as file:
        emit({"capturing": wire.name})
        try:
            done = tap.capture(partial(_write_whole, file), count, seconds, stop)
        except OSError as error:
            raise TestbedError(
                f"write {path}: {error.strerror}; it has the frames until then, {file.tell()} bytes"
            ) from error
    ends = ("from the ToR", "to it") if wire.a.namespace is None else (f"from {wire.name}", "to it")
    return {**asdict(done), "from": ends[0], "to": ends[1]}


@contextlib.contextmanager
def _file(path: Path, caller: Caller, files: UserFiles) -> Iterator[FileIO]:
    """The emptied file, which is the user's; locked while it is written, for whoever waits until it is
    whole.
    """
    fd = files.open_output(path, caller)
    with FileIO(fd, "wb") as file:  # without a buffer, whose rest would be written once more at the end
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RequestError(f"--output {path}: another capture is writing it") from None
        os.ftruncate(fd, 0)
        yield file


def _write_whole(file: FileIO, data: bytes) -> None:
    """Appends all of it, or nothing. Raises OSError."""
    begun = file.tell()
    try:
        while data:
            data = data[file.write(data) :]
    except OSError:
        file.seek(begun)
        file.truncate()
        raise


class Tap:
    """Two packet sockets on a link's inner ends, from entering to leaving the block."""

    def __init__(self, wire: WireSpec) -> None:
        self._wire = wire
        self._stack = ExitStack()
        self._sockets: list[socket.socket] = []  # what leaves towards end b, towards end a

    def __enter__(self) -> Self:
        towards_a, towards_b = inner_devices(self._wire)
        with ExitStack() as stack, (NETNS_DIR / WIRES).open("rb") as namespace, entered(namespace.fileno()):
            self._sockets = [stack.enter_context(_listen(device)) for device in (towards_b, towards_a)]
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def capture(
        self, write: Callable[[bytes], object], count: int, seconds: float, stop: Callable[[], bool]
    ) -> Captured:
        """Writes a capture file's bytes, until so many frames or seconds are over or `stop` says so."""
        done, began = Captured(), time.monotonic()
        write(pcap.HEADER)
        held: list[tuple[int, int, bytes]] = []
        while not stop():
            left = seconds - (time.monotonic() - began)
            if left <= 0 or done.forward + done.backward >= count:
                break
            ready([each.fileno() for each in self._sockets], min(left, _POLL_S))
            before_ns = time.time_ns()
            held += [frame for side in (0, 1) for frame in self._read(side, before_ns)]
            held.sort(key=lambda frame: frame[0])
            # what is later may still be overtaken by what the other socket has not given yet
            due = [frame for frame in held if frame[0] <= before_ns]
            self._write(write, due[: count - done.forward - done.backward], done)
            del held[: len(due)]
        # what had left when it was told to end, and this thread had not come to yet
        held += [frame for side in (0, 1) for frame in self._read(side, time.time_ns())]
        held.sort(key=lambda frame: frame[0])
        self._write(write, held[: count - done.forward - done.backward], done)
        done.seconds = time.monotonic() - began
        done.missed = sum(_dropped(each) for each in self._sockets)
        return done

    def _read(self, side: int, until_ns: int) -> Iterator[tuple[int, int, bytes]]:
        """All that left before this time, and at most one frame more."""
        time_ns = 0
        while time_ns <= until_ns:
            try:
                data, ancillary, _, _ = self._sockets[side].recvmsg(pcap.SNAP_BYTES, socket.CMSG_SPACE(16))
            except BlockingIOError:
                return
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
    """A socket that gets what leaves by a device of the calling thread's network namespace."""
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
