"""The time that a fabric takes to come up and go down and the memory that it needs, compared with plain
Mininet for the same topology.

    python -m tests.bench.bringup [--units 4,16,64] [--json FILE]

Both are measured on the same machine in one run, each in unshared namespaces with an Open vSwitch of its own
(user-space datapath), whose start and end count. Plain Mininet is its stock classes: Host, OVSSwitch, TCLink.
The fabric is a Mininet too. Memory is the proportional set size of all processes in the namespaces when
everything is up. It excludes the kernel's memory, of which the fabric uses more: its shaped link is two veth
pairs, Mininet's is one. Needs root.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from testbed.emulation.namespaces import command
from testbed.emulation.net import FabricNet
from testbed.emulation.openvswitch import OpenVSwitch
from testbed.emulation.topo import FabricTopo
from testbed.topology import addresses
from testbed.topology.model import IncSpec, LinkSpec, Topology, UnitSpec
from testbed.topology.optical import OcsSpec
from tests.bench.host import facts

HOSTS_PER_UNIT, OPTICAL_PORTS, RATE_MBPS = 4, 2, 200.0
LIMIT_S = 300
CONTENDERS = ("fabric", "mininet")


def topology_of(units: int) -> Topology:
    link = LinkSpec(RATE_MBPS)
    every = tuple(UnitSpec(index, "gpu", HOSTS_PER_UNIT, OPTICAL_PORTS) for index in range(1, units + 1))
    return Topology(f"bench{units}", every, link, link, OcsSpec(), IncSpec())


def memory_bytes() -> int:
    """Return the proportional set size of all processes that this PID namespace shows."""
    total = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            rollup = (folder / "smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def measured(up: Callable[[], None], down: Callable[[], None]) -> dict[str, float]:
    start = time.monotonic()
    up()
    came_up = time.monotonic()
    memory, processes = memory_bytes(), sum(1 for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    measuring_ended = time.monotonic()
    down()
    return {
        "up_s": came_up - start,
        "down_s": time.monotonic() - measuring_ended,
        "memory_mib": memory / 2**20,
        "processes": processes,
    }


def measure_fabric(topology: Topology, log_dir: Path) -> dict[str, float]:
    made: list[FabricNet] = []

    def up() -> None:
        made.append(FabricNet(FabricTopo(topology), log_dir))
        made[0].start()
        assert len(made[0].hosts) == len(topology.host_names)

    return measured(up, lambda: made[0].stop())


def measure_mininet(topology: Topology, log_dir: Path) -> dict[str, float]:
    from mininet.link import TCLink
    from mininet.net import Mininet
    from mininet.node import Host, OVSSwitch
    from mininet.topo import Topo

    Mininet.inited = True  # skip its initialisation, which changes settings of the whole host
    openvswitch = OpenVSwitch(log_dir)
    made: list[Any] = []

    def up() -> None:
        openvswitch.start()
        topo = Topo()
        topo.addSwitch(addresses.OXC_BRIDGE, dpid=f"{addresses.OXC_DPID:x}")
        for unit in topology.units:
            topo.addSwitch(unit.name)
            for host in range(1, unit.hosts + 1):
                name = addresses.host_name(unit.index, host)
                topo.addHost(name, ip=f"{addresses.host_ip(unit.index, host)}/24")
                topo.addLink(name, unit.name, bw=RATE_MBPS)
            for _ in range(unit.optical_ports):
                topo.addLink(unit.name, addresses.OXC_BRIDGE, bw=RATE_MBPS)

        switch = partial(OVSSwitch, datapath="user", protocols="OpenFlow13", batch=True)
        net = Mininet(topo=topo, host=Host, switch=switch, link=TCLink, controller=None)
        made.append(net)
        net.start()

    def down() -> None:
        made.pop().stop()
        openvswitch.stop()

    return measured(up, down)


def inside(contender: str, units: int) -> None:
    log_dir = Path("/run/openvswitch/log")
    log_dir.mkdir()
    measure = measure_fabric if contender == "fabric" else measure_mininet
    print(json.dumps(measure(topology_of(units), log_dir)))


def in_namespaces(contender: str, units: int) -> dict[str, float]:
    argv = command(
        [sys.executable, "-m", "tests.bench.bringup", "--inside", contender, "--units", str(units)], "bench"
    )
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise SystemExit(
            f"{contender}, {units} units: exit status {done.returncode}: {done.stderr.strip()[-2000:]}"
        )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def row(units: int, contender: str, result: dict[str, float]) -> str:
    times = f"{result['up_s']:8.2f} {result['down_s']:8.2f}"
    held = f"{result['memory_mib']:9.1f} {result['processes']:9.0f}"
    return f"{units:5d} {units * HOSTS_PER_UNIT:5d} {contender:8s} {times} {held}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--units", default="4,16,64", help="numbers of units, separated by commas")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--inside", choices=CONTENDERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    counts = [int(part) for part in arguments.units.split(",")]
    if arguments.inside:
        inside(arguments.inside, counts[0])
        return
    results = []
    print("units hosts                up s   down s       MiB processes", flush=True)
    for units in counts:
        pair = {}
        for contender in CONTENDERS:
            pair[contender] = in_namespaces(contender, units)
            print(row(units, contender, pair[contender]), flush=True)
        ours, theirs = pair["fabric"], pair["mininet"]
        ratios = {name: ours[name] / theirs[name] for name in ("up_s", "down_s", "memory_mib")}
        words = ", ".join(f"{name.split('_')[0]} {ratio:.2f}" for name, ratio in ratios.items())
        print(f"            fabric / Mininet: {words}", flush=True)
        results.append({"units": units, "hosts": units * HOSTS_PER_UNIT, **pair, "ratios": ratios})
    if arguments.json:
        report = {
            "host": facts(),
            "hosts_per_unit": HOSTS_PER_UNIT,
            "rate_mbps": RATE_MBPS,
            "results": results,
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
