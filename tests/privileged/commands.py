"""The commands as a user types them, and testbeds that end with a test."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from testbed.client.runtime import Runtime, remove_tree
from tests.limits import CALL_S, SLOWER

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = (
    CALL_S  # for events that take seconds on a quiet machine; others may occupy its processors for so long
)
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Testbed:
    """A testbed that runs in the background."""

    __test__ = False

    name: str
    pid: int


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without sudo's variables, updated with `variables`."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("SUDO_")}
    return {**mine, **variables}


def command(
    *argv: str,
    uid: int | None = None,
    timeout_s: float = 300,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
) -> subprocess.CompletedProcess[str]:
    """Run a module of the project to its end, as another user if asked."""
    groups: list[int] | None = None if uid is None else []
    return subprocess.run(
        [sys.executable, *(["-P"] if cwd != ROOT else []), "-m", *argv],
        cwd=cwd,
        env=environment(env or {}),
        capture_output=True,
        text=True,
        timeout=timeout_s * SLOWER,
        check=False,
        user=uid,
        group=uid,
        extra_groups=groups,
    )


def start(*argv: str, env: Mapping[str, str] | None = None, together: bool = False) -> subprocess.Popen[str]:
    """Start a module of the project in a session of its own, with its output in two pipes, or in one if
    `together`.
    """
    return subprocess.Popen(
        [sys.executable, "-u", "-m", *argv],
        cwd=ROOT,
        env=environment(env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if together else subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@contextmanager
def bounded(process: subprocess.Popen[str], within_s: float = WAIT_S) -> Iterator[subprocess.Popen[str]]:
    """Kill the process when the block fails or takes too long, so that readers of its output and waiters for
    it return.
    """
    deadline = threading.Timer(within_s, process.kill)
    deadline.start()
    try:
        yield process
    except BaseException:
        process.kill()
        raise
    finally:
        deadline.cancel()


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Wait until the condition holds; fail the test if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.05)


def pids_in_testbed(main: int) -> list[int]:
    """Return the PIDs of all descendants of a testbed's main process."""
    return [child.pid for child in psutil.Process(main).children(recursive=True)]


@contextmanager
def open_folder() -> Iterator[Path]:
    """Make a folder that every user may enter. It is not one of pytest's, which closes all of those to others
    whenever it starts again.
    """
    with tempfile.TemporaryDirectory(prefix="testbed-test-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder


def fresh_name() -> str:
    """Return a testbed's name that is unique on this machine."""
    return f"test-{os.getpid()}-{next(_numbers)}"


@contextmanager
def running(
    config: str = "default", env: Mapping[str, str] | None = None, *words: str, cwd: Path = ROOT
) -> Iterator[Testbed]:
    """Bring a testbed up for the block; it ends after the block, unless it ended before, or at the latest
    with this process.
    """
    name = fresh_name()
    named = ("--config", config, "--name", name, "--detach", "--ends-with", str(os.getpid()))
    up = command("testbed.up", *named, *words, env=env, cwd=cwd)
    assert up.returncode == 0, up.stderr
    try:
        yield Testbed(name, int(json.loads(Runtime.of(name).main.read_text())["pid"]))
    finally:
        if Runtime.of(name).alive():
            down = command("testbed.down", "--name", name)
            assert down.returncode == 0, down.stderr
        forget(name)


def forget(name: str) -> None:
    """Remove the last words and logs of a testbed that died; they would stay until the next testbed of
    its name.
    """
    runtime = Runtime.of(name)
    if runtime.last_words() is not None:
        remove_tree(runtime.folder)


def pid_of(main: int, program: str) -> int:
    """Return the PID of the descendant of a testbed's main process that runs this program or Python module:
    tests end processes by number only.
    """
    for pid in pids_in_testbed(main):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):  # the process ended meanwhile
            continue
        options = list(itertools.pairwise(words[1:6]))  # the interpreter may have options before -m: -P, -u
        if words[0].endswith(program) or ("-m", program) in options:
            return pid
    raise AssertionError(f"no {program} below process {main}")
