"""The output of commands: each line leaves at once, and a reader that has gone is no error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed.__main__ import COMMANDS
from testbed.client.output import UNREAD
from testbed.client.temporary import command
from tests.limits import CALL_S

ROOT = Path(__file__).resolve().parents[2]
ABSENT = "never-started"
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def unread(*words: str, errors_too: bool = False, module: str = "testbed") -> tuple[int, str]:
    """Return the exit code of a command whose output nobody reads, and what it said on stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *words],
            cwd=ROOT,
            env=BUFFERED,
            stdout=writer,
            stderr=writer if errors_too else subprocess.PIPE,
            text=True,
            timeout=CALL_S,
            check=False,
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        *([name, "--help"] for name in COMMANDS),
        ["systems"],
        ["systems", "--json"],
        ["cluster"],
        ["runs", "compare", "--help"],
    ],
    ids=" ".join,
)
def test_whoever_stops_reading_ends_any_command_without_a_word(words: list[str]) -> None:
    assert unread(*words) == (UNREAD, "")


@pytest.mark.parametrize(
    "words",
    [[], ["fly"], ["run"], ["down", "--name", ABSENT], ["up", "--config", "nonesuch"]],
    ids=lambda words: " ".join(words) or "nothing",
)
def test_nobody_reads_what_is_wrong(words: list[str]) -> None:
    """The interpreter, which flushes at its exit, has nothing to complain of either (its exit code: 120)."""
    assert unread(*words, errors_too=True) == (UNREAD, "")


def test_commands_that_start_others_end_as_they_do() -> None:
    """`demo` and `reproduce` have other commands print for them."""
    code = "import sys; from testbed.client.temporary import command; command('systems')"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        argv = [sys.executable, "-c", code]
        done = subprocess.run(
            argv, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=CALL_S
        )
    finally:
        os.close(writer)
    assert done.stderr.splitlines()[-1] == "BrokenPipeError: [Errno 32] Broken pipe"
    with open(os.devnull, "wb") as nowhere:
        assert command("systems", output=nowhere) == 0


def said_until(file: Path, words: str, argv: Sequence[str]) -> str:
    """Return what a command that lives on has written to a file by the time that the file has these words."""
    with file.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, *argv], cwd=ROOT, env=BUFFERED, stdin=subprocess.PIPE, stdout=sink
        )
    try:
        deadline = time.monotonic() + CALL_S
        while words not in file.read_text():
            assert process.poll() is None, "it has ended"
            assert time.monotonic() < deadline, f"not within {CALL_S:g} s: {words}"
            time.sleep(0.05)
        return file.read_text()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=CALL_S)


def test_a_command_that_lives_on_has_said_what_it_said(tmp_path: Path) -> None:
    code = (
        "import sys; from testbed.client import environment as e; "
        "e.command_main(lambda argv: print('said') or sys.stdin.read() or 0)"
    )
    assert said_until(tmp_path / "said", "said\n", ["-c", code]) == "said\n"


def test_the_addresses_of_the_page_come_into_a_file(tmp_path: Path) -> None:
    words = ["-m", "testbed", "web", "--name", ABSENT, "--port", "0", "--records", str(tmp_path / "records")]
    text = said_until(tmp_path / "log", "metrics ", words)
    assert "#token=" in text
