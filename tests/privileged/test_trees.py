"""Jobs on a running testbed whose forests have several trees, and whose packets have the lanes that they ask
for.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.wire.votes import Ballot, is_carried
from tests.privileged.commands import ROOT, Testbed, command, running, start
from tests.privileged.host_state import assert_unchanged, host_snapshot

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs", "torch")]

HERE = ROOT / "tests" / "privileged"
EXACT = str(HERE / "jobs" / "exact.py")
TOPS = f"{HERE / 'systems' / 'tops.py'}"
ACROSS = ("--place", "u1:2,u2:1")
UNITS = """
units: [{{hosts: 2, engine: {engine}}}, {{hosts: 2, engine: {engine}}}, {{hosts: 1}}]
ocs: {{circuits: [[u1o1, u2o1]]}}
host_rate_mbps: 10000
optical_rate_mbps: 10000
scale: 50
inc: {{jobs: 4}}
"""


@pytest.fixture(scope="module", params=["xdp", pytest.param("bmv2", marks=pytest.mark.needs("bmv2"))])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def testbed(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    config = tmp_path_factory.mktemp("trees") / "units.yaml"
    config.write_text(UNITS.format(engine=engine))
    before = host_snapshot()
    with running(str(config)) as up:
        yield up
    assert_unchanged(before)


@pytest.fixture
def rounds(engine: str) -> int:
    return 31 if engine == "xdp" else 3


def run(
    testbed: Testbed, folder: Path, *words: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The command's end, and the job's result. Its workers are forks: torch is read in once a testbed."""
    result = folder / "result.json"
    options = ("--name", testbed.name, "--preload", "--timeout", "150", "--json", str(result))
    ended = command("testbed.run", *options, *words)
    return ended, json.loads(result.read_text()) if result.exists() else {}


@pytest.mark.parametrize("system", ["Halves", "Thirds", "Three", "Chains"])
def test_every_sum_is_exact(testbed: Testbed, tmp_path: Path, rounds: int, system: str) -> None:
    ended, result = run(testbed, tmp_path, "--sync", f"{TOPS}:{system}", *ACROSS, EXACT, str(rounds))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{7 * rounds} sums of 3 workers are exact" in ended.stdout
    assert result["verdict"]["trustworthy"] is not None, "it sent something over links"
    assert [worker["stats"]["degraded"] for worker in result["workers"]] == [0, 0, 0]


def test_sums_are_exact_under_faults_on_links(testbed: Testbed, tmp_path: Path, rounds: int) -> None:
    faults = ("--loss", "1%", "--duplicate", "1%", "--reorder", "1%", "--distance", "7")
    links = ("u1h1", "u2h1", "u1o1")
    assert command("testbed.fault", "--name", testbed.name, "set", *links, *faults).returncode == 0
    try:
        ended, result = run(testbed, tmp_path, "--sync", f"{TOPS}:Thirds", *ACROSS, EXACT, str(rounds))
    finally:
        assert command("testbed.fault", "--name", testbed.name, "clear", "all").returncode == 0
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{7 * rounds} sums of 3 workers are exact" in ended.stdout
    assert sum(worker["stats"]["retransmits"] for worker in result["workers"]) > 0


def test_a_job_that_starts_again_sums_by_all_its_trees(testbed: Testbed, tmp_path: Path, rounds: int) -> None:
    words = ("--restarts", "1", "--sync", f"{TOPS}:Halves", *ACROSS, EXACT, str(rounds), "dies")
    ended, result = run(testbed, tmp_path, *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(result["attempts"]) == 2
    assert f"{7 * rounds} sums of 3 workers are exact" in ended.stdout


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_others_are_told_in_a_line_who_is_missing(
    testbed: Testbed, tmp_path: Path, how: str, rank: int
) -> None:
    """Hosts in a chain: a stopped worker's host sums on, but nothing of its own comes."""
    words = ("--sync", f"{TOPS}:Chains", *ACROSS, str(HERE / "jobs" / "falls.py"), how, str(rank))
    ended, result = run(testbed, tmp_path, *words)
    assert ended.returncode == 1
    host = result["workers"][rank]["host"]
    if how == "SIGKILL":
        expected = f"worker {rank} on {host} was ended by SIGKILL"
    else:
        expected = rf"no result in 10 s after fragment \d+; behind: worker {rank}"
    messages = [line.partition("told: ")[2] for line in ended.stdout.splitlines() if "told" in line]
    first = [line for line in messages if re.fullmatch(rf"job {result['id']}: {expected}", line)]
    assert first, f"{expected}: {messages}"
    # a worker that looks later has seen those go, too, who were told before it
    gone = rf"(worker \d on u\dh\d exited with code 7|worker {rank} on {host} was ended by SIGKILL)"
    others = rf"job {result['id']}: {gone}(; {gone})*"
    assert all(re.fullmatch(others, line) for line in messages if line not in first), messages
    assert result["failure"]
    (failure,) = (line for line in ended.stderr.splitlines() if "failed" in line)
    assert failure == f"testbed run: job {result['id']} failed: {result['failure']}"
    status = json.loads(command("testbed.status", "--name", testbed.name, "--json").stdout)
    assert status["jobs"] == []


# ---------------------------------------------------------------- lanes


@pytest.mark.parametrize("lanes", ["64", "101", "360"])
@pytest.mark.parametrize("system", ["inc", f"{TOPS}:Thirds"])
def test_a_job_chooses_its_lanes(
    testbed: Testbed, engine: str, tmp_path: Path, rounds: int, system: str, lanes: str
) -> None:
    """XDP takes any; of BMv2 a program takes one number, and the job is refused before anything starts."""
    words = ("--lanes", lanes, "--sync", system, "--place", "u1:2", EXACT, str(rounds))
    ended, result = run(testbed, tmp_path, *words)
    if engine == "bmv2" and lanes != "360":
        said = f"--lanes {lanes}: u1 has engine: bmv2, whose program takes packets of 360 lanes only"
        assert (ended.returncode, ended.stderr) == (2, f"testbed run: {said}\n")
        return
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{7 * rounds} sums of 2 workers are exact" in ended.stdout
    assert result["lanes"] == int(lanes)
    bytes_up = next(link["bytes_up"] for link in result["links"] if link["name"] == "u1h1")
    ballot = Ballot.of(2, int(lanes))
    pushed = rounds * sum(
        1 if is_carried(n, 2, int(lanes)) else ballot.pages(n) + -(-n // int(lanes))
        for n in (1, 31, 101, 359, 361, 10_007, 100_003)
    )
    stats = result["workers"][0]["stats"]
    assert stats["pushed"] == pushed
    sent = (pushed + stats["retransmits"]) * (74 + 4 * int(lanes))
    assert sent <= bytes_up <= 1.05 * sent + 100_000, "what the bound counts, and gloo's and ARP's few"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lanes", "63"), "--lanes: 63; a whole number from 64 to 2234 is accepted"),
        (("--lanes", "361"), "--lanes 361: 64 to 360 are accepted, as many as the MTU of 1500 holds"),
        (
            ("--lanes", "64", "--sync", "ring"),
            "--lanes 64: ring sums at no place, so its packets have no lanes",
        ),
    ],
)
def test_lanes_that_cannot_be_are_told_in_a_line(testbed: Testbed, words: tuple[str, ...], said: str) -> None:
    ended = command("testbed.run", "--name", testbed.name, *words, EXACT, "1")
    assert (ended.returncode, ended.stderr) == (2, f"testbed run: {said}\n")


def test_two_jobs_of_different_lanes_sum_at_one_switch(testbed: Testbed, engine: str, rounds: int) -> None:
    lanes = ("64", "101") if engine == "xdp" else ("360", "360")  # a BMv2 program takes one number
    many = str(5 * rounds)
    words = ("testbed.run", "--name", testbed.name, "--timeout", "150", "--sync", "switches")
    slow = start(*words, "--lanes", lanes[0], "--place", "u1:1,u2:1", EXACT, many)
    quick = start(*words, "--lanes", lanes[1], "--place", "u1:1,u2:1", EXACT, many)
    for job in (slow, quick):
        out, error = job.communicate(timeout=200)
        assert job.returncode == 0, out + error
        assert f"{35 * rounds} sums of 2 workers are exact" in out
