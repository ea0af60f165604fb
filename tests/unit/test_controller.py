"""The controller's decisions, and its fabric against a switch in memory that executes the changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller import policy
from controller.fabric import Fabric
from controller.policy import Flow
from testbed.errors import RequestError, SettingError
from testbed.ocs.circuits import checked
from testbed.topology import addresses, catalogue
from testbed.topology.load import parse
from testbed.topology.model import Topology

TOPOLOGY = catalogue.ready("default")


class ModelSwitch:
    """Holds flows as a switch does, and writes down every change."""

    def __init__(self, dpid: int, flows: frozenset[Flow] = frozenset()) -> None:
        self.dpid, self.held, self.log = dpid, flows, list[tuple[frozenset[Flow], frozenset[Flow]]]()

    def flows(self) -> frozenset[Flow]:
        return self.held

    def change(self, remove: object, add: object) -> None:
        gone, come = frozenset(remove), frozenset(add)  # type: ignore[call-overload]
        self.log.append((gone, come))
        self.held = self.held - gone | come

    def set(self, wanted: frozenset[Flow]) -> None:
        if wanted != self.held:
            self.change(self.held - wanted, wanted - self.held)


class ModelPlane:
    """The fast path on a clock of its own: ports light as soon as they are asked about."""

    def __init__(self) -> None:
        self.peers: dict[int, int] = {}
        self.touched: set[int] = set()
        self.routes: dict[int, policy.Routes] = {}

    def darken(self, ports: object, until_ns: int) -> None:
        self.touched |= set(ports)  # type: ignore[call-overload]

    def connect(self, pairs: object) -> None:
        for a, b in pairs:  # type: ignore[attr-defined]
            self.peers[a], self.peers[b] = b, a
            self.touched |= {a, b}

    def disconnect(self, ports: object) -> None:
        for port in ports:  # type: ignore[attr-defined]
            del self.peers[port]

    def circuits(self) -> dict[int, int]:
        return dict(self.peers)

    def lit(self, port: int) -> bool:
        return port in self.peers

    def set_routes(self, unit: int, routes: policy.Routes) -> None:
        self.routes[unit] = routes


def quick() -> Topology:
    raw = {**catalogue.READY["default"], "ocs": {"switch_ms": 0, "lock_ms": 0}}
    return parse(raw, "quick")


def connected(
    tmp_path: Path, plane: ModelPlane | None = None, oxc: ModelSwitch | None = None
) -> tuple[Fabric, dict[int, ModelSwitch]]:
    fabric = Fabric(quick(), plane, tmp_path / "history")
    switches = {unit.index: ModelSwitch(unit.index) for unit in TOPOLOGY.units}
    switches[addresses.OXC_DPID] = oxc or ModelSwitch(addresses.OXC_DPID)
    for switch in switches.values():
        fabric.connected(switch)  # type: ignore[arg-type]
    return fabric, switches


def number(port: str) -> int:
    return addresses.oxc_port_number(*addresses.parse_optical_port(port))


def test_circuits_read_back_from_flows() -> None:
    circuits = checked([("u1o1", "u2o1"), ("u3o2", "u4o1")], TOPOLOGY.optical_ports)
    flows = policy.oxc_flows(circuits)
    assert policy.circuits_of(flows, TOPOLOGY) == circuits
    half = next(iter(flows))
    assert len(policy.circuits_of(flows - {half}, TOPOLOGY)) == 1, "one direction is no circuit"


def test_every_unit_reaches_every_host_of_every_other() -> None:
    circuits = checked(TOPOLOGY.ocs.circuits, TOPOLOGY.optical_ports)
    for unit, flows in policy.tor_flows(TOPOLOGY, circuits).items():
        routes = policy.routes_of(unit, flows)
        assert {ip for ip, prefix in routes if prefix == 24} == {
            addresses.unit_network(u.index) for u in TOPOLOGY.units if u.index != unit
        }
        assert routes[addresses.host_ip(unit, 1), 32] == (
            addresses.tor_port_device(unit, 1),
            addresses.host_mac(unit, 1),
        )


def test_ready_when_all_are_connected_in_any_order(tmp_path: Path) -> None:
    fabric, switches = connected(tmp_path)
    assert fabric.ready()
    assert all(switch.held for switch in switches.values())
    fabric.disconnected(switches[2])  # type: ignore[arg-type]
    assert not fabric.ready()


def test_a_reconfiguration_touches_only_what_changes(tmp_path: Path) -> None:
    plane = ModelPlane()
    fabric, switches = connected(tmp_path, plane)
    plane.touched.clear()
    oxc = switches[addresses.OXC_DPID]
    oxc.log.clear()
    event = fabric.request([(1, 3), (2, 3)])
    assert event is not None
    assert plane.touched == {number(port) for port in event["ports"]}
    untouched = {tuple(c) for c in fabric.circuits()["circuits"]} - {tuple(c) for c in event["added"]}
    assert untouched, "some circuits stay"
    moved = {flow.in_port for gone, come in oxc.log for flow in gone | come}
    assert moved <= plane.touched
    assert plane.peers == {flow.in_port: flow.out_port for flow in oxc.held}
    assert fabric.request([(1, 3), (2, 3)]) is None, "what is there already needs no reconfiguration"
    assert plane.routes[1][addresses.unit_network(3), 24][0].startswith("u1-o")


def test_a_new_controller_takes_over_without_a_change(tmp_path: Path) -> None:
    plane = ModelPlane()
    first, switches = connected(tmp_path, plane)
    first.request([(1, 3), (2, 3)])
    held = {dpid: switch.held for dpid, switch in switches.items()}
    plane.touched.clear()
    second = Fabric(quick(), plane, tmp_path / "history")
    for switch in switches.values():
        switch.log.clear()
        second.connected(switch)  # type: ignore[arg-type]
    assert second.circuits() == first.circuits()
    assert second.history() == first.history()
    assert {dpid: switch.held for dpid, switch in switches.items()} == held
    assert not any(switch.log for switch in switches.values())
    assert not plane.touched


def test_a_half_written_history_line_does_not_stop_it(tmp_path: Path) -> None:
    history = tmp_path / "history"
    history.write_text(json.dumps({"id": 1}) + "\n" + '{"id": 2, "ti')
    assert [event["id"] for event in Fabric(quick(), None, history).history()] == [1]


def test_a_switch_that_keeps_another_flow_is_an_error() -> None:
    from controller.switch import Switch

    class Deaf(Switch):
        def __init__(self) -> None:
            pass

        dpid = 7

        def flows(self) -> frozenset[Flow]:
            return frozenset()

        def change(self, remove: object, add: object) -> None:
            pass

    with pytest.raises(SettingError, match="switch 0x7: 1 flows missing and 0 too many"):
        Deaf().set(frozenset({Flow(1, 2)}))


def test_wrong_circuits_change_nothing(tmp_path: Path) -> None:
    fabric, _ = connected(tmp_path)
    before = fabric.circuits()
    with pytest.raises(RequestError):
        fabric.apply([["u1o1", "u1o1"]])
    assert fabric.circuits() == before
