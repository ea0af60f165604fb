"""Jobs that share the aggregators, and jobs that start again: capacity, the parameter server in its place,
restarts, many vectors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.privileged.commands import ROOT, Testbed, command, running, start
from tests.privileged.inside import findings

pytestmark = [
    pytest.mark.needs("namespaces", "xdp", "ovs", "torch"),
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.timeout(660),
]

JOBS = ROOT / "tests" / "privileged" / "jobs"
END_S = 300.0
ROUNDS = "5"  # of seven sums each
REPEATS = "11"  # by their medians: the luckiest of a few ways one by one was as quick as one together
ONE_JOB = """
units:
  - hosts: 7
host_rate_mbps: 200
scale: 1
inc: {jobs: 1}
"""


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """One whose switch has room for one job."""
    path = tmp_path_factory.mktemp("narrow") / "narrow.yaml"
    path.write_text(ONE_JOB)
    with running(str(path)) as made:
        yield made


def run(testbed: Testbed, *argv: str) -> Any:
    return command("testbed.run", "--name", testbed.name, *argv, timeout_s=END_S)


def test_without_capacity_a_job_sums_at_a_parameter_server_and_says_so(
    testbed: Testbed, tmp_path: Path
) -> None:
    first = start("testbed.run", "--name", testbed.name, "--place", "u1:2", str(JOBS / "long.py"), "3600")
    try:
        assert first.stdout is not None
        assert any("first sum" in line for line in first.stdout), "it ended before it summed"
        out = tmp_path / "second.json"
        done = run(testbed, "--place", "u1:2", "--json", str(out), str(JOBS / "many.py"), "1")
        assert done.returncode == 0, done.stderr
    finally:
        first.terminate()
        first.communicate(timeout=END_S)
    result = json.loads(out.read_text())
    assert (result["asked_sync"], result["sync"], result["ps_host"]) == ("inc", "ps", "u1h5")
    full = "admit job 2: u1: it sums for 1 jobs at most, and has them: job 1 (1024 slots)"
    assert result["notes"] == [f"no room ({full}): summed by ps, whose server is on u1h5"]
    assert result["notes"][0] in done.stderr
    again = run(testbed, "--place", "u1:2", "--json", str(out), str(JOBS / "exact.py"), ROUNDS)
    assert again.returncode == 0, again.stderr
    assert json.loads(out.read_text())["sync"] == "inc", "what the first job held is free again"


def test_a_job_whose_worker_dies_starts_again_in_a_new_generation(testbed: Testbed, tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "r.json", tmp_path / "checkpoint"
    words = [
        "--place",
        "u1:2",
        "--restarts",
        "2",
        "--json",
        str(out),
        str(JOBS / "resumes.py"),
        str(checkpoint),
    ]
    done = run(testbed, *words)
    assert done.returncode == 0, done.stderr
    assert "[u1h1] attempt 1 began at" in done.stdout
    result = json.loads(out.read_text())
    first, second = result["attempts"]
    assert "worker 1 on u1h2 was ended by SIGKILL" in first["failure"]
    assert second["failure"] is None
    assert second["generation"] != first["generation"]
    checkpoint.unlink()
    failed = run(testbed, "--place", "u1:2", str(JOBS / "resumes.py"), str(checkpoint))
    assert failed.returncode == 1, "without --restarts a worker's death ends the job"


@pytest.mark.alone
def test_many_small_vectors_together_take_less_than_one_after_the_other(testbed: Testbed) -> None:
    done = run(testbed, "--place", "u1:3", str(JOBS / "many.py"), REPEATS)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        if "{" not in line:
            continue  # torch's warnings
        results = json.loads(line.split("] ", 1)[1])
        for length in ("997", "3"):
            assert results[length]["right"]
            assert results[length]["together_s"] < results[length]["one_by_one_s"]
        assert results["mixed"], "large vectors between hundreds of tiny ones"
        assert results["late"], "a long time without all-reduces is no silence"
        assert results["coalesced"], "more tensors at once than may be under way"


def test_a_worker_that_starts_again_in_its_generation_is_refused() -> None:
    seen = findings("rejoin")
    assert seen["first"]["exact"] == [True] * 3
    assert (
        "worker 0 has been in generation 14 before; a worker that starts again needs a new generation"
        in seen["again"]
    )
