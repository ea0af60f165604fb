"""Jobs whose places sum across units while circuits rotate: results wait for slots, and sums are exact."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.privileged.commands import ROOT, Testbed, command, running

pytestmark = [
    pytest.mark.needs("namespaces", "xdp", "ovs", "torch"),
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.timeout(660),
]

SUMS = str(ROOT / "examples" / "jobs" / "sums.py")
PLACE = ("--place", "u1:2,u2:1,u3:1")
END_S = 300.0
THREE_UNITS: dict[str, Any] = {
    "units": [{"hosts": 2}] * 3,
    "optical_ports": 2,
    "scale": 400,
    "ocs": {"circuits": [["u1o1", "u2o1"], ["u1o2", "u3o1"], ["u2o2", "u3o2"]]},
}
ROTATION = {
    "period_ms": 15,
    "guard_ms": 0.5,
    "routing": "direct",
    "matchings": [
        {"start_ms": 5 * place, "circuits": [[f"u{a}o1", f"u{b}o1"]]}
        for place, (a, b) in enumerate(((1, 2), (1, 3), (2, 3)))
    ],
}


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    path = tmp_path_factory.mktemp("three") / "three.json"
    path.write_text(json.dumps(THREE_UNITS))
    with running(str(path)) as made:
        yield made


def circuits(testbed: Testbed, *words: str) -> str:
    done = command("testbed.circuits", "--name", testbed.name, *words)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(ROTATION))
    return str(path)


def held(testbed: Testbed) -> int:
    rows: list[dict[str, Any]] = json.loads(circuits(testbed, "--json", "queues"))
    assert sum(row["unlit"] for row in rows) == 0
    return sum(int(row["held"]) for row in rows)


@pytest.mark.parametrize("sync", ["inc", "switches", "aleph-servers"])
def test_sums_over_a_rotation_are_exact(testbed: Testbed, table: str, sync: str) -> None:
    before = held(testbed)
    circuits(testbed, "schedule", table)
    try:
        words = (*PLACE, "--sync", sync, SUMS, "20000", "6")
        done = command("testbed.run", "--name", testbed.name, *words, timeout_s=END_S)
    finally:
        circuits(testbed, "unschedule")
    assert done.returncode == 0, done.stderr
    assert "6 sums of 20000 values by 4 workers, all exact" in done.stdout
    assert held(testbed) - before > 6 * 20000 / 360, "what crosses to other units waits"


def grown(testbed: Testbed, before: int) -> int:
    """Wait until more packets than before have waited, and return how many."""
    deadline = time.monotonic() + 60
    while (now := held(testbed)) <= before and time.monotonic() < deadline:
        time.sleep(0.2)
    return now


def test_a_rotation_begins_and_ends_under_a_job(testbed: Testbed, table: str) -> None:
    argv = [sys.executable, "-m", "testbed.run", "--name", testbed.name, *PLACE, "--sync", "inc"]
    before = held(testbed)
    circuits(testbed, "schedule", table)
    job = subprocess.Popen([*argv, SUMS, "20000", "1500"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        first = grown(testbed, before + 100)
        circuits(testbed, "unschedule")
        time.sleep(1.0)
        between = held(testbed)
        circuits(testbed, "schedule", table)
        again = grown(testbed, between)
        circuits(testbed, "unschedule")
        out, _ = job.communicate(timeout=END_S)
    finally:
        job.kill()
    assert "1500 sums of 20000 values by 4 workers, all exact" in out
    assert before + 100 < first <= between < again
