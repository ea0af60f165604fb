"""Groups that workers ask for: by real sockets, with a testbed that is a list."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.aggregation.grants import Group
from testbed.aggregation.segments import NoRoomError
from testbed.errors import TestbedError
from testbed.jobs import groups as module
from testbed.jobs.board import JobBoard
from testbed.jobs.groups import Groups
from tests.unit.made_settings import endpoint
from workloads.groups import Desk, GroupRow, Ledger, NoAnswerError
from workloads.job_env import Board, Part

WORKERS = 4
PORT = 40_000
LIMIT_S = 20.0


class World:
    """The groups that were admitted and released; each member is given a descriptor of /dev/null."""

    def __init__(self) -> None:
        self.admitted: list[Group] = []
        self.released: list[int] = []
        self.refusal: TestbedError | None = None
        self.null = os.open(os.devnull, os.O_RDONLY)
        self.is_asked, self.answers = threading.Event(), threading.Event()
        self.answers.set()

    def admit(self, group: Group) -> Any:
        self.is_asked.set()
        assert self.answers.wait(LIMIT_S)
        if self.refusal:
            raise self.refusal
        self.admitted.append(group)
        return SimpleNamespace(
            subscribe_parallel=lambda _: None,
            first=len(self.admitted),
            worker_env=lambda worker: endpoint(worker=worker, ring_fd=self.null, wake_fd=self.null),
            worker_fds=lambda worker: [self.null],
        )


class Running:
    """Groups of four workers, whose ends are here."""

    def __init__(self, world: World) -> None:
        self.groups = Groups(WORKERS, world.admit, lambda group: world.released.append(group.first))
        self.desks = [Desk(self.groups.fd(rank)) for rank in range(WORKERS)]
        self.answers: dict[int, tuple[dict[str, Any], dict[int, int]]] = {}
        self.received: list[int] = []  # descriptors, as they are here

    def ask(self, key: str, *ranks: int, size: int | None = None) -> list[threading.Thread]:
        """Have workers ask, each on a thread, as it waits for the others."""

        def asks(rank: int) -> None:
            with contextlib.suppress(NoAnswerError):  # told by `answers`
                self.answers[rank] = self.desks[rank].ask(key, size or len(ranks), PORT + rank)
                self.received += self.answers[rank][1].values()

        threads = [threading.Thread(target=asks, args=(rank,), daemon=True) for rank in ranks]
        for thread in threads:
            thread.start()
        return threads

    def asked(self, key: str, *ranks: int) -> list[dict[str, Any]]:
        for thread in self.ask(key, *ranks):
            thread.join(LIMIT_S)
            assert not thread.is_alive()
        return [self.answers[rank][0] for rank in ranks]

    def end(self, rank: int) -> None:
        """The worker's process ends."""
        self.desks[rank]._socket.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    os.close(made.null)


@pytest.fixture
def running(world: World) -> Iterator[Running]:
    made = Running(world)
    made.groups.are_inherited()
    with made.groups:
        yield made
    for desk in made.desks:
        desk._socket.close()
    for fd in made.received:
        os.close(fd)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_group_is_admitted_when_its_last_member_asks(world: World, running: Running) -> None:
    (first,) = running.ask("a", 3, size=2)
    eventually(lambda: "a" in running.groups._asked)
    assert not world.admitted
    for thread in running.ask("a", 1, size=2):
        thread.join(LIMIT_S)
    first.join(LIMIT_S)
    assert world.admitted == [Group((1, 3), (PORT + 1, PORT + 3))]
    for number, rank in enumerate((1, 3)):
        answer, fds = running.answers[rank]
        assert answer.endpoint is not None
        assert answer.board is not None
        assert (answer.why, answer.ranks, answer.endpoint.worker) == (None, (1, 3), number)
        assert os.readlink(f"/proc/self/fd/{fds[world.null]}") == os.devnull
        assert answer.board.records == 2


def test_a_worker_that_asks_again_hears_the_same(world: World, running: Running) -> None:
    running.asked("a", 0, 1)
    for thread in running.ask("a", 0, size=2):
        thread.join(LIMIT_S)
    assert running.answers[0][0].ranks == (0, 1)
    assert len(world.admitted) == 1


def test_a_stranger_who_knows_the_key_is_no_member(world: World, running: Running) -> None:
    running.asked("a", 0, 1)
    for thread in running.ask("a", 2, size=2):
        thread.join(LIMIT_S)
    answer, fds = running.answers[2]
    assert (answer.why, fds) == ("the group has all of its members already", {})
    for rank in (0, 2, 1):
        assert not world.released
        running.desks[rank].leave("a")
        if rank == 2:
            running.asked("b", 2, 3)  # what it said before is heard
            assert not world.released
    eventually(lambda: world.released == [1])


def test_a_group_without_room_is_refused_to_all_alike_and_noted_once(world: World, running: Running) -> None:
    world.refusal = NoRoomError("u1: no 64 of its 1024 slots")
    for key, ranks in (("a", (0, 1)), ("b", (2, 3)), ("c", (0, 1))):
        assert [answer.why for answer in running.asked(key, *ranks)] == [str(world.refusal)] * 2
    eventually(lambda: not running.groups._asked)  # they all know
    assert running.groups.notes() == [
        "the sums of workers 0, 1; workers 2, 3 among themselves went by gloo (u1: no 64 of its 1024 slots)"
    ]


def test_a_member_that_never_asks_is_waited_for_so_long(
    world: World, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.2)
    for thread in running.ask("a", 0, 2, size=3):
        thread.join(LIMIT_S)
    for thread in running.ask("a", 3, size=3):  # it was stopped, and goes on
        thread.join(LIMIT_S)
    words = {answer.why for answer, _ in running.answers.values()}
    assert words == {"1 of its members did not ask for it in 0.2 s"}
    assert len(running.answers) == 3
    assert not world.admitted
    eventually(lambda: not running.groups._asked)


def test_a_group_is_released_when_all_have_left_or_ended(world: World, running: Running) -> None:
    running.asked("a", 0, 1)
    running.asked("b", 1, 2)
    running.desks[0].leave("a")
    running.end(1)
    eventually(lambda: world.released == [1])
    running.desks[2].leave("b")
    eventually(lambda: world.released == [1, 2])


def test_a_group_made_again_has_a_key_of_its_own(world: World, running: Running) -> None:
    for turn in range(50):
        running.asked(f"{turn}", 0, 1, 2, 3)
        for desk in running.desks:
            desk.leave(f"{turn}")
    running.asked("last", 0, 1, 2, 3)
    assert world.released == list(range(1, 51)), "before anybody could ask again"


def test_a_job_has_so_many_groups_at_once(
    world: World, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 2)
    for key in ("a", "b", "c"):
        running.asked(key, 0, 1)
    assert running.answers[0][0].why == "the job has 2 groups already"
    assert len(world.admitted) == 2


@pytest.mark.parametrize(
    "message",
    [
        b"\xff",
        b"7",
        b"[]",
        b"{}",
        b'{"ask": "x"}',
        b'{"ask": "x", "size": 65, "port": 40000}',
        b'{"ask": "x", "size": 2, "port": 53}',
        b'{"ask": "x", "size": "many", "port": 40000}',
        b'{"leave": "x"}',
        b'{"leave": {}}',
    ],
)
def test_what_a_worker_makes_up_changes_nothing(world: World, running: Running, message: bytes) -> None:
    running.desks[0]._socket.send(message)
    assert [answer.why for answer in running.asked("a", 0, 1)] == [None, None]
    assert list(running.groups._asked) == ["a"]


def test_the_end_waits_for_nobody(world: World) -> None:
    running = Running(world)
    with running.groups:
        threads = running.ask("a", 0, size=2)
        eventually(lambda: "a" in running.groups._asked)
    running.groups.are_inherited()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "the closed socket tells it"
    assert not running.answers


def test_the_end_of_a_job_waits_for_no_controller(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "END_S", 0.05)
    before, running = boards_open(), Running(world)
    world.answers.clear()
    with running.groups:
        threads = running.ask("a", 0, 1)
        assert world.is_asked.wait(LIMIT_S)
        begun = time.monotonic()
    assert time.monotonic() - begun < LIMIT_S / 4
    assert not world.admitted, "the controller has not answered yet"
    world.answers.set()
    running.groups._thread.join(LIMIT_S)
    assert world.released == [1], "admitted for nobody, and given back"
    assert not running.answers
    running.groups.are_inherited()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "the closed socket tells it"
    assert boards_open() == before


def test_a_worker_that_asks_without_end_is_heard_so_often(
    world: World, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MESSAGES_PER_S", 1e-3)
    for _ in range(module.BURST - 1):
        running.desks[0].leave("x")
    running.asked("a", 0, 1)
    (late,) = running.ask("b", 0, size=2)  # is not heard before a minute
    eventually(lambda: 0 in running.groups._paused)
    assert [answer.why for answer in running.asked("c", 2, 3)] == [None, None], "others are"
    assert list(running.groups._asked) == ["a", "c"]
    assert late.is_alive()


def test_a_worker_that_said_too_much_is_heard_again(
    world: World, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BURST", 4)
    for allowance in running.groups._allowances:
        allowance.messages = 4
    for turn in range(20):
        running.asked(f"{turn}", 0, 1)
        for rank in (0, 1):
            running.desks[rank].leave(f"{turn}")
    eventually(lambda: len(world.released) == 20)


def boards_open() -> int:
    links = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum("job-board" in link for link in links)


def test_the_board_of_a_group_names_workers_by_their_ranks_in_the_job() -> None:
    hosts = tuple(f"u1h{number}" for number in (1, 2, 3, 4))
    with JobBoard(4) as whole, JobBoard(2) as own:
        job = Board.from_settings(whole.settings(), 1, hosts, None)
        before = boards_open()
        parts = [Part.of(job, (1, 3), own.settings(), member) for member in (0, 1)]
        for part, steps in zip(parts, (3, 1), strict=True):
            ctypes.c_uint64.from_address(part.progress_address()).value = 2 * steps
        assert parts[0].progress() == [3, 1]
        assert [parts[0].who(number) for number in parts[0].behind() if number] == ["worker 3"]
        whole.exited(2, 1)
        assert not parts[0].missing(), "it is none of the group's"
        whole.exited(3, 9)
        assert [str(peer) for peer in parts[0].missing()] == ["worker 3 on u1h4 exited with code 9"]
        assert parts[0].summed_address() == 0
        assert whole.summed_bytes() == 0
        assert parts[0].rate_address() == job.rate_address()
        for part in parts:
            part.close()
        assert parts[0].progress() == [3, 1]
        assert boards_open() == before


def test_the_ledger_tells_groups_of_the_same_workers_as_one() -> None:
    ledger, counts = Ledger(), [Counter({"packets": 8}), Counter({"packets": 4, "gloo": 1})]
    for count, size in zip(counts, (0, 16), strict=True):
        ledger.add((0, 2), count.copy, SimpleNamespace(size_bytes=size))
    counts[0]["packets"] += 8
    assert ledger.rows() == [GroupRow((0, 2), {"packets": 20, "gloo": 17})]
    assert ledger.summed() == Counter({"packets": 20, "gloo": 1})
