"""One all-reduce by five ways of summing: BMv2 with wide lanes, BMv2 with a register for each lane, XDP, a
parameter server, gloo's ring.

`python -m tests.bench.engines [--json FILE] [--mtu 1500|3476] [--seconds N]`, as root. Two workers of one
unit, unshaped links. Each round measures every way once. Goodput is defined in tests/bench/goodput.py: the
median over a round's all-reduces; the table shows the median and the extremes over rounds. All sums are
checked. The parameter server is a process at a third host; its traffic and gloo's cross the XDP unit's ToR.
An all-reduce before the rounds, which does not count, determines how many fill --seconds. CPU time is the
whole machine's for each gigabit of gradients that workers push, and simple_switch's own for each push. PATH
selects simple_switch. Ways that cannot be measured (no simple_switch, or no program of this MTU, or a stale
one) are skipped, with the reason.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.dataplanes.bmv2.compile import recorded_hash, sources_hash, systems_named
from testbed.dataplanes.bmv2.process import binary
from testbed.dataplanes.bmv2.program import compiled
from testbed.errors import TestbedError
from testbed.wire.spec import lanes_for
from tests.bench.host import facts
from tests.bench.rack import Setup, Trial, measure

WORKERS = 2
MTUS = (1500, 3476)
WIDE, REGISTERS = "bmv2-wide", "bmv2-registers"
MOST_TURNS = 1000
AS_FOUND, WITH_MACROS, WITHOUT_MACROS = "as found on PATH", "with logging macros", "without logging macros"
_ANSWER_S = 10
# strings of simple_switch.cpp: a log message, present only with logging macros; and a name in every build
_LOGGED, _ALWAYS = b"Processing packet received on port", b"intrinsic_metadata.ingress_global_timestamp"


@dataclass(frozen=True, slots=True)
class Way:
    """One row of the table."""

    name: str
    label: str
    setup: Setup
    kind: str = "inc"


def ways(mtu: int) -> list[Way]:
    """Return all rows at an MTU."""
    wide = Setup((WORKERS,), mtu=mtu, engine="bmv2", layout="wide")
    xdp = Setup((WORKERS,), mtu=mtu, spare=1)
    return [
        Way(WIDE, "BMv2, wide lanes", wide),
        Way(REGISTERS, "BMv2, one register per lane", replace(wide, layout="registers")),
        Way("xdp", "XDP", xdp),
        Way("ps", "PS (`--sync ps`)", xdp, "ps"),
        Way("ring", "ring (gloo)", xdp, "gloo"),
    ]


def hindrance(way: Way) -> str | None:
    """Return the reason why a row cannot be measured here, or None."""
    if way.setup.engine != "bmv2":
        return None
    layout, lanes, systems = way.setup.layout, lanes_for(way.setup.mtu), systems_named(way.setup.programs)
    try:
        binary()
        program = compiled(layout, way.setup.mtu, way.setup.programs)
    except TestbedError as error:
        return str(error)
    if recorded_hash(program) != sources_hash(layout, systems, lanes):
        again = f"python -m testbed.dataplanes.bmv2.compile --mtu {way.setup.mtu}"
        return f"{program.name} is stale; `{again}` makes it anew"
    return None


def logging_macros(files: Iterable[bytes]) -> str:
    """Return whether simple_switch was compiled with logging macros, from the contents of its program and the
    libraries that it loads.
    """
    parts = [code for code in files if _ALWAYS in code]
    if not parts:
        return AS_FOUND
    return WITH_MACROS if any(_LOGGED in code for code in parts) else WITHOUT_MACROS


def build() -> dict[str, str]:
    """Return BMv2's version, and what its files reveal about how it was built. HostError if it is not
    installed.
    """
    path = binary()
    version = subprocess.run(
        [path, "--version"], capture_output=True, text=True, check=True, timeout=_ANSWER_S
    ).stdout
    loaded = subprocess.run(
        ["ldd", path], capture_output=True, text=True, check=False, timeout=_ANSWER_S
    ).stdout
    files = [path, *re.findall(r"=> (/\S+)", loaded)]
    return {"version": version.strip(), "logging": logging_macros(Path(file).read_bytes() for file in files)}


def turns(median_s: float, seconds: float) -> int:
    """Return how many all-reduces fill `seconds`."""
    return min(MOST_TURNS, max(1, round(seconds / median_s)))


def one_round(plan: Sequence[Way], counts: dict[str, int], size_bytes: int) -> dict[str, dict[str, Any]]:
    """Measure each way once, and return the figures by name; ways with the same setup share a network."""
    by_name = {}
    for setup in dict.fromkeys(way.setup for way in plan):
        mine = [way for way in plan if way.setup == setup]
        trials = [Trial(way.name, (way.kind,), size_bytes, counts.get(way.name, 1), 1) for way in mine]
        for way, of in zip(mine, measure(setup, trials), strict=True):
            by_name[way.name] = of["runs"][0][way.kind]
    return by_name


def row(way: Way, size_bytes: int, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summarise a way's figures over all rounds."""
    goodputs = [run["goodput_mbps"] for run in runs]
    median = statistics.median(goodputs)
    gigabits = [size_bytes * 8 / 1e9 * WORKERS * len(run["seconds"]) for run in runs]
    switches = [run["switches_cpu_s"] * 1e6 / run["pairs"] for run in runs]
    return {
        "name": way.name,
        "label": way.label,
        "mtu": way.setup.mtu,
        "goodput_mbps": median,
        "by_round": goodputs,
        "spread": (max(goodputs) - min(goodputs)) / median,
        "turns": len(runs[0]["seconds"]),
        "machine_s_per_gbit": statistics.median(
            run["machine_cpu_s"] / of for run, of in zip(runs, gigabits, strict=True)
        ),
        "switch_us_per_push": statistics.median(switches) if way.setup.engine == "bmv2" else None,
        "retransmitted": sum(
            counters.get("retransmitted", 0) for run in runs for counters in run["counters"]
        ),
        "runs": list(runs),
    }


def ratios(rows: Sequence[dict[str, Any]]) -> None:
    """Add to each row of an MTU its ratio to BMv2's wide lanes, by the medians."""
    wide = next((row["goodput_mbps"] for row in rows if row["name"] == WIDE and "skipped" not in row), None)
    for of in rows:
        of["of_wide"] = of["goodput_mbps"] / wide if wide and "skipped" not in of else None


def layouts(rows: Sequence[dict[str, Any]]) -> tuple[float, float, float] | None:
    """Return how many times as fast wide lanes are as a register for each lane: by the medians, and the least
    and most of a round. None where either was not measured. `rows` are those of one MTU.
    """
    by_name = {row["name"]: row for row in rows if "skipped" not in row}
    if not {WIDE, REGISTERS} <= by_name.keys():
        return None
    wide, registers = by_name[WIDE], by_name[REGISTERS]
    rounds = [first / second for first, second in zip(wide["by_round"], registers["by_round"], strict=True)]
    return wide["goodput_mbps"] / registers["goodput_mbps"], min(rounds), max(rounds)


HEAD = (
    f"{'':<30} {'MTU':>5} {'Mb/s':>7} {'least, most':>15} {'spread':>7} {'of wide':>8} {'CPU s/Gb':>9} "
    f"{'switch us/push':>14} "
    f"{'again':>6}"
)


def line(row: dict[str, Any]) -> str:
    """Format a row for the terminal."""
    start = f"{row['label']:<30} {row['mtu']:>5}"
    if "skipped" in row:
        return f"{start} skipped: {row['skipped']}"
    of_wide = f"{row['of_wide']:.2f}" if row["of_wide"] else "-"
    switch = f"{row['switch_us_per_push']:.1f}" if row["switch_us_per_push"] is not None else "-"
    extremes = f"{min(row['by_round']):.1f}, {max(row['by_round']):.1f}"
    return (
        f"{start} {row['goodput_mbps']:>7.1f} {extremes:>15} {row['spread']:>7.0%} {of_wide:>8} "
        f"{row['machine_s_per_gbit']:>9.3f} {switch:>14} {row['retransmitted']:>6.0f}"
    )


def at_mtu(mtu: int, size_bytes: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Measure all rows of an MTU; if BMv2 cannot be measured at all, return only its rows, as skipped."""
    every = ways(mtu)
    reasons = {way.name: reason for way in every if (reason := hindrance(way))}
    plan = [way for way in every if way.name not in reasons]
    skipped = {
        way.name: {"name": way.name, "label": way.label, "mtu": mtu, "skipped": reasons[way.name]}
        for way in every
        if way.name in reasons
    }
    if {WIDE, REGISTERS} <= reasons.keys():
        return list(skipped.values())
    first = one_round(plan, {}, size_bytes)
    counts = {name: turns(run["median_s"], seconds) for name, run in first.items()}
    runs = [one_round(plan, counts, size_bytes) for _ in range(rounds)]
    rows = [
        skipped[way.name] if way.name in skipped else row(way, size_bytes, [of[way.name] for of in runs])
        for way in every
    ]
    ratios(rows)
    return rows


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.engines", description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument(
        "--mtu", type=int, choices=MTUS, action="append", help="may be given twice; default: both"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of all-reduces in a row (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="how often all take turns (%(default)s)")
    parser.add_argument("--mbytes", type=float, default=4.0, help="size of the vector (%(default)s)")
    arguments = parser.parse_args(argv)
    size = int(arguments.mbytes * 1e6) // 4 * 4
    version = None
    try:
        version = build()
    except TestbedError as error:
        print(error)
    else:
        print(f"simple_switch {version['version']}, {version['logging']}")
    print(HEAD, flush=True)
    rows: list[dict[str, Any]] = []
    for mtu in arguments.mtu or MTUS:
        rows += (of_mtu := at_mtu(mtu, size, arguments.rounds, arguments.seconds))
        print("\n".join(line(row) for row in of_mtu), flush=True)
        if compared := layouts(of_mtu):
            print(
                f"wide lanes: {compared[0]:.1f} times a register per lane ({compared[1]:.1f} to "
                f"{compared[2]:.1f})"
            )
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        figures = {"host": facts(), "bmv2": version, "bytes": size, "rounds": arguments.rounds, "rows": rows}
        arguments.json.write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
