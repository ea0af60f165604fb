"""Faults on a single wire between two network namespaces: the frames that arrive, compared with a model.

`findings(SCENARIO, ...)` outside; `python -m tests.privileged.fault_wire SCENARIO JSON` inside namespaces of
its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.limits import SLOWER

MARK = "findings: "
COUNTED = ("lost", "duplicated", "held", "released", "corrupted")
RATE_MBPS = 10_000
LATE_S = 60.0
_ETHERTYPE = 0x88B5
_BATCH = 64
_SO_RCVBUFFORCE = 33
_HEADER = bytes.fromhex("020000000002020000000001") + struct.pack(">H", _ETHERTYPE)


def findings(scenario: str, timeout_s: float = 360, **arguments: Any) -> Any:
    """Run a scenario and return its findings. Fails the test with the scenario's output if it fails."""
    from testbed.emulation.namespaces import command

    argv = [sys.executable, "-m", "tests.privileged.fault_wire", scenario, json.dumps(arguments)]
    root = Path(__file__).resolve().parents[2]
    ended = subprocess.run(
        command(argv, "wire"),
        cwd=root,
        capture_output=True,
        text=True,
        timeout=timeout_s * SLOWER,
        check=False,
    )
    said = f"{scenario}: exit code {ended.returncode}\n{ended.stdout[-2000:]}\n{ended.stderr[-5000:]}"
    lines = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    assert ended.returncode == 0, said
    assert lines, said
    return json.loads(lines[-1].removeprefix(MARK))


@dataclass(slots=True)
class Model:
    """bpf/link_faults.c in Python, for frames numbered from 1: which frames leave, in order, and which bit of
    each is flipped (-1: none).
    """

    fault: dict[str, Any]
    state: int
    seen: int = 0
    held: deque[tuple[int, int, int]] = field(default_factory=deque)  # due, number, bit flipped
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))

    def draw(self) -> int:
        x = self.state
        x ^= x >> 12
        x = (x ^ (x << 25)) & (2**64 - 1)
        x ^= x >> 27
        self.state = x
        return ((x * 0x2545F4914F6CDD1D) & (2**64 - 1)) >> 32

    def happens(self, kind: str) -> bool:
        return self.draw() < round(float(self.fault.get(kind, 0.0)) * 2**32)

    def frame(self) -> list[tuple[int, int]]:
        """Return the frames that leave when the next frame arrives, as (number, flipped bit or -1)."""
        self.seen += 1
        number, bit, out = self.seen, -1, []
        lost, copied, late, corrupt = (
            self.happens(kind) for kind in ("loss", "duplicate", "reorder", "corrupt")
        )
        passes = not lost
        if lost:
            self.counters["lost"] += 1
        else:
            if corrupt:
                bit = self.draw() * 8 * (len(frame(number)) - len(_HEADER)) >> 32
                self.counters["corrupted"] += 1
            if copied:
                out.append((number, bit))
                self.counters["duplicated"] += 1
            if late:
                self.held.append((number + self.fault["distance"], number, bit))
                self.counters["held"] += 1
                passes = False
        if passes:
            out.append((number, bit))
        if self.held and self.held[0][0] <= number:
            _, old, its_bit = self.held.popleft()
            self.counters["released"] += 1
            out.append((old, its_bit))
        return out


@dataclass(frozen=True, slots=True)
class Wire:
    """A wire "w" between the namespaces one (a) and two (b)."""

    namespaces: Any
    wires: Any
    faults: Any

    def packet_socket(self, name: str) -> socket.socket:
        from testbed.emulation.namespaces import entered

        with entered(self.namespaces[name]):
            made = socket.socket(
                socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.htons(_ETHERTYPE)
            )
            made.bind(("eth0", _ETHERTYPE))
        made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 26)
        made.settimeout(LATE_S)
        return made

    def every_socket(self, name: str) -> socket.socket:
        """Open a socket for frames with a tag too, which comes apart (`with_tag`)."""
        made = self.packet_socket(name)
        made.bind(("eth0", 3))  # ETH_P_ALL
        made.setsockopt(263, 8, 1)  # PACKET_AUXDATA
        return made

    @staticmethod
    def with_tag(receiver: socket.socket) -> bytes:
        """Receive a frame, with the tag that the kernel took out of it."""
        data, control, _, _ = receiver.recvmsg(16384, 256)
        for level, kind, content in control:
            status, _, _, _, _, tag, kind_of_tag = struct.unpack("=IIIHHHH", content)
            if (level, kind) == (263, 8) and status & 0x10:  # TP_STATUS_VLAN_VALID
                return data[:12] + struct.pack(">HH", kind_of_tag, tag) + data[12:]
        return data

    def tcp_socket(self, name: str) -> socket.socket:
        from testbed.emulation.namespaces import entered

        with entered(self.namespaces[name]):
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)


@contextmanager
def wire(rate_mbps: float = RATE_MBPS, buffer_bytes: int = 1 << 24, mtu: int = 1500) -> Iterator[Wire]:
    from testbed.emulation.faults import LinkFaults
    from testbed.emulation.links import SYSCTLS, WIRES, HostAddress, WireEnd, Wires, WireSpec
    from testbed.emulation.namespaces import NetworkNamespaces

    namespaces = NetworkNamespaces()
    namespaces.add([WIRES, "one", "two"], SYSCTLS)
    known = (("10.0.0.1", "02:00:00:00:00:01"), ("10.0.0.2", "02:00:00:00:00:02"))
    ends = [WireEnd("eth0", name, mac) for name, (_, mac) in zip(("one", "two"), known, strict=True)]
    specs = [WireSpec("w", ends[0], ends[1], rate_mbps, buffer_bytes, mtu)]
    wires = Wires(namespaces, specs)
    wires.make(lambda *_: None)
    hosts = [
        HostAddress(name, "eth0", f"10.0.0.{at}", 24, "10.0.0.254", known)
        for at, name in enumerate(("one", "two"), 1)
    ]
    wires.configure_hosts(hosts, lambda *_: None)
    faults = LinkFaults(namespaces[WIRES], specs, wires.make_checksums)
    try:
        yield Wire(namespaces, wires, faults)
    finally:
        faults.close()
        wires.close()
        namespaces.remove_all()


def frame(number: int) -> bytes:
    """Return a numbered frame: its number three times, then content and length that depend on it."""
    filler = hashlib.blake2b(number.to_bytes(8, "big"), digest_size=32).digest()
    return _HEADER + struct.pack(">QQQ", number, number, number) + filler * (1 + number % 7)


def spoiled(number: int, bit: int) -> bytes:
    """Return a frame as it leaves: with this bit after the Ethernet header flipped, or unchanged (-1)."""
    data = bytearray(frame(number))
    if bit >= 0:
        data[len(_HEADER) + bit // 8] ^= 1 << bit % 8
    return bytes(data)


def frames(fault: dict[str, Any], count: int, direction: str = "up") -> dict[str, Any]:
    """Send numbered frames over the wire, in batches too small for any buffer to overflow, and compare every
    arrival with the model.
    """
    from testbed.machine.links import LinkFault

    # each processor has its own receive queue: a frame sent from another processor could overtake those
    # before it
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with wire() as tried:
        tried.faults.set("w", LinkFault(**fault), direction)
        seed = hashlib.blake2b(f"{fault.get('seed', 1)}/w/{direction}".encode(), digest_size=8).digest()
        model = Model(fault, int.from_bytes(seed, "little"))
        ends = ("one", "two") if direction == "up" else ("two", "one")
        sender, receiver = (tried.packet_socket(name) for name in ends)
        wrong, flips = 0, 0
        with sender, receiver:
            for start in range(1, count + 1, _BATCH):
                expected: list[tuple[int, int]] = []
                for number in range(start, min(start + _BATCH, count + 1)):
                    sender.send(frame(number))
                    expected += model.frame()
                for number, bit in expected:
                    wrong += receiver.recv(2048) != spoiled(number, bit)
                    flips += bit >= 0
            receiver.settimeout(0.2)
            extra = 0
            try:
                while receiver.recv(2048):
                    extra += 1
            except TimeoutError:
                pass
        counters = tried.faults.counters("w", direction)
        return {"counters": counters, "model": model.counters, "wrong": wrong, "extra": extra, "flips": flips}


def tcp(fault: dict[str, Any], size: int) -> dict[str, Any]:
    """Transfer data by TCP over the faulty wire, with faults in both directions: whether the bytes are equal,
    and the counters.
    """
    from testbed.machine.links import LinkFault

    data = random.Random(7).randbytes(size)
    with wire() as tried:
        tried.faults.set("w", LinkFault(**fault))
        received = bytearray()
        with tried.tcp_socket("two") as listener, tried.tcp_socket("one") as sender:
            listener.bind(("10.0.0.2", 7001))
            listener.listen()
            sending = threading.Thread(target=_send, args=(sender, data))
            sending.start()
            peer, _ = listener.accept()
            with peer:
                peer.settimeout(LATE_S)
                while part := peer.recv(1 << 18):
                    received += part
            sending.join()
        return {
            "same": bytes(received) == data,
            "bytes": len(received),
            "up": tried.faults.counters("w", "up"),
            "down": tried.faults.counters("w", "down"),
        }


def delayed(
    delay_ms: float,
    jitter_ms: float,
    count: int,
    mtu: int = 1500,
    fault: dict[str, Any] | None = None,
    tag: int = -1,
) -> dict[str, Any]:
    """Send numbered frames over a delaying wire, one each millisecond, with a VLAN tag of their own unless
    `tag` is -1. Return how long each took in ms, in the order of arrival with its number, how many arrived
    otherwise than they were sent, and the counters of the fault, which is set before the delay.
    """
    from testbed.machine.links import LinkDelay, LinkFault

    begin = b"" if tag < 0 else struct.pack(">HH", 0x8100, tag)
    sent_s, came = {}, []
    with wire(mtu=mtu) as tried:
        tried.wires.follow_delay = tried.faults.follow_delay
        if fault:
            tried.faults.set("w", LinkFault(**fault))
        tried.wires.set_delays(["w"], LinkDelay(delay_ms, jitter_ms))
        with tried.packet_socket("one") as sender, tried.every_socket("two") as receiver:
            wrong = 0

            def receive() -> None:
                nonlocal wrong
                try:
                    while True:
                        data = tried.with_tag(receiver)
                        number = struct.unpack_from(">Q", data, len(_HEADER) + len(begin))[0]
                        came.append((number, (time.monotonic() - sent_s[number]) * 1e3))
                        wrong += data != frame(number)[:12] + begin + frame(number)[12:]
                except TimeoutError:
                    return

            receiver.settimeout(2 + (delay_ms + jitter_ms) / 1e3)
            receiving = threading.Thread(target=receive)
            receiving.start()
            for number in range(1, count + 1):
                sent_s[number] = time.monotonic()
                sender.send(frame(number)[:12] + begin + frame(number)[12:])
                time.sleep(0.001)
            receiving.join()
        counters = tried.faults.counters("w", "up") if fault else {}
        return {"came": came, "wrong": wrong, "counters": counters}


def delayed_in_excess(count: int) -> dict[str, Any]:
    """Send frames at once over a delaying wire that has no room for them all. Return how many arrived, and
    how many the wire counts as lost, until both are sure.
    """
    from testbed.machine.links import LinkDelay

    with wire(rate_mbps=8, buffer_bytes=20_000) as tried:
        tried.wires.set_delays(["w"], LinkDelay(100.0))
        with tried.packet_socket("one") as sender, tried.packet_socket("two") as receiver:
            for _ in range(count):
                sender.send(_HEADER + bytes(1000))
            receiver.settimeout(3.0)
            came = 0
            try:
                while receiver.recv(2048):
                    came += 1
            except TimeoutError:
                pass
        return {"came": came, "lost": tried.wires.statistics()["w"].drops}


def toggled(count: int) -> dict[str, Any]:
    """Send UDP packets, with checksums left to the wire where it can, over a wire whose delay begins and ends
    again and again. Return how many arrived.
    """
    from testbed.emulation.namespaces import entered
    from testbed.machine.links import NO_DELAY, LinkDelay

    with wire(rate_mbps=200) as tried:
        made = []
        for name in ("one", "two"):
            with entered(tried.namespaces[name]):
                made.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC))
        sender, receiver = made
        receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 26)
        receiver.bind(("10.0.0.2", 7002))
        receiver.settimeout(2)
        came = 0

        def receive() -> None:
            nonlocal came
            try:
                while receiver.recv(2048):
                    came += 1
            except TimeoutError:
                return

        receiving = threading.Thread(target=receive)
        receiving.start()
        for number in range(count):
            if number % 200 == 0:
                tried.wires.set_delays(["w"], NO_DELAY if number % 400 else LinkDelay(1.0))
            sender.sendto(bytes(500), ("10.0.0.2", 7002))
            time.sleep(0.0002)
        receiving.join()
        sender.close()
        receiver.close()
        return {"came": came, "drops": tried.wires.statistics()["w"].drops}


def delayed_tcp(size: int) -> dict[str, Any]:
    """Transfer data by TCP over a wire that delays, and whose delay begins, changes and ends meanwhile:
    whether the bytes are equal, and whether a host's own checksums were needed afterwards.
    """
    from testbed.machine.links import NO_DELAY, LinkDelay

    data = random.Random(7).randbytes(size)
    with wire(rate_mbps=200) as tried:
        received = bytearray()
        with tried.tcp_socket("two") as listener, tried.tcp_socket("one") as sender:
            listener.bind(("10.0.0.2", 7001))
            listener.listen()
            sending = threading.Thread(target=_send, args=(sender, data))
            sending.start()
            peer, _ = listener.accept()
            delays = [LinkDelay(5.0), LinkDelay(1.0, 1.0), NO_DELAY]
            with peer:
                peer.settimeout(LATE_S)
                while part := peer.recv(1 << 18):
                    received += part
                    if delays and len(received) > size * (4 - len(delays)) // 4:
                        tried.wires.set_delays(["w"], delays.pop(0))
            sending.join()
        return {"same": bytes(received) == data, "bytes": len(received), "left": len(delays)}


def _send(sender: socket.socket, data: bytes) -> None:
    sender.connect(("10.0.0.2", 7001))
    sender.sendall(data)
    sender.shutdown(socket.SHUT_WR)


def life() -> dict[str, Any]:
    """Return the number of programs at the inner ends before, with and after a fault."""
    from testbed.emulation.links import WIRES
    from testbed.emulation.namespaces import entered
    from testbed.emulation.netlink import FAULT_PRIORITY, RouteSocket
    from testbed.machine.links import LinkFault
    from tests.privileged.host_state import host_snapshot

    with wire() as tried:
        with entered(tried.namespaces[WIRES]):
            route = RouteSocket()

        def seen() -> Any:
            indices = sorted(
                device.ifindex for name, device in route.devices().items() if name.startswith("w-")
            )
            return [len(route.programs(index, FAULT_PRIORITY)) for index in indices]

        with route:
            before = seen()
            tried.faults.set("w", LinkFault(loss=1.0), "up")
            up = seen()
            tried.faults.set("w", LinkFault(loss=0.5))
            both, listed = seen(), tried.faults.states()
            assert tried.faults._program is not None
            program = f"{tried.faults._program.kernel_id} link_fault"
            loaded = program in host_snapshot().bpf_programs
            tried.faults.clear("w")
            after, nothing = seen(), tried.faults.states()
            deadline = time.monotonic() + LATE_S
            while program in host_snapshot().bpf_programs and time.monotonic() < deadline:
                time.sleep(0.01)
            left = program in host_snapshot().bpf_programs
        return {
            "before": before,
            "up": up,
            "both": both,
            "after": after,
            "nothing": list(nothing),
            "loaded": [loaded, left],
            "listed": [[each.link, each.direction, each.loss] for each in listed],
        }


def main(scenario: str, arguments: str) -> None:
    from testbed.emulation.namespaces import private_mounts

    private_mounts("wire")
    scenarios: dict[str, Callable[..., dict[str, Any]]] = {
        "frames": frames,
        "tcp": tcp,
        "life": life,
        "delayed": delayed,
        "delayed_in_excess": delayed_in_excess,
        "delayed_tcp": delayed_tcp,
        "toggled": toggled,
    }
    outcome = scenarios[scenario](**json.loads(arguments))
    print(MARK + json.dumps(outcome))


if __name__ == "__main__":
    words: Sequence[str] = sys.argv[1:]
    main(words[0], words[1])
