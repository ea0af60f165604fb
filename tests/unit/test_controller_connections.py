"""The controller with switches that come, go and come back: by which connection one is spoken to, and when
one counts as connected.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.adapter import API
from controller.app import DEAD, MAIN, SwitchesApp
from controller.conductor import Conductor
from controller.flows import Flow
from controller.steps import Came, Event
from controller.switch import Switch
from testbed.errors import TestbedError
from testbed.topology.addresses import OXC_DPID
from testbed.topology.load import parse
from tests.unit.model_switches import ModelSwitch

ANSWER_S = 10.0  # less than turned() waits
RACK = parse({"units": [{"hosts": 1}]}, "rack")


class Mortal(ModelSwitch):
    """A switch that answers while its connection lasts."""

    def flows(self) -> frozenset[Flow]:
        if self.is_gone:
            raise TestbedError("ask switch 0x1 for flow statistics: it disconnected")
        return self.held


def end(conductor: Conductor, switch: Mortal) -> None:
    """The end of a connection, as the application hears of it."""
    switch.is_gone = True
    conductor.disconnected(switch)  # type: ignore[arg-type]


def come(conductor: Conductor) -> Mortal:
    switch = Mortal(1)
    conductor.connected(switch)  # type: ignore[arg-type]
    return switch


def test_the_end_of_an_old_connection_leaves_the_new_one(tmp_path: Path) -> None:
    conductor = Conductor(RACK, None, tmp_path / "history")
    old = come(conductor)
    new = Mortal(1, old.held)
    conductor.connected(new)  # type: ignore[arg-type]
    end(conductor, old)
    assert conductor.state.is_ready
    assert not new.log


def test_who_waits_for_all_switches_is_called_once(tmp_path: Path) -> None:
    called: list[bool] = []
    topology = parse({"units": [{"hosts": 1}] * 2, "optical_ports": 1}, "two")
    conductor = Conductor(
        topology, None, tmp_path / "history", lambda: called.append(conductor.state.is_ready)
    )
    for number, dpid in enumerate((1, 2, OXC_DPID, 1)):
        conductor.connected(ModelSwitch(dpid))  # type: ignore[arg-type]
        assert called == [True] * (number >= 2)


def test_a_switch_whose_connection_ends_before_its_turn_comes_is_not_connected(tmp_path: Path) -> None:
    """While a change goes on, whoever connects waits for it."""
    conductor = Conductor(RACK, None, tmp_path / "history")
    switch = Mortal(1)
    with ThreadPoolExecutor(1) as pool:
        with conductor._busy:
            waiting = pool.submit(conductor.connected, switch)  # type: ignore[arg-type]
            end(conductor, switch)
        with pytest.raises(TestbedError, match=r"^set switch 0x1: it disconnected$"):
            waiting.result(60)
    assert conductor.state.connected == frozenset()
    come(conductor)
    assert conductor.state.is_ready


def test_a_connection_that_ends_before_its_turn_comes_leaves_the_one_before_it(tmp_path: Path) -> None:
    conductor = Conductor(RACK, None, tmp_path / "history")
    first, second = come(conductor), Mortal(1)
    end(conductor, second)
    with pytest.raises(TestbedError, match="it disconnected"):
        conductor.connected(second)  # type: ignore[arg-type]
    assert conductor.state.is_ready
    end(conductor, first)
    assert conductor.state.connected == frozenset()


def test_a_connection_that_ends_while_it_is_taken_up_is_decided_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application's thread brings the end at the worst moment, between the switch's entry and the
    decision that it has come.
    """
    conductor = Conductor(RACK, None, tmp_path / "history")
    switch, decided = Mortal(1), conductor._decide
    ending = threading.Thread(target=end, args=(conductor, switch))

    def decide(event: Event) -> Any:
        if isinstance(event, Came):
            ending.start()
            ending.join(0.2)  # not over then: it waits for this decision
        return decided(event)

    monkeypatch.setattr(conductor, "_decide", decide)
    with pytest.raises(TestbedError, match=r"it (is not |dis)connected"):
        conductor.connected(switch)  # type: ignore[arg-type]
    ending.join(60)
    assert conductor.state.connected == frozenset()


def test_switches_that_come_while_something_goes_on_are_brought_there_side_by_side(tmp_path: Path) -> None:
    """Each waits, when its flows are read, for the two others to be read, too; the optical one came last."""
    together = threading.Barrier(3)

    class Patient(ModelSwitch):
        def flows(self) -> frozenset[Flow]:
            together.wait(ANSWER_S)
            return self.held

    topology = parse({"units": [{"hosts": 1}] * 3, "optical_ports": 1}, "three")
    conductor = Conductor(topology, None, tmp_path / "history")
    optical = ModelSwitch(OXC_DPID)
    with ThreadPoolExecutor(4) as pool:
        with conductor._busy:
            asked = [
                pool.submit(conductor.connected, switch) for switch in (*map(Patient, (1, 2, 3)), optical)
            ]  # type: ignore[arg-type]
            while len(conductor._arrived) < 4:
                time.sleep(0.001)
        for waiting in asked:
            waiting.result(60)
    assert conductor.state.is_ready


class Recorded:
    """Stands in for the conductor: the switches that came, and those that went."""

    def __init__(self) -> None:
        self.came: list[Switch] = []
        self.went: list[Switch] = []
        self.carrying: dict[int, set[int]] = {}
        self.heard = threading.Semaphore(0)

    def carriers(self, dpid: int, ports: set[int]) -> None:
        self.carrying[dpid] = set(ports)

    def connected(self, switch: Switch) -> None:
        self.came.append(switch)
        self.heard.release()

    def disconnected(self, switch: Switch) -> None:
        assert switch.is_gone
        self.went.append(switch)


class Connection:
    """The part of a connection that the application asks about."""

    def __init__(self, dpid: int) -> None:
        self.id = dpid
        self.ofproto = API.protocol
        self.ports = {number: port(number) for number in (1, 2)}


def port(number: int, state: int = 0) -> SimpleNamespace:
    return SimpleNamespace(port_no=number, state=state)


def test_each_connection_of_a_switch_has_its_own_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch comes back, and goes again, before the end of its first connection is heard of."""
    conductor = Recorded()
    monkeypatch.setattr(SwitchesApp, "conductor", conductor, raising=False)
    application = SwitchesApp()
    connections = [Connection(1), Connection(1)]
    for connection in connections:
        application.on_state(SimpleNamespace(datapath=connection, state=MAIN))
        assert conductor.heard.acquire(timeout=60)
    first, second = conductor.came
    for connection in reversed(connections):
        application.on_state(SimpleNamespace(datapath=connection, state=DEAD))
    assert conductor.went == [second, first]
    application.on_state(SimpleNamespace(datapath=Connection(2), state=DEAD))  # one that never got so far
    assert conductor.went == [second, first]


def test_ports_without_carrier_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A status from a connection that has ended is late, and is not used."""
    conductor = Recorded()
    monkeypatch.setattr(SwitchesApp, "conductor", conductor, raising=False)
    application, protocol = SwitchesApp(), API.protocol
    connection, late = Connection(1), Connection(1)
    connection.ports[3] = port(3, protocol.OFPPS_LINK_DOWN)
    application.on_state(SimpleNamespace(datapath=connection, state=MAIN))
    assert conductor.carrying == {1: {1, 2}}

    def status(reason: int, desc: SimpleNamespace, datapath: Connection = connection) -> set[int]:
        message = SimpleNamespace(datapath=datapath, reason=reason, desc=desc)
        application.on_port(SimpleNamespace(msg=message))
        return conductor.carrying[1]

    assert status(protocol.OFPPR_MODIFY, port(3, protocol.OFPPS_LIVE)) == {1, 2, 3}
    assert status(protocol.OFPPR_MODIFY, port(1, protocol.OFPPS_LINK_DOWN)) == {2, 3}
    assert status(protocol.OFPPR_DELETE, port(2)) == {3}
    assert status(protocol.OFPPR_ADD, port(2)) == {2, 3}
    assert status(protocol.OFPPR_DELETE, port(3), late) == {2, 3}


def test_a_wait_for_a_switch_ends_with_its_connection() -> None:
    class Silent:
        id = 5

        def __init__(self) -> None:
            self.asked = threading.Event()

        def set_xid(self, request: SimpleNamespace) -> None:
            request.xid = 7

        def send_msg(self, request: SimpleNamespace) -> None:
            self.asked.set()

    silent = Silent()
    switch = Switch(silent)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: switch._finish(switch._begin(SimpleNamespace(xid=None)), "a barrier"))
        assert silent.asked.wait(60)
        switch.handle_end()
        with pytest.raises(TestbedError, match="switch 0x5 for a barrier: it disconnected"):
            waiting.result(60)


def test_who_waits_for_a_turn_is_answered_at_the_end(tmp_path: Path) -> None:
    """Else the end of the controller would wait for the answer."""
    conductor = Conductor(RACK, None, tmp_path / "history")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(conductor.turned, 0)
        conductor.finish()
        assert waiting.result(timeout=ANSWER_S) == 0
