"""LuWu's optimizer node goes on bit by bit after signal 9 at any time, and after a loss of power."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import CALL_S

KILLS = 15


@pytest.mark.parametrize("clip", ["none", "0.5"])
def test_training_that_is_killed_goes_on_bit_by_bit(tmp_path: Path, clip: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.luwu_killed", str(tmp_path), str(KILLS), clip],
        capture_output=True,
        text=True,
        timeout=CALL_S,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    assert said["killed"] >= KILLS
    assert said["flipped"] is not None
    assert said["equal"], (said["seed"], said["flipped"])
    curve: dict[tuple[int, int], str] = {}
    for iteration, layer, loss in said["losses"]:  # many were computed by several lives
        assert curve.setdefault((iteration, layer), loss) == loss, said["seed"]
    assert {iteration for iteration, _ in curve} == set(range(1, 13))
    assert len(said["losses"]) > len(curve)
