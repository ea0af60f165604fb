"""ALEPH on a running testbed: heads sum and hand results on, by copies over their own links."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.client.rpc import call
from testbed.client.runtime import Runtime
from tests.limits import CALL_S
from tests.privileged.commands import ROOT, Testbed, bounded, command, running, start, wait_for
from tests.privileged.host_state import assert_unchanged, host_snapshot

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs", "torch")]

JOBS = ROOT / "tests" / "privileged" / "jobs"
EXACT = str(JOBS / "exact.py")
# the paper's table 1 with a worker more; the second worker heads, so that exact.py kills a head
UNITS = """
units:
  - hosts: [{rate_mbps: 10000}, {rate_mbps: 30000}, {rate_mbps: 10000}, {rate_mbps: 10000}]
  - {kind: cpu, hosts: [{rate_mbps: 30000}, {rate_mbps: 10000}]}
ocs: {circuits: [[u1o1, u2o1]]}
optical_rate_mbps: 100000
scale: 100
inc: {jobs: 4}
"""
ROUNDS = 7
SUMS = f"{7 * ROUNDS} sums of 4 workers are exact"


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    config = tmp_path_factory.mktemp("aleph") / "units.yaml"
    config.write_text(UNITS)
    before = host_snapshot()
    with running(str(config)) as up:
        yield up
    assert_unchanged(before)


def run(
    testbed: Testbed, folder: Path, *words: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The command's end, and the job's result. Its workers are forks: torch is read in once a testbed."""
    result = folder / "result.json"
    options = ("--name", testbed.name, "--preload", "--timeout", "150", "--json", str(result))
    ended = command("testbed.run", *options, *words)
    return ended, json.loads(result.read_text()) if result.exists() else {}


def heads(node: dict[str, Any]) -> dict[str, int]:
    """Return how many others each host sums, by name, itself aside."""
    members = {node["place"]: len({*node["workers"]} - {node["place"]}) + len(node["below"])}
    for child in node["below"]:
        members |= heads(child)
    return members


@pytest.mark.parametrize("system", ["aleph", "aleph-mwcha", "aleph-servers"])
def test_sums_are_exact_and_copies_leave_by_the_heads_own_links(
    testbed: Testbed, tmp_path: Path, system: str
) -> None:
    """A host's link carries as much each way as it has members, and once more where it is a head: the sum
    goes up, the result comes down. What a worker sends and gets crosses its link once. Votes go by the first
    tree alone.
    """
    ended, result = run(testbed, tmp_path, "--sync", system, EXACT, str(ROUNDS))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert SUMS in ended.stdout
    trees = result["sums"]
    tops = {"u2h1": 0.75, "u2h2": 0.25} if system == "aleph-servers" else {"u2h1": 1.0}
    assert {tree["place"]: tree["share"] for tree in trees} == tops
    times: dict[str, float] = {host: 1.0 for host in ("u1h1", "u1h2", "u1h3", "u1h4")}
    for tree in trees:
        for place, members in heads(tree).items():
            times[place] = times.get(place, 0.0) + members * tree["share"]
    assert sum(times.values()) > 5 + (system != "aleph-mwcha"), "a worker heads others"
    links = {link["name"]: link for link in result["links"]}
    vectors_bytes = links["u1h4"]["bytes_up"] / times["u1h4"]
    assert vectors_bytes > 4 * 100_003 * ROUNDS
    for host, expected in times.items():
        for way in ("bytes_up", "bytes_down"):
            assert links[host][way] == pytest.approx(expected * vectors_bytes, rel=0.1), (host, way, links)


def test_status_says_who_heads_whom_and_other_traffic_crosses_a_head(
    testbed: Testbed, tmp_path: Path
) -> None:
    """TCP between a head and another host goes to the stacks, while the head sums and copies."""
    until = tmp_path / "enough"
    words = ("--name", testbed.name, "--sync", "aleph", str(JOBS / "long.py"), str(until))
    with bounded(start("testbed.run", *words, together=True)) as job:

        def trees() -> list[dict[str, Any]]:
            (status,) = call(Runtime.of(testbed.name).socket, "status")["jobs"] or [{"sums": []}]
            return list(status["sums"])

        wait_for(lambda: bool(trees()), "the job is there")
        (tree,) = trees()
        assert (tree["place"], tree["share"], tree["workers"]) == ("u2h1", 1.0, ["u1h1"])
        (head,) = tree["below"]
        assert (head["place"], sorted(head["workers"])) == ("u1h2", ["u1h2", "u1h3", "u1h4"])
        page = command("testbed.status", "--name", testbed.name).stdout
        assert re.search(r"^ +u2h1 sums 100%: u1h2 \(u1h2 u1h3 u1h4\) u1h1$", page, re.M), page
        size = 300_000
        served = "import socket as s; l = s.create_server(('', 7777)); c, _ = l.accept(); " + (
            f"c.sendall(bytes({size})); c.close()"
        )
        taken = (
            "import socket as s, time\n"
            "for _ in range(200):\n"
            "    try: c = s.create_connection(('10.0.1.2', 7777), 20); break\n"
            "    except ConnectionRefusedError: time.sleep(0.1)\n"
            "print(sum(len(part) for part in iter(lambda: c.recv(65536), b'')))"
        )
        argv = ("testbed.exec", "--name", testbed.name)
        with bounded(start(*argv, "u1h2", "--", "python3", "-c", served)) as server:
            ended = command(*argv, "u1h4", "--", "python3", "-c", taken)
            assert (ended.returncode, ended.stdout.strip()) == (0, str(size)), ended.stderr
            assert server.wait(timeout=CALL_S) == 0
        until.touch()
        said, _ = job.communicate(timeout=CALL_S)
        assert job.returncode == 0, said


@pytest.mark.parametrize(
    ("system", "recovery"),
    [("aleph-servers", "window"), ("aleph-servers", "integrity"), ("inc", "integrity")],
)
def test_sums_are_exact_under_faults_on_links_of_heads_and_servers(
    testbed: Testbed, tmp_path: Path, system: str, recovery: str
) -> None:
    faults = ("--loss", "1%", "--duplicate", "1%", "--reorder", "1%", "--distance", "7")
    links = ("u1h1", "u1h2", "u2h1", "u2h2", "u1o1")
    assert command("testbed.fault", "--name", testbed.name, "set", *links, *faults).returncode == 0
    try:
        words = ("--sync", system, "--recovery", recovery, EXACT, str(ROUNDS))
        ended, result = run(testbed, tmp_path, *words)
    finally:
        assert command("testbed.fault", "--name", testbed.name, "clear", "all").returncode == 0
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert SUMS in ended.stdout
    assert sum(worker["stats"]["retransmits"] for worker in result["workers"]) > 0
    assert [worker["stats"]["degraded"] for worker in result["workers"]] == [0] * 4
    assert result["recovery"] == recovery
    assert all((worker["stats"]["asked"] > 0) == (recovery == "integrity") for worker in result["workers"])


def test_a_killed_head_is_started_again_in_clusters_without_it(testbed: Testbed, tmp_path: Path) -> None:
    words = ("--restarts", "1", "--sync", "aleph", EXACT, str(ROUNDS), "dies")
    ended, result = run(testbed, tmp_path, *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(result["attempts"]) == 2
    assert SUMS in ended.stdout
    assert heads(result["sums"][0]) == {"u2h1": 4}
    assert any(note == "laid out anew: u1h2 sums for nobody" for note in result["notes"]), result["notes"]


def test_a_head_that_dies_fails_its_job_by_name(testbed: Testbed, tmp_path: Path) -> None:
    ended, result = run(testbed, tmp_path, "--sync", "aleph", str(JOBS / "falls.py"), "SIGKILL", "1")
    assert ended.returncode == 1
    assert "worker 1 on u1h2 was ended by SIGKILL" in result["failure"]
    status = json.loads(command("testbed.status", "--name", testbed.name, "--json").stdout)
    assert status["jobs"] == []
