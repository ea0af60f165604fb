"""Circuits that workers ask for while their job runs, on a real testbed."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.limits import CALL_S
from tests.privileged.commands import ROOT, Testbed, bounded, command, running, start, wait_for
from tests.privileged.test_manual_links import refused, said

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs"), pytest.mark.usefixtures("nothing_left")]
ASKS = str(Path(__file__).with_name("jobs") / "asks_circuits.py")
STAGES = str(ROOT / "workloads" / "jobs" / "stages.py")
DARK_MS, ITERATIONS = 20, 4
CONFIG = f"""
units: [{{hosts: 2}}, {{hosts: 2}}, {{hosts: 2}}, {{hosts: 2}}]
optical_ports: 1
core: {{}}
scale: 200
ocs: {{circuits: [[u1o1, u2o1], [u3o1, u4o1]], switch_ms: {DARK_MS}, lock_ms: 0}}
"""
EVERYWHERE = "u1:1,u2:1,u3:1,u4:1"
ACROSS, WITHIN = [["u1o1", "u4o1"], ["u2o1", "u3o1"]], [["u1o1", "u2o1"], ["u3o1", "u4o1"]]
POLICY = """
class Mine:
    def before(self, call):
        if call.number < 4 and 0 in call.members:
            print(call.number, call.kind, call.size_bytes, call.members, call.units, flush=True)
        first, last = call.units[0], call.units[-1]
        return [(first, last)] if call.kind == "all_reduce" or call.kind == "all_gather" else None

    def after(self, call):
        return None


class Greedy(Mine):
    def before(self, call):
        return [("u1", "u2"), ("u1", "u3")]
"""
TIMETABLE = """
period_ms: 40
guard_ms: 1
matchings:
- {start_ms: 0, circuits: [[u1o1, u2o1], [u3o1, u4o1]]}
- {start_ms: 20, circuits: [[u1o1, u3o1], [u2o1, u4o1]]}
"""


@contextmanager
def job(testbed: Testbed, place: str, *steps: Mapping[str, Any], sync: str = "ring") -> Iterator[Lines]:
    words = ("--place", place, "--sync", sync, "--timeout", "120", ASKS, json.dumps(steps))
    process = start("testbed.run", "--name", testbed.name, *words, together=True)
    with bounded(process):
        yield Lines(process)


class Lines:
    """The JSON lines that a job's workers print."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.read: list[dict[str, Any]] = []
        self.text = ""

    def until(self, key: str, count: int) -> list[dict[str, Any]]:
        """Read until so many lines have a key, and return these."""
        assert self._process.stdout is not None
        while len(having := [each for each in self.read if key in each]) < count:
            line = self._process.stdout.readline()
            assert line, self.text
            self.text += line
            _, _, rest = line.partition("] ")
            if rest.startswith("{"):
                self.read.append(json.loads(rest))
        return having

    def end(self) -> int:
        self.text += self._process.communicate(timeout=CALL_S)[0]
        return self._process.returncode


def lit(testbed: Testbed) -> list[list[str]]:
    return sorted(said(testbed, "circuits", "list")["circuits"])


def test_circuits_within_jobs(tmp_path: Path) -> None:
    config = tmp_path / "four.yaml"
    config.write_text(CONFIG)
    with running(str(config)) as testbed:
        phases_change_circuits_and_the_dark_time_is_measured(testbed)
        other_jobs_and_hands_do_not_take_what_a_block_holds(testbed, tmp_path)
        a_killed_worker_holds_nothing(testbed, tmp_path)
        a_timetable_and_a_link_that_is_down_refuse_in_one_line(testbed, tmp_path)
        sums_in_the_network_stay_exact_while_circuits_change(testbed)


def test_policies_of_a_jobs_circuits(tmp_path: Path) -> None:
    config = tmp_path / "four.yaml"
    config.write_text(CONFIG)
    with running(str(config)) as testbed:
        policies_ask_before_calls_and_ahead_of_them(testbed, tmp_path)
        a_users_policy_sees_each_call(testbed, tmp_path)
        sums_in_the_network_are_exact_under_a_policy(testbed, tmp_path)


def phases_change_circuits_and_the_dark_time_is_measured(testbed: Testbed) -> None:
    events = len(said(testbed, "circuits", "history"))
    across, within = {"circuits": ["u1-u3", "u2-u4"], "sum": True}, {"circuits": ["u1-u2", "u3-u4"]}
    with job(testbed, EVERYWHERE, across, across, within) as lines:
        reports = lines.until("dark_ms", 12)
        assert lines.end() == 0, lines.text
    by_rank = [[each for each in reports if each["rank"] == rank] for rank in range(4)]
    for first, second, third in by_rank:
        assert first["circuits"] == [["u1o1", "u3o1"], ["u2o1", "u4o1"]]
        assert DARK_MS <= first["dark_ms"] < DARK_MS + 5
        assert (second["changed"], second["dark_ms"]) == (False, 0), "they stayed lit"
        assert third["changed"]
    changes = said(testbed, "circuits", "history")[events:]
    assert [each["measured_ms"] for each in changes] == [by_rank[0][0]["dark_ms"], by_rank[0][2]["dark_ms"]]
    assert lit(testbed) == [["u1o1", "u2o1"], ["u3o1", "u4o1"]]


def other_jobs_and_hands_do_not_take_what_a_block_holds(testbed: Testbed, folder: Path) -> None:
    over, timetable = folder / "over", folder / "table.yaml"
    timetable.write_text(TIMETABLE)
    with job(testbed, EVERYWHERE, {"circuits": ["u1-u3"], "until": str(over)}) as first:
        first.until("holds", 4)
        assert "job 2 loses u1o1-u3o1; --force" in refused(testbed, "circuits", "set", "u1o1-u2o1")
        assert "job 2 holds u1o1-u3o1; --force" in refused(testbed, "circuits", "schedule", str(timetable))
        steps = ({"circuits": ["u1-u2"]}, {"circuits": ["u1-u3"]}, {"circuits": ["u1-u2"], "wait_s": 60})
        with job(testbed, "u1:1,u2:1", *steps) as second:
            reports = second.until("refused", 4)
            why = "circuits u1-u2: u1o1-u3o1 is in use by job 2 (wait_s: how long to wait for it)"
            assert [each["refused"] for each in reports if each["rank"] == 0] == [
                why,
                "circuits u1-u3: the job has no host in u3; its units are u1, u2",
            ]
            assert ["u1o1", "u3o1"] in lit(testbed), "the other job still holds it"
            over.touch()
            assert second.until("changed", 2)[0]["circuits"] == [["u1o1", "u2o1"]]
            assert second.end() == 0, second.text
        assert first.end() == 0, first.text


def a_killed_worker_holds_nothing(testbed: Testbed, folder: Path) -> None:
    over, go, begins = folder / "over2", folder / "go", folder / "begins"
    holder = {"circuits": ["u1-u3"], "rank": 0, "barrier": False, "dies": 0, "until": str(go)}
    waiting = {"circuits": ["u3-u4"], "rank": 2, "barrier": False, "wait_s": 60, "until": str(over)}
    waiting["begins"] = str(begins)
    with job(testbed, EVERYWHERE, holder, waiting) as lines:
        lines.until("holds", 1)
        assert "loses u1o1-u3o1" in refused(testbed, "circuits", "set", "u1o1-u2o1")
        begins.touch()
        go.touch()
        assert lines.until("holds", 2)[1]["holds"] == [["u3o1", "u4o1"]]
        said(testbed, "circuits", "set", "u1o1-u2o1", "u3o1-u4o1")
        over.touch()
        assert lines.end() != 0, "a worker was killed"
    wait_for(lambda: not said(testbed, "status")["jobs"], "the job has ended")


def a_timetable_and_a_link_that_is_down_refuse_in_one_line(testbed: Testbed, folder: Path) -> None:
    said(testbed, "circuits", "schedule", str(folder / "table.yaml"))
    with job(testbed, "u1:1,u2:1", {"circuits": ["u1-u2"]}) as lines:
        text = lines.until("refused", 2)[0]["refused"]
        end = "by whose slots alone circuits change; end it: circuits unschedule"
        assert text == f"circuits u1-u2: a timetable runs, {end}"
        assert lines.end() == 0, lines.text
    said(testbed, "circuits", "unschedule")
    said(testbed, "link", "set", "u1o1", "--down")
    with job(testbed, "u1:1,u2:1", {"circuits": ["u1-u2"]}, {"circuits": ["u1o1-u2o1"]}) as lines:
        first, second, *_ = (each["refused"] for each in lines.until("refused", 4) if each["rank"] == 0)
        assert "u1o1 is down, and no free port" in first
        assert "the link of u1o1 is down; ports whose links are up are accepted" in second
        assert lines.end() == 0, lines.text
    said(testbed, "link", "set", "u1o1", "--up")
    wait_for(lambda: not said(testbed, "circuits", "list")["down"], "the port is up")


def sums_in_the_network_stay_exact_while_circuits_change(testbed: Testbed) -> None:
    phases = [["u1-u3", "u2-u4"], ["u1-u2", "u3-u4"], ["u1-u4", "u2-u3"]]
    steps = [{"circuits": each, "sum": True} for each in phases] * 2
    with job(testbed, EVERYWHERE, *steps, sync="inc") as lines:
        assert all(each["changed"] for each in lines.until("changed", 4 * len(steps)))
        assert lines.end() == 0, lines.text


def trained(testbed: Testbed, folder: Path, script: str, *words: str) -> dict[str, Any]:
    """Run a job over the four units to its end, and return its result."""
    file = folder / "result.json"
    options = ("--place", EVERYWHERE, "--timeout", "200", "--json", str(file), *words)
    steps = ("--iterations", str(ITERATIONS), "--compute-ms", "5")
    ended = command("testbed.run", "--name", testbed.name, *options, script, *steps)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result: dict[str, Any] = json.loads(file.read_text())
    return result | {"printed": ended.stdout}


def counts_of(result: dict[str, Any]) -> list[dict[str, float]]:
    return [worker["stats"]["circuits"] for worker in result["workers"]]


def policies_ask_before_calls_and_ahead_of_them(testbed: Testbed, folder: Path) -> None:
    for policy in ("on-demand", "ahead"):
        said(testbed, "circuits", "reset")
        result = trained(testbed, folder, STAGES, "--sync", "ring", "--circuits", policy)
        # each iteration begins with the pipeline's circuits, which are lit at the start
        changes = [each["added"] for each in result["ocs"]["events"]]
        assert len(changes) >= 2 * ITERATIONS - 1, changes
        assert changes[:2] == [ACROSS, WITHIN]
        for counts in counts_of(result):
            assert counts["asked_call"] == 3 * ITERATIONS + 1
            assert (
                counts.get("asked_ahead", 0) == 0
                if policy == "on-demand"
                else counts["asked_ahead"] >= ITERATIONS
            )


def a_users_policy_sees_each_call(testbed: Testbed, folder: Path) -> None:
    (folder / "mine.py").write_text(POLICY)
    said(testbed, "circuits", "reset")
    words = ("--sync", "ring", "--circuits", f"{folder / 'mine.py'}:Mine")
    result = trained(testbed, folder, STAGES, *words)
    assert "1 send 131072 (0, 1) ('u1', 'u2')" in result["printed"]
    assert "2 recv 131072 (0, 1) ('u1', 'u2')" in result["printed"]
    assert re.search(r"3 all_reduce \d+ \(0, 3\) \('u1', 'u4'\)", result["printed"])
    assert result["ocs"]["events"][0]["added"] == ACROSS
    assert all(counts["asked_call"] == ITERATIONS + 1 for counts in counts_of(result))
    refused_ = trained(testbed, folder, STAGES, *words[:3], f"{folder / 'mine.py'}:Greedy")
    assert "demands need 2 optical ports of u1; it has 1; calls go on over what is lit" in refused_["printed"]


def sums_in_the_network_are_exact_under_a_policy(testbed: Testbed, folder: Path) -> None:
    said(testbed, "circuits", "reset")
    result = trained(testbed, folder, STAGES, "--sync", "inc", "--circuits", "on-demand")
    assert len(result["ocs"]["events"]) >= 2 * ITERATIONS - 1
