"""Echo requests over a running network, one after the other for the duration of a block: which were answered,
and when.

Not ping(8): it ends a fixed time after its last request, and prints when it wrote an answer, not when it had
sent the request. On a busy machine it would count late answers as losses, and report times without answers as
shorter than they were.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import struct
import threading
import time
from typing import Any, Self

from testbed.daemon.network import Network
from testbed.emulation.namespaces import entered

LATE_S = 60.0  # a request without an answer by then is lost
_REQUEST, _REPLY = 8, 0
_ICMP = struct.Struct("!BBHHH")


class Echoes:
    """A context manager with a thread that sends echo requests from a host to `ip`, every `interval_s` or
    less often.
    """

    def __init__(self, network: Network, host: str, ip: str, interval_s: float = 0.005) -> None:
        self._what, self._ip, self._interval_s = f"{ip} answers {host}", ip, interval_s
        namespace = os.open(network.machine.fabric.host_namespace(host), os.O_RDONLY)
        try:
            with entered(namespace):
                self._socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        finally:
            os.close(namespace)
        self._sent_s: list[float] = []  # by number; taken before the request is sent
        self._answered_s: dict[int, float] = {}  # by number; taken after the answer is received
        self._end = threading.Event()
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._ask, name="echoes")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def await_answer(self) -> None:
        """Wait until an echo that is sent from now on is answered."""
        first, deadline = len(self._sent_s), time.monotonic() + LATE_S
        while max(self._answered_s, default=-1) < first:
            assert self._failure is None, f"{self._what}: {self._failure}"
            assert time.monotonic() < deadline, f"not within {LATE_S:g} s: {self._what}"
            time.sleep(0.001)

    def figures(self, to_the_last: bool = True) -> dict[str, Any]:
        """Return, after the block, the number of echoes sent and answered, and the longest time in ms in
        which none was sent and answered.

        `to_the_last`: wait for the answers to all of them, which takes LATE_S if one is lost.
        """
        deadline = time.monotonic() + (LATE_S if to_the_last else 0.0)
        while len(self._answered_s) < len(self._sent_s) and time.monotonic() < deadline:
            self._take(0.05)
        self._socket.close()
        answered = sorted(self._answered_s)
        gaps = [
            self._answered_s[after] - self._sent_s[before] for before, after in itertools.pairwise(answered)
        ]
        return {
            "sent": len(self._sent_s),
            "received": len(answered),
            "longest_gap_ms": 1000 * max(gaps, default=0.0),
        }

    def _ask(self) -> None:
        while not self._end.is_set():
            number = len(self._sent_s)
            assert number < 1 << 16, "numbers have 16 bits"
            header = _ICMP.pack(_REQUEST, 0, 0, os.getpid() & 0xFFFF, number)
            header = _ICMP.pack(_REQUEST, 0, _checksum(header), os.getpid() & 0xFFFF, number)
            self._sent_s.append(time.monotonic())
            try:
                self._socket.sendto(header, (self._ip, 0))
            except OSError as error:
                self._failure = error
                return
            due = time.monotonic() + self._interval_s
            while (left := due - time.monotonic()) > 0:
                self._take(left)

    def _take(self, within_s: float) -> None:
        if not select.select([self._socket], [], [], within_s)[0]:
            return
        data = self._socket.recv(2048)
        kind, _, _, owner, number = _ICMP.unpack_from(data, 4 * (data[0] & 0xF))
        # the socket receives the host's other echoes too
        is_of_it = data[12:16] == socket.inet_aton(self._ip)
        if is_of_it and (kind, owner) == (_REPLY, os.getpid() & 0xFFFF):
            self._answered_s.setdefault(number, time.monotonic())


def _checksum(header: bytes) -> int:
    total: int = sum(struct.unpack("!4H", header))
    return ~(total + (total >> 16)) & 0xFFFF
