"""`testbed reproduce p4inc fig7` as a user types it, with two small jobs: a testbed of its own, both ways to
sum, prediction and report.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.privileged.commands import command
from workloads import models

pytestmark = [
    pytest.mark.needs("namespaces", "xdp", "ovs", "torch"),
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.timeout(660),
]


def test_two_jobs_by_two_schemes(tmp_path: Path) -> None:
    words = ["--quick", "--jobs", "2", "--iterations", "5", "--slot", "0.5", "--schemes", "noinc-fcfs,inc-tw"]
    ended = command("testbed.reproduce", "p4inc", "fig7", *words, "--out", str(tmp_path), timeout_s=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads((tmp_path / "fig7.json").read_text())
    by = {row["scheme"]: row for row in report["rows"]}
    assert list(by) == ["noinc-fcfs", "inc-tw"]
    assert {job["mode"] for job in by["noinc-fcfs"]["per_job"]} == {"ps"}
    assert {job["mode"] for job in by["inc-tw"]["per_job"]} == {"inc"}
    assert all(0 < job["error_over_bound"] <= 1 for row in by.values() for job in row["per_job"])
    # a sleep may end late and never early: no job is faster than what it declares to compute
    assert all(job["training_s"] >= 5 * 0.2 for row in by.values() for job in row["per_job"])
    for name in ("resnet50.2.noinc-fcfs.1", "resnet50.2.inc-tw.1"):
        for job in json.loads((tmp_path / "fig7.runs" / f"{name}.run.json").read_text())["jobs"]:
            sent = [worker["stats"]["allreduce"] for worker in job["run"]["workers"]]
            # once an iteration, over the buckets; and little else
            gradients = 5 * 4 * models.parameters("resnet50", report["scale"])
            assert all(gradients <= each["bytes"] <= 1.05 * gradients for each in sent), sent
            assert all(each["count"] >= 5 * 3 for each in sent), (
                "DDP made one bucket of all: nothing can overlap"
            )
    assert by["inc-tw"]["connections"] == by["inc-tw"]["predicted"]["ahead_connections"] == 0
    assert [row["scheme"] for row in report["prediction"]] == list(by)
    assert "or more\n" in ended.stderr, "how long it takes"
    assert "figures 6 and 7: 2 runs\n" in ended.stderr
    assert "2/2 after" in ended.stderr
    assert "Prediction and measurement" in ended.stdout
    assert (tmp_path / "fig7.png").read_bytes().startswith(b"\x89PNG")
