"""Whole large testbeds: up, a ping between every two units that a circuit joins, a job of 8 workers, memory,
down, and a check that nothing is left.

    python -m tests.bench.large [--shapes 64x4,250x1,16x16] [--json FILE]

A shape is units x hosts of each. A unit has 4 optical ports, so that circuits can join 4 units with a fifth,
which sums their gradients. Units of one host have 2 optical ports, and the job is a ring of workers in 8
units. Memory is the proportional set size of all of the testbed's processes before the job, divided by hosts.
Pings run in the hosts' namespaces, entered from outside. Needs root.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from pathlib import Path
from typing import Any

from testbed.client.runtime import Runtime
from testbed.topology import addresses
from testbed.topology.load import parse
from testbed.topology.model import Topology
from tests.bench.host import facts
from tests.privileged.commands import ROOT, command, fresh_name, open_folder, pid_of, pids_in_testbed
from tests.privileged.host_state import assert_unchanged, host_snapshot
from tests.topologies import joined

JOB = ROOT / "tests" / "privileged" / "jobs" / "whole.py"
SHAPES, WORKERS = "64x4,250x1,16x16", 8
LIMIT_S = 600.0


def done(*words: str) -> float:
    """Run a command of the project, and return the seconds that it took. SystemExit if it fails."""
    began = time.monotonic()
    ended = command(*words, timeout_s=LIMIT_S)
    took_s = time.monotonic() - began
    if ended.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: status {ended.returncode}: {ended.stderr.strip()[-2000:]}")
    return took_s


def memory_bytes(pids: list[int]) -> int:
    """Return the proportional set size of these processes."""
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def pinged(daemon: int, topology: Topology) -> tuple[int, float]:
    """Ping between every two units that a circuit joins; return the number of pairs, and the seconds."""
    began, pairs = time.monotonic(), sorted(joined(topology))
    for a, b in pairs:
        source, target = topology.unit(a).members[0], topology.unit(b).members[-1]
        ping = ["ip", "netns", "exec", addresses.host_name(*source), "ping", "-c", "1", "-W", "5"]
        inside = ["nsenter", f"--target={daemon}", "--mount", *ping, addresses.host_ip(*target)]
        answered = subprocess.run(inside, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if answered.returncode != 0:
            raise SystemExit(f"no answer: {' '.join(ping)}: {answered.stdout}{answered.stderr}")
    return len(pairs), time.monotonic() - began


def measured(units: int, hosts: int, folder: Path) -> dict[str, Any]:
    config = {"units": [{"hosts": hosts}] * units, "optical_ports": 4 if hosts > 1 else 2}
    topology = parse(config, f"large{units}x{hosts}")
    file, name, before = folder / "large.yaml", fresh_name(), host_snapshot()
    file.write_text(json.dumps(config))
    row: dict[str, Any] = {"units": units, "hosts": units * hosts}
    row["up_s"] = done("testbed.up", "--config", str(file), "--name", name, "--detach")
    try:
        main = int(json.loads(Runtime.of(name).main.read_text())["pid"])
        inside = [main, *pids_in_testbed(main)]
        row["processes"], row["pss_bytes"] = len(inside), memory_bytes(inside)
        row["pairs"], row["pings_s"] = pinged(pid_of(main, "testbed.daemon.process"), topology)
        each = min(2, hosts)
        place = ",".join(f"u{unit}:{each}" for unit in range(1, WORKERS // each + 1))
        words = ["--name", name, "--place", place, "--preload", "--sync", "inc" if hosts > 1 else "ring"]
        row["workers"], row["job_s"] = WORKERS, done("testbed.run", *words, str(JOB))
    finally:
        row["down_s"] = done("testbed.down", "--name", name)
    assert_unchanged(before)
    return row


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['units']:5d} {row['hosts']:5d} {row['up_s']:6.2f} {row['down_s']:6.2f} {row['pairs']:5d} "
        f"{row['pings_s']:6.2f} {row['workers']:7d} {row['job_s']:6.2f} {row['processes']:5d} "
        f"{row['pss_bytes'] / 2**20:6.0f} {row['pss_bytes'] / 2**20 / row['hosts']:6.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", default=SHAPES, help=f"units x hosts of each, by commas ({SHAPES})")
    parser.add_argument("--json", type=Path, help="write the results here")
    arguments = parser.parse_args()
    rows = []
    print("units hosts   up s down s pairs  pings workers  job s procs    MiB  /host", flush=True)
    with open_folder() as folder:
        for shape in arguments.shapes.split(","):
            units, hosts = map(int, shape.split("x"))
            rows.append(measured(units, hosts, folder))
            print(line(rows[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"host": facts(), "results": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
