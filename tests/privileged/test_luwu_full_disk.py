"""LuWu's optimizer node on a real file system without room: one line, and nothing is lost."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import CALL_S

CHECKOUT = Path(__file__).resolve().parents[2]
FULL = r"No space left on device; \d+ bytes are free"


@pytest.mark.parametrize(
    ("case", "lines"),
    [
        ("too-small", [rf"create .*/disk: {FULL}"]),
        ("commit", [rf"commit iteration 2 in .*/disk: {FULL}"] * 2),
        ("write", [rf"write .*/disk/(states|parameters)\.1: {FULL}"] * 2),
    ],
)
def test_a_full_disk_loses_nothing(tmp_path: Path, case: str, lines: list[str]) -> None:
    done = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private"),
            *(sys.executable, "-m", "tests.privileged.luwu_full_disk", str(tmp_path), case),
        ],
        capture_output=True,
        text=True,
        timeout=CALL_S,
        cwd=CHECKOUT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *said, last = done.stdout.splitlines()
    assert last == "OK"
    assert len(said) == len(lines)
    assert all(re.fullmatch(line, each) for line, each in zip(lines, said, strict=True)), said
