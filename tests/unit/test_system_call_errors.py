"""Errors of system calls, by every errno that there is: what is not known to be passing is raised, with what
was tried. The calls are a model's, which fail as they are told to.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.aggregation.program import Findings
from testbed.dataplanes.bmv2.control_port import AwayError, ControlPort
from testbed.dataplanes.bmv2.switch_client import NoAnswerError
from testbed.dataplanes.xdp import syscall
from testbed.dataplanes.xdp.control import Injector
from testbed.emulation import ingress, namespaces
from testbed.emulation.netlink import (
    Message,
    NetlinkError,
    RouteSocket,
    delete_program,
    set_up,
)
from testbed.errors import TestbedError
from testbed.jobs.looks import Looks
from testbed.systems.trio.bmv2 import timers as mark_timers
from testbed.systems.trio.bmv2.timers import MarkTimers
from testbed.systems.trio.terms import BlockTerms
from testbed.topology.addresses import Dpid
from workloads import job_env, ps_protocol
from workloads.luwu.calls import Connection, GoneError, NodeCall
from workloads.luwu.errors import LuwuError

ERRNOS = sorted(errno.errorcode)
U32 = np.dtype("<u4")


# ---------------------------------------------------------------- bpf(2)


class Bpf:
    """The C library, of which bpf(2) alone is called. Every call fails with `code`, once there is one; a
    batch has done `count` entries by then, where the kernel comes to say so.
    """

    def __init__(self) -> None:
        self.code, self.count = 0, None

    def syscall(self, _number: int, command: int, attributes: Any, _size: int) -> int:
        if self.count is not None and command >= syscall._LOOKUP_BATCH:
            struct.pack_into("=I", attributes, syscall._BATCH_COUNT_AT, self.count)
        ctypes.set_errno(self.code)
        return -1 if self.code else 0

    code: int
    count: int | None


@pytest.fixture
def bpf(monkeypatch: pytest.MonkeyPatch) -> Bpf:
    made = Bpf()
    monkeypatch.setattr(syscall, "_libc", made)
    return made


KEYS = np.arange(3, dtype=U32)
CALLS: dict[
    str, tuple[Callable[[], object], object]
] = {  # what is tried; what comes of it where there is none
    "create map seven": (lambda: syscall.map_create(2, 4, 4, 1, 0, "seven"), OSError),
    "update a map": (lambda: syscall.map_update(3, b"four", b"four"), OSError),
    "look up in a map": (lambda: syscall.map_lookup(3, b"four", 4), None),
    "look up in a map ": (lambda: syscall.map_lookup_rows(3, KEYS, U32), OSError),
    "delete from a map": (lambda: syscall.map_delete(3, b"four"), False),
    "update a map ": (lambda: syscall.map_update_rows(3, KEYS, KEYS), OSError),
    "delete from a map ": (lambda: syscall.map_delete_rows(3, KEYS), None),
    "read a map": (lambda: syscall.map_entries(3, U32, U32, 8), {}),
    "walk a map": (lambda: list(syscall.map_keys(3, 4)), []),
    "pin seven": (lambda: syscall.pin(3, Path("/sys/fs/bpf/seven")), OSError),
    "open pin seven": (lambda: syscall.open_pin(Path("/sys/fs/bpf/seven")), TestbedError),
    "run an XDP program": (lambda: syscall.run(3, bytes(60)), OSError),
    "run an XDP program on a live frame": (lambda: syscall.run_live(3, bytes(60), 1), OSError),
}


@pytest.mark.parametrize("attempt", CALLS)
def test_a_call_of_bpf_that_fails_is_an_error_and_there_is_none_an_answer(bpf: Bpf, attempt: str) -> None:
    call, where_none = CALLS[attempt]
    for bpf.code in ERRNOS:
        bpf.count = 0
        if bpf.code == errno.ENOENT and not isinstance(where_none, type):
            assert call() == where_none
            continue
        with pytest.raises((OSError, TestbedError)) as raised:
            call()
        if bpf.code == errno.ENOENT and where_none is TestbedError:
            assert str(raised.value) == "open pin /sys/fs/bpf/seven: there is none"
        else:
            assert isinstance(raised.value, OSError)
            assert raised.value.errno == bpf.code
            assert raised.value.strerror == f"{attempt.strip()}: {os.strerror(bpf.code)}"


def test_a_batch_of_which_the_kernel_did_less_than_it_says_is_an_error(bpf: Bpf) -> None:
    bpf.count = 2
    with pytest.raises(OSError, match="update a map: 2 of 3 entries were set"):
        syscall.map_update_rows(3, KEYS, KEYS)
    bpf.code, bpf.count = errno.ENOENT, None  # of no entry of the batch
    with pytest.raises(FileNotFoundError, match="delete from a map"):
        syscall.map_delete_rows(3, KEYS)


def test_a_map_is_read_as_far_as_it_goes(bpf: Bpf) -> None:
    bpf.code, bpf.count = errno.ENOENT, 5
    keys, values = syscall.map_rows(3, U32, U32, 8)
    assert (len(keys), len(values)) == (5, 5)


# ---------------------------------------------------------------- netlink

ERROR, DONE, INTERRUPTED = 2, 3, 0x10
Answer = tuple[int, int, int, bytes]  # kind, flags, sequence, body


def packed(answers: Sequence[Answer]) -> bytes:
    return b"".join(
        struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body
        for kind, flags, sequence, body in answers
    )


def acknowledgement(sequence: int, code: int = 0) -> Answer:
    return ERROR, 0, sequence, struct.pack("=i", -code) + bytes(16)


class Kernel:
    """A netlink socket, and the kernel behind it, which answers the requests of a send by `answer`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer: Callable[[int], Answer | None] = acknowledgement
        self.fails: dict[str, int] = {}  # calls of the socket -> errno
        self.datagrams: list[bytes] = []
        self.flags = 0
        self.closed = 0
        monkeypatch.setattr(socket, "socket", lambda *_: self)

    def _call(self, name: str) -> None:
        if code := self.fails.get(name):
            raise OSError(code, os.strerror(code))

    def bind(self, _address: object) -> None:
        self._call("bind")

    def settimeout(self, _timeout_s: float) -> None:
        pass

    def setsockopt(self, *_: int) -> None:
        self._call("setsockopt")

    def fileno(self) -> int:
        return 3

    def send(self, data: bytes) -> int:
        self._call("send")
        offset, answers = 0, []
        while offset + 16 <= len(data):
            size, _, _, sequence, _ = struct.unpack_from("=IHHII", data, offset)
            answers.append(self.answer(sequence))
            offset += size + 3 & ~3
        self.datagrams.append(packed([each for each in answers if each]))
        return len(data)

    def recvmsg(self, _size: int) -> tuple[bytes, list[Any], int, None]:
        self._call("recvmsg")
        if not self.datagrams:
            raise TimeoutError("timed out")
        return self.datagrams.pop(0), [], self.flags, None

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def test_whatever_the_kernel_refuses_by_netlink_is_an_error_that_names_it(kernel: Kernel) -> None:
    with RouteSocket() as route:
        messages = [set_up(f"port{number}") for number in range(5)]
        for code in ERRNOS:
            first = route._sequence + 1
            kernel.answer = lambda sequence, bad=first + 3, code=code: acknowledgement(  # type: ignore[misc]
                sequence, code if sequence >= bad else 0
            )
            with pytest.raises(NetlinkError) as raised:
                route.send(messages)
            assert str(raised.value) == f"set port3 up: {os.strerror(code)}"
            assert raised.value.code == code
            assert not kernel.datagrams, "all was read, and the next request has an answer of its own"


@pytest.mark.parametrize("call", ["bind", "setsockopt", "send", "recvmsg"])
def test_a_netlink_socket_that_fails_is_an_error_that_names_what_it_was_for(
    kernel: Kernel, call: str
) -> None:
    opens = call in ("bind", "setsockopt")
    for code in ERRNOS:
        kernel.fails, kernel.closed = {call: code}, 0
        with pytest.raises(NetlinkError) as raised, RouteSocket() as route:
            route.send([set_up("port")])
        attempt = "open a route netlink socket" if opens else "set port up"
        late = "no answer of the kernel within 30 s" if code == errno.ETIMEDOUT else os.strerror(code)
        assert str(raised.value) == f"{attempt}: {late}"
        assert raised.value.code == code
        assert kernel.closed == 1
        if not opens:
            with pytest.raises(NetlinkError, match=rf"^list devices: {late}"), RouteSocket() as route:
                route.devices()


@pytest.mark.parametrize("off", [-1, 1, 1000])
def test_nothing_but_the_acknowledgement_of_a_message_counts_for_it(kernel: Kernel, off: int) -> None:
    kernel.answer = lambda sequence: acknowledgement(sequence + off)
    with RouteSocket() as route:
        route._sequence = 10
        with pytest.raises(NetlinkError, match=r"^set port up: no answer of the kernel within 30 s$"):
            route.send([set_up("port")])


def test_an_acknowledgement_that_comes_twice_counts_once(kernel: Kernel) -> None:
    with RouteSocket() as route:
        kernel.answer = lambda _: acknowledgement(1)
        with pytest.raises(NetlinkError, match=r"^set second up: no answer"):
            route.send([set_up("first"), set_up("second")])


@pytest.mark.parametrize(
    "rest", [b"\0" * 16, b"\1" * 7, struct.pack("=IHHII", 40, ERROR, 0, 1, 0) + b"\0" * 8]
)
def test_an_answer_that_is_cut_off_is_an_error(kernel: Kernel, rest: bytes) -> None:
    with RouteSocket() as route:
        kernel.answer = lambda _: None
        kernel.datagrams = [packed([acknowledgement(99)]) + rest]
        with pytest.raises(NetlinkError, match=r"^set port up: the answer is cut off after \d+ bytes$"):
            route.send([set_up("port")])
        kernel.datagrams, kernel.flags = [packed([acknowledgement(2)])], socket.MSG_TRUNC
        with pytest.raises(NetlinkError, match=r"^set port up: the answer has more than 1048576 bytes$"):
            route.send([set_up("port")])


@pytest.mark.parametrize("kind", [ERROR, DONE])
def test_a_list_that_ends_with_an_error_is_no_list(kernel: Kernel, kind: int) -> None:
    with RouteSocket() as route:
        for code in ERRNOS:
            kernel.answer = lambda sequence, code=code: (  # type: ignore[misc]
                (kind, 0, sequence, struct.pack("=i", -code) + bytes(16))
            )
            for listing, what in (
                (route.devices, "list devices"),
                (route.token_buckets, "list queues"),
                (lambda: route.programs(7, 2), "list the filters at the ingress of device 7"),
            ):
                with pytest.raises(NetlinkError) as raised:
                    listing()
                assert str(raised.value) == f"{what}: {os.strerror(code)}"


def test_a_list_that_changed_meanwhile_is_read_again(kernel: Kernel) -> None:
    asked: list[int] = []

    def changing(sequence: int, times: int) -> Answer:
        asked.append(sequence)
        return DONE, INTERRUPTED if len(asked) <= times else 0, sequence, bytes(4)

    with RouteSocket() as route:
        kernel.answer = lambda sequence: changing(sequence, 3)
        assert route.devices() == {}
        assert asked == [1, 2, 3, 4]
        kernel.answer = lambda sequence: changing(sequence, 1000)
        with pytest.raises(NetlinkError, match="list devices: what is listed changed during each of"):
            route.devices()


def test_a_device_is_deleted_or_gone(kernel: Kernel) -> None:
    with RouteSocket() as route:
        for code in (0, *ERRNOS):
            kernel.answer = lambda sequence, code=code: acknowledgement(sequence, code)  # type: ignore[misc]
            if code in (0, errno.ENODEV):
                route.delete("port")
            else:
                with pytest.raises(NetlinkError, match=r"^delete port: "):
                    route.delete("port")


class Refusing:
    """A route socket that refuses to attach programs, and to detach them by `code`."""

    def __init__(self, code: int) -> None:
        self.code = code

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            is_undone = message.what == delete_program(11, 2).what
            raise NetlinkError(message.what, self.code if is_undone else errno.EPERM, "")


def test_a_program_that_cannot_be_detached_again_is_not_left_in_silence() -> None:
    for code in ERRNOS:
        route: Any = Refusing(code)
        program: Any = type("Program", (), {"fd": 7, "kernel_id": 300})
        with pytest.raises(TestbedError) as raised:
            ingress.attach(route, [11], program, "link_mark", 2, "links mark")
        attached = f"attach link_mark to the ingress of device 11: {os.strerror(errno.EPERM)}"
        left = f"; and then: {delete_program(11, 2).what}: {os.strerror(code)}"
        assert str(raised.value) == attached + (left if code not in (errno.ENOENT, errno.ENODEV) else "")


# ---------------------------------------------------------------- ticks


def test_a_tick_that_cannot_be_sent_is_an_error(kernel: Kernel) -> None:
    injector = Injector()
    port = ControlPort(Dpid(1))
    port._socket = kernel  # type: ignore[assignment]
    for code in ERRNOS:
        kernel.fails = {"send": code}
        with pytest.raises(TestbedError, match=rf"^send a tick by \S+: {os.strerror(code)}$"):
            injector.send(bytes(64), 7)
        with pytest.raises(TestbedError, match=rf"^send a tick by \S+: {os.strerror(code)}$") as raised:
            port.send(bytes(64))
        assert not isinstance(raised.value, AwayError)


def test_an_injector_that_cannot_be_opened_is_an_error_and_closed(kernel: Kernel) -> None:
    for code in ERRNOS:
        kernel.fails, kernel.closed = {"bind": code}, 0
        with pytest.raises(TestbedError, match=rf"^send ticks by \S+: {os.strerror(code)}$"):
            Injector()
        assert kernel.closed == 1


@pytest.mark.parametrize(
    ("raised", "is_told"),
    [
        (NoAnswerError("u1", "register block_marks", "it has ended", False), False),
        (AwayError("the control port is not open"), False),
        (TestbedError("send a tick by u1-c: No buffer space available"), True),
    ],
)
def test_timers_say_what_keeps_ticks_from_a_switch_that_runs(
    monkeypatch: pytest.MonkeyPatch, raised: TestbedError, is_told: bool
) -> None:
    looks = threading.Semaphore(0)

    class Client:
        def __init__(self, _dpid: int) -> None: ...

        def register(self, _name: str) -> list[int]:
            looks.release()
            raise raised

        def close(self) -> None: ...

    monkeypatch.setattr(mark_timers, "SwitchClient", Client)
    reasons: list[str] = []
    timers = MarkTimers(Dpid(1), lambda _: None, reasons.append)
    entry: Any = type("Entry", (), {"tree": 0, "terms": BlockTerms(1, (1, 1), (1, 1), (1, 1), 4.0)})
    row: Any = None
    timers.set(1, entry, row)
    assert all(looks.acquire(timeout=10.0) for _ in range(3)), "it goes on"
    timers.close()
    assert set(reasons) == ({str(raised)} if is_told else set())


def test_looks_for_stragglers_that_fail_are_told_to_the_job() -> None:
    for code in (errno.EPERM, errno.ENOMEM):
        reasons: list[str] = []

        def look(_at_s: float, code: int = code) -> Findings:
            raise OSError(code, f"look up in a map: {os.strerror(code)}")

        with Looks(lambda: 0.0, look, lambda _: None, reasons.append) as looks:
            looks.start()
            assert looks._thread
            looks._thread.join(10.0)
        assert reasons == [f"look for stragglers: look up in a map: {os.strerror(code)}"]


# ---------------------------------------------------------------- workers and their sockets


def test_keys_are_given_up_or_the_testbed_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for code in ERRNOS:

        def refuse(_name: str, *_: object, code: int = code) -> int:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(namespaces, "call_libc", refuse)
        if code in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP):
            namespaces.fresh_keys()
        else:
            with pytest.raises(OSError, match="a session keyring of its own") as raised:
                namespaces.fresh_keys()
            assert raised.value.errno == code


def test_a_descriptor_that_cannot_be_looked_at_is_not_taken_for_no_gate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for code in ERRNOS:

        def refuse(_fd: int, code: int = code) -> int:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "dup", refuse)
        if code in (errno.EBADF, errno.ENOTSOCK):
            assert not job_env._is_gate(7)
        else:
            with pytest.raises(OSError, match=f"Errno {code}"):
                job_env._is_gate(7)


GONE = {
    *(errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED, errno.ESHUTDOWN, errno.ENOTCONN),
    *(errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH),
}


def test_a_peer_is_gone_by_the_errors_that_say_so() -> None:
    assert {code for code in ERRNOS if ps_protocol.is_gone(OSError(code, ""))} == GONE


class Broken:
    """A connection whose every call fails with `code`."""

    def __init__(self, code: int) -> None:
        self.code = code

    def setsockopt(self, *_: int) -> None: ...

    def settimeout(self, _timeout_s: float | None) -> None: ...

    def makefile(self, *_: object) -> Broken:
        return self

    def sendall(self, _data: bytes) -> None:
        raise OSError(self.code, os.strerror(self.code))

    def readline(self, _size: int) -> bytes:
        raise OSError(self.code, os.strerror(self.code))


def test_calls_of_an_optimizer_node_tell_a_peer_that_is_gone_from_another_error() -> None:
    for code in ERRNOS:
        broken: Any = Broken(code)
        connection = Connection(broken, "worker 2")
        calls: dict[str, Callable[[], object]] = {
            "send to": partial(connection.send, NodeCall(call="pull", number=0)),
            "receive from": connection.receive,
        }
        for attempt, call in calls.items():
            with pytest.raises(LuwuError) as raised:
                call()
            is_gone = code in {*GONE, errno.EBADF}
            assert isinstance(raised.value, GoneError) == is_gone
            said = "worker 2 is gone" if is_gone else f"{attempt} worker 2: {os.strerror(code)}"
            assert str(raised.value) == said


def test_a_value_that_is_cut_off_is_of_a_peer_that_is_gone() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        end: Any = _Tcp(ours)
        connection = Connection(end, "worker 2")
        theirs.sendall(b'{"dtype": "float32", "bytes": 8}\n1234')
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(GoneError, match=r"^worker 2 is gone$"):
            connection.receive()


class _Tcp:
    """A local socket that takes the options of TCP, and ignores them."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def setsockopt(self, *_: int) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._end, name)
