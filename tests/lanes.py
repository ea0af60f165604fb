"""The gate's lanes: pytest-xdist's workers, each in namespaces of its own, and what keeps them apart.

Most of a test of a testbed waits, so that two at once fill two processors. A lane has its own network and
mount namespaces, runtime folders and pinned BPF objects: tests see there what they made themselves, and
neither what other lanes make nor what other programs on the machine do. Tests on the real kernel that run
without lanes enter such namespaces as well (`enter`). A test marked `alone`, which measures, has the machine
to itself; files with such tests come first, then testbeds, and the tests without root fill the gaps at the
end.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from testbed.emulation.namespaces import CLONE_NEWNET, call_libc
from tests.limits import CALL_S

RUNTIME, PINS = Path("/run/optinc"), Path("/sys/fs/bpf")
MARK = "alone"
CLONE_NEWNS = 0x00020000


def options(lanes: int) -> list[str]:
    """Return pytest's options for tests in so many lanes; files stay whole, for they share testbeds.

    A worker that dies ends the run: what it left may be in the way of one in its place.
    """
    if lanes == 1:
        return []
    python = f"unshare --mount --net {shlex.quote(sys.executable)}"
    return [
        *("--tx", f"{lanes}*popen//python={python}"),
        *("--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "0"),
    ]


def enter() -> None:
    """Move the calling thread, and those that it starts from now on, to network and mount namespaces of its
    own, as `options` has each lane start.
    """
    call_libc("unshare", CLONE_NEWNS | CLONE_NEWNET)
    _run("mount", "--make-rprivate", "/")
    make_ready()


def make_ready() -> None:
    """Cover what the namespaces before this process's show of testbeds and of pinned BPF objects."""
    RUNTIME.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(RUNTIME))
    if PINS.is_dir():
        _run("mount", "-t", "bpf", "-o", "mode=0700", "bpf", str(PINS))
    _run("ip", "link", "set", "lo", "up")


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, timeout=CALL_S)


class Rooms:
    """Locks of files that let in any number of tests, or one alone.

    Each goes through a door that whoever waits for the room keeps shut: nobody overtakes it.
    """

    def __init__(self, folder: Path) -> None:
        self._door, self._room = folder / "door.lock", folder / "room.lock"

    @contextmanager
    def entered(self, alone: bool) -> Iterator[None]:
        """Run the body beside others that are not alone, or beside nobody."""
        with ExitStack() as stack:
            with _locked(self._door, fcntl.LOCK_EX):
                stack.enter_context(_locked(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
            yield


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, kind)
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)  # also of a descriptor that a fork of this process still holds
        os.close(file)


class Lane:
    """A plugin of a worker: its namespaces made ready, its tests in order, each of them let in.

    `folder` is all lanes' own.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._rooms = Rooms(folder)

    def pytest_sessionstart(self) -> None:
        make_ready()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = in_order(items)

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # around the test's time limit: to wait is not the test's
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._rooms.entered(item.get_closest_marker(MARK) is not None):
            return (yield)


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests by files: those with one that is alone, other privileged ones, the rest."""
    alone = {item.path for item in items if item.get_closest_marker(MARK)}

    def rank(item: pytest.Item) -> int:
        return 0 if item.path in alone else 1 if item.get_closest_marker("privileged") else 2

    return sorted(items, key=rank)
