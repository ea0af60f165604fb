"""The verdict when something happens: faults, other traffic, a timetable, missing statistics, on a job's own
links and elsewhere.

`python -m tests.bench.happened [--repeats N] [--minutes M] [--json FILE] [--into DOCUMENT]`, as root. The
same job runs by turns alone and during each event, on links so slow that the machine does not matter. The
truth comes from the clock alone, not from the verdict: a run was not set by its links if its round takes more
than `TRUTH` longer than the median of the runs alone (under a timetable: longer than the runs alone would
take with circuits present half of the time). A run without statistics must never be trustworthy. The verdict
must name each event on the job's own links, and none elsewhere. Runs already in FILE are not repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.client import rpc
from testbed.client.runtime import Runtime
from tests.bench.host import ROOT, facts
from tests.bench.tables import publish, table
from tests.privileged.commands import Testbed, command, running

JOB = ROOT / "tests" / "privileged" / "jobs" / "paced.py"
TRUTH = 0.10
RATE_MBPS = 8
SECONDS, GRADIENTS, PAUSE_S = "4", "24001", "0.02"
CONFIG = (
    f"units: [{{hosts: 4}}, {{hosts: 4}}]\nhost_rate_mbps: {RATE_MBPS}\noptical_rate_mbps: {RATE_MBPS}\n"
    "optical_ports: 1\nscale: 1\n"
)
TABLE = {
    "period_ms": 40,
    "guard_ms": 0,
    "matchings": [{"start_ms": 0, "circuits": [["u1o1", "u2o1"]]}, {"start_ms": 20, "circuits": []}],
}
LIT = 0.5
AFTER_S = 2.0  # after a job's first collective
SENDER = """\
import socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(flush=True)
while True:
    out.sendto(bytes(1400), (sys.argv[1], 5001))
    time.sleep(0.004)
"""
NO_STATISTICS = """\
import json, os, runpy, sys
from pathlib import Path
from workloads.job_env import VARIABLE
Path(json.loads(os.environ[VARIABLE])["stats"]).with_suffix(".draft").mkdir()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A job's placement and system, the event beside it, and the note or reason that must name the event
    (None: the event does not concern the job).
    """

    name: str
    place: str
    sync: str
    happens: str = "nothing"
    where: str = ""
    named: str | None = None


CASES = (
    Case("inc alone", "u1:2", "inc"),
    Case("ring alone", "u1:2", "ring"),
    Case("across, alone", "u1:1,u2:1", "ring"),
    Case("inc, 10 % loss on its link", "u1:2", "inc", "loss", "u1h1", "faults"),
    Case("inc, 10 % loss elsewhere", "u1:2", "inc", "loss", "u2h1"),
    Case("ring, 2 % loss on its link", "u1:2", "ring", "some loss", "u1h1", "faults"),
    Case("inc, traffic on its link", "u1:2", "inc", "traffic", "u1h3 10.0.1.1", "other_traffic"),
    Case("inc, traffic elsewhere", "u1:2", "inc", "traffic", "u2h3 10.0.2.1"),
    Case("ring, traffic on its link", "u1:2", "ring", "traffic", "u1h3 10.0.1.1", "other_traffic"),
    Case(
        "across, traffic between its hosts", "u1:1,u2:1", "ring", "traffic", "u1h1 10.0.2.1", "other_traffic"
    ),
    Case("across, a timetable", "u1:1,u2:1", "ring", "timetable", "", "timetable"),
    Case("inc, a timetable elsewhere", "u1:2", "inc", "timetable"),
    Case("inc, no statistics", "u1:2", "inc", "no statistics", "", "no_statistics"),
)
NAMES = {"faults", "other_traffic", "timetable", "lost_light", "no_statistics"}


@contextlib.contextmanager
def happening(testbed: Testbed, case: Case) -> Iterator[None]:
    """Cause the event for the duration of the block."""
    name = ("--name", testbed.name)
    if case.happens in ("loss", "some loss"):
        loss = "10%" if case.happens == "loss" else "2%"
        _done(command("testbed.fault", "set", *name, case.where, "--loss", loss))
        try:
            yield
        finally:
            _done(command("testbed.fault", "clear", *name, case.where))
    elif case.happens == "traffic":
        host, goal = case.where.split()
        argv = [sys.executable, "-m", "testbed", "exec", *name, host, "--", "python3", "-c", SENDER, goal]
        sender = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE)
        try:
            assert sender.stdout
            sender.stdout.readline()
            yield
        finally:
            sender.terminate()
            sender.communicate()
    else:
        yield


def _done(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        raise SystemExit(done.stderr)


def run(testbed: Testbed, case: Case, folder: Path) -> dict[str, Any]:
    """Run a job, and return its row."""
    script, arguments = str(JOB), [SECONDS, GRADIENTS, PAUSE_S]
    if case.happens == "no statistics":
        script, arguments = str(folder / "no_statistics.py"), [str(JOB), *arguments]
    request = {
        **{"script": script, "arguments": arguments, "sync": case.sync, "place": case.place},
        **{"limit_s": 120.0, "restarts": 0, "cwd": str(ROOT), "environ": dict(os.environ), "preload": True},
    }
    socket = Runtime.of(testbed.name).socket

    controller = Runtime.of(testbed.name).controller_socket
    later = threading.Timer(AFTER_S, lambda: rpc.call(controller, "schedule", schedule=TABLE))
    with happening(testbed, case):
        if case.happens == "timetable":  # later, since a job across units needs its circuits to start
            later.start()
        try:
            result = rpc.call(socket, "run", timeout_s=None, **request)
        finally:
            if case.happens == "timetable":
                later.join()
                rpc.call(controller, "unschedule")
    said = [each["name"] for kind in ("reasons", "notes") for each in result["verdict"][kind]]
    bound = result["bound"] or {}
    return {
        "case": case.name,
        "trustworthy": result["verdict"]["trustworthy"],
        "line": result["verdict"]["line"],
        "said": said,
        "measured_ms": bound.get("measured_ms"),
        "ratio": bound.get("ratio"),
        "failure": result["failure"],
    }


def judged(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the truth to the rows: whether links set them, and whether the event was named."""
    alone = {
        name: statistics.median([row["measured_ms"] for row in rows if row["case"] == name])
        for name in ("inc alone", "ring alone", "across, alone")
        if any(row["case"] == name for row in rows)
    }
    cases = {case.name: case for case in CASES}
    results = []
    for row in rows:
        case = cases[row["case"]]
        quiet = "across, alone" if "," in case.place else f"{case.sync} alone"
        if quiet not in alone or row["failure"]:
            continue
        pause_ms = float(PAUSE_S) * 1e3
        lit = LIT if case.named == "timetable" else 1.0
        needed_ms = pause_ms + (alone[quiet] - pause_ms) / lit
        has = case.happens != "no statistics"
        stretch = row["measured_ms"] / needed_ms if has and row["measured_ms"] else None
        named = NAMES & set(row["said"])
        is_named = case.named in named if case.named else not named
        set_it = stretch is not None and stretch <= 1 + TRUTH
        results.append({**row, "stretch": stretch, "links_set_it": set_it, "is_named": is_named})
    return results


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """Return the study's tables."""
    results = judged(rows)
    lines = []
    for case in CASES:
        of_case = [row for row in results if row["case"] == case.name]
        if not of_case:
            continue
        stretches = [row["stretch"] for row in of_case if row["stretch"] is not None]
        lines.append(
            [
                case.name,
                f"{len(of_case)}",
                f"{statistics.median(stretches):.2f}" if stretches else "",
                f"{sum(row['links_set_it'] for row in of_case)}",
                f"{sum(row['trustworthy'] is True for row in of_case)}",
                f"{sum(row['links_set_it'] != (row['trustworthy'] is True) for row in of_case)}",
                f"{sum(row['is_named'] for row in of_case)}",
            ]
        )
    head = ["job", "runs", "truth (median)", "links set it", "trustworthy", "verdict wrong", "named right"]
    by_links = [row for row in results if row["links_set_it"]]
    others = [row for row in results if not row["links_set_it"]]
    wrongly = sum(row["trustworthy"] is True for row in others)
    doubted = sum(row["trustworthy"] is not True for row in by_links)
    verdicts = (
        f"The verdict trusted {wrongly} of {len(others)} runs that had no statistics or whose time the links "
        f'did not determine (false "trustworthy"). It doubted {doubted} of {len(by_links)} runs whose time '
        f'the links determined (false "not"). It named the event, or rightly named none, in '
        f"{sum(row['is_named'] for row in results)} of {len(results)} runs."
    )
    return f"{table(head, lines)}\n\n{verdicts}"


def main(argv: list[str]) -> int:
    """Make as many runs as time allows, and store each as a row of the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.happened", description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no run after so many")
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "bench" / "happened.json")
    parser.add_argument("--into", type=Path)
    parsed = parser.parse_args(argv)
    rows = json.loads(parsed.json.read_text())["rows"] if parsed.json.exists() else []
    parsed.json.parent.mkdir(parents=True, exist_ok=True)
    until_s = time.monotonic() + 60 * parsed.minutes
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = folder / "testbed.yaml"
        config.write_text(CONFIG)
        (folder / "no_statistics.py").write_text(NO_STATISTICS)
        with running(str(config)) as testbed:
            for _ in range(parsed.repeats):
                for case in CASES:
                    if time.monotonic() > until_s:
                        break
                    rows.append(run(testbed, case, folder))
                    print(f"{case.name}: {rows[-1]['line']}", file=sys.stderr, flush=True)
                    parsed.json.write_text(json.dumps({"rows": rows, "host": facts()}))
    publish("happened", tables(rows), {"rows": rows, "host": facts()}, parsed.json, parsed.into)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
