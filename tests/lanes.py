"""The gate's lanes: pytest-xdist's workers, each in namespaces of its own, and what keeps them apart.

Most of a test of a testbed waits, so that more lanes than processors fill these. A lane has its own network
and mount namespaces, runtime folders and pinned BPF objects: tests see there what they made themselves, and
neither what other lanes make nor what other programs on the machine do. Tests on the real kernel that run
without lanes enter such namespaces as well (`enter`).

A test marked `alone`, which measures, has the machine to itself. Those come first, one after the other in the
first lane. Then files stay whole, for their tests share testbeds: the lanes take testbeds, and the last one
takes files from the other end, which need no root and are mostly computing, so that they fill what the
testbeds leave of the processors, at a lower priority than these.
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
LOWER = 5  # of the priority of tests without root, by which their processes are nicer
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


class Room:
    """A lock of a file that lets in any number of tests, or one alone."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "room.lock"

    @contextmanager
    def entered(self, alone: bool) -> Iterator[None]:
        """Run the body beside others that are not alone, or beside nobody."""
        with _locked(self._file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
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


class Deal(LoadFileScheduling):
    """The order in which lanes get work: the tests that are alone are one piece, which the first lane gets;
    others are a piece a file. The last lane takes the last piece, all others the next.
    """

    def __init__(self, config: pytest.Config, log: Producer, folder: Path) -> None:
        super().__init__(config, log)
        self._folder = folder
        self._alone = frozenset[str]()

    def schedule(self) -> None:
        """Deal the first work, or more of it."""
        if self.collection is None:
            self._alone = frozenset(json.loads(_alone_file(self._folder).read_text()))
            lanes = sorted(self.nodes, key=lambda lane: str(lane.gateway.id))  # they came in any order
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
    """A plugin of the process that deals work to lanes."""

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> Deal:
        return Deal(config, log, config._tmp_path_factory.getbasetemp())  # lanes have theirs in it


class Lane:
    """A plugin of a worker: its namespaces made ready, its tests in order, each of them let in.

    `folder` is all lanes' own.
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
        """Return that of a worker of pytest-xdist."""
        return cls(Path(config.option.basetemp).parent, config.workerinput["workerid"])

    def pytest_sessionstart(self) -> None:
        make_ready()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = in_order(items)

    @pytest.hookimpl(tryfirst=True)  # before the dealer is told that the collection is over
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say which tests are alone, and have the room before anybody has work."""
        if self._name != FIRST:
            return
        alone = [item.nodeid for item in session.items if is_alone(item)]
        _alone_file(self._folder).write_text(json.dumps(alone))
        if alone:
            self._enter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # around the test's time limit: to wait is not the test's
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
    """Say whether a test has the machine to itself."""
    return item.get_closest_marker(MARK) is not None


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in order: those that are alone, other privileged ones, the rest."""

    def rank(item: pytest.Item) -> int:
        return 0 if is_alone(item) else 1 if item.get_closest_marker("privileged") else 2

    return sorted(items, key=rank)
