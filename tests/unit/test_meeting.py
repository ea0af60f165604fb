"""The job board is told how a process group comes about, whatever the script asks torch for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed.distributed_c10d as c10d

from testbed.jobs.board import GroupState, JobBoard
from testbed.wire.settings import written
from tests.unit.test_jobs_board import described
from workloads import meeting
from workloads.job_env import JobEnv
from workloads.meeting import WorldSizeError

THREE = "does not fit this job's 3 workers"


@pytest.fixture
def board() -> Iterator[JobBoard]:
    with JobBoard(workers=3, has_ps=True) as made:
        yield made


class Store:
    """Stands for torch's meeting: says what the board shows meanwhile."""

    def __init__(self, board: JobBoard, fails: bool = False) -> None:
        self.board, self.fails = board, fails
        self.seen: list[GroupState] = []

    def rendezvous(self, url: str, rank: int = -1, world_size: int = -1, **settings: Any) -> Iterator[Any]:
        self.seen.append(self.board.standing(1)[0])
        if self.fails:
            raise TimeoutError("nobody came")
        yield "store", 1, 3
        raise RuntimeError("as torch does the second time")


def meet(store: Store, *words: Any, **settings: Any) -> Any:
    module = SimpleNamespace(rendezvous=store.rendezvous)
    meeting.see(module)
    return next(module.rendezvous(*words, **settings))


@pytest.fixture
def store(board: JobBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("TESTBED_JOB", written(described(board, tmp_path)))
    monkeypatch.setenv("WORLD_SIZE", "3")
    return Store(board)


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (("env://",), {}),
        (("env://", 1, 3), {"timeout": 1}),
        (("tcp://10.0.1.1:23456",), {"rank": 1, "world_size": 3}),
        (("file:///tmp/x?rank=1&world_size=3",), {}),
    ],
)
def test_a_meeting_of_all_is_told(store: Store, words: tuple[Any, ...], settings: dict[str, Any]) -> None:
    assert meet(store, *words, **settings) == ("store", 1, 3)
    assert store.seen == [GroupState.MEETING]
    assert store.board.standing(1)[0] is GroupState.JOINED


def test_one_that_fails_is_over(store: Store) -> None:
    store.fails = True
    with pytest.raises(TimeoutError):
        meet(store, "env://")
    assert store.board.standing(1)[0] is GroupState.ALONE


@pytest.mark.parametrize("words", [("env://", 1, 2), ("env://?world_size=2",), ("env://", 1, 4)])
def test_at_the_jobs_address_a_group_has_the_jobs_size(store: Store, words: tuple[Any, ...]) -> None:
    with pytest.raises(WorldSizeError, match=THREE):
        meet(store, *words)
    assert store.seen == [], "nobody waits for who cannot come"
    assert store.board.standing(1)[3] in (2, 4)


def test_a_variable_that_the_script_changes_counts_as_well(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(WorldSizeError, match=THREE):
        meet(store, "env://")


def test_some_workers_may_meet_elsewhere(store: Store) -> None:
    assert meet(store, "tcp://10.0.1.1:23456", 0, 2) == ("store", 1, 3)
    assert store.seen == [GroupState.ALONE]


def test_a_process_that_is_no_worker_meets_as_ever(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TESTBED_JOB")
    assert meet(store, "env://", 0, 17) == ("store", 1, 3)
    assert store.seen == [GroupState.ALONE]


def test_torch_meets_by_the_function_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of torch that does not call it would be seen by nobody."""

    class SeenError(Exception):
        pass

    def seen(*words: Any, **settings: Any) -> Any:
        raise SeenError

    monkeypatch.setattr(c10d, "rendezvous", seen)
    with pytest.raises(SeenError):
        c10d.init_process_group("gloo", init_method="tcp://127.0.0.1:1", rank=0, world_size=1)


JOBS = {"MASTER_ADDR": "10.0.1.1", "MASTER_PORT": "29507", "RANK": "1", "WORLD_SIZE": "3"}


@pytest.mark.parametrize(
    ("url", "rank", "size", "environ", "words"),
    [
        ("env://", -1, 3, {}, "10.0.1.1:29507"),
        ("env://", 1, 3, {"RANK": "0"}, "10.0.1.1:29507"),
        (
            "env://",
            1,
            3,
            {"MASTER_ADDR": "localhost", "MASTER_PORT": "12355"},
            "localhost:12355, since the script set MASTER_ADDR to localhost (the job's is 10.0.1.1)",
        ),
        (
            "env://",
            -1,
            3,
            {"MASTER_PORT": "12355"},
            "10.0.1.1:12355, since the script set MASTER_PORT to 12355 (the job's is 29507)",
        ),
        (
            "env://",
            -1,
            3,
            {"RANK": "0"},
            "10.0.1.1:29507, since the script took rank 0 (its own is another)",
        ),
        ("tcp://10.0.1.1:23456", 1, 3, {}, "10.0.1.1:23456"),
        (
            "tcp://127.0.0.1:23456",
            0,
            2,
            {},
            "127.0.0.1:23456, since the script named 127.0.0.1 (the job's is 10.0.1.1) and took rank 0 (its "
            "own is another) and asked for a group of 2 (the job has 3 workers)",
        ),
        ("file:///tmp/x?world_size=3", 1, 3, {}, "file:///tmp/x?world_size=3"),
    ],
)
def test_where_it_waits_and_why_there(
    board: JobBoard,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    rank: int,
    size: int,
    environ: dict[str, str],
    words: str,
) -> None:
    for name, value in (JOBS | environ).items():
        monkeypatch.setenv(name, value)
    settings = replace(described(board, tmp_path), master="10.0.1.1:29507")
    job = JobEnv.from_environ({"TESTBED_JOB": written(settings)})
    assert meeting.place(job, url, rank, size) == words
