"""The commands as a user types them, and testbeds that a test cannot forget to end."""

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
WAIT_S = CALL_S  # for what a quiet machine does in seconds: others take its processors away for that long
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Testbed:
    """One that runs in the background."""

    __test__ = False

    name: str
    pid: int


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's, as root without sudo unless told otherwise."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("SUDO_")}
    return {**mine, **variables}


def command(
    *argv: str,
    uid: int | None = None,
    timeout_s: float = 300,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
) -> subprocess.CompletedProcess[str]:
    """Runs a module of the project to its end, as another user if asked."""
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
    """Starts a module of the project in a session of its own, its output in pipes; in one if `together`
    is asked for.
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
    """Kills the process when the block fails or lasts so long: who reads its output then comes to an end, and
    who waits for it.
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
    """Fails the test if it does not come about in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.05)


def pids_in_testbed(main: int) -> list[int]:
    """Every process below this main process."""
    return [child.pid for child in psutil.Process(main).children(recursive=True)]


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user may pass through. Not one of pytest's, which closes all of them when it is
    started once more.
    """
    with tempfile.TemporaryDirectory(prefix="testbed-test-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder


def fresh_name() -> str:
    """A testbed's name that nobody else on this machine uses."""
    return f"test-{os.getpid()}-{next(_numbers)}"


@contextmanager
def running(
    config: str = "default", env: Mapping[str, str] | None = None, *words: str, cwd: Path = ROOT
) -> Iterator[Testbed]:
    """A testbed, up, that ends with the block if it has not by then, and with this process in any case."""
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
    """Remove the last words and logs of a testbed that died, which stay until the next one of its name."""
    runtime = Runtime.of(name)
    if runtime.last_words() is not None:
        remove_tree(runtime.folder)


def pid_of(main: int, program: str) -> int:
    """Return the number of the descendant of this main process that runs this program or Python module: tests
    end processes by number only.
    """
    for pid in pids_in_testbed(main):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):  # a passing one
            continue
        options = list(itertools.pairwise(words[1:6]))  # of an interpreter: -P, -u
        if words[0].endswith(program) or ("-m", program) in options:
            return pid
    raise AssertionError(f"no {program} below process {main}")
