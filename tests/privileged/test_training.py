"""Real torch jobs through `testbed up`, `run` and `down`: sums against plain all-reduce, and the death of a
worker.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from testbed.wire.stragglers import SlowWorkers
from tests.privileged.commands import WAIT_S, bounded
from tests.privileged.host_state import assert_unchanged, host_snapshot
from tests.privileged.jobs import hooked

NAME = "test-training"
JOBS = Path(__file__).resolve().parent / "jobs"
ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.needs("namespaces", "xdp", "ovs", "torch")


def call(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", f"testbed.{words[0]}", "--name", NAME, *words[1:]]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)


@pytest.fixture(scope="module")
def running() -> Iterator[None]:
    before = host_snapshot()
    up = call("up", "--detach")
    assert up.returncode == 0, up.stdout + up.stderr
    try:
        yield
    finally:
        down = call("down")
    assert down.returncode == 0, down.stderr
    assert_unchanged(before)


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("place", ["u1:3", "u1:2,u2:1"])
def test_ddp_equals_a_plain_all_reduce_within_the_bound(place: str) -> None:
    ended = call("run", "--place", place, "--strict-finite", str(JOBS / "equality.py"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    findings = [json.loads(text) for text in re.findall(r"finding: (\{.*\})", ended.stdout)]
    assert sorted(finding["rank"] for finding in findings) == [0, 1, 2]
    for finding in findings:
        assert finding["ddp_error_over_bound"] <= 1
        assert finding["gloo"] == [6, [0, 1, 2]]
        assert "1 of 3 workers have NaN or infinity" in finding["nan"]


@pytest.mark.usefixtures("running")
def test_parts_of_a_bucket_whose_losses_are_far_apart_train_alike(tmp_path: Path) -> None:
    result = tmp_path / "ranges.json"
    ended = call(
        *("run", "--preload", "--place", "u1:3", "--json", str(result)), str(JOBS / "ranges.py"), "1e10"
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (text,) = re.findall(r"finding: (\{.*\})", ended.stdout)
    loss = json.loads(text)
    assert loss["gloo"] < loss["first"] / 3, "it learns"
    assert loss["inc"] == pytest.approx(loss["gloo"], rel=0.05), (
        "but for one fragment in 78, which has of both"
    )
    shares = [
        left["stats"]["zeroed"] / left["stats"]["scaled"]
        for left in json.loads(result.read_text())["workers"]
    ]
    assert all(0 < share < 1 / 78 for share in shares)


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("option", [None, "--fine-sums", "--error-feedback"])
def test_a_part_beside_one_that_is_louder_by_far(option: str | None, tmp_path: Path) -> None:
    """A second vector has the small gradients whole, beside the large; feedback has them too late."""
    result = tmp_path / "loud.json"
    ended = call(
        *("run", "--preload", "--place", "u1:2", "--json", str(result), *([option] if option else [])),
        *(str(JOBS / "loud.py"), "1e6", "1e8", "1e10"),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = [json.loads(text) for text in re.findall(r"finding: (\{.*\})", ended.stdout)]
    ratios = {row["apart"]: row["inc"] / row["gloo"] for row in rows}
    assert all(row["gloo"] < row["first"] / 2 for row in rows), "it learns"
    assert ratios[1e6] == pytest.approx(1, abs=0.02)
    if option == "--fine-sums":
        assert all(ratio == pytest.approx(1, abs=0.02) for ratio in ratios.values()), ratios
    else:
        assert ratios[1e10] > 1.02, "docs/training.md says so"


@pytest.mark.usefixtures("running")
def test_feedback_goes_on_to_the_bit_from_a_checkpoint_that_has_it() -> None:
    ended = call("run", "--preload", "--place", "u1:2", str(JOBS / "feedback_resumes.py"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("resumed with its state: same") == 2
    assert ended.stdout.count("resumed without its state: other") == 2


@pytest.mark.usefixtures("running")
def test_the_hook_over_gloo_trains_as_the_backend_does_to_the_bit(tmp_path: Path) -> None:
    trained, summed = {}, {}
    for way in ("backend", "hook"):
        saved, result = tmp_path / f"{way}.pt", tmp_path / f"{way}.json"
        ended = call(
            *("run", "--preload", "--place", "u1:3", "--strict-finite", "--json", str(result)),
            *(str(JOBS / "hooked.py"), way, str(saved)),
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        trained[way] = torch.load(saved)
        summed[way] = json.loads(result.read_text())["bytes_by"]["packets"]
    assert all(torch.equal(trained["hook"][name], value) for name, value in trained["backend"].items())
    assert len(trained["backend"]) == 4
    # the hook's gradients and nothing else did not go by gloo; of the backend also what DDP gathers first
    gradients = 3 * hooked.STEPS * sum(4 * value.numel() for value in trained["hook"].values())
    assert summed["hook"] == gradients <= summed["backend"]
    assert ended.stdout.count("1 of 3 workers have NaN or infinity") == 3


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("sync", ["inc", "ring", "ps"])
def test_the_death_of_a_worker_is_an_exception_that_names_it(sync: str) -> None:
    ended = call("run", "--preload", "--place", "u1:3", "--sync", sync, str(JOBS / "dies.py"))
    assert ended.returncode == 1
    messages = re.findall(r"\[(u1h\d)\] told after ([\d.]+) s: (.*)", ended.stdout)
    assert {host for host, _, _ in messages} == {"u1h1", "u1h3"}, ended.stdout + ended.stderr
    for _, _, message in messages:
        assert "worker 1" in message, message
    assert "worker 1 on u1h2 was ended by SIGKILL" in ended.stderr


@pytest.mark.usefixtures("running")
def test_a_job_goes_on_when_its_circuits_are_changed_by_hand(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "testbed.run", "--name", NAME, "--preload", "--place", "u1:2,u2:1"]
    argv += [str(JOBS / "long.py"), str(tmp_path / "enough")]
    pipes = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
    }  # together: none can fill while the other is read
    with subprocess.Popen(argv, cwd=ROOT, text=True, **pipes) as job, bounded(job, 3 * WAIT_S):
        assert job.stdout is not None
        assert any("first sum" in line for line in job.stdout)
        changed = [
            call("circuits", "request", "--force", *demands)
            for demands in (["u1-u4", "u4-u3"], ["u1-u3", "u2-u3"])
        ]
        (tmp_path / "enough").touch()
        output = job.stdout.read()  # communicate() would lose what is read ahead by now
    assert [each.returncode for each in changed] == [0, 0], changed[0].stderr + changed[1].stderr
    assert "dark" in changed[0].stdout
    assert job.returncode == 0, output
    assert output.count("right: ") == 3


@pytest.mark.usefixtures("running")
def test_outside_a_job_the_backend_says_so() -> None:
    group = "'inc', init_method='tcp://127.0.0.1:1', rank=0, world_size=1"
    code = f"import torch.distributed as d; d.init_process_group({group})"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert "not started by `testbed run`" in ended.stderr or "Connection refused" in ended.stderr
    assert ended.returncode == 1


@pytest.mark.usefixtures("running")
def test_workers_are_slow_on_purpose_in_the_pattern_that_was_asked_for(tmp_path: Path) -> None:
    result, digits = tmp_path / "slow.json", ROOT / "workloads" / "jobs" / "digits.py"
    pattern = SlowWorkers.parse("p=0.16,seed=5,iteration=20ms")
    words = ("--place", "u1:2", "--stragglers", str(pattern), "--json", str(result))
    ended = call("run", *words, str(digits), "--epochs", "1")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    left = json.loads(result.read_text())
    slept = [worker["stats"]["delays"] for worker in left["workers"]]
    for rank, its in enumerate(slept):
        drawn = {
            (iteration, point): round(pattern.factor(rank, 2, iteration, point) * 20e6)
            for iteration in range(its["iterations"])
            for point in range(3)
        }
        # to the nanosecond, so that a run repeats: nothing of it is measured
        asked = {(row[0], row[1]): row[3] for row in its["rows"]}
        assert asked == {at: delay_ns for at, delay_ns in drawn.items() if delay_ns}
        assert len(asked) == its["count"] > 0
        assert all(row[4] >= row[3] for row in its["rows"]), "nobody slept for less than asked"
    assert left["stragglers"]["delays"] == sum(its["count"] for its in slept)
    assert f"slow workers ({pattern}): {left['stragglers']['delays']} delays" in ended.stderr
    # they are not what the links are blamed for, and without ageing nobody is left out
    assert "stragglers" in [note["name"] for note in left["verdict"]["notes"]]
    assert "stragglers" not in [reason["name"] for reason in left["verdict"]["reasons"]]
    assert all(worker["stats"]["degraded"] == 0 for worker in left["workers"])
