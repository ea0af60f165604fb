"""The watch of a worker over its own script: which line is told, what is left of stacks, who is awaited."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from testbed.jobs.board import JobBoard
from testbed.wire.calls import Tables
from testbed.wire.settings import written
from tests.unit.test_calls import BARRIER, GROUP, ask, broadcast
from tests.unit.test_jobs_board import described
from workloads import waiting
from workloads.job_env import JobEnv
from workloads.waiting import MOST_BYTES, Watch, explained, is_scripts, place_of

TORCH = os.path.dirname(torch.__file__)
C10D = f"{TORCH}/distributed/distributed_c10d.py"
WRAPPER = f"{TORCH}/distributed/c10d_logger.py"


@pytest.fixture
def board() -> Iterator[JobBoard]:
    with JobBoard(workers=3) as made:
        yield made


def job_of(board: JobBoard, folder: Path, rank: int = 1) -> JobEnv:
    settings = replace(described(board, folder, rank), stacks=str(folder / f"stacks-{rank}.log"))
    return JobEnv.from_environ({"TESTBED_JOB": written(settings)})


def tables_of(board: JobBoard) -> Tables:
    """Return the workers' tables themselves."""
    assert board._tables is not None
    return board._tables


def stack(*calls: tuple[str, str, int]) -> Any:
    """Return the innermost frame of a stack: file, function and line of each call, the outermost first."""
    frame = None
    for file, function, line in calls:
        code = SimpleNamespace(co_filename=file, co_name=function)
        frame = SimpleNamespace(f_code=code, f_lineno=line, f_back=frame)
    return frame


@pytest.mark.parametrize(
    ("file", "is_own"),
    [
        ("val.py", True),
        ("/home/a/models/val.py", True),
        (str(Path(waiting.__file__).parent / "jobs" / "layers.py"), True),
        (C10D, False),
        (waiting.__file__, False),
        (threading.__file__, False),
        (f"{sysconfig.get_path('purelib')}/lightning/loop.py", False),
        ("/home/a/.local/lib/python3.11/site-packages/lightning/loop.py", False),
        ("<frozen importlib._bootstrap>", False),
        (JobBoard.__init__.__code__.co_filename, False),
    ],
)
def test_what_is_the_scripts_own(file: str, is_own: bool) -> None:
    assert is_scripts(file) is is_own


def test_a_place_is_the_scripts_innermost_line_and_what_it_called_of_torch() -> None:
    script = (("runpy.py", "run", 1), ("/home/a/val.py", "<module>", 20), ("/home/a/val.py", "train", 14))
    assert place_of(stack(*script)) == ("val.py:14", "")
    collective = ((WRAPPER, "wrapper", 83), (C10D, "broadcast_object_list", 9), (C10D, "broadcast", 8))
    assert place_of(stack(*script, *collective)) == ("val.py:14", "broadcast_object_list")
    assert place_of(stack(*script, (f"{TORCH}/nn/modules/module.py", "__call__", 1))) == ("val.py:14", "")
    assert place_of(stack((C10D, "barrier", 3))) == ("", "barrier"), "a library's thread"
    assert place_of(None) == ("", "")


def test_the_launcher_reads_where_the_script_is_and_what_it_waits_for(
    board: JobBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, place = Watch(job_of(board, tmp_path)), ("val.py:14", "")
    monkeypatch.setattr(waiting, "present_place", lambda: place)
    monkeypatch.setattr(waiting, "_main_thread_ran_ns", lambda: ran_ns)
    ran_ns = 0
    watch.look(5)
    tables = tables_of(board)
    assert (tables.line(1), tables.inside(1), tables.line(0)) == ("val.py:14", "", "")
    call = ask(tables, 1, 9, broadcast(), 16)
    watch.look(int(1e9))
    assert tables.where(1, call) == "", "it has waited for a moment"
    watch.look(int(3e9))
    assert tables.where(1, call) == "val.py:14"
    place = "val.py:15", "recv"
    watch.look(int(4e9))
    assert (tables.line(1), tables.inside(1)) == place
    assert tables.where(1, call) == "val.py:14", "it is told once"
    since = board.pulse()
    watch.look(int(5e9))
    assert board.pulse() == since, "it waits on"
    ran_ns = 10_000_000
    watch.look(int(6e9))
    assert tables._columns.inside_ns[1] == int(6e9), "it went on: the same line again, another message"


def test_where_it_meets_is_told_until_the_group_is_there(
    board: JobBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, place = Watch(job_of(board, tmp_path)), ("val.py:4", "init_process_group")
    monkeypatch.setattr(waiting, "present_place", lambda: place)
    watch.say_meets("localhost:1")
    watch.look(5)
    assert tables_of(board).meets(1) == "localhost:1"
    place = "val.py:5", ""
    watch.look(6)
    assert tables_of(board).meets(1) == ""


def test_stacks_are_left_once_and_when_they_are_asked_for(board: JobBoard, tmp_path: Path) -> None:
    watch = Watch(job_of(board, tmp_path))
    watch.start()
    try:
        assert board.have_left_stacks() == set()
        board.ask_for_stacks()
        deadline = time.monotonic() + 30
        while board.have_left_stacks() != {1}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        watch.stop()
        sys.excepthook = sys.__excepthook__
    text = (tmp_path / "stacks-1.log").read_text()
    assert text.startswith("worker 1 on u1h2, job 7, ")
    assert "thread MainThread:\n" in text
    assert "test_stacks_are_left_once" in text
    assert "inc-watch" not in text
    watch.leave_stacks(ValueError("later"))
    assert (tmp_path / "stacks-1.log").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["stacks-1.log"]


def test_the_error_that_ends_a_script_is_in_its_stack(
    board: JobBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: heard.append(error))
    watch = Watch(job_of(board, tmp_path))
    watch.start()
    error = ValueError("\x1b[31mred")
    sys.excepthook(ValueError, error, None)
    watch.stop()
    assert heard == [error]
    assert "ValueError: ?[31mred" in (tmp_path / "stacks-1.log").read_text()
    assert board.have_left_stacks() == {1}


def test_a_file_that_cannot_be_written_hides_no_error(
    board: JobBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: heard.append(error))
    watch = Watch(job_of(board, tmp_path / "gone"))
    watch.start()
    sys.excepthook(ValueError, ValueError(), None)
    watch.stop()
    assert len(heard) == 1
    assert board.have_left_stacks() == set()


def test_a_file_of_stacks_is_bounded() -> None:
    text = waiting.bounded("é" * MOST_BYTES)
    assert len(text) <= MOST_BYTES
    assert text.endswith(b"... the rest is left out ...\n")
    assert waiting.bounded("a\tb\n") == b"a?b\n"


def test_all_sides_are_waited_for_and_told(board: JobBoard) -> None:
    tables = tables_of(board)
    first = ask(tables, 0, 8, broadcast(), 16)
    tables.say_where(0, first, "val.py:14")

    def later() -> None:
        time.sleep(0.2)
        tables.say_where(2, ask(tables, 2, 8, BARRIER), "val.py:15")

    thread = threading.Thread(target=later)
    thread.start()
    assert explained(tables, [0, 2], GROUP, 8) == (
        "worker 0 asks for broadcast of 16 float32 from worker 0 (collective 8, val.py:14), "
        "worker 2 for barrier (collective 8, val.py:15): they do not ask for the same"
    )
    thread.join()


def test_who_never_asks_is_not_waited_for_for_long(board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "ALL_ASK_S", 0.2)
    tables = tables_of(board)
    for rank, what in enumerate((BARRIER, broadcast())):
        ask(tables, rank, 8, what)
    began = time.monotonic()
    assert "worker 0 asks for barrier (collective 8), worker 1 for broadcast" in explained(
        tables, [0, 1, 2], GROUP, 8
    )
    assert time.monotonic() - began < 30
