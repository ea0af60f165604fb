"""Requests over a unix socket."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from testbed import rpc
from testbed.errors import HostError, RequestError, TestbedError


def answer(request: dict[str, Any], emit: rpc.Emit, disconnected: threading.Event) -> Any:
    match request["op"]:
        case "add":
            return request["a"] + request["b"]
        case "count":
            for number in range(3):
                emit({"number": number})
            return "done"
        case "host":
            raise HostError("no tools")
        case "wait":
            assert disconnected.wait(60)
            LEFT.set()
            return None
    raise RequestError(f"op {request['op']}")


LEFT = threading.Event()


@pytest.fixture
def served(tmp_path: Path) -> Any:
    path = tmp_path / "s"
    with rpc.serve(path, answer):
        yield path
    assert not path.exists()


def test_result_events_and_errors(served: Path) -> None:
    assert rpc.call(served, "add", a=2, b=3) == 5
    events: list[dict[str, Any]] = []
    assert rpc.call(served, "count", on_event=events.append) == "done"
    assert [event["number"] for event in events] == [0, 1, 2]
    with pytest.raises(HostError, match="no tools"):
        rpc.call(served, "host")
    with pytest.raises(RequestError, match="op other"):
        rpc.call(served, "other")


def test_socket_is_the_owner_s_alone(served: Path) -> None:
    assert os.stat(served).st_mode & 0o777 == 0o600


def test_a_client_that_leaves_is_noticed(served: Path) -> None:
    LEFT.clear()
    with pytest.raises(TestbedError, match="no answer in"):
        rpc.call(served, "wait", timeout_s=0.2)
    assert LEFT.wait(60)


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="nobody serves"):
        rpc.call(tmp_path / "absent", "add")


@pytest.mark.parametrize("line", [b"not json\n", b"[]\n", b'{"a": 1}\n'])
def test_garbage_gets_a_line_back(served: Path, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(served))
        connection.sendall(line)
        assert b'"exit_code": 2' in connection.recv(4096)
