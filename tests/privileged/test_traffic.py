"""`testbed traffic` on a testbed: what its flows take, as whom they are sent, and what is left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.messages.coding import decode
from testbed.messages.traffic import TrafficResult
from tests.privileged.commands import (
    WAIT_S,
    Testbed,
    bounded,
    command,
    open_folder,
    pids_in_testbed,
    running,
    start,
    wait_for,
)

pytestmark = [pytest.mark.needs("xdp", "ovs")]

OWNER = 54321
CONFIG = """
units: [{hosts: 4}, {hosts: 2}]
host_rate_mbps: 20000
optical_rate_mbps: 20000
optical_ports: 1
scale: 1000
ocs: {switch_ms: 5, lock_ms: 5, circuits: [[u1o1, u2o1]]}
"""
SIZE, SENDERS, EVERY_MS = 50_000_000, 3, 200
INCAST: dict[str, Any] = {"kind": "incast", "to": "u1h1", "bytes": SIZE, "every_ms": EVERY_MS}
THREE_TO_ONE = {**INCAST, "from": ["u1h2", "u1h3", "u2h1"]}


@contextmanager
def owned() -> Iterator[Testbed]:
    with open_folder() as folder:
        config = folder / "racks.yaml"
        config.write_text(CONFIG)
        config.chmod(0o644)
        with running(str(config), {"SUDO_UID": str(OWNER), "SUDO_GID": str(OWNER)}) as made:
            yield made


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with owned() as made:
        yield made


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as made:
        os.chown(made, OWNER, OWNER)
        yield made


def written(folder: Path, *generators: dict[str, Any]) -> str:
    file = folder / "traffic.yaml"
    file.write_text(json.dumps(list(generators)))
    file.chmod(0o644)
    return str(file)


def done(testbed: Testbed, file: str, *words: str, records: Path | None = None) -> TrafficResult:
    kept = ("--no-record",) if records is None else ("--records", str(records))
    ended = command("testbed.traffic", "--name", testbed.name, "--json", *kept, *words, file, uid=OWNER)
    assert ended.returncode == 0, ended.stderr
    return decode(TrafficResult, json.loads(ended.stdout), "result")


def agents(testbed: Testbed) -> list[psutil.Process]:
    """Return the agents in hosts, without their keepers."""
    running_agents = []
    for pid in pids_in_testbed(testbed.pid):
        try:
            process = psutil.Process(pid)
            if any("traffic_agent" in word for word in process.cmdline()) and not any(
                "keeper" in word for word in process.cmdline()
            ):
                running_agents.append(process)
        except psutil.NoSuchProcess:
            pass
    return running_agents


def has_sent(running_agents: list[psutil.Process]) -> bool:
    """Return whether agents have waited often, as between datagrams."""
    return sum(each.num_ctx_switches().voluntary for each in running_agents) > 1000


def test_an_incast_takes_its_receivers_link(testbed: Testbed, folder: Path) -> None:
    """Three times 50 MB, over a link of 20 Gb/s, take 60 ms and their headers."""
    result = done(testbed, written(folder, THREE_TO_ONE), "--seconds", "2", records=folder / "records")
    (incast,) = result.generators
    assert (incast.flows, incast.finished) == (SENDERS * 10, SENDERS * 10), result
    asked_mbps = SENDERS * SIZE * 8 / 1e3 / EVERY_MS
    assert incast.asked_mbps == incast.offered_mbps == pytest.approx(asked_mbps)
    assert incast.carried_mbps == pytest.approx(asked_mbps, rel=0.03)
    assert incast.times.median_slowdown is not None
    assert incast.times.median_slowdown >= 1, result
    assert incast.groups is not None
    assert incast.groups.count == 10
    assert incast.groups.median_ms is not None
    assert incast.groups.median_ms >= 60, result
    shown = command("testbed.runs", "--records", str(folder / "records"), "show", "last", uid=OWNER)
    assert "incast" in shown.stdout, shown.stderr
    assert result.verdict in shown.stdout
    listed = command("testbed.runs", "--records", str(folder / "records"), "list", "--json", uid=OWNER)
    (record,) = json.loads(listed.stdout)
    assert (record["command"], record["state"]) == ("traffic", "done")
    assert record["trustworthy"] == [result.trustworthy]


def test_streams_and_flows_between_units_and_what_happened_meanwhile(testbed: Testbed, folder: Path) -> None:
    file = written(
        folder,
        {"kind": "constant", "from": "u1h2", "to": "u2h1", "rate_mbps": 4000},
        {"kind": "poisson", "load": 0.1, "sizes": 5_000_000, "matrix": [["u1h1", "u1h3", 1]]},
        {"kind": "constant", "from": "u1h3", "to": "u1h4", "rate_mbps": 30000},
    )
    words = ("testbed.traffic", "--name", testbed.name, "--json", "--no-record", "--seconds", "4", file)
    process = start(*words)
    with bounded(process):
        wait_for(lambda: len(agents(testbed)) == 5, "agents run")
        assert {each.uids().real for each in agents(testbed)} == {0}, "root's own are root's"
        wait_for(lambda: has_sent(agents(testbed)), "flows are sent")
        ways = ("--name", testbed.name)
        assert command("testbed.circuits", "clear", *ways).returncode == 0
        assert command("testbed.circuits", "reset", *ways).returncode == 0
        output, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, errors
    result = decode(TrafficResult, json.loads(output), "result")
    across, poisson, over = result.generators
    assert across.datagrams is not None
    assert 0 < across.datagrams.lost < across.datagrams.sent, "lost while the circuit was cleared"
    assert across.datagrams.received == across.datagrams.sent - across.datagrams.lost
    assert poisson.flows == poisson.finished
    assert over.carried_mbps < 20_000, "no more than its link's rate"
    assert over.datagrams is not None
    assert over.datagrams.lost > 0
    texts = [event.text for event in result.events]
    assert texts == ["circuits: removed u1o1-u2o1", "circuits: added u1o1-u2o1"], result.events


def test_the_owner_s_flows_are_the_owner_s(testbed: Testbed, folder: Path) -> None:
    begun = start_as_owner(testbed, written(folder, THREE_TO_ONE))
    with bounded(begun):
        wait_for(lambda: len(agents(testbed)) == 4, "agents run")
        assert {each.uids().real for each in agents(testbed)} == {OWNER}
        begun.send_signal(signal.SIGINT)
        _, errors = begun.communicate(timeout=WAIT_S)
    assert begun.returncode == 130, errors
    assert "Traceback" not in errors
    wait_for(lambda: not agents(testbed), "nothing is left")


def start_as_owner(testbed: Testbed, file: str) -> subprocess.Popen[str]:
    env = {"SUDO_UID": str(OWNER), "SUDO_GID": str(OWNER)}
    words = ("testbed.traffic", "--name", testbed.name, "--no-record", "--seconds", "60", file)
    return start(*words, env=env)


def test_a_host_that_is_not_there_is_one_line(testbed: Testbed, folder: Path) -> None:
    file = written(folder, {**THREE_TO_ONE, "to": "u9h1"})
    ended = command("testbed.traffic", "--name", testbed.name, "--no-record", file)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.endswith("[0].to: u9h1; no such host; there are u1h1, u1h2, u1h3, u1h4, u2h1, u2h2")


def test_a_testbed_that_is_killed_takes_its_flows_with_it(folder: Path) -> None:
    with owned() as testbed:
        process = start_as_owner(testbed, written(folder, THREE_TO_ONE))
        with bounded(process):
            wait_for(lambda: len(agents(testbed)) == 4, "agents run")
            running_agents = agents(testbed)
            os.kill(testbed.pid, signal.SIGKILL)
            _, errors = process.communicate(timeout=WAIT_S)
        assert process.returncode == 1, errors
        (line,) = errors.splitlines()[1:]
        assert line.startswith("testbed traffic: "), errors
        wait_for(lambda: not any(each.is_running() for each in running_agents), "no agent is left")


@pytest.mark.needs("torch")
def test_a_job_has_the_flows_that_were_sent_meanwhile(testbed: Testbed, folder: Path) -> None:
    file = written(folder, {**THREE_TO_ONE, "bytes": 5_000_000})
    out = folder / "result.json"
    words = ("--name", testbed.name, "--no-record", "--place", "u1:2", "--sync", "ring", "--json", str(out))
    job = ("--traffic", file, "examples/jobs/sums.py", "5000", "20")
    ended = command("testbed.run", *words, *job, uid=OWNER)
    assert ended.returncode == 0, ended.stderr
    traffic = decode(TrafficResult, json.loads(out.read_text())["traffic"], "traffic")
    assert traffic.total.finished >= traffic.total.flows - SENDERS > 0
    assert traffic.total.asked_mbps == pytest.approx(traffic.total.offered_mbps, rel=0.2)
    assert traffic.seconds == pytest.approx(traffic.wall_s, abs=0.01)
    assert "0 incast" in ended.stderr
    assert not agents(testbed), "they end with the job"
