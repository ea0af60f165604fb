"""workloads/jobs/layers.py over a testbed: real layer sizes, declared computing times, sums that are checked by the job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.privileged.commands import ROOT, Testbed, command, running
from workloads import models

SCRIPT = ROOT / "workloads" / "jobs" / "layers.py"
SCALE = 400

pytestmark = pytest.mark.needs("namespaces", "xdp", "ovs", "torch")


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with running() as it:
        yield it


@pytest.mark.parametrize("sync", ["inc", "ps"])
def test_sums_are_right_and_an_iteration_lasts_as_declared_or_longer(
    testbed: Testbed, sync: str, tmp_path: Path
) -> None:
    out, result = tmp_path / "out.json", tmp_path / "result.json"
    words = ["--model", "resnet50", "--batch", "16", "--iterations", "5", "--scale", str(SCALE), "--out", str(out)]
    place = ["--name", testbed.name, "--place", "u1:2", "--sync", sync, "--json", str(result)]
    ended = command("testbed.run", *place, str(SCRIPT), *words, timeout_s=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(out.read_text())
    assert 0 < found["error_over_bound"] <= 1
    assert found["params"] == models.parameters("resnet50", SCALE)
    # a sleep may end late and never early
    assert min(found["iteration_ms_list"]) >= models.profile("gtx1080ti", "resnet50").for_batch(16).total_ms
    sent = [worker["stats"]["allreduce"] for worker in json.loads(result.read_text())["workers"]]
    # once an iteration, over the buckets; and little else
    gradients = 5 * 4 * models.parameters("resnet50", SCALE)
    assert all(gradients <= each["bytes"] <= 1.05 * gradients for each in sent), sent
    assert all(each["count"] >= 5 * 3 for each in sent), "DDP made one bucket of all gradients: nothing can overlap"


def test_a_wrong_sum_ends_the_job_with_an_error(testbed: Testbed, tmp_path: Path) -> None:
    # the first worker of two loses a bit of one gradient on its way
    lines = SCRIPT.read_text().replace(
        "(pattern * layer.step.factor for pattern in layer.patterns)",
        "(pattern * layer.step.factor + 1e-5 * (layer.step.rank == 0) for pattern in layer.patterns)",
    )
    assert "1e-5" in lines
    wrong = tmp_path / "wrong.py"
    wrong.write_text(lines)
    words = ["--model", "resnet50", "--profile", "none", "--iterations", "3", "--scale", str(SCALE)]
    ended = command("testbed.run", "--name", testbed.name, "--place", "u1:2", str(wrong), *words, timeout_s=60)
    assert ended.returncode == 1
    assert "the sums are wrong by" in ended.stdout
