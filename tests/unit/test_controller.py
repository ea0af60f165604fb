"""The controller's decisions, and its fabric against a switch in memory that executes the changes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from controller.conductor import Conductor
from controller.flows import Flow, circuits_of, oxc_flows, routes_of, tor_flows
from controller.model import Model
from controller.planes import Plane
from controller.switch import Switch, _Asked
from testbed.errors import RequestError, SettingError, TestbedError
from testbed.ocs.circuits import checked, circuit
from testbed.topology import addresses, catalogue
from testbed.topology.load import parse
from testbed.topology.model import Topology
from tests.unit.model_switches import ModelPlane, ModelSwitch, circuits, number

TOPOLOGY = catalogue.ready("default")
ANSWER_S = 10.0


def quick() -> Topology:
    raw = {**catalogue.READY["default"], "ocs": {"switch_ms": 0, "lock_ms": 0}}
    return parse(raw, "quick")


def connected(
    tmp_path: Path,
    plane: Plane | None = None,
    oxc: ModelSwitch | None = None,
    topology: Topology | None = None,
    model: Model | None = None,
) -> tuple[Conductor, dict[int, ModelSwitch]]:
    conductor = Conductor(topology or quick(), plane, tmp_path / "history", model=model)
    switches = {unit.index: ModelSwitch(unit.index) for unit in TOPOLOGY.units}
    switches[addresses.OXC_DPID] = oxc or ModelSwitch(addresses.OXC_DPID)
    for switch in switches.values():
        conductor.connected(switch)  # type: ignore[arg-type]
    return conductor, switches


def test_circuits_read_back_from_flows() -> None:
    circuits = checked([("u1o1", "u2o1"), ("u3o2", "u4o1")], TOPOLOGY.optical_ports)
    flows = oxc_flows(circuits)
    assert circuits_of(flows, TOPOLOGY) == circuits
    half = next(iter(flows))
    assert len(circuits_of(flows - {half}, TOPOLOGY)) == 1, "one direction is no circuit"


def test_every_unit_reaches_every_host_of_every_other() -> None:
    circuits = checked(TOPOLOGY.ocs.circuits, TOPOLOGY.optical_ports)
    for unit, flows in tor_flows(TOPOLOGY, circuits).items():
        routes = routes_of(unit, flows)
        assert {ip for ip, prefix in routes if prefix == 24} == {
            addresses.unit_network(u.index) for u in TOPOLOGY.units if u.index != unit
        }
        assert routes[addresses.host_ip(unit, 1), 32] == (
            (addresses.tor_port_device(unit, 1),),
            addresses.host_mac(unit, 1),
        )


def test_ready_when_all_are_connected_in_any_order(tmp_path: Path) -> None:
    conductor, switches = connected(tmp_path)
    assert conductor.state.is_ready
    assert all(switch.held for switch in switches.values())
    conductor.disconnected(switches[2])  # type: ignore[arg-type]
    assert not conductor.state.is_ready


def test_a_reconfiguration_touches_only_what_changes(tmp_path: Path) -> None:
    plane = ModelPlane()
    conductor, switches = connected(tmp_path, plane)
    plane.touched.clear()
    oxc = switches[addresses.OXC_DPID]
    oxc.log.clear()
    event = conductor.request([(1, 3), (2, 3)])
    assert event is not None
    assert plane.touched == {number(port) for port in event.ports}
    untouched = {tuple(c) for c in circuits(conductor)} - {tuple(c) for c in event.added}
    assert untouched, "some circuits stay"
    moved = {flow.in_port for gone, come in oxc.log for flow in gone | come}
    assert moved <= plane.touched
    assert plane.peers == {flow.in_port: flow.out_port for flow in oxc.held}
    assert conductor.request([(1, 3), (2, 3)]) is None, "what is there already needs no reconfiguration"
    assert plane.routes[1][addresses.unit_network(3), 24][0][0].startswith("u1-o")


def test_a_new_controller_takes_over_without_a_change(tmp_path: Path) -> None:
    plane = ModelPlane()
    first, switches = connected(tmp_path, plane)
    first.request([(1, 3), (2, 3)])
    held = {dpid: switch.held for dpid, switch in switches.items()}
    plane.touched.clear()
    second = Conductor(quick(), plane, tmp_path / "history")
    for switch in switches.values():
        switch.log.clear()
        second.connected(switch)  # type: ignore[arg-type]
    assert circuits(second) == circuits(first)
    assert second.state.history == first.state.history
    assert {dpid: switch.held for dpid, switch in switches.items()} == held
    assert not any(switch.log for switch in switches.values())
    assert not plane.touched


def test_a_half_written_history_line_does_not_stop_it(tmp_path: Path) -> None:
    history = tmp_path / "history"
    history.write_text(json.dumps({"id": 1}) + "\n" + '{"id": 2, "ti')
    assert [event.id for event in Conductor(quick(), None, history).state.history] == [1]


def test_a_switch_that_keeps_another_flow_is_told_twice_and_an_error(tmp_path: Path) -> None:
    class Deaf(ModelSwitch):
        def change(self, remove: object, add: object) -> None:
            self.log.append((frozenset(), frozenset()))

    conductor, _ = connected(tmp_path)
    deaf = Deaf(2)
    with pytest.raises(SettingError, match="switch 0x2: 7 flows missing and 0 too many"):
        conductor.connected(deaf)  # type: ignore[arg-type]
    assert len(deaf.log) == 2
    assert not conductor.state.is_ready


def test_wrong_circuits_change_nothing(tmp_path: Path) -> None:
    conductor, _ = connected(tmp_path)
    before = circuits(conductor)
    with pytest.raises(RequestError):
        conductor.apply([["u1o1", "u1o1"]])
    assert circuits(conductor) == before


def test_circuits_that_are_there_are_taken_over_whatever_the_history_says(tmp_path: Path) -> None:
    lit = checked([("u1o1", "u3o1"), ("u2o2", "u4o2")], TOPOLOGY.optical_ports)
    oxc = ModelSwitch(addresses.OXC_DPID, oxc_flows(lit))
    conductor, _ = connected(tmp_path, oxc=oxc)
    assert {tuple(c) for c in circuits(conductor)} == {c.ports for c in lit}
    assert not oxc.log


def test_an_empty_optical_switch_gets_the_circuits_last_decided(tmp_path: Path) -> None:
    first, _ = connected(tmp_path)
    first.request([(1, 3)])
    second, switches = connected(tmp_path)
    assert circuits(second) == circuits(first)
    assert circuits_of(switches[addresses.OXC_DPID].held, TOPOLOGY) == {
        circuit(a, b) for a, b in circuits(first)
    }


def test_a_circuit_that_was_lost_without_a_change_leaves_its_ports_to_a_later_one(tmp_path: Path) -> None:
    """The history's first change begins with fewer circuits than the initial ones."""
    lost, new = {circuit("u1o1", "u2o1"), circuit("u2o2", "u3o1")}, circuit("u1o1", "u3o1")
    left = checked(TOPOLOGY.ocs.circuits, TOPOLOGY.optical_ports) - lost
    first, _ = connected(tmp_path, oxc=ModelSwitch(addresses.OXC_DPID, oxc_flows(left)))
    first.apply(c.ports for c in (*left, new))
    second, _ = connected(tmp_path)
    assert circuits(second) == circuits(first)
    assert second.state.current == left | {new}


def test_a_change_that_failed_half_way_is_made_good_by_the_next(tmp_path: Path) -> None:
    plane = ModelPlane()
    conductor, switches = connected(tmp_path, plane)
    oxc = switches[addresses.OXC_DPID]

    def refuse(remove: object, add: object) -> None:
        raise TestbedError("the switch refuses")

    oxc.change = refuse  # type: ignore[method-assign]
    with pytest.raises(TestbedError, match="refuses"):
        conductor.request([(1, 3)])
    assert not conductor.state.is_ready
    assert conductor.state.dark == ()
    assert conductor.state.history == ()
    del oxc.change
    conductor.request([(1, 2)])
    assert conductor.state.is_ready
    initial = checked(TOPOLOGY.ocs.circuits, TOPOLOGY.optical_ports)
    assert {tuple(c) for c in circuits(conductor)} == {c.ports for c in initial}
    assert plane.peers == {flow.in_port: flow.out_port for flow in oxc.held}


def test_a_switch_that_failed_is_brought_there_without_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conductor, switches = connected(tmp_path, ModelPlane())
    oxc, ended = switches[addresses.OXC_DPID], threading.Event()

    def silent(remove: object, add: object) -> None:
        raise TestbedError("no answer in 10 s")

    oxc.change = silent  # type: ignore[method-assign]
    with pytest.raises(TestbedError, match="no answer"):
        conductor.request([(1, 3)])
    assert conductor.state.lacks == ("oxc is not read back (no answer in 10 s)",)
    tried = threading.Event()

    def lost() -> frozenset[Flow]:
        tried.set()
        raise OSError("whatever a switch's conversation raises")

    oxc.flows = lost  # type: ignore[method-assign]
    monkeypatch.setattr("controller.conductor.OVERDUE_S", 0.01)
    with ThreadPoolExecutor(1) as pool:
        settling = pool.submit(conductor.settle_overdue, ended)
        assert tried.wait(ANSWER_S)
        del oxc.change, oxc.flows
        deadline = time.monotonic() + ANSWER_S
        while not conductor.state.is_ready and time.monotonic() < deadline:
            time.sleep(0.01)
        ended.set()
        settling.result(ANSWER_S)
    assert conductor.state.is_ready


def test_one_switch_that_connects_does_not_read_back_the_others(tmp_path: Path) -> None:
    conductor, switches = connected(tmp_path)

    def asked() -> frozenset[Flow]:
        raise AssertionError("u1 was asked although only u2 came")

    def change(remove: object, add: object) -> None:
        asked()

    switches[1].flows, switches[1].change = asked, change  # type: ignore[method-assign]
    conductor.connected(ModelSwitch(2))  # type: ignore[arg-type]


def test_routes_and_trees_by_name(tmp_path: Path) -> None:
    conductor, _ = connected(tmp_path)
    routes = conductor.state.routes()
    assert routes["u1"]["10.0.1.3/32"] == "u1-h3"
    assert routes["u1"]["10.0.2.0/24"] == "u1-o1"
    assert conductor.state.tree(1, [2, 1])[1] == [(1,)]
    with pytest.raises(RequestError, match="u9: no such unit; there are u1 to u4"):
        conductor.state.tree(1, [9])


class Recording(Switch):
    """The real conversation up to the messages, which it writes down instead of sending them."""

    def __init__(self) -> None:
        class Connection:
            class ofproto:
                OFPFC_DELETE_STRICT, OFPFC_ADD = 4, 0

            class ofproto_parser:
                @staticmethod
                def OFPBarrierRequest(connection: object) -> str:
                    return "barrier"

            id = 3

            def __init__(self, sent: list[object]) -> None:
                self.sent = sent

            def encoded(
                self, make: Callable[..., object], each: Iterable[tuple[object, ...]]
            ) -> list[object]:
                return [make(*of) for of in each]

            def send_all(self, messages: Iterable[object]) -> None:
                self.sent.extend(messages)

        self.sent: list[object] = []
        super().__init__(Connection(self.sent))

    def _modification(self, flow: Flow, command: int, cookie: int) -> object:
        return (command, flow)

    def _begin(self, request: object) -> _Asked:
        self.sent.append(request)
        return _Asked(0)

    def _finish(self, asked: _Asked, what: str) -> list[object]:
        return []


def test_a_changed_flow_is_replaced_and_not_deleted_before() -> None:
    switch = Recording()
    old, new = (Flow(100, out_port=port, ip="10.0.3.0", prefix=24) for port in (201, 202))
    gone = Flow(100, out_port=201, ip="10.0.4.0", prefix=24)
    switch.change([old, gone], [new])
    assert switch.sent == [(4, gone), (0, new), "barrier"]


def test_a_transceiver_that_fails_to_lock_keeps_its_circuit_dark_and_is_counted(tmp_path: Path) -> None:
    ocs = {"switch_ms": 1, "lock_ms": 1, "retry_ms": 3, "ports": {"u1o1": {"lock_failure": 0.9}}}
    topology = parse({**catalogue.READY["default"], "ocs": ocs}, "failing")
    plane = ModelPlane()
    conductor, _ = connected(tmp_path, plane, topology=topology)
    straight, crossed = [["u1o1", "u3o1"], ["u2o1", "u4o1"]], [["u1o1", "u4o1"], ["u2o1", "u3o1"]]
    total = 0
    for event in filter(None, (conductor.apply(pairs) for pairs in (straight, crossed) * 2)):
        failures = event.failed_locks.get("u1o1", 0)
        total += failures
        slow, fast = event.circuits_ms.values()
        assert (slow, fast) == (2 + 3 * failures, 2), event
        assert (event.asked_ms, event.switch_ms, event.lock_ms) == (slow, 1, slow - 1)
        peers, dark_ns = plane.asked
        assert isinstance(dark_ns, tuple)
        of_ports = dict(zip(peers, dark_ns, strict=True))
        slow_ends = {number("u1o1"), peers[number("u1o1")]}
        assert {of_ports[port] for port in slow_ends} == {slow * 1e6}, "both ends, until the slower is there"
        assert {of_ports[port] for port in (number("u2o1"), peers[number("u2o1")])} == {2e6}
        assert failures == 0 or plane.watched in slow_ends, "the longest darkness is the one that is measured"
    assert total > 0
    assert conductor.state.failed_locks == {"u1o1": total}
    assert replace(conductor.state, history=()).failed_locks == {"u1o1": total}, "nothing is counted again"
    again = Conductor(topology, plane, tmp_path / "history")
    assert again.state.failed_locks == {"u1o1": total}


def test_the_history_says_what_the_planes_of_a_change_drew(tmp_path: Path) -> None:
    planes = {"mems": {"switch_ms": 3}, "fast": {"switch_ms": 0.02, "lock_ms": 0.5}}
    raw = {
        **catalogue.READY["default"],
        "optical_ports": {"mems": 1, "fast": 1},
        "ocs": {"switch_ms": 10, "lock_ms": 1, "planes": planes, "circuits": [["u1o2", "u2o2"]]},
    }
    conductor, _ = connected(tmp_path, ModelPlane(), topology=parse(raw, "planes"))

    def parts(*pairs: list[str]) -> tuple[float, float, float]:
        event = conductor.apply(list(pairs))
        assert event
        return event.asked_ms, event.switch_ms, event.lock_ms

    assert parts(["u1o2", "u3o2"]) == (0.52, 0.02, 0.5)
    assert parts(["u1o1", "u2o1"], ["u1o2", "u2o2"]) == (4, 3, 1), "the circuit that is lit last"
    assert parts(["u1o1", "u2o1"]) == (0.52, 0.02, 0.5), "nothing new is lit, and only this plane turns"
