"""The first job of LuWu's users, with a node in its own process."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from workloads.luwu.jobs import text

SMALL = ("--layers", "1", "--width", "16", "--heads", "2", "--length", "16", "--batch", "2")


def job(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["text.py", *words, *SMALL])
    return text.main()


def test_it_trains_resumes_and_leaves_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "whole"):
        (tmp_path / name).mkdir()
    halves = ("--states", str(tmp_path / "a"), str(tmp_path / "b"), "--rates", "reads=5e8", "--scale", "5")
    picture = tmp_path / "picture.png"
    assert job(monkeypatch, *halves, "--steps", "2", "--gantt", str(picture)) == 0
    assert picture.read_bytes()[1:4] == b"PNG"
    spans = json.loads(picture.with_suffix(".json").read_text())
    assert {"update", "commit", "disk 0 read states", "disk 1 write states"} <= {
        span["place"] for span in spans
    }
    said = capsys.readouterr().out
    assert re.search(r"^iteration 2: loss \d\.\d+, \d+ tokens/s, \d+% waiting$", said, re.MULTILINE), said
    assert job(monkeypatch, *halves, "--steps", "1", "--resume") == 0
    resumed = capsys.readouterr().out
    assert "from iteration 2" in resumed
    assert job(monkeypatch, "--states", str(tmp_path / "whole"), "--steps", "3") == 0
    assert resumed.splitlines()[-1] == capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--rates", "writes=1"), "text.py: rates 'writes=1': 'writes=1': accepted is NAME=BYTES_A_SECOND"),
        (("--rates", "reads=1", "--scale", "0"), "text.py: scale 0: accepted is a number above 0"),
    ],
)
def test_what_is_no_rate_is_refused_in_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    line: str,
) -> None:
    assert job(monkeypatch, "--states", str(tmp_path), *words) == 1
    said = capsys.readouterr().err
    assert said.startswith(line)
    assert len(said.splitlines()) == 1
