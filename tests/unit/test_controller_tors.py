"""The controller with ToRs that no OpenFlow reaches, whose routes a client sets."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from controller.api import Api
from controller.conductor import Conductor
from controller.flows import Routes, routes_of, tor_flows
from controller.planes import MixedPlane
from testbed.client.rpc import Peer
from testbed.errors import RequestError, TestbedError
from testbed.topology import addresses
from testbed.topology.load import parse
from tests.unit.model_switches import ModelPlane, ModelSwitch, circuits, number

ROOT = Peer(0, 0, ())


class ModelRouter:
    """A `simple_switch`'s routes; `gone` while its process is."""

    def __init__(self) -> None:
        self.routes: Routes | None = None
        self.gone = False

    def __call__(self, routes: Routes) -> None:
        if self.gone:
            raise TestbedError("u2's simple_switch: connection refused")
        self.routes = routes


def mixed(tmp_path: Path, *engines: str) -> tuple[Conductor, ModelPlane, ModelRouter, list[ModelSwitch]]:
    """Units with these engines; the router is the last bmv2 unit's. No switch has connected yet."""
    units = [{"hosts": 1, "engine": engine} for engine in engines]
    topology = parse({"units": units, "ocs": {"switch_ms": 0, "lock_ms": 0}}, "mixed")
    plane, router = ModelPlane(), ModelRouter()
    routers = {unit.index: router for unit in topology.units if not unit.data_plane.is_bridge}
    conductor = Conductor(topology, MixedPlane(plane, routers), tmp_path / "history")
    conductor.begin()
    dpids = [unit.index for unit in topology.units if unit.data_plane.is_bridge]
    dpids += [addresses.OXC_DPID] if topology.optical_ports else []
    return conductor, plane, router, [ModelSwitch(dpid) for dpid in dpids]


def test_a_unit_without_openflow_is_ready_when_its_routes_are_set(tmp_path: Path) -> None:
    conductor, plane, router, switches = mixed(tmp_path, "xdp", "bmv2", "xdp")
    for switch in switches:
        assert not conductor.state.is_ready
        conductor.connected(switch)  # type: ignore[arg-type]
    assert conductor.state.is_ready
    assert router.routes == routes_of(
        2, tor_flows(conductor.state.premises.topology, conductor.state.current)[2]
    )
    assert set(plane.routes) == {1, 3}, "the fast path knows nothing of it"


def test_a_single_rack_without_openflow_needs_no_switch_to_connect(tmp_path: Path) -> None:
    conductor, _, router, switches = mixed(tmp_path, "bmv2")
    assert switches == []
    assert conductor.state.is_ready
    assert router.routes == {("10.0.1.1", 32): (("u1-h1",), addresses.host_mac(1, 1))}


def test_a_switch_that_is_gone_costs_the_others_nothing_and_is_ready_when_settled_again(
    tmp_path: Path,
) -> None:
    conductor, plane, router, switches = mixed(tmp_path, "bmv2", "xdp")
    tor, oxc = switches
    router.gone = True
    with pytest.raises(TestbedError, match="connection refused"):
        conductor.connected(oxc)  # type: ignore[arg-type]
    conductor.connected(tor)  # type: ignore[arg-type]
    assert set(plane.routes) == {2}
    assert circuits(conductor)
    assert not conductor.state.is_ready
    router.gone = False
    Api(conductor, "os-ken 4.2.2")(
        {"op": "resettle", "unit": "u1"}, ROOT, lambda event: None, threading.Event()
    )
    assert conductor.state.is_ready


def test_a_switch_that_started_again_is_not_ready_before_it_has_its_routes(tmp_path: Path) -> None:
    conductor, _, router, switches = mixed(tmp_path, "xdp", "bmv2")
    for switch in switches:
        conductor.connected(switch)  # type: ignore[arg-type]
    before, router.routes = router.routes, None
    router.gone = True
    with pytest.raises(TestbedError):
        conductor.resettle(2)
    assert not conductor.state.is_ready
    router.gone = False
    conductor.resettle(2)
    assert conductor.state.is_ready
    assert router.routes == before
    with pytest.raises(RequestError, match="u9: no such unit; there are u1 to u2"):
        conductor.resettle(9)


def test_routes_follow_circuits_at_a_unit_without_openflow(tmp_path: Path) -> None:
    conductor, _, router, switches = mixed(tmp_path, "xdp", "bmv2", "xdp")
    for switch in switches:
        conductor.connected(switch)  # type: ignore[arg-type]
    conductor.apply([["u2o2", "u3o1"], ["u1o1", "u3o2"]])
    assert router.routes is not None
    assert router.routes["10.0.3.0", 24] == (("u2-o2",), "")


def test_a_tor_that_fails_in_a_change_leaves_the_circuits_verified_and_recorded(tmp_path: Path) -> None:
    conductor, plane, router, switches = mixed(tmp_path, "xdp", "bmv2", "xdp")
    for switch in switches:
        conductor.connected(switch)  # type: ignore[arg-type]
    router.gone = True
    with pytest.raises(TestbedError, match="connection refused"):
        conductor.apply([["u2o2", "u3o1"], ["u1o1", "u3o2"]])
    assert not conductor.state.is_ready
    assert conductor.state.unsettled == (2,)
    assert [event.id for event in conductor.state.history] == [1]
    assert plane.peers[number("u1o1")] == number("u3o2")
    assert plane.routes[3]["10.0.1.0", 24] == (("u3-o2",), "")
    router.gone = False
    conductor.resettle(2)
    assert conductor.state.is_ready
    assert conductor.state.unsettled == ()
    assert router.routes is not None
    assert router.routes["10.0.3.0", 24] == (("u2-o2",), "")


def test_a_switch_out_of_reach_at_the_beginning_is_left_to_be_settled_again(tmp_path: Path) -> None:
    topology = parse({"units": [{"hosts": 1, "engine": "bmv2"}]}, "rack")
    router = ModelRouter()
    router.gone = True
    conductor = Conductor(topology, MixedPlane(ModelPlane(), {1: router}), tmp_path / "history")
    conductor.begin()
    assert not conductor.state.is_ready
    assert Api(conductor, "os-ken 4.2.2")(
        {"op": "unsettled"}, ROOT, lambda event: None, threading.Event()
    ) == ["u1"]
    router.gone = False
    conductor.resettle(1)
    assert conductor.state.is_ready


def test_nothing_is_unsettled_before_it_is_known_what_it_should_hold(tmp_path: Path) -> None:
    conductor, _, _, _ = mixed(tmp_path, "xdp", "bmv2")
    assert conductor.state.unsettled == ()
