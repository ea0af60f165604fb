"""Jumbo frames on a running testbed: frames of 9,000 bytes cross every kind of link whole, and are summed
exactly, faults or not.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.wire.spec import lanes_for
from tests.privileged.commands import ROOT, Testbed, command, running
from tests.privileged.host_state import assert_unchanged, host_snapshot

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs", "torch")]

EXACT = str(ROOT / "tests" / "privileged" / "jobs" / "exact.py")
LONGEST = 8972  # behind the headers of IP and ICMP
UNITS = """
mtu: 9000
units: [{{hosts: 2, engine: {engine}}}, {{hosts: 2, engine: {engine}}}]
ocs: {{circuits: [[u1o1, u2o1]]}}
host_rate_mbps: 10000
optical_rate_mbps: 10000
scale: 50
"""


@pytest.fixture(scope="module", params=["xdp", pytest.param("bmv2", marks=pytest.mark.needs("bmv2"))])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def testbed(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    config = tmp_path_factory.mktemp("jumbo") / "units.yaml"
    config.write_text(UNITS.format(engine=engine))
    before = host_snapshot()
    with running(str(config)) as up:
        yield up
    assert_unchanged(before)


def inside(testbed: Testbed, host: str, *argv: str) -> subprocess.CompletedProcess[str]:
    return command("testbed.exec", "--name", testbed.name, host, "--", *argv)


def exact(testbed: Testbed, folder: Path, rounds: int, *words: str) -> dict[str, object]:
    """Run whole sums of three workers over both units, which must all be exact, and return the result."""
    path = folder / "result.json"
    argv = ("--name", testbed.name, "--preload", "--timeout", "150", "--json", str(path))
    argv += ("--place", "u1:2,u2:1", *words)
    ended = command("testbed.run", *argv, EXACT, str(rounds))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{7 * rounds} sums of 3 workers are exact" in ended.stdout
    result: dict[str, object] = json.loads(path.read_text())
    return result


def test_a_frame_of_the_whole_mtu_crosses_links_and_circuits(testbed: Testbed) -> None:
    ended = inside(
        testbed, "u1h1", "ping", "-M", "do", "-s", str(LONGEST), "-c", "2", "-i", "0.2", "10.0.2.1"
    )
    assert "2 received" in ended.stdout, ended.stdout + ended.stderr
    ended = inside(testbed, "u1h1", "ping", "-M", "do", "-s", str(LONGEST + 1), "-c", "1", "10.0.2.1")
    assert "message too long, mtu=9000" in ended.stderr, ended.stdout + ended.stderr


def test_programs_run_in_generic_mode(testbed: Testbed) -> None:
    ended = inside(testbed, "u1h1", "ip", "link", "show", "eth0")
    assert "mtu 9000 xdpgeneric" in ended.stdout


def test_sums_of_the_widest_packets_are_exact(testbed: Testbed, tmp_path: Path, engine: str) -> None:
    result = exact(testbed, tmp_path, 13 if engine == "xdp" else 3)
    assert result["lanes"] == lanes_for(9000) == 2234


def test_copies_of_one_buffer_have_an_address_each(testbed: Testbed, tmp_path: Path, engine: str) -> None:
    """A broadcast makes clones in generic mode: what is written into one must not be seen in another. A
    worker whose copies went elsewhere would have to push each fragment twice.
    """
    if engine == "bmv2":
        words = ("--name", testbed.name, "--sync", "aleph", "--place", "u1:2", EXACT, "1")
        ended = command("testbed.run", *words)
        said = "u1 has engine: bmv2, which passes no results from host to host"
        assert ended.returncode == 2
        assert said in ended.stderr
        return
    result = exact(testbed, tmp_path, 7, "--sync", "aleph")
    assert [tree["place"] for tree in result["sums"]] == ["u2h2"]  # type: ignore[attr-defined]
    stats = [worker["stats"] for worker in result["workers"]]  # type: ignore[attr-defined]
    assert all(4 * each["retransmits"] < each["pushed"] for each in stats), stats


def test_sums_are_exact_under_faults_on_links(testbed: Testbed, tmp_path: Path, engine: str) -> None:
    faults = ("--loss", "1%", "--duplicate", "2%", "--reorder", "2%", "--corrupt", "1%", "--distance", "3")
    links = ("u1h1", "u2h1", "u1o1")
    assert command("testbed.fault", "--name", testbed.name, "set", *links, *faults).returncode == 0
    try:
        exact(testbed, tmp_path, 11 if engine == "xdp" else 3)
        listed = json.loads(command("testbed.fault", "--name", testbed.name, "--json", "list").stdout)
    finally:
        assert command("testbed.fault", "--name", testbed.name, "clear").returncode == 0
    counters = [state["counters"] for state in listed]
    assert sum(each["failed"] for each in counters) == 0
    if engine == "xdp":  # enough frames
        for what in ("lost", "duplicated", "released", "corrupted"):
            assert sum(each[what] for each in counters) > 0, what
