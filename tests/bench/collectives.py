"""Each collective by `inc` against gloo's, from 4 B to 16 MB, blocking and many in flight.

`python -m tests.bench.collectives [--workers 2,4] [--rates 0,200] [--busy] [--json FILE] [--into FILE]`, as
root. A rate of 0 is unshaped. Both groups are of the same processes and take turns; a ratio is inc's time
over gloo's, the median of the turns' ratios. `--busy`: beside a computing process on each core.
`--crossovers`: write to workloads/crossovers.py the sizes at which carrying a collective over the network
pays, on quiet and busy cores alike. `--itself`: compare gloo with itself, to show how much of a ratio is
chance.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.collectives_worker import CARRY, ITSELF, MARK, MODES
from tests.bench.host import ROOT, facts
from tests.bench.tables import publish, table
from tests.privileged.commands import command, running
from workloads import crossovers

CONFIG = "units: [{{hosts: {hosts}}}, {{hosts: 1}}]\nscale: 1\n{rates}"
RATES = "host_rate_mbps: {0}\noptical_rate_mbps: {0}\n"
TURNS, TURN_S, LIMIT_S = 5, 0.15, 540
LIMIT = 1.05  # of gloo's time
ALONE = "all_reduce, the call alone", 1, 1024
BUSY = "while True: sum(range(10**6))"


def measured(
    workers: Sequence[int], rate_mbps: float, turns: int, turn_s: float, mode: Sequence[str]
) -> list[dict[str, Any]]:
    """Measure each number of workers on one testbed, and return the rows."""
    said = []
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "units.yaml"
        rates = RATES.format(f"{rate_mbps:g}" if rate_mbps else "unshaped")
        config.write_text(CONFIG.format(hosts=max(workers), rates=rates))
        with running(str(config)) as testbed:
            for count in workers:
                script = str(ROOT / "tests" / "bench" / "collectives_worker.py")
                options = ("--name", testbed.name, "--place", f"u1:{count}", "--timeout", f"{LIMIT_S}")
                how = (f"{turns}", f"{turn_s}", *mode)
                ended = command("testbed.run", *options, script, *how, timeout_s=LIMIT_S + 60)
                said.append({"rate_mbps": rate_mbps, **_said(ended)})
                print(json.dumps(said[-1]), file=sys.stderr, flush=True)  # print now: a later run may fail
    return said


def _said(ended: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    lines = [line.partition(MARK)[2] for line in ended.stdout.splitlines() if MARK in line]
    if ended.returncode or not lines:
        raise SystemExit(f"exit code {ended.returncode}\n{ended.stdout[-3000:]}\n{ended.stderr[-1000:]}")
    said: dict[str, Any] = json.loads(lines[-1])
    return said


@contextlib.contextmanager
def busy(is_busy: bool) -> Iterator[None]:
    """Run a computing process on each core during the block."""
    argv = [sys.executable, "-c", BUSY]
    processes = [subprocess.Popen(argv) for _ in range((os.cpu_count() or 1) * is_busy)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def shown(figures: Mapping[str, Any]) -> str:
    """Return the table: a row for each collective and size, and a column for each number of workers."""
    cells: dict[tuple[str, int, int], list[str]] = {}
    heads = []
    for run in figures["runs"]:
        links = f"{run['rate_mbps']:g} Mb/s" if run["rate_mbps"] else "unshaped"
        heads.append(f"{run['workers']} workers, {links}{', busy' * run['busy']}")
        for row in run["rows"]:
            key = (row["collective"], row["in_flight"], row["bytes"])
            cells.setdefault(key, []).append(f"{row['ratio']:.2f} ({1e3 * row['inc']:.2f})")
        if run["alone_s"]:
            inc, gloo = (run["alone_s"][name] for name in ("inc", "gloo"))
            cells.setdefault(ALONE, []).append(f"{inc / gloo:.2f} ({1e3 * inc:.3f})")
    lines = [
        [name, f"{size_bytes}", f"{in_flight}", *ratios]
        for (name, in_flight, size_bytes), ratios in sorted(cells.items())
    ]
    return table(["collective", "bytes", "in flight", *heads], lines)


def carried_sizes(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[int, crossovers.Sizes]]]:
    """Return the contents of workloads/crossovers.py (CARRIED), from runs in which the network carried every
    size. The largest ratio over all rates, and over quiet and busy cores, counts.
    """
    ratios: dict[tuple[str, str, int], dict[int, float]] = {}
    for run in runs:
        links = "shaped" if run["rate_mbps"] else "unshaped"
        for row in run["rows"]:
            of_size = ratios.setdefault((row["collective"], links, run["workers"]), {})
            of_size[row["bytes"]] = max(row["ratio"], of_size.get(row["bytes"], 0.0))
    carried: dict[str, dict[str, dict[int, crossovers.Sizes]]] = {}
    for (name, links, workers), of_size in sorted(ratios.items()):
        carried.setdefault(name, {}).setdefault(links, {})[workers] = within(of_size, LIMIT)
    return carried


def within(ratios: Mapping[int, float], limit: float) -> list[tuple[int, int | None]]:
    """Return the spans of sizes whose ratios are within a limit; the end is None where the span includes the
    largest size. Sizes between two measured ones belong to a span if both do. A single size makes no span,
    since it may be chance.
    """
    spans: list[tuple[int, int | None]] = []
    for is_within, sizes in itertools.groupby(sorted(ratios), lambda size: ratios[size] <= limit):
        least, *more = sizes
        if is_within and more:
            spans.append((least, None if more[-1] == max(ratios) else more[-1]))
    return spans


def write_crossovers(carried: Mapping[str, Mapping[str, Mapping[int, crossovers.Sizes]]]) -> None:
    """Write workloads/crossovers.py."""
    file = Path(str(crossovers.__file__))
    head, assigned, _ = file.read_text().partition("] = {\n")
    lines = []
    for name, by_links in carried.items():
        lines.append(f'    "{name}": {{')
        lines += [f'        "{links}": {by_workers},' for links, by_workers in by_links.items()]
        lines.append("    },")
    file.write_text(head + assigned + "\n".join([*lines, "}", ""]))


def slower(figures: Mapping[str, Any]) -> list[str]:
    """Return the rows that are slower than gloo's by more than LIMIT."""
    return [
        f"{run['workers']} workers, {run['rate_mbps']:g} Mb/s: {row['collective']} of {row['bytes']} B, "
        f"{row['in_flight']} in flight: {row['ratio']:.2f} ({row['spread'][0]:.2f} to {row['spread'][1]:.2f})"
        for run in figures["runs"]
        for row in run["rows"]
        if row["ratio"] > LIMIT
    ]


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.collectives", description=__doc__)
    parser.add_argument("--workers", default="2,4,8")
    parser.add_argument("--rates", default="0,200", help="of all links, in Mb/s; 0: unshaped")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--turn-s", type=float, default=TURN_S, help="of a row, by one group")
    parser.add_argument("--busy", action="store_true", help="beside a process that computes on each core")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--crossovers", action="store_const", const=CARRY, dest="mode", help=MODES[CARRY])
    modes.add_argument("--itself", action="store_const", const=ITSELF, dest="mode", help=MODES[ITSELF])
    parser.add_argument(
        "--only", choices=crossovers.CARRIED, metavar="COLLECTIVE", help="of --crossovers (all of them)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures")
    parser.add_argument("--into", type=Path, metavar="FILE", help="put the table into this document, too")
    arguments = parser.parse_args(argv)
    workers = [int(word) for word in arguments.workers.split(",")]
    rates = [float(word) for word in arguments.rates.split(",")]
    if arguments.mode == CARRY and (all(rates) or not any(rates)):
        parser.error("--crossovers: --rates needs 0, of unshaped links, and another")
    if arguments.only and arguments.mode != CARRY:
        parser.error("--only: of --crossovers")
    mode = [word for word in (arguments.mode, arguments.only) if word]
    runs = []
    for is_busy in (False, True) if arguments.mode == CARRY else (arguments.busy,):
        with busy(is_busy):
            for rate in rates:
                of_rate = measured(workers, rate, arguments.turns, arguments.turn_s, mode)
                runs += [{"busy": is_busy, **run} for run in of_rate]
    if arguments.mode == CARRY:
        write_crossovers({**crossovers.CARRIED, **carried_sizes(runs)})
    figures = {"host": facts(), "mode": arguments.mode, "runs": runs}
    publish("collectives", shown(figures), figures, arguments.json, arguments.into)
    for line in slower(figures):
        print(f"slower than {LIMIT} times gloo's: {line}")
    for run in runs:
        alone = ", ".join(f"{name} {1e6 * seconds:.0f} us" for name, seconds in run["alone_s"].items())
        print(f"{run['workers']} workers, {run['rate_mbps']:g} Mb/s: the call alone: {alone}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
