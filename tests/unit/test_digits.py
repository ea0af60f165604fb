"""The example job: an ordinary script that trains, with the same data in the same order in every run."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.at_once import at_once
from tests.limits import CALL_S
from workloads.jobs import digits

SCRIPT = Path(digits.__file__)


def trained(out: Path, seed: int) -> dict[str, Any]:
    """The results of one epoch on one process."""
    command = [
        sys.executable,
        str(SCRIPT),
        "--backend",
        "gloo",
        "--epochs",
        "1",
        "--seed",
        str(seed),
        "--batch",
        "67",
    ]
    rendezvous = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    ended = subprocess.run(
        [*command, "--out", str(out)],
        env=os.environ | rendezvous,
        capture_output=True,
        text=True,
        timeout=CALL_S,
    )
    assert ended.returncode == 0, ended.stderr
    assert "epoch 1/1: loss" in ended.stdout
    results: dict[str, Any] = json.loads(out.read_text())
    return results


def test_imports_nothing_of_the_project() -> None:
    tree = ast.parse(SCRIPT.read_text())
    modules = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    modules |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in modules if name.split(".")[0] in ("testbed", "controller", "workloads")}


def test_training_and_test_images_are_disjoint_and_fixed() -> None:
    train, test = digits.digits()
    again, _ = digits.digits()
    assert (len(train), len(test)) == (1437, 360)
    assert torch.equal(train.tensors[0], again.tensors[0])
    # a permutation splits the set: together the two hold as many of each digit as scikit-learn's set does
    counted = torch.bincount(torch.cat([train.tensors[1], test.tensors[1]]))
    assert counted.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_the_model_is_large_enough_for_communication_to_matter() -> None:
    assert sum(parameter.numel() for parameter in digits.DigitsNet().parameters()) == 217_546


def test_same_seed_same_losses(tmp_path: Path) -> None:
    first, again = at_once(
        {name: partial(trained, tmp_path / name, 3) for name in ("first", "again")}
    ).values()
    assert first["loss"] == again["loss"]
    assert first["loss"][-1] < first["loss"][0]
    assert (
        first["iterations"] == len(first["loss"]) == len(first["iteration_ms_list"]) == 22
    )  # ceil(1437 / 67)
    assert first["dtype"] == "float32"


@pytest.mark.parametrize("option", ["--epochs", "--batch"])
def test_zero_is_refused(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["digits.py", option, "0"])
    with pytest.raises(SystemExit, match="2"):
        digits.arguments()
    assert "at least 1" in capsys.readouterr().err
