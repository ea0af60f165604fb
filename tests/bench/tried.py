"""Variants that were tried to make an unshaped all-reduce faster, each compared with the project's own, in
turn on the same network.

`python -m tests.bench.tried [--json FILE]`, as root. Packet size (with gloo at the same MTU), burst, results
per wake-up, segment, ways to wait, XDP's modes, and the scheduling of workers. Variants of the endpoint are
compiled from workloads/native/ with another constant.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from testbed.dataplanes.xdp.program import GENERIC, NATIVE
from tests.bench.host import ROOT, facts
from tests.bench.rack import Setup, Trial, compiled, measure

MTUS = (1500, 2000, 3000, 3476)
WORKERS = (2, 4)
BURSTS = (1, 8, 16, 32, 64)
WAKES = (8, 16, 64, 128)
SEGMENTS = (64, 128, 512, 1024)
SPINS_US = (20, 100)
BUSY_POLLS_US = (50,)
GROUPS = ("mtu", "endpoint", "mode", "scheduling")
AS_IS = "as it is"
SCHEDULED = (("workers scheduled as usual", False), ("workers before all others (SCHED_FIFO)", True))


def variants(folder: Path, size_bytes: int, turns: int) -> list[Trial]:
    """Return the trials of one network: the endpoint as it is, and with each single change."""

    def trial(name: str, library: str | None = None, segment: int | None = None) -> Trial:
        return Trial(name, ("inc",), size_bytes, turns, 1, segment, library)

    def waiting(define: str, us: int) -> str:
        words = ["-Dppoll=waiting_ppoll", f"-D{define}={us}", str(ROOT / "tests/bench/waiting.c")]
        return compiled(folder, {}, words)

    return [
        trial(AS_IS),
        *(trial(f"burst of at most {n}", compiled(folder, {"MAX_BURST": n})) for n in BURSTS),
        *(trial(f"{n} results per wake-up", compiled(folder, {"WAKE_EVERY": n})) for n in WAKES),
        *(trial(f"segment of {n} slots", None, n) for n in SEGMENTS),
        *(trial(f"spin {us} us, then sleep", waiting("SPIN_US", us)) for us in SPINS_US),
        *(trial(f"SO_BUSY_POLL {us} us, then sleep", waiting("BUSY_POLL_US", us)) for us in BUSY_POLLS_US),
    ]


def row(group: str, name: str, workers: int, runs: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians over the runs of one variant."""
    every = list(runs)
    figures: dict[str, Any] = {"group": group, "name": name, "workers": workers}
    for kind in every[0]:
        goodputs = [run[kind]["goodput_mbps"] for run in every]
        figures[kind] = {
            "goodput_mbps": statistics.median(goodputs),
            "least": min(goodputs),
            "most": max(goodputs),
        }
    of = [run["inc"] for run in every]
    figures["us_per_pair"] = statistics.median(run["machine_us_per_pair"] for run in of)
    figures["retransmitted"] = sum(counters["retransmitted"] for run in of for counters in run["counters"])
    figures["wakes"] = sum(counters["wakes"] for run in of for counters in run["counters"])
    return figures


def shown(figures: dict[str, Any], base: float | None) -> None:
    inc, gloo = figures["inc"], figures.get("gloo")
    beside = (
        f"  gloo {gloo['goodput_mbps']:>6.0f}, ratio {inc['goodput_mbps'] / gloo['goodput_mbps']:.2f}"
        if gloo
        else ""
    )
    change = f"{inc['goodput_mbps'] / base - 1:>+7.1%}" if base else f"{'':>7}"
    spread = f"({inc['least']:.0f} to {inc['most']:.0f})"
    print(
        f"{figures['workers']} workers  {figures['name']:<34} {inc['goodput_mbps']:>6.0f} {spread} Mb/s "
        f"{change}  "
        f"{figures['us_per_pair']:.2f} us a pair, {figures['retransmitted']:.0f} again{beside}",
        flush=True,
    )


def beside_the_first(
    group: str, workers: int, by_name: dict[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Print the variants of a group beside its first, and return their rows."""
    rows = [row(group, name, workers, runs) for name, runs in by_name.items()]
    for number, figures in enumerate(rows):
        shown(figures, rows[0]["inc"]["goodput_mbps"] if number else None)
    return rows


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tried", description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--mbytes", type=float, default=16.0, help="size of the vector (%(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=4, help="how often all variants take turns (%(default)s)"
    )
    parser.add_argument("--groups", default=",".join(GROUPS), help="which of these (%(default)s)")
    parser.add_argument("--workers", type=int, action="append", help="numbers of workers (2 and 4)")
    parser.add_argument(
        "--mtu", type=int, default=1500, help="of what is not about packet sizes or modes (%(default)s)"
    )
    arguments = parser.parse_args(argv)
    size, groups = int(arguments.mbytes * 1e6) // 4 * 4, arguments.groups.split(",")
    rows: list[dict[str, Any]] = []
    for workers in arguments.workers or WORKERS:
        for mtu in MTUS if "mtu" in groups else ():
            both = Trial("mtu", size_bytes=size, rounds=arguments.rounds)
            runs = measure(Setup((workers,), mtu=mtu), [both])[0]["runs"]
            rows.append(row("mtu", f"MTU {mtu}", workers, runs))
            shown(rows[-1], None)
        if "endpoint" in groups:
            with tempfile.TemporaryDirectory() as folder:
                trials = variants(Path(folder), size, 3)
                outcomes = measure(Setup((workers,), mtu=arguments.mtu), trials, arguments.rounds)
            rows += beside_the_first("endpoint", workers, {of["name"]: of["runs"] for of in outcomes})
        if "mode" in groups:
            modes: dict[str, list[dict[str, Any]]] = {NATIVE: [], GENERIC: []}
            for _ in range(arguments.rounds):
                for mode, of_mode in modes.items():
                    trial = Trial(mode, ("inc",), size, 3, 1)
                    of_mode += measure(Setup((workers,), xdp=mode), [trial])[0]["runs"]
            rows += beside_the_first("mode", workers, {f"XDP {mode}": runs for mode, runs in modes.items()})
        if "scheduling" in groups:
            plain, first = (
                Trial(name, size_bytes=size, turns=3, rounds=1, fifo=fifo) for name, fifo in SCHEDULED
            )
            outcomes = measure(Setup((workers,), mtu=arguments.mtu), [plain, first], arguments.rounds)
            rows += beside_the_first("scheduling", workers, {of["name"]: of["runs"] for of in outcomes})
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"host": facts(), "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
