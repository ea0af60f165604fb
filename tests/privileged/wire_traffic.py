"""Traffic over shaped links, and the links' own counters over a steady window; for test_links and the bench.

`measure(CASES)` outside; `python -m tests.privileged.wire_traffic JSON` inside namespaces of its own. Each
rate has links of its own:

- `d`: two hosts joined by the link alone. TCP, and UDP from a sender that offers more than the rate.
- `x`: a host at a ToR whose fast path (bpf/forward.h) redirects to it the traffic of an unshaped link.
- `m`, `n`: two hosts to which a device map multiplies the traffic of an unshaped link.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.emulation.links import SYSCTLS, WIRES, HostAddress, WireEnd, Wires, WireSpec, WireStatistics
from testbed.emulation.namespaces import NETNS_DIR, NetworkNamespaces, command, entered
from testbed.emulation.spawner import Spawner
from testbed.plugins.registry import sources
from testbed.topology import addresses
from tests.limits import CALL_S, SLOWER
from tests.privileged.wire_cases import (
    FRAME_BYTES,
    Case,
    Direction,
    Found,
    direction_of,
    processor_times,
    shares,
)

MARK = "measured: "
ROOT = Path(__file__).resolve().parents[2]
TRIES = 3
WINDOW_S = 1.0
WARM_S = 0.3
SAMPLE_S = 0.005
LATE_S = 10.0
OFFER = 1.25
_DISCARD = 9
_PREFERRED = -20  # niceness of senders and sampler, so that the link is judged and not the scheduler
_UNIT = 1

SEND = """
import os, socket, sys, time
address, mbps, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((address, 9))
# SO_SNDBUFFORCE: what waits in the link's queue holds no sender back
s.setsockopt(socket.SOL_SOCKET, 32, 1 << 24)
s.setsockopt(17, 103, 1472)  # UDP_SEGMENT: up to 32 datagrams a call
data = memoryview(bytes(32 * 1472)); frame_s = 1514 * 8 / 1e6 / mbps; sent = 0
print("ready", flush=True)
os.setpriority(os.PRIO_PROCESS, 0, -20)
last = start = time.monotonic(); credit = 1.0
while (now := time.monotonic()) - start < seconds:
    credit = min(credit + (now - last) / frame_s, 128)  # after a stall, half a queue at once
    last = now
    if credit < 1 or (credit < 32 and frame_s < 2e-4):  # few calls where frames are many
        time.sleep(min(frame_s * 32, 0.0005))
        continue
    count = min(int(credit), 32)
    s.send(data[: count * 1472]); sent += count; credit -= count
print(sent, flush=True)
"""
TCP = """
import os, socket, sys, threading, time
role, address, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
def serve(c):
    room = bytearray(1 << 20)
    try:
        while c.recv_into(room, 1 << 20, socket.MSG_TRUNC): pass  # TCP: counted, not copied
    except ConnectionError: pass
def push(c):
    data = bytes(1 << 16)
    try:
        while True: c.sendall(data)
    except OSError: pass
if role == "receive":
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port)); s.listen()
    print("ready", flush=True)
    peers = [s.accept()[0] for _ in range(count)]; work = serve
else:
    peers = [socket.create_connection((address, port), 30) for _ in range(count)]; work = push
    # reno grows until a queue is full
    for c in peers: c.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    print("ready", flush=True)
for c in peers: threading.Thread(target=work, args=(c,), daemon=True).start()
time.sleep(60)
"""


def measure(cases: Sequence[Case], timeout_s: float = 600) -> list[Found]:
    """Run every case in turn, from outside, in namespaces of their own. AssertionError with the output if
    that fails.
    """
    argv = [
        sys.executable,
        "-m",
        "tests.privileged.wire_traffic",
        json.dumps([asdict(case) for case in cases]),
    ]
    ended = subprocess.run(
        command(argv, "links"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s * SLOWER,
        check=False,
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    assert ended.returncode == 0, (
        f"exit code {ended.returncode}\n{ended.stdout[-2000:]}\n{ended.stderr[-4000:]}"
    )
    measured = []
    for raw in json.loads(lines[-1].removeprefix(MARK)):
        directions = tuple(Direction(**direction) for direction in raw.pop("directions"))
        idle = tuple(raw.pop("idle_shares"))
        measured.append(Found(Case(**raw.pop("case")), directions, idle, **raw))
    return measured


# ------------------------------------------------------------------ inside


def silent(_phase: str, _done: int, _total: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Host:
    """A host: its namespace, its index in the unit, and its addresses."""

    name: str
    index: int

    @property
    def ip(self) -> str:
        return addresses.host_ip(_UNIT, self.index)

    @property
    def mac(self) -> str:
        return addresses.host_mac(_UNIT, self.index)


class Rig:
    """The links of some rates, and the senders on them. A context manager."""

    def __init__(
        self, rates_mbps: Iterable[float | None], kinds: Iterable[str], buffer_packets: int = 256
    ) -> None:
        self._kinds = frozenset(kinds)
        self._buffer_bytes = buffer_packets * FRAME_BYTES
        self._stack = ExitStack()
        self._hosts: dict[str, Host] = {}
        self._links: list[WireSpec] = []
        for rate in dict.fromkeys(rates_mbps):
            self._describe(rate)
        for name, kind in (("sx", "xdp"), ("sm", "multicast")):
            if kind in self._kinds:
                self._add_port(name, None)

    def _describe(self, rate: float | None) -> None:
        tag = "open" if rate is None else f"{rate:g}"
        if self._kinds & {"tcp", "udp"}:
            ends = [
                WireEnd("eth0", host.name, host.mac)
                for host in (self._host(f"d{tag}s"), self._host(f"d{tag}t"))
            ]
            self._links.append(WireSpec(f"d{tag}", ends[0], ends[1], rate, self._buffer_bytes))
        for name, kind in (("x", "xdp"), ("m", "multicast"), ("n", "multicast")):
            if kind in self._kinds:
                self._add_port(f"{name}{tag}", rate)

    def _host(self, name: str) -> Host:
        self._hosts[name] = Host(name, len(self._hosts) + 1)
        return self._hosts[name]

    def _add_port(self, name: str, rate: float | None) -> None:
        host = self._host(name)
        self._links.append(
            WireSpec(name, WireEnd("eth0", name, host.mac), WireEnd(f"p-{name}"), rate, self._buffer_bytes)
        )

    def __enter__(self) -> Rig:
        with ExitStack() as stack:
            self.namespaces = NetworkNamespaces()
            stack.callback(self.namespaces.remove_all)
            self.namespaces.add([WIRES, *self._hosts], SYSCTLS)
            self.wires = Wires(self.namespaces, self._links)
            stack.callback(self.wires.close)
            self.wires.make(silent)
            known = [(host.ip, host.mac) for host in self._hosts.values()]
            known.append((addresses.tor_ip(_UNIT), addresses.tor_mac(_UNIT)))
            self.wires.configure_hosts(
                [
                    HostAddress(
                        host.name,
                        "eth0",
                        host.ip,
                        24,
                        addresses.tor_ip(_UNIT),
                        tuple(n for n in known if n[0] != host.ip),
                    )
                    for host in self._hosts.values()
                ],
                silent,
            )
            self._spawner = Spawner()
            stack.callback(self._spawner.close)
            for (
                host
            ) in self._hosts.values():  # never read: what arrives is lost in the kernel and wakes nobody
                with entered(self.namespaces[host.name]):
                    sink = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                sink.bind(("0.0.0.0", _DISCARD))
            if "xdp" in self._kinds:
                self._forward(stack)
            if "multicast" in self._kinds:
                self._multiply(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _forward(self, stack: ExitStack) -> None:
        from testbed.dataplanes.xdp.plane import SwitchPort, XdpPlane, open_pinned

        ports = {name: f"p-{name}" for name in self._hosts if name == "sx" or name.startswith("x")}
        switch_ports = [SwitchPort(_UNIT, self._hosts[name].index, device) for name, device in ports.items()]
        pins = Path("/sys/fs/bpf/links")
        stack.enter_context(XdpPlane(pins, 1500, sources("xdp"))).attach(switch_ports, [])
        routes = {
            (self._hosts[name].ip, 32): ((device,), self._hosts[name].mac) for name, device in ports.items()
        }
        open_pinned(pins, {}).routes.set(_UNIT, routes)

    def _multiply(self, stack: ExitStack) -> None:
        from testbed.dataplanes.xdp.compiled import CompiledTables

        text = Path(__file__).with_name("multicast.c").read_text()
        compiled = stack.enter_context(CompiledTables("multicast.c", text, {"multiply": "XDP"}))
        self._bpf = compiled.bpf
        self._bpf.attach_xdp("p-sm", compiled.functions["multiply"], 1 << 2)  # native

    # -------------------------------------------------------------- traffic

    def start(self, host: str, program: str, *arguments: object) -> subprocess.Popen[bytes]:
        """Start a Python program in a host's namespace, and return once it has printed that it is ready."""
        argv = [sys.executable, "-I", "-S", "-c", program, *map(str, arguments)]
        process = self._spawner.popen(self.namespaces[host], argv, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", f"{host}: the program did not start"
        return process

    def ip(self, host: str) -> str:
        return self._hosts[host].ip

    def send(self, source: str, target: str, rate_mbps: float, seconds: float) -> subprocess.Popen[bytes]:
        """Send datagrams at this rate; the process prints how many."""
        return self.start(source, SEND, self._hosts[target].ip, rate_mbps, seconds)

    @contextmanager
    def traffic(self, case: Case) -> Iterator[list[tuple[str, str]]]:
        """Start the case's traffic; yield each (link, direction) that it must fill."""
        with ExitStack() as stack:
            yield self._start(case, stack)

    def _start(self, case: Case, stack: ExitStack) -> list[tuple[str, str]]:
        tag, offered = f"{case.rate_mbps:g}", OFFER * case.rate_mbps

        def until_left(process: subprocess.Popen[bytes]) -> None:
            def end() -> None:
                process.kill()
                process.communicate(timeout=CALL_S)

            stack.callback(end)

        if case.kind == "tcp":
            count = (
                4 if case.both else 1
            )  # one flow's acknowledgements wait behind the other's data: several fill it
            pairs = ((f"d{tag}s", f"d{tag}t"), (f"d{tag}t", f"d{tag}s"))
            for port, (source, target) in enumerate(pairs[: 1 + case.both], 7001):
                ip = self._hosts[target].ip
                until_left(self.start(target, TCP, "receive", ip, port, count))
                until_left(self.start(source, TCP, "send", ip, port, count))
            return [(f"d{tag}", "ab"), (f"d{tag}", "ba")][: 1 + case.both]
        if case.kind == "udp":
            until_left(self.send(f"d{tag}s", f"d{tag}t", offered, 60))
            if case.both:
                until_left(self.send(f"d{tag}t", f"d{tag}s", offered, 60))
            return [(f"d{tag}", "ab"), (f"d{tag}", "ba")][: 1 + case.both]
        if (
            case.kind == "xdp"
        ):  # at the link's ToR end frames arrive by redirection, at the host's end by its stack
            until_left(self.send("sx", f"x{tag}", offered, 60))
            if case.both:
                until_left(self.send(f"x{tag}", "sx", offered, 60))
            return [(f"x{tag}", "ba"), (f"x{tag}", "ab")][: 1 + case.both]
        members = [f"m{tag}", f"n{tag}"]
        for at, name in enumerate(members):
            self._bpf["members"][at] = self._bpf["members"].Leaf(socket.if_nametoindex(f"p-{name}"))
        until_left(self.send("sm", members[0], offered, 60))
        if case.both:
            for name in members:
                until_left(self.send(name, "sm", offered, 60))
        return [(name, way) for name in members for way in ("ba", "ab")[: 1 + case.both]]

    def counters(self) -> dict[str, WireStatistics]:
        return self.wires.statistics(queues_only=True)

    def window(self, case: Case, seconds: float = WINDOW_S) -> Found:
        """Run the case once."""
        with self.traffic(case) as filled:
            # wait until the sender has filled the queue, for which TCP needs some time
            deadline = time.monotonic() + WARM_S
            while time.monotonic() < deadline:
                time.sleep(SAMPLE_S)
            processors = processor_times()
            samples: list[tuple[float, dict[str, WireStatistics]]] = []
            end = time.monotonic() + seconds
            while len(samples) < 2 or samples[-1][0] < end:
                before = time.monotonic()
                counters = self.counters()
                after = time.monotonic()
                if (
                    after - before < SAMPLE_S or after > end + LATE_S
                ):  # otherwise the sample's time is too uncertain
                    samples.append(((before + after) / 2, {link: counters[link] for link, _ in filled}))
                time.sleep(SAMPLE_S)
            idle, steal = shares(processors, processor_times())
        return Found(case, tuple(direction_of(*which, samples) for which in filled), idle, steal, 1)

    def find(self, case: Case) -> Found:
        """Run the case until it holds, three times at most, since a machine with few cores stalls now
        and then.
        """
        for turn in range(1, TRIES + 1):
            outcome = self.window(case)
            outcome = Found(outcome.case, outcome.directions, outcome.idle_shares, outcome.steal_share, turn)
            if outcome.verdict == "holds":
                break
        return outcome

    def round_trips_ms(self, source: str, target: str) -> list[float]:
        """Ping twenty times, one at a time, and return the milliseconds."""
        argv = ["ping", "-n", "-c", "20", "-i", "0.01", self._hosts[target].ip]
        with self._spawner.popen(self.namespaces[source], argv, stdout=subprocess.PIPE) as process:
            text = process.communicate(timeout=20)[0].decode()
        return [float(milliseconds) for milliseconds in re.findall(r"time=([\d.]+) ms", text)]


def main(cases: list[Case]) -> None:
    """Run the cases inside the namespaces, and print the results."""
    os.setpriority(os.PRIO_PROCESS, 0, _PREFERRED)
    with Rig([case.rate_mbps for case in cases], {case.kind for case in cases}) as rig:
        print(MARK + json.dumps([asdict(rig.find(case)) for case in cases]))


if __name__ == "__main__":
    assert NETNS_DIR.is_dir()
    main([Case(**case) for case in json.loads(sys.argv[1])])
