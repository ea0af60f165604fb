"""Jobs of `--sync auto` on a real network: the chosen system's sums are exact, and the choice is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.api.handle import Testbed as Connected
from tests.privileged.commands import ROOT, Testbed, command, running

pytestmark = [
    pytest.mark.needs("namespaces", "xdp", "ovs", "torch"),
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.timeout(660),
]

SUMS = str(ROOT / "examples" / "jobs" / "sums.py")
EXACT = "3 sums of 50000 values by 4 workers, all exact"
END_S = 300.0
TWO_UNITS = """
units:
  - hosts: 3
    optical_ports: 1
  - hosts: 3
    optical_ports: 1
host_rate_mbps: 100
optical_rate_mbps: 100
scale: 1
"""
ROTATION = {
    "period_ms": 20,
    "guard_ms": 1,
    "matchings": [{"start_ms": 0, "circuits": [["u1o1", "u2o1"]]}, {"start_ms": 10, "circuits": []}],
}


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    path = tmp_path_factory.mktemp("two") / "two.yaml"
    path.write_text(TWO_UNITS)
    with running(str(path)) as made:
        yield made


def run(testbed: Testbed, out: Path, *options: str) -> tuple[Any, Any]:
    words = ("--place", "u1:2,u2:2", "--sync", "auto", *options, "--json", str(out), SUMS, "50000", "3")
    done = command("testbed.run", "--name", testbed.name, *words, timeout_s=END_S)
    assert done.returncode == 0, done.stderr
    assert EXACT in done.stdout
    return done, json.loads(out.read_text())


def test_the_fastest_system_sums_and_the_choice_is_told(testbed: Testbed, tmp_path: Path) -> None:
    done, result = run(testbed, tmp_path / "run.json")
    assert (result["asked_sync"], result["sync"]) == ("auto", "switches")
    (line,) = (note for note in result["notes"] if note.startswith("auto: "))
    assert line.startswith("auto: switches, 860 ms for 10 MB at least; ring 1255, inc 1721, ")
    assert f"testbed run: job {result['id']}: {line}\n" in done.stderr
    automatic = result["automatic"]
    assert (automatic["system"], automatic["size_bytes"], automatic["line"]) == ("switches", 10**7, line)
    assert min(automatic["bounds_ms"].values()) == automatic["bounds_ms"]["switches"]
    assert automatic["refused"]["luwu"] == "it needs a script of its own"
    assert result["sums"], "places summed"
    needed_ms = result["bound"]["link_ms"] * automatic["size_bytes"] / (4 * 50_000)
    assert needed_ms == pytest.approx(automatic["bounds_ms"]["switches"], rel=0.05), "the verdict's own"


def test_while_a_timetable_runs_places_sum_within_slots(testbed: Testbed, tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text(json.dumps(ROTATION))
    turned = command("testbed.circuits", "schedule", str(table), "--name", testbed.name)
    assert turned.returncode == 0, turned.stderr
    try:
        _, result = run(testbed, tmp_path / "slots.json")
        queues = command("testbed.circuits", "queues", "--name", testbed.name)
    finally:
        command("testbed.circuits", "unschedule", "--name", testbed.name)
    assert result["sync"] == "inc", "of equally fast ones"
    assert "u1 to u2: 0 wait, " in queues.stdout
    for system in ("inc", "switches"):
        assert result["automatic"]["bounds_ms"][system] == pytest.approx(860 * 20 / 9, rel=0.01)
    assert result["automatic"]["bounds_ms"]["ring"] == pytest.approx(1255 * 20 / 9, rel=0.01)


def test_a_queued_job_and_one_of_the_library_choose_alike(testbed: Testbed, tmp_path: Path) -> None:
    jobs, out = tmp_path / "jobs.yaml", tmp_path / "batch.json"
    wanted = {"script": SUMS, "arguments": [50000, 3], "place": "u1:2,u2:2", "sync": "auto"}
    jobs.write_text(json.dumps({"jobs": [{"name": "one", "iterations": 3, "megabytes": 0.2, **wanted}]}))
    done = command("testbed.submit", "--name", testbed.name, "--json", str(out), str(jobs), timeout_s=END_S)
    assert done.returncode == 0, done.stdout + done.stderr
    queued = json.loads(out.read_text())["jobs"][0]["run"]
    assert (queued["asked_sync"], queued["sync"]) == ("auto", "switches")
    assert queued["automatic"]["line"] in queued["notes"]
    with Connected.connect(testbed.name) as connected:
        result = connected.run(SUMS, 50000, 3, place="u1:2,u2:2", sync="auto", record=False)
    assert result.sync == "switches"
    assert result.data["automatic"]["line"] in result.data["notes"]
