"""The slate of a job's service: what is written is read, and nothing is believed of what is not."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import pytest

from testbed import status
from testbed.jobs.board import JobBoard
from testbed.messages.jobs import JobStatus
from testbed.wire import service_status


@dataclass(frozen=True, slots=True)
class Numbered:
    """The standing of a service that counts."""

    lines: tuple[str, ...]
    iteration: int


def memory() -> memoryview:
    return memoryview(bytearray(service_status.SLATE_BYTES))


def forged(text: bytes, sequence: int = 2, length: int | None = None) -> memoryview:
    made = memory()
    struct.pack_into("<QQ", made, 0, sequence, len(text) if length is None else length)
    made[16 : 16 + len(text)] = text
    return made


def test_what_is_written_last_is_read() -> None:
    made = memory()
    assert service_status.read(made) is None
    for number in (1, 22, 3):
        service_status.write(made, Numbered((f"iteration {number}",), number))
        assert service_status.read(made) == {"lines": [f"iteration {number}"], "iteration": number}


def test_what_has_no_room_is_refused_and_the_old_stays() -> None:
    made = memory()
    service_status.write(made, Numbered(("old",), 1))
    with pytest.raises(ValueError, match="the slate has room for"):
        service_status.write(made, Numbered(("x" * service_status.SLATE_BYTES,), 2))
    assert service_status.read(made) == {"lines": ["old"], "iteration": 1}


@pytest.mark.parametrize(
    "made",
    [
        forged(b'{"lines": []}', sequence=3),
        forged(b'{"lines": []}', length=service_status.SLATE_BYTES),
        forged(b'{"lines": []}', length=2**63),
        forged(b'{"lines": 7}'),
        forged(b'["lines"]'),
        forged(b"\xff\xfe"),
        forged(b"[" * 9000),
    ],
)
def test_what_does_not_read_is_nothing(made: memoryview) -> None:
    assert service_status.read(made) is None


def test_lines_cannot_steer_a_terminal_and_are_few() -> None:
    said = {"lines": ["\x1b[2Jgone\n", "x" * 1000, 5, *["more"] * 100]}
    read = service_status.read(forged(json.dumps(said).encode()))
    assert read is not None
    assert read["lines"][:3] == ["?[2Jgone?", "x" * service_status.MOST_CHARACTERS, "5"]
    assert len(read["lines"]) == service_status.MOST_LINES


def test_a_board_has_one_where_a_process_serves() -> None:
    with JobBoard(2, has_ps=True) as board:
        assert board.service() is None
        assert board._slate is not None
        service_status.write(memoryview(board._slate), Numbered(("here",), 3))
        assert board.service() == {"lines": ["here"], "iteration": 3}
    assert board.service() is None
    with JobBoard(2) as board:
        assert (board.slate_fd, board.service()) == (-1, None)


def job(**fields: Any) -> JobStatus:
    """A job's status, with these fields in the place of usual ones."""
    usual = {
        "id": 1,
        "state": "running",
        "user": "root",
        "script": "s.py",
        "sync": "luwu",
        "hosts": ("u1h1",),
    }
    rest = {
        "ps_host": None,
        "other_hosts": (),
        "sums": None,
        "running_s": 1,
        "progress": (),
        "summed_bytes": 0,
    }
    return JobStatus(**{**usual, **rest, **fields})


def test_a_status_shows_the_lines() -> None:
    assert job(service={"lines": ["iteration 3", "disk"]}).service_lines == ["iteration 3", "disk"]
    assert job(service=None).service_lines == job().service_lines == []


def test_a_status_shows_what_workers_wait_for() -> None:
    assert status.waiting_lines(job(waiting="worker 0 waits")) == ["worker 0 waits"]
    assert status.waiting_lines(job(waiting=None)) == status.waiting_lines(job()) == []
