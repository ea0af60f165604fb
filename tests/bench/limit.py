"""The frames a second that this machine moves without any aggregation, and the largest MTU with native XDP.

`python -m tests.bench.limit [--json FILE]`, as root. UDP senders with segmentation offload, as the endpoint
has, each send through a veth pair with the fabric's settings into an XDP program that counts and drops
(`drop`), or into one that redirects to a second pair, whose program counts and drops (`redirect`): the path
of a push and a result. Also, by MTU: whether a native XDP program can be attached, the kernel's message if
not, and whether a frame of that size reaches it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.dataplanes.xdp.compiled import CompiledTables
from testbed.dataplanes.xdp.syscall import pin
from testbed.emulation.links import SYSCTLS, WIRES, HostAddress, WireEnd, Wires, WireSpec
from testbed.emulation.namespaces import BPFFS_DIR, NetworkNamespaces, command, entered, private_mounts
from testbed.emulation.spawner import Spawner
from testbed.topology import addresses
from testbed.wire.spec import ONE_BUFFER_MTU
from tests.bench.allreduce_worker import machine_busy_s
from tests.bench.host import ROOT, facts
from tests.bench.rack import MARK

MODES = ("drop", "redirect")
WINDOW_S, WARM_S = 1.0, 0.3
SENDERS = (1, 2)
MTUS = (1500, ONE_BUFFER_MTU, ONE_BUFFER_MTU + 1, 3506, 3507, 4000, 9000)
_NATIVE = 1 << 2
_IFINDEX = 100  # frames.c indexes its map by the ifindex of the receiving device
SEND = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
payload, count = int(sys.argv[2]) - 28, int(sys.argv[3])
batch = max(1, min(64, 65507 // payload))
if batch > 1:
    s.setsockopt(17, 103, payload)  # UDP_SEGMENT
data = bytes(batch * payload)
while count:
    s.sendto(data, (sys.argv[1], 9)); count -= 1
"""


class Rig:
    """Pairs of hosts, and between them, in this namespace, the ends that programs are attached to. For use
    inside the namespaces only.
    """

    def __init__(self, senders: int, mtu: int) -> None:
        self.names, self.mtu = [f"{side}{at}" for at in range(1, senders + 1) for side in "st"], mtu
        self.namespaces = NetworkNamespaces()

    @contextmanager
    def up(self) -> Iterator[Any]:
        for path, value in SYSCTLS.items():
            Path("/proc/sys", path).write_text(value)
        self.namespaces.add([WIRES, *self.names], SYSCTLS)
        specs = [
            WireSpec(
                name,
                WireEnd("eth0", name),
                WireEnd(f"p-{name}", ifindex=_IFINDEX + at),
                None,
                1 << 20,
                self.mtu,
            )
            for at, name in enumerate(self.names)
        ]
        wires, spawner = Wires(self.namespaces, specs), Spawner()
        try:
            wires.make(lambda *_: None)
            hosts = [self._host(at, name) for at, name in enumerate(self.names, 1)]
            wires.configure_hosts(hosts, lambda *_: None)
            yield spawner
        finally:
            spawner.close()
            wires.close()
            self.namespaces.remove_all()

    def _host(self, at: int, name: str) -> HostAddress:
        gateway = addresses.tor_ip(at)
        return HostAddress(
            name, "eth0", addresses.host_ip(at, 1), 24, gateway, ((gateway, addresses.tor_mac(at)),)
        )


def programs() -> CompiledTables:
    text = Path(__file__).with_name("frames.c").read_text()
    return CompiledTables("frames.c", text, {"drop": "XDP", "pass_on": "XDP"})


def count(bpf: Any) -> int:
    return int(sum(bpf["frames"][0]))


@contextmanager
def moving(mode: str, senders: int, mtu: int) -> Iterator[tuple[Rig, Any]]:
    """Keep frames arriving during the block, inside the namespaces. Yield the rig, and BCC's object, whose
    map counts the frames.
    """
    rig, compiled = Rig(senders, mtu), programs()
    bpf, drop, pass_on = compiled.bpf, compiled.functions["drop"], compiled.functions["pass_on"]
    with rig.up() as spawner:
        for at, name in enumerate(rig.names):
            if name.startswith("t"):
                with entered(rig.namespaces[name]):
                    bpf.attach_xdp("eth0", drop, _NATIVE)
                bpf["targets"][ctypes.c_int(_IFINDEX + at - 1)] = ctypes.c_int(_IFINDEX + at)
            else:
                bpf.attach_xdp(f"p-{name}", pass_on if mode == "redirect" else drop, _NATIVE)
        argv = [sys.executable, "-c", SEND]
        sending = [
            spawner.popen(rig.namespaces[name], [*argv, addresses.tor_ip(at), str(mtu), "-1"])
            for at, name in enumerate(rig.names, 1)
            if name.startswith("s")
        ]
        deadline = time.monotonic() + 10
        while not count(bpf):
            assert time.monotonic() < deadline, f"{mode}: no frame arrived in 10 s"
            time.sleep(0.01)
        time.sleep(WARM_S)
        try:
            yield rig, bpf
        finally:
            for process in sending:
                process.kill()
                process.wait()


def rate(mode: str, senders: int, mtu: int) -> dict[str, Any]:
    """Measure, inside the namespaces, frames a second over three windows, and the machine's CPU time for each
    frame.
    """
    with moving(mode, senders, mtu) as (_, bpf):
        rates, costs = [], []
        for _ in range(3):
            start, before, busy = time.monotonic(), count(bpf), machine_busy_s()
            time.sleep(WINDOW_S)
            frames, seconds = count(bpf) - before, time.monotonic() - start
            rates.append(frames / seconds)
            costs.append((machine_busy_s() - busy) * 1e6 / frames)
    median = statistics.median(rates)
    return {
        "mode": mode,
        "senders": senders,
        "mtu": mtu,
        "frames_per_s": median,
        "all": rates,
        "us": statistics.median(costs),
    }


def attachable(mtu: int) -> dict[str, Any]:
    """Attach a native program to a veth of this MTU, inside the namespaces. Return the kernel's answer, and
    whether a full frame reaches the program.
    """
    compiled = programs()
    bpf = compiled.bpf
    pinned = BPFFS_DIR / "drop"
    pin(compiled.program_fd("drop"), pinned)
    rig = Rig(1, mtu)
    with rig.up() as spawner:
        argv = ["ip", "link", "set", "dev", "p-s1", "xdpdrv", "pinned", str(pinned)]
        tried = subprocess.run(argv, capture_output=True, text=True, check=False)
        if not tried.returncode:
            argv = [sys.executable, "-c", SEND, addresses.tor_ip(1), str(mtu), "1"]
            assert spawner.popen(rig.namespaces["s1"], argv).wait() == 0
            deadline = time.monotonic() + 1.0
            while not count(bpf) and time.monotonic() < deadline:
                time.sleep(0.01)
    return {
        "mtu": mtu,
        "attached": not tried.returncode,
        "said": " ".join(tried.stderr.split()),
        "arrived": bool(count(bpf)),
    }


def inside(words: str) -> None:
    private_mounts("bench")
    what, *numbers = words.split(",")
    figures = (
        attachable(int(numbers[0])) if what == "attach" else rate(what, int(numbers[0]), int(numbers[1]))
    )
    print(MARK + json.dumps(figures))


def outside(*words: Any) -> dict[str, Any]:
    argv = command(
        [sys.executable, "-m", "tests.bench.limit", "--inside", ",".join(map(str, words))], "bench"
    )
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    if ended.returncode or not lines:
        raise SystemExit(f"limit {words}: exit code {ended.returncode}\n{ended.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    return figures


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.limit", description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.inside:
        inside(arguments.inside)
        return 0
    rates = []
    print(f"{'program':<9} {'senders':>7} {'MTU':>5} {'frames/s':>9} {'us of CPU a frame':>17}")
    for mtu in (1500, ONE_BUFFER_MTU):
        for mode in MODES:
            for senders in SENDERS:
                rates.append(figures := outside(mode, senders, mtu))
                print(
                    f"{mode:<9} {senders:>7} {mtu:>5} {figures['frames_per_s']:>9.0f} {figures['us']:>17.2f}",
                    flush=True,
                )
    sizes = [outside("attach", mtu) for mtu in MTUS]
    for figures in sizes:
        arrives = "a full frame arrives" if figures["arrived"] else "a full frame does not arrive"
        print(
            f"MTU {figures['mtu']}: " + (f"attached; {arrives}" if figures["attached"] else figures["said"])
        )
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"host": facts(), "rates": rates, "sizes": sizes}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
