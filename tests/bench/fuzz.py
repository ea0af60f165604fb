"""Run a model and the XDP programs, or a model and a BMv2 switch, on millions of random packets, and compare
after each packet: verdict, frames, ports, slots, rings, counters.

`python -m tests.bench.fuzz [--packets 10000000] [--bmv2-packets N] [--seed N] [--json FILE] [--into FILE]`.
The packets are divided among processes, each with a seed of its own (N, N + 1, ...) and its own programs and
maps. A packet on which the two differ ends its place's run, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.at_once import at_once
from tests.bench.host import facts
from tests.bench.tables import publish, table
from tests.privileged import bmv2_model_run
from tests.privileged.packets import findings

PLACES = {
    "switch": "a switch",
    "host": "a host",
    "blocks": "a switch, by block records",
    "owned": "a switch, of owned trees",
    "optics": "the optical switch",
}
LIMIT_S = 7200.0


def shoot(packets: int, seed: int, processes: int) -> list[dict[str, Any]]:
    """Run the processes, and return a row of findings for each process and place."""
    shares = [packets // processes + (at < packets % processes) for at in range(processes)]
    runs = {
        seed + at: partial(findings, "fuzz_run", str(share), str(seed + at), timeout_s=LIMIT_S)
        for at, share in enumerate(shares)
    }
    return [{"seed": each, **row} for each, rows in at_once(runs, processes).items() for row in rows]


def gathered(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Add up the processes' findings by place."""
    places: dict[str, dict[str, Any]] = {}
    for row in rows:
        place = places.setdefault(
            row["place"], {"packets": 0, "left": 0, "states": 0, "mismatches": 0, "verdicts": {}}
        )
        for name in ("packets", "left", "states", "mismatches"):
            place[name] += row[name]
        place["mismatches"] += len(row["uncounted"]) + len(row["strangers"])
        for verdict, count in row["verdicts"].items():
            place["verdicts"][verdict] = place["verdicts"].get(verdict, 0) + count
    return places


def summary(figures: dict[str, Any]) -> str:
    """Return the table, and the machine that it was measured on."""
    rows = [
        [
            *(
                PLACES[name],
                f"{place['packets']:,}",
                f"{place['left']:,}",
                f"{place['states']:,}",
                f"{place['mismatches']}",
            ),
            ", ".join(f"{verdict} {count:,}" for verdict, count in sorted(place["verdicts"].items())),
        ]
        for name, place in figures["places"].items()
    ]
    head = [
        "at",
        "packets",
        "frames that left",
        "slots and places of rings compared",
        "differences",
        "verdicts",
    ]
    packets = f"The fuzz sent {figures['packets']:,} packets, drawn with seed {figures['seed']},"
    effort = f"in {figures['seconds']:.0f} s, in {figures['processes']} processes"
    return "\n\n".join(
        [f"{table(head, rows)}\n\n{packets} {effort}.", *map(_sentence, figures.get("bmv2", []))]
    )


def _sentence(shot: dict[str, Any]) -> str:
    counts = ", ".join(f"{verdict} {count:,}" for verdict, count in sorted(shot["verdicts"].items()))
    outcome = f"a difference: {shot['said']}" if shot["said"] else f"no difference: {counts}"
    effort = f"{shot['packets']:,} packets drawn with seed {shot['seed']} in {shot['seconds']:.0f} s"
    return f"At a BMv2 switch {effort}: {outcome}."


def at_bmv2(packets: int, seed: int) -> dict[str, Any]:
    """Send packets to a BMv2 switch. A packet on which it and the model differ ends the run; `said` is the
    message.
    """
    began, counts, said = time.monotonic(), {}, ""
    try:
        counts = bmv2_model_run.findings("mutated", 1, packets, seed, LIMIT_S)
    except AssertionError as error:
        said = next((line for line in str(error).splitlines() if "AssertionError" in line), "it failed")
    seconds = time.monotonic() - began
    return {"packets": packets, "seed": seed, "seconds": seconds, "verdicts": counts, "said": said}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--packets", type=int, default=10_000_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    help_ = "and at a BMv2 switch, by one process; needs simple_switch (default: none)"
    parser.add_argument("--bmv2-packets", type=int, default=0, metavar="N", help=help_)
    parser.add_argument(
        "--from", dest="file", type=Path, metavar="FILE", help="figures of a run before; none is made"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--into", type=Path, metavar="FILE", help="put the table into this document, too")
    arguments = parser.parse_args(argv)
    figures = json.loads(arguments.file.read_text()) if arguments.file else shot(arguments)
    publish("fuzz", summary(figures), figures, arguments.json, arguments.into)
    for line in (line for row in figures["runs"] for line in row["differences"]):
        print(line)
    return int(
        any(place["mismatches"] for place in figures["places"].values())
        or any(shot["said"] for shot in figures.get("bmv2", []))
    )


def shot(arguments: argparse.Namespace) -> dict[str, Any]:
    """Make a run, and return its figures."""
    began, host = time.monotonic(), facts()  # read now: the tree may have another commit when a long run ends
    rows = shoot(arguments.packets, arguments.seed, arguments.processes)
    places = gathered(rows)
    return {
        **{
            "host": host,
            "seed": arguments.seed,
            "processes": arguments.processes,
            "runs": rows,
            "places": places,
        },
        "bmv2": [at_bmv2(arguments.bmv2_packets, arguments.seed)] if arguments.bmv2_packets else [],
        **{
            "packets": sum(place["packets"] for place in places.values()),
            "seconds": time.monotonic() - began,
        },
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
