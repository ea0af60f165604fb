"""DistributedDataParallel over BMv2 switches on links that lose: the training is the one of a network that
loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.privileged.commands import ROOT, Testbed, command, running
from tests.privileged.host_state import assert_unchanged, host_snapshot

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs", "torch", "bmv2"), pytest.mark.timeout(540)]

DIGITS = ROOT / "workloads" / "jobs" / "digits.py"
FABRIC = """
units: [{hosts: 2}, {hosts: 2, engine: bmv2}, {kind: cpu, hosts: 1, engine: bmv2}]
host_rate_mbps: 40000
optical_rate_mbps: 40000
scale: 200
"""
LOSSY = ("u2h1", "u2h2")
EPOCHS, BATCH = "2", "67"


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    before = host_snapshot()
    config = tmp_path_factory.mktemp("fabric") / "fabric.yaml"
    config.write_text(FABRIC)
    with running(str(config)) as made:
        yield made
    assert_unchanged(before)


def trained(testbed: Testbed, place: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The job's result and what its rank 0 wrote."""
    result, learnt = folder / f"{place}.json", folder / f"{place}-digits.json"
    words = ["--name", testbed.name, "--place", place, "--json", str(result)]
    script = [str(DIGITS), "--epochs", EPOCHS, "--batch", BATCH, "--out", str(learnt)]
    ended = command("testbed.run", *words, *script, timeout_s=400)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(result.read_text()), json.loads(learnt.read_text())


@pytest.fixture(scope="module")
def lossless(testbed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The training on XDP alone, without a fault."""
    return trained(testbed, "u1:2", tmp_path_factory.mktemp("lossless"))[1]


@pytest.mark.parametrize("place", ["u2:2", "u1:1,u2:1"])
def test_digits_on_links_that_lose_is_the_same_training(
    place: str, testbed: Testbed, lossless: dict[str, Any], tmp_path: Path
) -> None:
    lossy = command("testbed.fault", "set", *LOSSY, "--loss", "0.5%", "--name", testbed.name)
    assert lossy.returncode == 0, lossy.stderr
    try:
        result, learnt = trained(testbed, place, tmp_path)
        counted = json.loads(command("testbed.fault", "list", "--name", testbed.name, "--json").stdout)
    finally:
        assert command("testbed.fault", "clear", "--name", testbed.name).returncode == 0
    assert result["sync"] == "inc"
    assert result["notes"] == []
    assert isinstance(result["verdict"]["trustworthy"], bool)
    assert "faults" in [note["name"] for note in result["verdict"]["notes"]]
    assert learnt["loss"] == lossless["loss"], "sums of integers: equal bit by bit, whoever makes them"
    assert learnt["test_accuracy"] == lossless["test_accuracy"] > 0.8
    assert all(each["counters"]["lost"] > 0 for each in counted if each["link"] == "u2h1"), (
        "on its way up and down"
    )
    assert len(result["attempts"]) == 1
