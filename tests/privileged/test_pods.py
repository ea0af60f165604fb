"""Pods on a running testbed, with either engine: every host is reached, and jobs over racks and pods sum at
ToRs and pod switches, exactly, with frames lost on links within a pod, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.dataplanes.bmv2.process import thrift_port
from testbed.topology.addresses import tor_dpid
from testbed.topology.units import Unit
from testbed.wire import pcap
from tests.privileged.commands import ROOT, Testbed, command, running, start, wait_for
from tests.privileged.host_state import assert_unchanged, host_snapshot

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs", "torch")]

EXACT = str(ROOT / "tests" / "privileged" / "jobs" / "exact.py")
PODS = """
units:
  - {{racks: 2, hosts: 2, engine: {engine}}}
  - {{racks: 1, hosts: 1, engine: {engine}}}
  - {{kind: cpu, hosts: 1}}
host_rate_mbps: 10000
pod_rate_mbps: 15000
optical_rate_mbps: 10000
scale: 50
"""
HOSTS = ("u1r1h1", "u1r1h2", "u1r2h1", "u1r2h2", "u2r1h1", "u3h1")
UNKNOWN = ("10.1.1.254", "10.1.1.77", "10.2.1.254", "10.9.1.1", "10.0.1.254", "10.1.2.254", "10.3.3.3")


@pytest.fixture(scope="module", params=["xdp", pytest.param("bmv2", marks=pytest.mark.needs("bmv2"))])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def testbed(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    config = tmp_path_factory.mktemp("pods") / "pods.yaml"
    config.write_text(PODS.format(engine=engine))
    before = host_snapshot()
    with running(str(config)) as up:
        yield up
    assert_unchanged(before)


@pytest.fixture
def rounds(engine: str) -> int:
    return 11 if engine == "xdp" else 2


def status(testbed: Testbed) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(command("testbed.status", "--name", testbed.name, "--json").stdout)
    return said


def exact(testbed: Testbed, folder: Path, rounds: int, workers: int, *words: str) -> dict[str, Any]:
    """Return the result of a job whose sums are exact, and the bytes of each link by direction."""
    file = folder / "result.json"
    options = ("--name", testbed.name, "--preload", "--timeout", "150", "--json", str(file))
    ended = command("testbed.run", *options, *words, EXACT, str(rounds))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{7 * rounds} sums of {workers} workers are exact" in ended.stdout
    result: dict[str, Any] = json.loads(file.read_text())
    assert [worker["stats"]["degraded"] for worker in result["workers"]] == [0] * workers
    return result


def test_status_knows_racks_and_their_links(testbed: Testbed) -> None:
    said = status(testbed)
    assert [host["name"] for host in said["hosts"]] == list(HOSTS)
    assert [host["unit"] for host in said["hosts"]] == ["u1"] * 4 + ["u2", "u3"]
    racks = {unit["name"]: [rack["name"] for rack in unit.get("racks", [])] for unit in said["units"]}
    assert racks == {"u1": ["u1r1", "u1r2"], "u2": ["u2r1"], "u3": []}
    rates = {link["name"]: link["rate_mbps"] for link in said["links"]}
    assert {rates[name] for name in ("u1r1", "u1r2", "u2r1")} == {300.0}
    assert {rates[name] for name in (*HOSTS, "u1o1", "u3o1")} == {200.0}
    page = command("testbed.status", "--name", testbed.name).stdout
    assert "4 hosts (0 in use) in 2 racks" in page
    links = command("testbed.shell", "--name", testbed.name, "-c", "links").stdout
    assert "u1r1-up<->u1-r1 (OK OK)" in links


def test_every_host_is_reached_and_nothing_goes_round(testbed: Testbed) -> None:
    for host in HOSTS:
        others = " ".join(other for other in HOSTS if other != host)
        each = f"for other in {others}; do ping -qc1 -W5 $other >/dev/null || echo no $other; done"
        ended = command("testbed.exec", "--name", testbed.name, host, "--", "sh", "-c", each)
        assert (ended.returncode, ended.stdout) == (0, ""), f"{host}: {ended.stdout}{ended.stderr}"
    lost = " ".join(f"ping -qc1 -W1 {ip} >/dev/null &" for ip in UNKNOWN)
    before = {link["name"]: link["bytes"] for link in status(testbed)["links"]}
    command("testbed.exec", "--name", testbed.name, "u1r1h1", "--", "sh", "-c", f"{lost} wait")
    after = {link["name"]: link["bytes"] for link in status(testbed)["links"]}
    assert max(after[name] - before[name] for name in before) < 98 * 10 * len(UNKNOWN), "what nobody has ends"


def test_a_rack_sends_one_sum_up(testbed: Testbed, tmp_path: Path, rounds: int) -> None:
    """The bytes on links are a worker's, where two workers' would pass if the ToR did not sum."""
    result = exact(testbed, tmp_path, rounds, 3, "--sync", "inc", "--place", "u1r1:2,u1r2:1")
    up = {link["name"]: link["bytes_up"] for link in result["links"]}
    assert up["u1o1"] + up["u1o2"] < up["u1r1h1"] / 20, "within a pod no sum crosses the optical switch"
    assert up["u1r1"] < 1.5 * up["u1r1h1"], "of two workers a sum"


def test_a_pod_switch_sends_one_sum_beyond(testbed: Testbed, tmp_path: Path, rounds: int) -> None:
    across = exact(testbed, tmp_path, rounds, 4, "--sync", "inc", "--place", "u1r1:2,u1r2:1,u2:1")
    up = {link["name"]: link["bytes_up"] for link in across["links"]}
    assert up["u1r1"] < 1.5 * up["u1r1h1"]
    assert up["u1o1"] + up["u1o2"] < 1.5 * up["u1r1h1"], "of three workers a sum"


def test_sums_are_exact_while_a_pod_s_link_loses_frames(
    testbed: Testbed, tmp_path: Path, rounds: int
) -> None:
    """A pod switch is at the top; its ToRs and another pod's are below it."""
    fault = ("u1r1", "u1o1", "--loss", "1%", "--duplicate", "1%", "--reorder", "1%", "--distance", "7")
    assert command("testbed.fault", "--name", testbed.name, "set", *fault).returncode == 0
    try:
        result = exact(testbed, tmp_path, rounds, 4, "--sync", "switches", "--place", "u1:3,u2r1:1")
        lost = {each["link"]: each["counters"]["lost"] for each in status(testbed)["faults"]}
    finally:
        assert command("testbed.fault", "--name", testbed.name, "clear", "all").returncode == 0
    assert [worker["host"] for worker in result["workers"]] == ["u1r1h1", "u1r1h2", "u1r2h1", "u2r1h1"]
    assert sum(worker["stats"]["retransmits"] for worker in result["workers"]) > 0
    assert set(lost) == {"u1r1", "u1o1"}


def test_a_link_of_a_pod_is_captured(testbed: Testbed, tmp_path: Path) -> None:
    file = tmp_path / "u1r2.pcap"
    words = ("u1r2", "--name", testbed.name, "--count", "4", "--seconds", "60", "--output", str(file))
    process = start("testbed.capture", *words)
    assert process.stderr
    assert "u1r2: to " in process.stderr.readline()
    command("testbed.exec", "--name", testbed.name, "u1r1h1", "--", "ping", "-qc2", "-i0.2", "u1r2h2")
    try:
        assert process.wait(60) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert file.read_bytes().startswith(pcap.HEADER)
    assert file.stat().st_size > len(pcap.HEADER) + 4 * 98


def test_a_rack_that_there_is_not_is_one_line(testbed: Testbed) -> None:
    ended = command("testbed.run", "--name", testbed.name, "--place", "u1r3:1", EXACT, "1")
    said = "--place u1r3:1: no such rack; accepted are u1 (2 racks of 2 hosts), u2 (1 racks of 1 hosts)"
    assert ended.returncode == 2
    assert said in ended.stderr


@pytest.mark.parametrize(
    "engine", [pytest.param("bmv2", marks=pytest.mark.needs("bmv2"))], indirect=True, scope="module"
)
def test_a_tor_of_a_pod_that_ends_is_started_again(testbed: Testbed) -> None:
    port = str(thrift_port(tor_dpid(Unit(1), 2)))
    pids = [
        process.pid
        for process in psutil.Process(testbed.pid).children(recursive=True)
        if "--thrift-port" in process.cmdline() and port in process.cmdline()
    ]
    assert len(pids) == 1
    os.kill(pids[0], signal.SIGKILL)
    wait_for(lambda: status(testbed)["units"][0]["racks"][1]["restarts"] == 1, "u1r2 is started again")
    wait_for(lambda: reached(testbed, "u2r1h1", "u1r2h2"), "u1r2 has its routes again")


def reached(testbed: Testbed, host: str, other: str) -> bool:
    ping = ("ping", "-qc1", "-W1", other)
    return command("testbed.exec", "--name", testbed.name, host, "--", *ping).returncode == 0
