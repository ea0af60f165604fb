"""The verdict against the truth: jobs over rates, workers, kinds of synchronisation and load, whose time on
links alone is known.

`python -m tests.bench.verdict [--rates 10,20,...] [--json FILE]`, as root, on a machine that does nothing
else. A job computes for a while that is declared (it sleeps, or it uses a core for so long) and sums a
vector, in turn. On slow links, with nothing beside it, the machine does not matter: a round takes a + b /
rate. The slope of a line through the two slowest rates says what links take at any rate; that and the
declared computing are the truth: independent of what the verdict is made from, which are timelines and
formulas for bytes. What a is more than that is the machine's. The links set a result if it is within `TRUTH`
of the truth.

Rates that were measured before and are in FILE are kept, so that the whole can be measured in parts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed import rpc
from testbed.runtime import Runtime
from testbed.telemetry.verdict import LIMITS
from tests.bench.host import ROOT, facts
from tests.bench.tables import publish, table
from tests.privileged.commands import Testbed, running

JOB = str(ROOT / "tests" / "privileged" / "jobs" / "paced.py")
GRADIENTS, PAUSE_S = 60_013, 0.010
SLOW = (10, 20)  # Mb/s: where the line is drawn through
RATES = (*SLOW, 40, 80, 160, 320)
TRUTH = 0.10  # of the time that links and computing alone take
SECONDS, SLOW_SECONDS, LIMIT_S = 4.0, 8.0, 120.0
CONFIG = "units: [{{hosts: 4}}, {{hosts: 4}}, {{kind: cpu, hosts: 2}}]\nhost_rate_mbps: {0}\noptical_rate_mbps: {0}\nscale: 1\n"
LOOP = "import os, sys; os.nice(int(sys.argv[1])); print(flush=True)\nwhile True: pass"


@dataclass(frozen=True, slots=True)
class Kind:
    """How a job sums, where its workers are, and how long each has a core to itself in a round, beside the
    pause.
    """

    name: str
    sync: str
    place: str
    spin_s: float = 0.0


KINDS = (
    Kind("inc, 2 workers", "inc", "u1:2"),
    Kind("inc, 4 workers", "inc", "u1:4"),
    Kind("inc, 2 units of 2", "inc", "u1:2,u2:2"),
    Kind("ring, 4 workers", "ring", "u1:4"),
    Kind("ps, 3 workers", "ps", "u1:3"),
)
COMPUTING = Kind("inc, 4 workers that compute", "inc", "u1:4", 0.010)
LIKE = {COMPUTING.name: "inc, 4 workers"}  # whose slope holds for it


@dataclass(frozen=True, slots=True)
class Load:
    """Busy loops beside a job, one a core and so on."""

    name: str
    loops: int = 0
    nice: int = 0


QUIET = Load("none")
LOADS = (Load("2 busy loops", 2), Load("4 busy loops", 4))
NICED = Load("2 loops at nice 19", 2, 19)


def cases(rate: int) -> list[tuple[Kind, Load]]:
    found = [(kind, QUIET) for kind in KINDS]
    if rate in SLOW:
        return found
    found.append((COMPUTING, QUIET))
    if rate == 40:
        found += [(kind, LOADS[0]) for kind in KINDS]
    if rate == 80:
        found += [(kind, NICED) for kind in KINDS[1:4]]
    if rate == 160:
        found += [(kind, LOADS[1]) for kind in KINDS]
    return found


@contextlib.contextmanager
def beside(load: Load) -> Iterator[None]:
    """The loops of a load, once they run."""
    loops = [
        subprocess.Popen([sys.executable, "-c", LOOP, str(load.nice)], stdout=subprocess.PIPE)
        for _ in range(load.loops)
    ]
    try:
        for loop in loops:
            assert loop.stdout
            loop.stdout.readline()
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.communicate()


def run(testbed: Testbed, rate: int, kind: Kind, load: Load) -> dict[str, Any]:
    """A job's row."""
    seconds = SLOW_SECONDS if rate in SLOW else SECONDS
    request = {
        "script": JOB,
        "arguments": [f"{seconds}", f"{GRADIENTS}", f"{PAUSE_S}", f"{kind.spin_s}"],
        "sync": kind.sync,
        "place": kind.place,
        "limit_s": LIMIT_S,
        "restarts": 0,
        "uid": os.getuid(),
        "cwd": str(ROOT),
        "environ": dict(os.environ),
        "preload": True,  # a start of torch takes longer than what is measured
    }
    with beside(load):
        result = rpc.call(
            Runtime.of(testbed.name).socket, "run", on_event=lambda event: None, timeout_s=None, **request
        )
    if result["failure"]:
        raise SystemExit(f"{kind.name} at {rate} Mb/s: {result['failure']}")
    return {
        "kind": kind.name,
        "rate_mbps": rate,
        "load": load.name,
        "spin_ms": kind.spin_s * 1e3,
        "trustworthy": result["verdict"]["trustworthy"],
        "reasons": [reason["name"] for reason in result["verdict"]["reasons"]],
        **{
            name: result["bound"][name]
            for name in ("bound_ms", "measured_ms", "ratio", "rounds", "starved_ms")
        },
    }


def slopes(rows: list[dict[str, Any]]) -> dict[str, float]:
    """By kind b of a + b / rate, in ms Mb/s."""
    found = {}
    for kind in KINDS:
        at = {
            row["rate_mbps"]: row["measured_ms"]
            for row in rows
            if (row["kind"], row["load"]) == (kind.name, QUIET.name)
        }
        if not set(SLOW) <= set(at):
            continue
        first, second = SLOW
        found[kind.name] = (at[first] - at[second]) / (1 / first - 1 / second)
    return found


def judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that the lines were not drawn through, with the truth beside the verdict that the limit of today
    gives.
    """
    found = []
    known = slopes(rows)
    for row in rows:
        if row["rate_mbps"] in SLOW or LIKE.get(row["kind"], row["kind"]) not in known:
            continue
        slope = known[LIKE.get(row["kind"], row["kind"])]
        alone_ms = PAUSE_S * 1e3 + row["spin_ms"] + slope / row["rate_mbps"]
        stretch = row["measured_ms"] / alone_ms
        row = {**row, "trustworthy": row["ratio"] <= LIMITS.ratio}
        found.append({**row, "alone_ms": alone_ms, "stretch": stretch, "links_set_it": stretch <= 1 + TRUTH})
    return found


def wrong(rows: list[dict[str, Any]], limit: float) -> tuple[int, int, int, int]:
    """With this limit of the ratio: false "trustworthy" of those that links did not set, false "not" of those
    that they set.
    """
    machine, links = ([row for row in rows if row["links_set_it"] is truth] for truth in (False, True))
    return (
        sum(row["ratio"] <= limit for row in machine),
        len(machine),
        sum(row["ratio"] > limit for row in links),
        len(links),
    )


def tables(figures: dict[str, Any]) -> str:
    """Each run, and what other limits would have made of them."""
    rows = judged(figures["rows"])
    truth = {True: "links", False: "machine"}
    runs = [
        [
            row["kind"],
            f"{row['rate_mbps']}",
            row["load"],
            f"{row['measured_ms']:.1f}",
            f"{row['alone_ms']:.1f}",
            f"{row['stretch']:.2f}",
            truth[row["links_set_it"]],
            f"{row['ratio']:.2f}",
            ("yes" if row["trustworthy"] else "no")
            + ("" if row["trustworthy"] == row["links_set_it"] else " (wrong)"),
        ]
        for row in rows
    ]
    head = [
        "job",
        "Mb/s",
        "beside it",
        "ms a round",
        "alone, ms",
        "truth",
        "set by",
        "verdict's ratio",
        "trustworthy",
    ]
    limits = []
    for percent in (2, 4, 6, 8, 10, 12, 15, 20, 30):
        trusted, machine, doubted, links = wrong(rows, 1 + percent / 100)
        limits.append([f"{percent} %", f"{trusted} of {machine}", f"{doubted} of {links}"])
    chosen = f"The limit is {100 * (figures['limit'] - 1):.0f} %; links set a result if it is within {100 * TRUTH:.0f} % of the truth."
    return "\n\n".join(
        [table(head, runs), table(["limit", 'false "trustworthy"', 'false "not"'], limits), chosen]
    )


def main(argv: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.verdict", description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures; rates that it has are kept")
    parser.add_argument("--into", type=Path, help="a document whose table to replace")
    parser.add_argument(
        "--rates", default=",".join(map(str, RATES)), help="in Mb/s, of %(default)s; empty: none"
    )
    arguments = parser.parse_args(argv)
    rates = [int(word) for word in arguments.rates.split(",") if word]
    kept = (
        json.loads(arguments.json.read_text())["rows"] if arguments.json and arguments.json.exists() else []
    )
    rows = [row for row in kept if row["rate_mbps"] not in rates]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rate in rates:
            (folder / "testbed.yaml").write_text(CONFIG.format(rate))
            with running(str(folder / "testbed.yaml")) as testbed:
                for kind, load in cases(rate):
                    rows.append(run(testbed, rate, kind, load))
                    print(json.dumps(rows[-1]), flush=True)
    rows.sort(key=lambda row: int(row["rate_mbps"]))
    figures = {"host": facts(), "rows": rows, "limit": LIMITS.ratio}
    publish("verdict", tables(figures), figures, arguments.json, arguments.into)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
