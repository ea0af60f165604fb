"""The job board and the worker's reading of it: two sides of one memory file, which must agree."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.jobs.board import GroupState, JobBoard, WorkerState
from testbed.wire.settings import SumSettings, WorkerSettings, written
from tests.limits import CALL_S
from tests.unit.made_settings import endpoint, worker
from workloads.job_env import JobEnv, NotInJobError, how_it_ended

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ("u1h1", "u1h2", "u2h1")


@pytest.fixture
def board() -> Iterator[JobBoard]:
    with JobBoard(workers=3, has_ps=True) as made:
        yield made


def described(board: JobBoard, tmp_path: Path, rank: int = 1) -> WorkerSettings:
    return worker(
        board.settings(),
        tmp_path,
        testbed="default",
        rank=rank,
        hosts=HOSTS,
        stats=str(tmp_path / "stats-1.json"),
        sums=SumSettings("ps", "server", endpoint(slots=64), ("10.0.3.1", 29501), "u3h1"),
    )


def environ(settings: WorkerSettings) -> dict[str, str]:
    return {"TESTBED_JOB": written(settings)}


def test_worker_reads_what_the_launcher_said(board: JobBoard, tmp_path: Path) -> None:
    job = JobEnv.from_environ(environ(described(board, tmp_path)))
    assert (job.job_id, job.generation, job.rank, job.world_size, job.host) == (7, 3, 1, 3, "u1h2")
    assert job.ps == ("10.0.3.1", 29501)
    assert job.endpoint == endpoint(slots=64)


def test_missing_names_peers_and_the_parameter_server_but_not_itself(board: JobBoard, tmp_path: Path) -> None:
    job = JobEnv.from_environ(environ(described(board, tmp_path)))
    for index in range(4):
        board.started(index)
    assert job.board.missing() == []
    board.exited(1, 5)  # the reader's own record
    board.exited(2, -9)
    board.exited(3, 0)
    assert [str(gone) for gone in job.board.missing()] == [
        "worker 2 on u2h1 was ended by SIGKILL",
        "parameter server on u3h1 exited with code 0",
    ]


def test_a_parameter_server_that_a_scheduled_job_was_started_without_is_not_missing(
    board: JobBoard, tmp_path: Path
) -> None:
    job = JobEnv.from_environ(
        environ(replace(described(board, tmp_path), sums=SumSettings("inc", "packets", None, None, None)))
    )
    board.exited(3, -15)  # dismissed
    assert job.board.missing() == []
    board.exited(2, 1)
    assert [gone.rank for gone in job.board.missing()] == [2]


def test_progress_crosses_to_the_launcher(board: JobBoard, tmp_path: Path) -> None:
    worker = JobEnv.from_environ(environ(described(board, tmp_path))).board
    ctypes.c_uint64.from_address(worker.progress_address()).value = 2**40 + 6  # as the compiled endpoint does
    assert board.progress() == [0, 2**39 + 3, 0]


def test_who_has_pushed_nothing_since_the_last_sum_is_behind(board: JobBoard, tmp_path: Path) -> None:
    worker = JobEnv.from_environ(environ(described(board, tmp_path))).board
    values = board._workers.progress
    values[:] = 14, 15, 15
    assert worker.behind() == [0], "the others have pushed, and wait"
    values[:] = 15, 15, 13
    assert worker.behind() == [2]
    values[:] = 15, 15, 17
    assert worker.behind() == []
    board._workers.asked[:] = 7, 7, 6
    board._workers.waits_for[1] = 7
    assert worker.behind() == [2], "its endpoint may have pushed something: its script has not asked"


def test_where_a_worker_stands_crosses_to_the_launcher(board: JobBoard, tmp_path: Path) -> None:
    worker = JobEnv.from_environ(environ(described(board, tmp_path))).board
    assert board.standing(1) == (GroupState.ALONE, 0, 0, 0)
    worker.wants(3)
    worker.meet()
    assert board.standing(1) == (GroupState.MEETING, 0, 0, 3)
    worker.join()
    asked, waits_for = map(ctypes.c_uint64.from_address, worker.course_addresses())
    asked.value = waits_for.value = 2  # as the compiled backend does
    assert board.standing(1) == (GroupState.JOINED, 2, 2, 3)
    waits_for.value = 0
    worker.leave()
    assert board.standing(1) == (GroupState.ALONE, 2, 0, 3)
    board._workers.phase[1] = 2**63  # whatever it may write
    assert board.standing(1)[0] is GroupState.ALONE


def test_another_process_sees_the_board(board: JobBoard, tmp_path: Path) -> None:
    script = "from workloads.job_env import JobEnv; print(JobEnv.from_environ().board.missing()[0])"
    board.exited(0, 1)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environ(described(board, tmp_path)), "PYTHONPATH": str(ROOT)},
        pass_fds=[board.fd],
        capture_output=True,
        text=True,
        check=True,
        timeout=CALL_S,
    )
    assert done.stdout == "worker 0 on u1h1 exited with code 1\n"


def test_a_worker_cannot_shrink_the_board_under_its_peers(board: JobBoard) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(board.fd, 0)


def test_state_follows_the_process(board: JobBoard) -> None:
    assert board.state(0) is WorkerState.STARTING
    board.started(0)
    assert board.state(0) is WorkerState.RUNNING
    board.exited(0, 0)
    assert board.state(0) is WorkerState.EXITED


def test_close_twice_is_harmless() -> None:
    board = JobBoard(2)
    board.close()
    board.close()
    assert board.progress() == [0, 0]


def test_who_owes_statistics_and_why_they_are_not_there(board: JobBoard, tmp_path: Path) -> None:
    job = JobEnv.from_environ(environ(described(board, tmp_path)))
    assert board.owing() == {}
    job.board.wants(3)  # of gloo's own, perhaps
    assert board.owing() == {}
    ctypes.c_uint64.from_address(job.board.course_addresses()[0]).value = 1
    assert board.owing() == {1: 0}
    job.board.lacks_statistics(28)
    assert board.owing() == {1: 28}
    job.write_stats({"comm_ms": 1})
    assert board.owing() == {1: 0}


def test_stats_are_replaced_whole(board: JobBoard, tmp_path: Path) -> None:
    job = JobEnv.from_environ(environ(described(board, tmp_path)))
    job.write_stats({"comm_ms": 1})
    job.write_stats({"comm_ms": 2})
    assert json.loads(job.stats.read_text()) == {"comm_ms": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["stats-1.json"]


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "was not started by `testbed run`"),
        ({"TESTBED_JOB": "{"}, "does not read: JSONDecodeError"),
        ({"TESTBED_JOB": "{}"}, "does not read: ValueError: WorkerSettings without 'testbed'"),
        ({"TESTBED_JOB": "[]"}, "does not read: TypeError"),
    ],
)
def test_outside_a_job_one_clear_line(environment: dict[str, str], says: str) -> None:
    with pytest.raises(NotInJobError, match=says):
        JobEnv.from_environ(environment)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-15, "was ended by SIGTERM"),
        (-99, "by signal 99"),
    ],
)
def test_how_it_ended(code: int, words: str) -> None:
    assert words in how_it_ended(code)
