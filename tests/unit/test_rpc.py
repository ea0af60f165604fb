"""Requests over a unix socket."""

from __future__ import annotations

import errno
import json
import os
import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from testbed.client import rpc
from testbed.client.rpc import connection as rpc_connection
from testbed.client.rpc import server as rpc_server
from testbed.errors import HostError, RequestError, TestbedError
from tests.limits import CALL_S

LINES = [f"{number:06}{'x' * 994}" for number in range(8000)]
LEFT, FLOODED, ASKED = threading.Event(), threading.Event(), threading.Event()


def answer(request: dict[str, Any], peer: rpc.Peer, emit: rpc.Emit, disconnected: threading.Event) -> Any:
    match request["op"]:
        case "add":
            return request["a"] + request["b"]
        case "count":
            for number in range(3):
                emit({"number": number})
            return "done"
        case "host":
            raise HostError("no tools")
        case "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/run/optinc/x/jobs/1")
        case "wait":
            assert disconnected.wait(60)
            LEFT.set()
            return None
        case "flood":
            for line in LINES:
                emit({"output": line})
            emit({"note": "all of it"})
            FLOODED.set()
            return "done"
        case "pass":
            emit({"number": 0})
            for number in (1, 2):
                reader, writer = os.pipe()
                os.write(writer, b"%d" % number)
                os.close(writer)
                emit({"number": number}, reader)
                os.close(reader)
            return "passed"
        case "who":
            return [peer.uid, peer.gid, sorted(peer.groups)]
        case "soon":
            ASKED.set()
            time.sleep(0.1)
            return "late"
    raise RequestError(f"op {request['op']}")


@pytest.fixture
def served(tmp_path: Path) -> Any:
    path = tmp_path / "s"
    with rpc.serve(path, answer):
        yield path
    assert not path.exists()


def test_result_events_and_errors(served: Path) -> None:
    assert rpc.call(served, "add", a=2, b=3) == 5
    events: list[tuple[dict[str, Any], int | None]] = []
    assert rpc.call(served, "count", on_event=lambda *event: events.append(event)) == "done"
    assert events == [({"number": number}, None) for number in range(3)]
    with pytest.raises(HostError, match="no tools"):
        rpc.call(served, "host")
    with pytest.raises(RequestError, match="op other"):
        rpc.call(served, "other")


def test_an_event_has_the_descriptor_that_was_sent_with_it(served: Path) -> None:
    events: list[tuple[dict[str, Any], int | None]] = []
    assert rpc.call(served, "pass", on_event=lambda *event: events.append(event)) == "passed"
    assert events.pop(0) == ({"number": 0}, None)
    for event, fd in events:
        assert fd is not None
        assert not os.get_inheritable(fd)
        assert os.read(fd, 9) == b"%d" % event["number"]
        os.close(fd)


def test_descriptors_that_nobody_takes_are_closed(served: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert rpc.call(served, "pass") == "passed"
    deadline = time.monotonic() + 60  # the server closes its end of a connection a moment after the reply
    while len(os.listdir("/proc/self/fd")) > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_socket_is_the_owner_s_alone(served: Path) -> None:
    assert os.stat(served).st_mode & 0o777 == 0o600


def test_a_client_that_leaves_is_noticed(served: Path) -> None:
    LEFT.clear()
    with pytest.raises(TestbedError, match="no answer in"):
        rpc.call(served, "wait", timeout_s=0.2)
    assert LEFT.wait(60)


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="nobody answers"):
        rpc.call(tmp_path / "absent", "add")


@contextmanager
def asking(path: Path, line: bytes = b"") -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(path))
        connection.sendall(line)
        yield connection


def all_of(connection: socket.socket) -> list[dict[str, Any]]:
    """Every message up to the end of the connection, which the server closes."""
    with connection.makefile("rb") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"not json\n", "Expecting value"),
        (b"[]\n", "no op"),
        (b'{"a": 1}\n', "no op"),
        (b'{"op": 7}\n', "no op"),
        (b'{"op": "add", "a": NaN, "b": 1}\n', "NaN is no number"),
        (b'{"op": "add", "a": -Infinity, "b": 1}\n', "-Infinity is no number"),
        (b"[" * 100_000 + b"\n", "nested too deeply"),
        (b'{"op": "\xff"}\n', "utf-8"),
        (b"1" * 5000 + b"\n", "4300 digits"),
    ],
)
def test_garbage_gets_a_line_back(served: Path, line: bytes, says: str) -> None:
    with asking(served, line) as connection:
        (message,) = all_of(connection)
    assert message["exit_code"] == 2
    assert says in message["error"]
    assert "\n" not in message["error"]


def test_a_request_that_is_too_long_is_told_so_though_it_is_still_being_sent(served: Path) -> None:
    with pytest.raises(RequestError, match=f"longer than {rpc.MAX_REQUEST_BYTES} bytes"):
        rpc.call(served, "add", a="a" * (4 * rpc.MAX_REQUEST_BYTES), b="b")


def test_the_first_line_is_the_request_and_after_its_reply_the_connection_ends(served: Path) -> None:
    with asking(served, b'{"op": "add", "a": 1, "b": 2}\n{"op": "add", "a": 3, "b": 4}\nmore') as connection:
        assert all_of(connection) == [{"ok": True, "result": 3}]


def test_what_is_sent_beyond_a_refusal_does_not_spoil_it(served: Path) -> None:
    for _ in range(20):
        with asking(served) as connection:
            with suppress(BrokenPipeError):
                connection.sendall(b"x" * (2 * rpc.MAX_REQUEST_BYTES))
            (message,) = all_of(connection)
            assert "longer than" in message["error"]


def test_half_a_request_has_a_deadline_and_holds_up_nobody(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_connection, "REQUEST_S", 0.5)
    began = time.monotonic()
    with asking(served, b'{"op": "a') as half, asking(served) as nothing:
        assert rpc.call(served, "add", a=2, b=3) == 5
        for slow in (half, nothing):
            while time.monotonic() - began < 0.4:  # a byte now and then makes it no longer
                slow.sendall(b"d")
                time.sleep(0.05)
            (message,) = all_of(slow)
            assert message["error"] == "request not understood: its line did not end within 0.5 s"


def test_a_handler_that_breaks_is_said_and_its_trace_is_in_the_log(
    served: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TestbedError, match="add: TypeError: "):
        rpc.call(served, "add", a=2, b=None)
    assert "Traceback" in capfd.readouterr().err
    with pytest.raises(TestbedError, match="add: KeyError: 'b'"):
        rpc.call(served, "add", a=2)


def test_a_full_disk_is_no_defect(served: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TestbedError, match=r"^write /run/optinc/x/jobs/1: No space left on device$"):
        rpc.call(served, "full")
    assert capfd.readouterr().err == ""


def test_nobody_waits_for_a_client_that_does_not_read(served: Path) -> None:
    with asking(served, b'{"op": "flood"}\n') as connection:
        assert FLOODED.wait(60), "its handler waits for it"
        messages = all_of(connection)
    assert messages[-1] == {"ok": True, "result": "done"}
    events = [message["event"] for message in messages[:-1]]
    shown = [event["output"] for event in events if "output" in event]
    (missed,) = [event["missed"] for event in events if "missed" in event]
    assert shown == LINES[: len(shown)], "the first ones, in order"
    assert missed["lines"] == len(LINES) - len(shown)
    assert missed["bytes"] == sum(map(len, LINES[len(shown) :]))
    kept = sum(map(len, shown))
    assert kept < 2 * rpc_connection.BACKLOG_BYTES, "what is kept for it is bounded"
    assert "note" in events[-2 if "missed" in events[-1] else -1], "what is no output was not missed"


def test_who_asks_is_what_the_kernel_says(served: Path) -> None:
    groups = sorted(set(os.getgroups()))
    assert rpc.call(served, "who", uid=4242, gid=42, groups=[42]) == [os.geteuid(), os.getegid(), groups]


def test_a_process_in_root_s_group_is_not_root(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_server.Peer, "of", lambda _: rpc.Peer(os.geteuid() + 4242, 0, (0,)))
    with pytest.raises(HostError, match="only root and the user who started the testbed may ask"):
        rpc.call(served, "add", a=1, b=1)


def test_connections_are_bounded_and_idle_ones_make_room(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_server, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(rpc_server, "_PATIENCE_S", 0.2)
    with ExitStack() as stack:
        waiting = [stack.enter_context(asking(served, b'{"op": "wait"}\n')) for _ in range(4)]
        deadline = time.monotonic() + 60
        said = ""
        while "4 requests are worked on already" not in said:
            assert time.monotonic() < deadline, said
            try:
                said = f"served: {rpc.call(served, 'add', a=1, b=1)}"
            except TestbedError as error:
                said = str(error)
        waiting[0].close()
        while True:
            assert time.monotonic() < deadline
            with suppress(BrokenPipeError):  # refused, as the one that left was not noticed yet
                half = stack.enter_context(asking(served, b"{"))
                break
        while True:  # the one that left is noticed, the half-sent one gives way when it has had its time
            assert time.monotonic() < deadline
            try:
                assert rpc.call(served, "add", a=1, b=1) == 2
            except RequestError:
                continue
            break
        assert half is not None
        for each in waiting[1:]:
            each.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.recv(1)


def test_requests_that_last_leave_places_to_those_that_are_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_server, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr(rpc_server, "MOST_LASTING", 3)
    path = tmp_path / "s"
    refused = r"3 requests that last \(host, wait\) are worked on already"
    with rpc.serve(path, answer, lasting=("wait", "host")), ExitStack() as stack:
        with pytest.raises(HostError):
            rpc.call(path, "host")
        waiting = [stack.enter_context(asking(path, b'{"op": "wait"}\n')) for _ in range(4)]
        (too_many,), _, _ = select.select(waiting, [], [], 60)
        assert re.search(refused, all_of(too_many)[0]["error"])
        assert [rpc.call(path, "add", a=1, b=each) for each in range(9)] == list(range(1, 10))
        with pytest.raises(RequestError, match=refused):
            rpc.call(path, "host")
        for each in waiting:
            each.close()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                rpc.call(path, "host")
            except HostError:
                return
            except RequestError:  # it is not noticed yet that they left
                continue
        pytest.fail("no place was free again")


@pytest.mark.parametrize("name", ["connection", "request"])
def test_a_system_without_threads_costs_a_request_and_not_the_server(
    served: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    start, lacking = threading.Thread.start, [name] * 20

    def refusing(thread: threading.Thread) -> None:
        if thread.name in lacking:
            lacking.remove(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refusing)
    monkeypatch.setattr(rpc_server, "MAX_CONNECTIONS", 10)  # of those that fail nothing may be left
    says = "went away before it answered|Connection reset|no thread can be started on this machine"
    while lacking:
        with pytest.raises(TestbedError, match=says):
            rpc.call(served, "add", a=1, b=2, timeout_s=CALL_S)
    assert rpc.call(served, "add", a=1, b=2, timeout_s=CALL_S) == 3


def test_an_end_lets_replies_out_that_are_made(tmp_path: Path) -> None:
    path, came = tmp_path / "s", []
    with rpc.serve(path, answer):
        asker = threading.Thread(target=lambda: came.append(rpc.call(path, "soon")))
        asker.start()
        assert ASKED.wait(60)
    asker.join(60)
    assert came == ["late"]
