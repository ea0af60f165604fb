"""Changes of many flows by further connections, to a bridge that speaks OpenFlow at a socket in memory."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from os_ken.ofproto import ofproto_v1_3, ofproto_v1_3_parser

from controller.flows import COOKIE, Flow
from controller.management import MOST, PER_TURN, Management
from controller.ryu_api import Bundling
from controller.switch import Switch
from testbed.errors import TestbedError

HELLO, ERROR, ECHO, ECHO_REPLY, FLOW_MOD, BARRIER, BARRIER_REPLY = 0, 1, 2, 3, 14, 20, 21
HEAD = struct.Struct("!BBHI")


def message(kind: int, xid: int, body: bytes = b"") -> bytes:
    return HEAD.pack(4, kind, HEAD.size + len(body), xid) + body


class Bridge:
    """It answers barriers, asks for an echo before each, and refuses flow modifications of one body."""

    def __init__(self, path: Path) -> None:
        self.taken: list[list[bytes]] = []  # by connection
        self.refused = b""
        self.echoed = 0
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen(MOST)
        self._ends: list[socket.socket] = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                end, _ = self._listening.accept()
            except OSError:
                return
            self._ends.append(end)
            self.taken.append([])
            threading.Thread(target=self._serve, args=(end, self.taken[-1]), daemon=True).start()

    def _serve(self, end: socket.socket, taken: list[bytes]) -> None:
        with contextlib.suppress(OSError), end, end.makefile("rb") as received:
            end.sendall(message(HELLO, 0))
            while head := received.read(HEAD.size):
                _, kind, length, xid = HEAD.unpack(head)
                body = received.read(length - HEAD.size)
                if kind == FLOW_MOD and body == self.refused:
                    end.sendall(message(ERROR, xid, struct.pack("!HH", 5, 1) + body))
                elif kind == FLOW_MOD:
                    taken.append(body)
                elif kind == ECHO_REPLY:
                    self.echoed += body == b"are you there"
                elif kind == BARRIER:
                    end.sendall(message(ECHO, 7, b"are you there") + message(BARRIER_REPLY, xid))

    def end(self) -> None:
        for end in self._ends:
            end.close()

    def drop(self) -> None:
        """End the connections."""
        for end in self._ends[1:]:
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "oxc.mgmt"


@pytest.fixture
def bridge(path: Path) -> Iterator[Bridge]:
    bridge = Bridge(path)
    yield bridge
    bridge.end()


def bodies(count: int) -> list[bytes]:
    return [struct.pack("!I", number) for number in range(count)]


def modifications(each: list[bytes]) -> list[bytes]:
    return [message(FLOW_MOD, 0, body) for body in each]


@pytest.mark.parametrize("count", [1, PER_TURN, PER_TURN + 1, 5 * PER_TURN, (MOST + 1) * PER_TURN])
def test_no_connection_has_more_than_a_turn_takes(bridge: Bridge, path: Path, count: int) -> None:
    management = Management(path)
    management.open(min(count, 2 * PER_TURN))
    for _ in range(2):
        assert management.send(modifications(bodies(count))) == []
    taken = [body for each in bridge.taken for body in each]
    assert sorted(taken) == sorted(2 * bodies(count))
    assert len(bridge.taken) == min(MOST, -(-count // PER_TURN))
    assert count > MOST * PER_TURN or max(map(len, bridge.taken)) <= 2 * PER_TURN
    management.close()


def test_what_is_refused_is_said(bridge: Bridge, path: Path) -> None:
    bridge.refused = bodies(101)[100]
    said = Management(path).send(modifications(bodies(101)))
    assert said == ["OpenFlow error type 5 code 1"]


def test_an_echo_is_answered(bridge: Bridge, path: Path) -> None:
    management = Management(path)
    for _ in range(3):  # what comes before a barrier's answer is answered by then
        management.send(modifications(bodies(1)))
    assert bridge.echoed >= 2


def test_connections_that_ended_are_made_again_after_a_failure(bridge: Bridge, path: Path) -> None:
    management = Management(path)
    management.send(modifications(bodies(100)))
    bridge.drop()
    with pytest.raises(TestbedError, match="set flows by oxc"):
        management.send(modifications(bodies(100)))
    assert management.send(modifications(bodies(100))) == []


def test_a_bridge_that_is_not_there_is_said(path: Path) -> None:
    management = Management(path)
    management.open(100)
    with pytest.raises(TestbedError, match="No such file"):
        management.send(modifications(bodies(1)))


class Connection(Bundling):
    """The part of a library's connection that encodes."""

    id = 3
    ofproto, ofproto_parser = ofproto_v1_3, ofproto_v1_3_parser

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, piece: bytes) -> None:
        self.sent.append(piece)

    def set_xid(self, request: Any) -> None:
        request.xid = 1

    def send_msg(self, request: Any) -> None:
        switch.handle_reply(request.xid, [], more=False)


switch: Switch


def test_a_large_change_is_encoded_as_a_small_one(bridge: Bridge, path: Path) -> None:
    global switch
    flows = [Flow(100, in_port=number, out_port=0x3000 - number) for number in range(1, 2 * PER_TURN)]
    flows += [
        Flow(200, ip="10.0.1.1", prefix=32, set_mac="02:00:0a:00:01:01", out_port=1),
        Flow(100, ip="10.0.2.0", prefix=24, out_port=2, parallel_ports=(3,)),
    ]
    connection = Connection()
    switch = Switch(connection, Management(path))
    switch.change(flows[:3], flows[2:])
    library = ofproto_v1_3
    each = [(flow, library.OFPFC_DELETE_STRICT, COOKIE) for flow in flows[:2]]
    each += [(flow, library.OFPFC_ADD, COOKIE) for flow in flows[2:]]
    wanted = [encoded[HEAD.size :] for encoded in connection.encoded(switch._modification, each)]
    assert sorted(body for taken in bridge.taken for body in taken) == sorted(wanted)
    assert connection.sent == []
    switch.change(flows[:1], ())
    assert len(connection.sent) == 1, "by the one connection that there is anyway"
