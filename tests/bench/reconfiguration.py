"""The time until new circuits carry light, and the accuracy of dark times.

    python -m tests.bench.reconfiguration [--rows curve,jobs,dark] [--units 8x4,64x4,250x1] [--json FILE]

Needs root. Each size of fabric is brought up in namespaces of its own.

`curve` repeatedly asks for circuits: one (`request`), a quarter of all, and all (`apply`). It measures the
time from the arrival of a request until its circuits carry light and the routes over them are set, less the
dark time asked for, and its parts: the plan; the optical switch's flows, with their barrier and read-back;
the lead, in which all ports are notified; and the dark time beyond the one asked for, which includes routes
set after it. `settled` is when every ToR's flows were read back, `answer` when the client had the answer.

`jobs` does the same with jobs over two units each, whose results then use the new circuits.

`dark` compares 1,000 dark times with those asked for, on quiet cores and with a busy loop on every core. An
error may be too large by its resolution at most. A dark time that the prober, because it was held up,
resolved to no better than 200 us proves nothing, and is counted separately.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.client import rpc
from testbed.emulation.namespaces import command, private_mounts
from testbed.optics.delays import Delay
from testbed.topology import addresses
from testbed.topology.model import IncSpec, LinkSpec, Topology, UnitSpec
from testbed.topology.optical import OcsSpec, with_values
from testbed.topology.units import Unit
from tests.bench.host import facts

ROWS = ("curve", "jobs", "dark")
UNITS, DARK_UNITS = "8x4,16x4,32x4,64x4,250x1", "4x1,16x1,64x1"
OPTICAL_PORTS, RATE_MBPS = 2, 200.0
CHANGES, DARK_TIMES, JOBS = 9, 1000, 8
SEEN_US = 200.0
DARK = OcsSpec(with_values(switch_ms=Delay("uniform", 1.0, 2.0), lock_ms=Delay("constant", 1.0)))
LIMIT_S, ANSWER_S = 600, 60.0
ENDED = ("planned", "made", "dark", "routed", "lit", "settled")

Wiring = list[list[str]]


def topology_of(units: int, hosts: int, ocs: OcsSpec) -> Topology:
    link = LinkSpec(RATE_MBPS)
    every = tuple(UnitSpec(Unit(index), "gpu", hosts, OPTICAL_PORTS) for index in range(1, units + 1))
    return Topology(f"bench{units}", every, link, link, ocs, IncSpec(jobs=JOBS))


def ring(units: int) -> Wiring:
    """Return a circuit between every two neighbours, and between the last unit and the first."""
    return [
        [addresses.optical_port_name(unit, 2), addresses.optical_port_name(unit % units + 1, 1)]
        for unit in range(1, units + 1)
    ]


def rewired(circuits: Wiring, count: int, chance: random.Random) -> Wiring:
    """Return the circuits with the second ends of `count` of them rotated."""
    chosen = sorted(chance.sample(range(len(circuits)), count))
    changed = [list(pair) for pair in circuits]
    for number, place in enumerate(chosen):
        changed[place][1] = circuits[chosen[(number + 1) % count]][1]
    return changed


def spent(record: dict[str, Any], answer_ms: float) -> dict[str, float]:
    """Return the parts of a change, in milliseconds."""
    since = record["since_asked_ms"]
    carried = max(since["lit"], since["routed"])
    return {
        "circuits": len(record["added"]),
        "asked": record["asked_ms"],
        "beyond": carried - record["asked_ms"],
        "plan": since["planned"],
        "flows": since["made"] - since["planned"],
        "lead": since["dark"] - since["made"],
        "dark": carried - since["dark"] - record["asked_ms"],
        "routed": since["routed"],
        "settled": since["settled"],
        "answer": answer_ms,
    }


class Asker:
    """Asks a network's controller for circuits, and reroutes the present jobs over them."""

    def __init__(self, network: Any, seed: int) -> None:
        self._network, self._chance, self._jobs = network, random.Random(seed), {}
        self.units = len(network.topology.units)
        self.circuits = ring(self.units)
        self.apply(self.circuits)

    def apply(self, circuits: Wiring) -> dict[str, Any]:
        begun = time.monotonic()
        socket = self._network.controller_socket
        record = rpc.call(socket, "apply", timeout_s=ANSWER_S, circuits=circuits)
        answered = time.monotonic()
        for number, forest in self._jobs.items():
            self._network.places.reroute(number, self._network.ways(forest))
        followed_ms = 1000 * (time.monotonic() - answered)
        return {**spent(record, 1000 * (answered - begun)), **({"jobs": followed_ms} if self._jobs else {})}

    def request(self) -> dict[str, Any]:
        """Request a circuit between two units that have none."""
        socket = self._network.controller_socket
        while True:
            pair = [addresses.unit_name(u) for u in self._chance.sample(range(1, self.units + 1), 2)]
            begun = time.monotonic()
            record = rpc.call(socket, "request", timeout_s=ANSWER_S, demands=[pair])
            if record:
                return spent(record, 1000 * (time.monotonic() - begun))

    def change(self, count: int) -> dict[str, Any]:
        self.circuits = rewired(self.circuits, count, self._chance)
        return self.apply(self.circuits)

    def begin_jobs(self, count: int) -> None:
        """Admit jobs of two workers in neighbouring units."""
        from tests.forests import p4inc

        for number in range(1, count + 1):
            first, second = Unit(2 * number - 1), Unit(2 * number)
            forest = p4inc([(first, 1), (second, 1)], (first, 2))
            self._network.places.admit(number, number, forest, self._network.ways(forest))
            self._jobs[number] = forest


def curve(network: Any, jobs: int) -> list[dict[str, Any]]:
    """Return the rows of one fabric: one circuit, a quarter of them, all."""
    asker = Asker(network, seed=1)
    asker.begin_jobs(jobs)
    rows = [{"changed": "one", "changes": [asker.request() for _ in range(CHANGES)]}] if not jobs else []
    asker.apply(asker.circuits)
    for name, count in (("quarter", asker.units // 4), ("all", asker.units)):
        rows.append({"changed": name, "changes": [asker.change(count) for _ in range(CHANGES)]})
    return rows


@contextmanager
def busy_cores(is_busy: bool) -> Iterator[None]:
    """Run a loop on every core during the block."""
    loops = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    for loop in loops if is_busy else ():
        loop.start()
    try:
        yield
    finally:
        for loop in loops if is_busy else ():
            loop.kill()
            loop.join()


def _spin() -> None:
    while True:
        pass


def dark_times(network: Any, times: int) -> list[dict[str, Any]]:
    """Return the errors of dark times in microseconds, quiet and busy. Every pair of units has two circuits,
    which are swapped: those of one pair, of a quarter of all, and of all, in turn.
    """
    names = addresses.optical_port_name
    pairs = len(network.topology.units) // 2
    crossed = [False] * pairs
    rows = []
    for is_busy in (False, True):
        errors, resolutions, begun = [], [], time.monotonic()
        with busy_cores(is_busy):
            for turn in range(times):
                count = (1, max(1, pairs // 4), pairs)[turn % 3]
                for place in range(turn, turn + count):
                    crossed[place % pairs] ^= True
                wiring = [
                    [names(2 * place + 1, end), names(2 * place + 2, 3 - end if cross else end)]
                    for place, cross in enumerate(crossed)
                    for end in (1, 2)
                ]
                record = rpc.call(network.controller_socket, "apply", timeout_s=ANSWER_S, circuits=wiring)
                errors.append(1000 * (record["measured_ms"] - record["asked_ms"]))
                resolutions.append(1000 * record["resolution_ms"])
        took_s = time.monotonic() - begun
        rows.append({"busy": is_busy, "took_s": took_s, "error_us": errors, "resolution_us": resolutions})
    return rows


def inside(row: str, units: int, hosts: int, times: int) -> None:
    """Bring the fabric up inside the namespaces, measure, and print."""
    private_mounts("bench")
    from testbed.daemon.network import Network

    folder = Path("/run/openvswitch/bench")
    folder.mkdir()
    with Network(topology_of(units, hosts, DARK if row == "dark" else OcsSpec()), folder) as network:
        if row == "dark":
            rows = dark_times(network, times)
        else:
            rows = curve(network, min(JOBS, units // 2) if row == "jobs" else 0)
    print(json.dumps(rows))


def in_namespaces(row: str, size: str, times: int) -> list[dict[str, Any]]:
    argv = [sys.executable, "-m", "tests.bench.reconfiguration", "--inside", row, "--units", size]
    argv += ["--times", str(times)]
    done = subprocess.run(
        command(argv, "bench"), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{row}, {size}: exit status {done.returncode}: {done.stderr.strip()[-2000:]}")
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def share(values: Sequence[float], part: float) -> float:
    """Return the value that the share `part` of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def shown(row: str, size: str, result: dict[str, Any]) -> str:
    """Return a line of the table."""
    if row == "dark":
        load = "busy" if result["busy"] else "quiet"
        seen = [
            (error, resolution)
            for error, resolution in zip(result["error_us"], result["resolution_us"], strict=True)
            if resolution <= SEEN_US
        ]
        figures = [
            f"{share(values, part):9.1f}" for values in zip(*seen, strict=True) for part in (0.5, 0.99, 1.0)
        ]
        unseen = len(result["error_us"]) - len(seen)
        return f"{size:>6} {load:>8} {len(seen):6d} {unseen:6d} {' '.join(figures)}"
    changes = result["changes"]
    middle = {key: statistics.median(change[key] for change in changes) for key in changes[0]}
    worst = max(change["beyond"] for change in changes)
    keys = ("plan", "flows", "lead", "dark", "settled", "answer", *(("jobs",) if row == "jobs" else ()))
    parts = " ".join(f"{middle[key]:8.1f}" for key in keys)
    spread = f"{middle['beyond']:8.1f} {worst:8.1f}"
    return f"{size:>6} {result['changed']:>8} {middle['circuits']:6.0f} {spread} {parts}"


def heading(row: str) -> str:
    if row == "dark":
        return "  size     load   seen unseen   error, us: median, 99 %, worst; resolution, us: the same"
    more = "     jobs" if row == "jobs" else ""
    parts = "    plan    flows     lead     dark  settled   answer" + more
    return f"{row}: ms, medians of {CHANGES}\n  size  changed circuits beyond    worst {parts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS), help="of curve, jobs, dark (all)")
    parser.add_argument("--units", help=f"UNITSxHOSTS, by commas ({UNITS}; dark: {DARK_UNITS})")
    parser.add_argument("--times", type=int, default=DARK_TIMES, help="reconfigurations of a row of dark")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--inside", choices=ROWS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        units, hosts = (int(part) for part in arguments.units.split("x"))
        inside(arguments.inside, units, hosts, arguments.times)
        return
    report: dict[str, Any] = {"host": facts(), "rows": []}
    for row in arguments.rows.split(","):
        print(heading(row), flush=True)
        for size in (arguments.units or (DARK_UNITS if row == "dark" else UNITS)).split(","):
            for result in in_namespaces(row, size, arguments.times):
                print(shown(row, size, result), flush=True)
                report["rows"].append({"row": row, "size": size, **result})
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
