"""The gate's lanes: pytest-xdist's workers, each in namespaces of its own, and their separation.

Tests with testbeds mostly wait, so there are more lanes than processors. A lane has its own network and mount
namespaces, runtime folders and pinned BPF objects: its tests see only what they made themselves, not what
other lanes or other programs on the machine make. Tests on the real kernel that run without lanes enter such
namespaces too (`enter`).

A test marked `alone`, which measures, has the machine to itself. Such tests run first, one after the other,
in the first lane. After them, work is dealt in whole files, since a file's tests share testbeds. Most lanes
take testbeds; the last lane takes files from the other end, whose tests need no root and mostly compute. It
runs at a lower priority and uses the CPU time that the testbeds leave.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from testbed.emulation.namespaces import CLONE_NEWNET, call_libc
from tests.limits import CALL_S

RUNTIME, PINS = Path("/run/optinc"), Path("/sys/fs/bpf")
MARK = "alone"
FIRST = "gw0"  # the lane of the tests that are alone
LOWER = 5  # added to the niceness of tests without root
CLONE_NEWNS = 0x00020000


def options(lanes: int) -> list[str]:
    """Return pytest's options for running tests in `lanes` lanes; files stay whole, since their tests share
    testbeds.

    A worker that dies ends the run, because its remains may disturb a replacement.
    """
    if lanes == 1:
        return []
    python = f"unshare --mount --net {shlex.quote(sys.executable)}"
    return [
        *("--tx", f"{lanes}*popen//python={python}"),
        *("--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "0"),
    ]


def enter() -> None:
    """Move the calling thread, and threads that it starts from now on, to network and mount namespaces of
    their own, as `options` does for each lane.
    """
    call_libc("unshare", CLONE_NEWNS | CLONE_NEWNET)
    _run("mount", "--make-rprivate", "/")
    make_ready()


def make_ready() -> None:
    """Hide the testbeds and pinned BPF objects of the outer namespaces."""
    RUNTIME.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(RUNTIME))
    if PINS.is_dir():
        _run("mount", "-t", "bpf", "-o", "mode=0700", "bpf", str(PINS))
    _run("ip", "link", "set", "lo", "up")


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, timeout=CALL_S)


class Room:
    """A file lock that admits any number of tests, or one alone."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "room.lock"

    @contextmanager
    def entered(self, alone: bool) -> Iterator[None]:
        """Run the body beside others that are not alone, or beside none."""
        with _locked(self._file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
            yield


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, kind)
        yield
    finally:
        # unlock explicitly: a fork of this process may still have the descriptor
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


class Deal(LoadFileScheduling):
    """The order in which lanes get work: the tests marked alone are one piece, for the first lane; the others
    are one piece for each file. The last lane takes pieces from the end, all others from the start.
    """

    def __init__(self, config: pytest.Config, log: Producer, folder: Path) -> None:
        super().__init__(config, log)
        self._folder = folder
        self._alone = frozenset[str]()

    def schedule(self) -> None:
        """Assign the first pieces of work, or more of them."""
        if self.collection is None:
            self._alone = frozenset(json.loads(_alone_file(self._folder).read_text()))
            lanes = sorted(self.nodes, key=lambda lane: str(lane.gateway.id))  # workers connect in any order
            self.assigned_work = {lane: self.assigned_work[lane] for lane in lanes}
            self._last = lanes[-1]
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return MARK if nodeid in self._alone else str(super()._split_scope(nodeid))

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is self._last:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


class Dealer:
    """A plugin of the process that assigns work to lanes."""

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> Deal:
        return Deal(config, log, config._tmp_path_factory.getbasetemp())  # lanes have their folders in it


class Lane:
    """A plugin of a worker: it makes the namespaces ready, orders the tests, and admits each to the room.

    `folder` is shared by all lanes.
    """

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name = folder, name
        self._room = Room(folder)
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)
        self._alone = ExitStack()  # in the room, until the last test that is alone
        self._is_alone = False

    @classmethod
    def of(cls, config: pytest.Config) -> Lane:
        """Return the lane of a pytest-xdist worker."""
        return cls(Path(config.option.basetemp).parent, config.workerinput["workerid"])

    def pytest_sessionstart(self) -> None:
        make_ready()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = in_order(items)

    @pytest.hookimpl(tryfirst=True)  # before the dealer learns that the collection is over
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write which tests are alone, and enter the room before any lane has work."""
        if self._name != FIRST:
            return
        alone = [item.nodeid for item in session.items if is_alone(item)]
        _alone_file(self._folder).write_text(json.dumps(alone))
        if alone:
            self._enter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # outside of the test's time limit: waiting does not count
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        needs_root = item.get_closest_marker("privileged") is not None
        os.setpriority(os.PRIO_PROCESS, 0, self._priority + (0 if needs_root else LOWER))
        if is_alone(item):
            self._enter()
            return (yield)
        self._leave()
        with self._room.entered(alone=False):
            return (yield)

    def pytest_sessionfinish(self) -> None:
        self._leave()

    def _enter(self) -> None:
        if not self._is_alone:
            self._alone.enter_context(self._room.entered(alone=True))
            self._is_alone = True

    def _leave(self) -> None:
        self._alone.close()
        self._is_alone = False


def _alone_file(folder: Path) -> Path:
    return folder / "alone.json"


def is_alone(item: pytest.Item) -> bool:
    """Return whether a test has the machine to itself."""
    return item.get_closest_marker(MARK) is not None


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in order: those marked alone, other privileged tests, the rest."""

    def rank(item: pytest.Item) -> int:
        return 0 if is_alone(item) else 1 if item.get_closest_marker("privileged") else 2

    return sorted(items, key=rank)
