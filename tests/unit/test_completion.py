"""The words that a shell is offered, as its function asks for them, and the version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import __main__ as top
from testbed.topology.model import CONTROLLERS

ROOT = Path(__file__).resolve().parents[2]


def offered(line: str, tmp_path: Path) -> list[str]:
    """Return the words that are offered behind this line, as bash asks, but in a file."""
    words = tmp_path / "words"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(words),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    code = "import sys; sys.argv[0] = 'testbed'; from testbed.__main__ import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | asked,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert not ended.stdout
    return [word.strip() for word in words.read_text().split("\n")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("testbed ci", ["circuits"]),
        ("testbed run --pre", ["--preload"]),
        ("testbed circuits res", ["reset"]),
        (".venv/bin/testbed fault set --dir", ["--direction"]),
        ("testbed up --controller ", list(CONTROLLERS)),
        ("testbed up --config po", ["pods"]),
        ("testbed run --recovery in", ["integrity"]),
    ],
)
def test_words_are_completed(line: str, words: list[str], tmp_path: Path) -> None:
    assert offered(line, tmp_path) == words


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert top.main(["--version"]) == 0
    assert re.fullmatch(r"testbed \d+\.\d+\.\d+( \([0-9a-f]{40}\))?\n", capsys.readouterr().out)
