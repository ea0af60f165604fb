"""Timetables of circuits: the accuracy of guard times, and the traffic that crosses.

    python -m tests.bench.timetables [--times 1000] [--json FILE]

Needs root. Four units with 200 Mb/s links; two matchings join u1 to u2 and to u3 in turn. `guards` compares
the guard times of time slots of 1 ms with those asked for, by probes that the gate itself timestamps, on
quiet cores and with a busy loop on every core. Then, by the length of a time slot, a tenth of which is dark:
the rate of one TCP connection from u1 to u2, and the rounds of an all-reduce of workers there with a server
in u1, beside the same over a permanent circuit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from testbed.emulation.namespaces import command, private_mounts
from testbed.topology import addresses
from testbed.topology.model import IncSpec, LinkSpec, Topology, UnitSpec
from testbed.topology.optical import OcsSpec
from testbed.topology.units import Unit
from tests.bench.host import facts
from tests.bench.reconfiguration import busy_cores, share

UNITS, HOSTS, RATE_MBPS, SECONDS = 4, 2, 200.0, 2.0
SLOT_MS = (1.0, 2.0, 10.0, 100.0)
WIRINGS = ([["u1o1", "u2o1"], ["u3o1", "u4o1"]], [["u1o1", "u3o1"], ["u2o1", "u4o1"]])
PORT, LIMIT_S = 5999, 300
SERVER = f"""
import socket, time
listening = socket.create_server(("", {PORT}))
print("ready", flush=True)
listening.settimeout({SECONDS})
total, begun = 0, time.monotonic()
try:
    peer, _ = listening.accept()
    while (left := begun + {SECONDS} - time.monotonic()) > 0:
        peer.settimeout(left)
        total += len(peer.recv(1 << 16))
except TimeoutError:
    pass
print(8 * total / {SECONDS} / 1e6)
"""
CLIENT = f"""
import socket, sys
with socket.create_connection((sys.argv[1], {PORT})) as peer:
    while True:
        peer.sendall(bytes(1 << 16))
"""


def topology() -> Topology:
    link = LinkSpec(RATE_MBPS)
    units = tuple(UnitSpec(Unit(index), "gpu", HOSTS, 2) for index in range(1, UNITS + 1))
    return Topology("turns", units, link, link, OcsSpec(circuits=tuple(map(tuple, WIRINGS[0]))), IncSpec())


def described(slot_ms: float, guard_ms: float) -> dict[str, Any]:
    matchings = [{"start_ms": turn * slot_ms, "circuits": wiring} for turn, wiring in enumerate(WIRINGS)]
    return {"period_ms": len(WIRINGS) * slot_ms, "guard_ms": guard_ms, "matchings": matchings}


def guards(network: Any, times: int) -> list[dict[str, Any]]:
    """Return the errors of guard times in microseconds."""
    from tests.privileged.scenarios import watched

    network.ask("schedule", schedule=described(1.0, 0.2))
    rows = []
    for is_busy in (False, True):
        with busy_cores(is_busy):
            seen = [watched(network.topology, 1_000_000, 200_000) for _ in range(times)]
        errors = [(each.longest_ns - 200_000) / 1e3 for each in seen]
        resolutions = [each.resolution_ns / 1e3 for each in seen]
        rows.append({"busy": is_busy, "error_us": errors, "resolution_us": resolutions})
    network.ask("unschedule")
    return rows


def tcp_mbps(network: Any) -> float:
    popen = network.machine.fabric.popen_in
    server = popen("u2h1", [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert server.stdout.readline() == b"ready\n"
    target = addresses.host_ip(Unit(2), 1)
    client = popen(
        "u1h1", [sys.executable, "-c", CLIENT, target], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    mbps = float(server.communicate(timeout=LIMIT_S)[0])
    client.kill()
    client.wait()
    return mbps


def carried(network: Any) -> list[dict[str, Any]]:
    """Return rows by the length of a time slot; None stands for permanent circuits."""
    rows = []
    for number, slot_ms in enumerate((None, *SLOT_MS), 1):
        before = network.ask("crossings")
        job = _prepared(network, number)
        if slot_ms:
            network.ask("schedule", schedule=described(slot_ms, slot_ms / 10))
        rows.append({"slot_ms": slot_ms, "tcp_mbps": tcp_mbps(network), "rounds_per_s": _played(job)})
        print(rows[-1], file=sys.stderr, flush=True)
        if slot_ms:
            network.ask("unschedule")
        after = network.ask("crossings")
        lost = {
            kind: sum(after[p][kind] - before[p][kind] for p in after) for kind in ("lit", "dark", "unlit")
        }
        rows[-1]["frames"] = lost
    return rows


def _prepared(network: Any, number: int) -> Any:
    """Admit a job while circuits are permanent: its results are routed over these."""
    from tests.privileged.fault_scenarios import prepare

    job = prepare(network, number, [(1, 1), (2, 1)], (1, 2))
    job.ready()
    return job


def _played(job: Any) -> float:
    from tests.privileged.fault_scenarios import figures

    job.go(held=True)
    job.first()
    time.sleep(SECONDS)
    said = figures(job.reports())
    assert not said["wrong"], said
    assert not said["errors"], said
    return float(said["rounds_per_s"])


def inside(times: int) -> None:
    private_mounts("bench")
    from testbed.daemon.network import Network

    folder = Path("/run/openvswitch/bench")
    folder.mkdir()
    with Network(topology(), folder) as network:
        print(json.dumps({"guards": guards(network, times), "carried": carried(network)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=1000, help="guard times that are watched")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.times)
        return
    argv = [sys.executable, "-m", "tests.bench.timetables", "--inside", "--times", str(arguments.times)]
    done = subprocess.run(
        command(argv, "bench"), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"timetables: exit status {done.returncode}: {done.stderr.strip()[-2000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    print("guards of 200 us: error us: median, 99 %, worst; resolution us: median, 99 %, worst")
    for row in result["guards"]:
        figures = [
            f"{share(row[key], part):9.1f}"
            for key in ("error_us", "resolution_us")
            for part in (0.5, 0.99, 1)
        ]
        print(f"{'busy' if row['busy'] else 'quiet':>8} {' '.join(figures)}")
    print(" slot ms  TCP Mb/s  rounds/s  frames: crossed, in the dark, without a circuit")
    for row in result["carried"]:
        slot = f"{row['slot_ms']:8.0f}" if row["slot_ms"] else "   stays"
        frames = ", ".join(str(count) for count in row["frames"].values())
        print(f"{slot} {row['tcp_mbps']:9.1f} {row['rounds_per_s']:9.1f}  {frames}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"host": facts(), **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
