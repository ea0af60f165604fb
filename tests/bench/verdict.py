"""The verdict compared with the truth: jobs over rates, workers, kinds of synchronisation and loads, whose
time on links alone is known.

`python -m tests.bench.verdict [--held-out] [--rates 10,20,...] [--json FILE]`, as root, on an otherwise idle
machine. A job alternately computes for a declared time (it sleeps, or occupies a core) and sums a vector. On
slow links, without other load, the machine does not matter: a round takes a + b / rate. The slope of a line
through the two slowest rates gives the links' time at any rate; this and the declared computing are the
truth. It is independent of the verdict's sources, which are timelines and formulas for bytes. The rest of a
is the machine's. The links set a result if it is within `TRUTH` of the truth.

There are two sets. The verdict's limit was chosen with the first. Nothing was chosen with the other
(`--held-out`): its rates, workers, kinds, vectors, computing and loads are different.

Rates that are already in FILE are not measured again, so the whole can be measured in parts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.client import rpc
from testbed.client.runtime import Runtime
from testbed.telemetry.verdict import TOLERANCES
from tests.bench.host import ROOT, facts
from tests.bench.tables import publish, table
from tests.privileged.commands import Testbed, running

JOB = str(ROOT / "tests" / "privileged" / "jobs" / "paced.py")
TRUTH = 0.10  # share of the time that links and computing alone take
SECONDS, SLOW_SECONDS, LIMIT_S = 4.0, 8.0, 120.0
CONFIG = (
    "units: [{{hosts: 4}}, {{hosts: 4}}, {{kind: cpu, hosts: 2}}]\n"
    "host_rate_mbps: {0}\noptical_rate_mbps: {0}\nscale: 1\n"
)
LOOP = "import os, sys; os.nice(int(sys.argv[1])); print(flush=True)\nwhile True: pass"
STREAM = """\
import os, socket, sys, threading
os.nice(int(sys.argv[1]))
server = socket.create_server(("127.0.0.1", 0))
there = socket.create_connection(server.getsockname())
here, _ = server.accept()
threading.Thread(target=lambda: [None for _ in iter(lambda: here.recv(1 << 16), b"")], daemon=True).start()
print(flush=True)
while True:
    there.sendall(bytes(1 << 16))
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A way in which a job sums, its workers' placement, and for how long each worker occupies a core in a
    round, in addition to the pause.
    """

    name: str
    sync: str
    place: str
    spin_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """Programs that run beside a job, each with this Python text; busy loops by default."""

    name: str
    count: int = 0
    nice: int = 0
    text: str = LOOP


QUIET = Load("none")


@dataclass(frozen=True, slots=True)
class Series:
    """A set of runs. Lines are drawn through the rates `slow`; at the rates in `loaded`, some kinds also run
    beside programs. The kind `computing` has the slope of `like`.
    """

    name: str
    gradients: int
    pause_s: float
    slow: tuple[int, int]
    kinds: tuple[Kind, ...]
    computing: Kind
    like: str
    loaded: Mapping[int, tuple[tuple[Kind, Load], ...]]
    computing_at: tuple[int, ...]

    @property
    def rates(self) -> tuple[int, ...]:
        """Return all rates, in Mb/s."""
        return tuple(sorted({*self.slow, *self.computing_at, *self.loaded}))

    def cases(self, rate: int) -> list[tuple[Kind, Load]]:
        """Return the kinds and loads that run at a rate."""
        pairs = [(kind, QUIET) for kind in self.kinds]
        if rate in self.computing_at:
            pairs.append((self.computing, QUIET))
        return pairs + list(self.loaded.get(rate, ()))

    def line_of(self, kind: str) -> str:
        """Return the kind whose slope applies to this one."""
        return self.like if kind == self.computing.name else kind


def _each(kinds: Sequence[Kind], load: Load) -> tuple[tuple[Kind, Load], ...]:
    return tuple((kind, load) for kind in kinds)


_CHOSEN = (
    Kind("inc, 2 workers", "inc", "u1:2"),
    Kind("inc, 4 workers", "inc", "u1:4"),
    Kind("inc, 2 units of 2", "inc", "u1:2,u2:2"),
    Kind("ring, 4 workers", "ring", "u1:4"),
    Kind("ps, 3 workers", "ps", "u1:3"),
)
CHOSEN_BY = Series(
    name="verdict",
    gradients=60_013,
    pause_s=0.010,
    slow=(10, 20),
    kinds=_CHOSEN,
    computing=Kind("inc, 4 workers that compute", "inc", "u1:4", 0.010),
    like="inc, 4 workers",
    loaded={
        40: _each(_CHOSEN, Load("2 busy loops", 2)),
        80: _each(_CHOSEN[1:4], Load("2 loops at nice 19", 2, 19)),
        160: _each(_CHOSEN, Load("4 busy loops", 4)),
    },
    computing_at=(40, 80, 160, 320),
)
_OTHERS = (
    Kind("inc, 3 workers", "inc", "u1:3"),
    Kind("inc, units of 3 and 1", "inc", "u1:3,u2:1"),
    Kind("ring, 2 workers", "ring", "u1:2"),
    Kind("ring, 2 units of 2", "ring", "u1:2,u2:2"),
    Kind("ps, 2 workers", "ps", "u1:2"),
    Kind("ps, 4 workers", "ps", "u1:4"),
)
HELD_OUT = Series(
    name="verdict-held-out",
    gradients=45_007,
    pause_s=0.016,
    slow=(12, 24),
    kinds=_OTHERS,
    computing=Kind("inc, 3 workers that compute", "inc", "u1:3", 0.007),
    like="inc, 3 workers",
    loaded={
        48: _each(_OTHERS[::2], Load("3 busy loops", 3)),
        96: _each(_OTHERS[1::2], Load("1 busy loop", 1))
        + _each(_OTHERS[::2], Load("a stream", 1, 0, STREAM)),
        192: _each(_OTHERS[1::2], Load("3 loops at nice 10", 3, 10)),
    },
    computing_at=(48, 96, 192),
)


@contextlib.contextmanager
def beside(load: Load) -> Iterator[None]:
    """Run the programs of a load during the block, which begins once they run."""
    programs = [
        subprocess.Popen([sys.executable, "-c", load.text, str(load.nice)], stdout=subprocess.PIPE)
        for _ in range(load.count)
    ]
    try:
        for program in programs:
            assert program.stdout
            program.stdout.readline()
        yield
    finally:
        for program in programs:
            program.kill()
            program.communicate()


def run(testbed: Testbed, series: Series, rate: int, kind: Kind, load: Load) -> dict[str, Any]:
    """Run a job, and return its row."""
    seconds = SLOW_SECONDS if rate in series.slow else SECONDS
    request = {
        "script": JOB,
        "arguments": [f"{seconds}", f"{series.gradients}", f"{series.pause_s}", f"{kind.spin_s}"],
        "sync": kind.sync,
        "place": kind.place,
        "limit_s": LIMIT_S,
        "restarts": 0,
        "cwd": str(ROOT),
        "environ": dict(os.environ),
        "preload": True,  # starting torch takes longer than the measurement
    }
    with beside(load):
        result = rpc.call(Runtime.of(testbed.name).socket, "run", timeout_s=None, **request)
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


def slopes(series: Series, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return by kind the b of a + b / rate, in ms Mb/s."""
    by_kind = {}
    for kind in series.kinds:
        at = {
            row["rate_mbps"]: row["measured_ms"]
            for row in rows
            if (row["kind"], row["load"]) == (kind.name, QUIET.name)
        }
        if not set(series.slow) <= set(at):
            continue
        first, second = series.slow
        by_kind[kind.name] = (at[first] - at[second]) / (1 / first - 1 / second)
    return by_kind


def judged(series: Series, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that the lines were not drawn through, with the truth and the verdict by today's
    limit.
    """
    results = []
    known = slopes(series, rows)
    for row in rows:
        slope = known.get(series.line_of(row["kind"]))
        if row["rate_mbps"] in series.slow or slope is None:
            continue
        alone_ms = series.pause_s * 1e3 + row["spin_ms"] + slope / row["rate_mbps"]
        stretch = row["measured_ms"] / alone_ms
        row = {**row, "trustworthy": row["ratio"] <= TOLERANCES.ratio}
        results.append(
            {**row, "alone_ms": alone_ms, "stretch": stretch, "links_set_it": stretch <= 1 + TRUTH}
        )
    return results


def wrong(rows: list[dict[str, Any]], limit: float) -> tuple[int, int, int, int]:
    """Count with this limit of the ratio: rows wrongly "trustworthy", of those that the links did not set;
    and rows wrongly "not", of those that the links set.
    """
    machine, links = ([row for row in rows if row["links_set_it"] is truth] for truth in (False, True))
    return (
        sum(row["ratio"] <= limit for row in machine),
        len(machine),
        sum(row["ratio"] > limit for row in links),
        len(links),
    )


def tables(series: Series, figures: dict[str, Any]) -> str:
    """Return a table of the runs, and one of other limits on them."""
    rows = judged(series, figures["rows"])
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
    chosen = (
        f"The verdict trusts a round that took at most {100 * (figures['limit'] - 1):.0f} % longer than its "
        f'bound. The column "set by" says "links" if a round took at most {100 * TRUTH:.0f} % longer than '
        'the time in the column "alone", and otherwise "machine".'
    )
    return "\n\n".join(
        [table(head, runs), table(["limit", 'false "trustworthy"', 'false "not"'], limits), chosen]
    )


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.verdict", description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures; rates that it has are kept")
    parser.add_argument("--into", type=Path, help="a document whose table to replace")
    parser.add_argument("--held-out", action="store_true", help="the set that nothing was chosen by")
    parser.add_argument("--rates", help="in Mb/s, of the set's; empty: none")
    arguments = parser.parse_args(argv)
    series = HELD_OUT if arguments.held_out else CHOSEN_BY
    asked = arguments.rates
    rates = list(series.rates) if asked is None else [int(word) for word in asked.split(",") if word]
    kept = (
        json.loads(arguments.json.read_text())["rows"] if arguments.json and arguments.json.exists() else []
    )
    rows = [row for row in kept if row["rate_mbps"] not in rates]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rate in rates:
            (folder / "testbed.yaml").write_text(CONFIG.format(rate))
            with running(str(folder / "testbed.yaml")) as testbed:
                for kind, load in series.cases(rate):
                    rows.append(run(testbed, series, rate, kind, load))
                    print(json.dumps(rows[-1]), flush=True)
    rows.sort(key=lambda row: int(row["rate_mbps"]))
    figures = {"host": facts(), "rows": rows, "limit": TOLERANCES.ratio}
    publish(series.name, tables(series, figures), figures, arguments.json, arguments.into)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
