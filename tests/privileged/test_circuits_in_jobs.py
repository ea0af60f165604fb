"""Circuits that workers ask for while their job runs, on a real testbed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.limits import CALL_S
from tests.privileged.commands import Testbed, bounded, running, start, wait_for
from tests.privileged.test_manual_links import refused, said

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs"), pytest.mark.usefixtures("nothing_left")]
ASKS = str(Path(__file__).with_name("jobs") / "asks_circuits.py")
DARK_MS = 20
CONFIG = f"""
units: [{{hosts: 2}}, {{hosts: 2}}, {{hosts: 2}}, {{hosts: 2}}]
optical_ports: 1
core: {{}}
scale: 200
ocs: {{circuits: [[u1o1, u2o1], [u3o1, u4o1]], switch_ms: {DARK_MS}, lock_ms: 0}}
"""
EVERYWHERE = "u1:1,u2:1,u3:1,u4:1"
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
    over, go = folder / "over2", folder / "go"
    holder = {"circuits": ["u1-u3"], "rank": 0, "barrier": False, "dies": 0, "until": str(go)}
    waiting = {"circuits": ["u3-u4"], "rank": 2, "barrier": False, "wait_s": 60, "until": str(over)}
    with job(testbed, EVERYWHERE, holder, waiting) as lines:
        lines.until("holds", 1)
        assert "loses u1o1-u3o1" in refused(testbed, "circuits", "set", "u1o1-u2o1")
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
