"""A switch in this process that follows testbed/systems/luwu/owned.py, over loopback, between the compiled
ends of an owned tree. It loses, repeats and reorders packets as set.
"""

from __future__ import annotations

import contextlib
import heapq
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from testbed.systems.luwu.owned import OwnedPlace
from testbed.wire import spec
from workloads.luwu.contract import Role
from workloads.luwu.nic import Nic, Tree

HEADER = struct.Struct(">HBBBBHHHIIIHHHH")
PUSH, SUM, PARAMETERS, PARAMETER_BEAT, GRADIENT_BEAT = 1, 9, 10, 11, 12
OP, FLAGS, WORKER, CONTRIBUTORS, SLOT, FRAGMENT, COUNT = 2, 3, 6, 7, 9, 10, 11
JOB, GENERATION, LANES, SLOTS = 7, 3, 64, 64
TREE = Tree(Role.WORKER, JOB, GENERATION, 0, 1, LANES, SLOTS, "127.0.0.1", 1, depth=16, beat_us=500)


@dataclass(frozen=True)
class Chaos:
    """What happens to each packet in each direction: the probabilities of loss and of duplication, and the
    largest delay.
    """

    lost: float = 0.0
    twice: float = 0.0
    late_s: float = 0.0


def udp() -> socket.socket:
    each = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    each.bind(("127.0.0.1", 0))
    each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    return each


class Switch:
    """One place, or with `pods` (a list of each pod's workers) two levels of places. `_serve` runs in a
    thread.
    """

    def __init__(self, workers: int, pods: Sequence[Sequence[int]] = (), chaos: Chaos = Chaos()) -> None:
        self.udp = udp()
        self.udp.setblocking(False)
        self.port = self.udp.getsockname()[1]
        self.to_worker: list[tuple[str, int]] = []
        self.to_owner = ("", 0)
        self.chaos = chaos
        self.pods = [list(pod) for pod in pods]
        self.top = OwnedPlace(range(len(pods)) if pods else range(workers), SLOTS)
        self.leaves = [OwnedPlace(pod, SLOTS) for pod in self.pods]
        self.random = random.Random(11)
        self.dark = False
        self.sent = 0  # the next fragment of parameters
        self.most_acked: int | None = None  # acknowledgements beyond it are lost
        self.counts: dict[int, int] = {}
        self.lost = 0
        self._late: list[tuple[float, int, bytes, tuple[str, int]]] = []
        self._number = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.udp.close()

    def _serve(self) -> None:
        while not self._stop.is_set():
            now = time.monotonic()
            while self._late and self._late[0][0] <= now:
                _, _, packet, to = heapq.heappop(self._late)
                self._send(packet, to)
            select.select([self.udp], [], [], 0.0005 if self._late else 0.01)
            for _ in range(64):
                try:
                    packet = self.udp.recv(65535)
                except BlockingIOError:
                    break
                self._heed(packet)

    def _heed(self, packet: bytes) -> None:
        fields = list(HEADER.unpack_from(packet))
        op, worker = fields[OP], fields[WORKER]
        self.counts[op] = self.counts.get(op, 0) + 1
        if op == PARAMETERS:
            self.sent = max(self.sent, fields[FRAGMENT] + 1)
        if op in (PARAMETERS, GRADIENT_BEAT):
            for to in self.to_worker:
                self._deliver(packet, to)
            return
        if self._is_lost():
            return
        if op == PUSH:
            lanes = tuple(np.frombuffer(packet, ">u4", offset=spec.HEADER_BYTES).tolist())
            assert fields[SLOT] == fields[FRAGMENT] % SLOTS
            summed = self._contribute(worker, fields[FRAGMENT], lanes)
            if summed is None:
                return
            fields[OP], fields[WORKER] = SUM, 0
            body = (np.array(summed, np.uint64) & 0xFFFFFFFF).astype(">u4").tobytes()
            self._deliver(HEADER.pack(*fields) + body, self.to_owner)
        elif op == PARAMETER_BEAT and (self.most_acked is None or fields[FRAGMENT] <= self.most_acked):
            beat = self._hear(worker, (fields[FRAGMENT], fields[SLOT]))
            if beat is not None:
                fields[WORKER], fields[FRAGMENT], fields[SLOT] = 0, *beat
                self._deliver(HEADER.pack(*fields), self.to_owner)

    def _pod(self, worker: int) -> int:
        return next(number for number, pod in enumerate(self.pods) if worker in pod)

    def _contribute(self, worker: int, fragment: int, lanes: tuple[int, ...]) -> tuple[int, ...] | None:
        member, summed = worker, lanes
        if self.pods:
            member = self._pod(worker)
            _, partial = self.leaves[member].contribute(worker, fragment, lanes)
            if partial is None or self._is_lost():
                return None
            summed = partial
        return self.top.contribute(member, fragment, summed)[1]

    def _hear(self, worker: int, beat: tuple[int, int]) -> tuple[int, int] | None:
        member = worker
        if self.pods:
            member = self._pod(worker)
            up = self.leaves[member].hear(worker, beat)
            if up is None or self._is_lost():
                return None
            beat = up
        return self.top.hear(member, beat)

    def _is_lost(self) -> bool:
        if self.dark or self.random.random() < self.chaos.lost:
            self.lost += 1
            return True
        return False

    def _deliver(self, packet: bytes, to: tuple[str, int]) -> None:
        if self._is_lost():
            return
        for _ in range(2 if self.random.random() < self.chaos.twice else 1):
            if self.chaos.late_s:
                self._number += 1
                at = time.monotonic() + self.random.random() * self.chaos.late_s
                heapq.heappush(self._late, (at, self._number, packet, to))
            else:
                self._send(packet, to)

    def _send(self, packet: bytes, to: tuple[str, int]) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            self.udp.sendto(packet, to)


@contextlib.contextmanager
def ends(
    workers: int,
    room_bytes: int,
    pods: Sequence[Sequence[int]] = (),
    chaos: Chaos = Chaos(),
    host: bool = True,
    tree: Tree = TREE,
) -> Iterator[tuple[Switch, Nic, list[Nic]]]:
    """Start a switch, the owner's end and the workers' ends for the block."""
    with contextlib.ExitStack() as stack:
        switch = Switch(workers, pods, chaos)
        stack.callback(switch.close)
        tree = replace(tree, workers=workers, port=switch.port)
        sockets = [udp() for _ in range(workers + 1)]
        switch.to_owner = sockets[-1].getsockname()
        switch.to_worker = [each.getsockname() for each in sockets[:-1]]
        switch.start()
        owner = stack.enter_context(Nic(replace(tree, role=Role.OWNER), sockets[-1], room_bytes, host))
        nics = [
            stack.enter_context(Nic(replace(tree, worker=worker), sockets[worker], room_bytes, host))
            for worker in range(workers)
        ]
        yield switch, owner, nics
