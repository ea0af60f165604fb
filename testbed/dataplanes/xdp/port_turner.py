"""A process that switches optical ports and watches their dark time. Nothing else runs in it, and where
allowed it has real-time priority: so it is on time, whatever the controller's threads and the machine do.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import NoReturn, Protocol

from testbed.errors import TestbedError
from testbed.ocs.glimpses import Glimpses, Turned

LEAD_NS, LEAD_PER_PORT_NS = 2_000_000, 12_000  # from the request to the begin of the dark time
PATIENCE_S = 10.0
_MESSAGE_BYTES = 1 << 20  # enough for ten thousand ports
_PR_SET_PDEATHSIG = 1


class Ports(Protocol):
    """The optical ports to switch: `testbed.dataplanes.xdp.plane.PinnedPlane`."""

    def darken(self, peers: Mapping[int, int | None], dark_at_ns: int) -> None: ...
    def light(self, ports: Iterable[int], lit_at_ns: int | Sequence[int]) -> None: ...
    def watch(self, port: int, dark_at_ns: int, lit_at_ns: int) -> Glimpses: ...
    def stop(self) -> None: ...


class Turner:
    """The process, from its maker's side. Make it before any thread starts; it ends with its maker. Not
    thread-safe. `lost` is called when it has ended or does not answer: then no port can be switched.
    """

    def __init__(self, ports: Ports, lost: Callable[[], object]) -> None:
        self._lit_at_ns, self._lost = 0, lost
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
        maker = os.getpid()
        if os.fork() == 0:
            self._ours.close()
            _serve(ports, theirs, maker)
        theirs.close()

    def turn(
        self,
        peers: Mapping[int, int | None],
        dark_ns: int | Sequence[int],
        watched: int | None,
        *,
        ends_timetable: bool = False,
    ) -> Turned:
        """Switch ports together, slightly later, and begin to watch one of them; return once the switching is
        written. They are dark for `dark_ns`, one time for all or one for each; the watched port is among
        those that are dark longest. With `ends_timetable` the timetable ends once the ports are dark, and
        their dark time counts from then on.

        However late this process is, no port has its new circuit while another has its old one: if not all
        are written when the dark time begins, the written ones wait in the dark for the others.
        """
        with contextlib.suppress(BrokenPipeError):  # the answer reports the cause
            self._ours.send(json.dumps([list(peers.items()), dark_ns, watched, ends_timetable]).encode())
        turned = Turned(**self._answer(0.0))
        self._lit_at_ns = turned.lit_at_ns
        return turned

    def seen(self) -> Glimpses:
        """Wait for the end of the dark time, and return the probes' times at the watched port. Call once for
        each turn with a watched port.
        """
        return Glimpses(**self._answer((self._lit_at_ns - time.monotonic_ns()) / 1e9))

    def _answer(self, due_in_s: float) -> dict[str, int]:
        self._ours.settimeout(max(0.0, due_in_s) + PATIENCE_S)
        try:
            said = self._ours.recv(_MESSAGE_BYTES)
        except TimeoutError as error:
            self._lost()
            raise TestbedError(f"turn optical ports: no answer in {PATIENCE_S:g} s") from error
        except ConnectionError:
            said = b""
        if not said:
            self._lost()
            raise TestbedError("turn optical ports: the process that does has ended")
        answer: dict[str, int | str] = json.loads(said)
        if "error" in answer:
            raise TestbedError(str(answer["error"]))
        return {name: int(ns) for name, ns in answer.items()}


def _serve(ports: Ports, requests: socket.socket, maker: int) -> NoReturn:
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"turn optical ports: end with the controller: {os.strerror(code)}")
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        while os.getppid() == maker and (asked := requests.recv(_MESSAGE_BYTES)):
            try:
                pairs, dark_ns, watched, ends_timetable = json.loads(asked)
                turned = _turn(ports, dict(pairs), dark_ns, ends_timetable)
                requests.send(json.dumps(asdict(turned)).encode())
                if watched is not None:
                    seen = ports.watch(watched, turned.dark_at_ns, turned.lit_at_ns)
                    requests.send(json.dumps(asdict(seen)).encode())
            except (TestbedError, OSError) as error:
                requests.send(json.dumps({"error": str(error)}).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _turn(
    ports: Ports, peers: Mapping[int, int | None], dark_ns: int | Sequence[int], ends_timetable: bool
) -> Turned:
    dark_at_ns = time.monotonic_ns() + LEAD_NS + LEAD_PER_PORT_NS * len(peers)
    ports.darken(peers, dark_at_ns)
    if ends_timetable:
        time.sleep(max(0, dark_at_ns - time.monotonic_ns()) / 1e9)
        ports.stop()
    from_ns = max(dark_at_ns, time.monotonic_ns())
    if isinstance(dark_ns, int):
        lit_at_ns = from_ns + dark_ns
        ports.light(peers, lit_at_ns)
    else:
        lit_at_ns = from_ns + max(dark_ns)
        ports.light(peers, [from_ns + each_ns for each_ns in dark_ns])
    return Turned(dark_at_ns, max(lit_at_ns, time.monotonic_ns()))
