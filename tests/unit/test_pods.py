"""Units that are pods: packets get to every host and come round to no switch twice, trees go by ToRs and pod
switches, and results go down again to every worker.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.flows import routes_of, tor_flows
from controller.state import begin
from testbed.aggregation.forest import Forest, Node, Tree, below_top, meeting_switch
from testbed.aggregation.messages import site_from_json, site_to_json
from testbed.aggregation.result_ports import ways
from testbed.aggregation.site import Site, racks_of
from testbed.emulation.parts import parts
from testbed.errors import RequestError
from testbed.jobs.placement import draw_workers, parse_place, place_workers
from testbed.ocs.circuits import Circuit, checked
from testbed.topology import addresses
from testbed.topology.addresses import Dpid, in_rack, tor_dpid, tor_name
from testbed.topology.catalogue import ready
from testbed.topology.load import parse
from testbed.topology.model import Topology
from testbed.topology.places import Host, Place, at_host, at_tor, switch

PODS = ready("pods")
UNITS = st.fixed_dictionaries(
    {"hosts": st.integers(1, 3), "optical_ports": st.integers(2, 3)}, optional={"racks": st.integers(1, 3)}
)
TOPOLOGIES = st.lists(UNITS, min_size=1, max_size=4).map(lambda units: parse({"units": units}, "some"))
CORED = st.lists(
    st.fixed_dictionaries(
        {"hosts": st.integers(1, 2), "optical_ports": st.integers(0, 2)},
        optional={"racks": st.integers(1, 2)},
    ),
    min_size=2,
    max_size=5,
).map(lambda units: parse({"units": units, "core": {}}, "cored"))


def lit(topology: Topology) -> frozenset[Circuit]:
    return checked(topology.ocs.circuits, topology.optical_ports)


def ends(topology: Topology, circuits: frozenset[Circuit]) -> dict[str, str]:
    """Return what is at the other end of each device of a switch: a switch's device, or a host."""
    made: dict[str, str] = {}
    for wire in parts(topology).wires:
        made |= {wire.b.device: wire.a.namespace or wire.a.device, wire.a.device: wire.b.device}
    for each in circuits:
        a, b = (addresses.optical_device(*addresses.parse_optical_port(port)) for port in each.ports)
        made |= {a: b, b: a}
    return made


class World:
    """A topology's switches, with the routes that the controller gives them."""

    def __init__(self, topology: Topology) -> None:
        circuits = lit(topology)
        self.topology, self.ends = topology, ends(topology, circuits)
        flows = tor_flows(topology, circuits)
        self.routes = {dpid: routes_of(dpid, flows[dpid]) for dpid in flows}
        self.at = {device.device: device.dpid for device in parts(topology).switch_devices}
        state = begin(topology, has_plane=True).with_circuits(circuits)
        names = {unit.name: unit.index for unit in topology.units}
        self.ask = lambda op, root, members: {
            str(unit): ports for unit, ports in state.tree(names[root], [names[m] for m in members]).items()
        }

    def next(self, dpid: Dpid, ip: str) -> str | None:
        """Return the device by which a switch sends to an address, by its longest prefix."""
        number = int(ipaddress.ip_address(ip))
        for prefix in (32, 24, 0):
            network = str(ipaddress.ip_address(number >> (32 - prefix) << (32 - prefix)))
            if (network, prefix) in self.routes[dpid]:
                return self.routes[dpid][network, prefix][0][-1]
        return None

    def walk(self, dpid: Dpid, ip: str) -> tuple[list[Dpid], str | None]:
        """Return the switches by which a packet for an address gets on, and the host where it comes out; None
        where no switch goes on with it.
        """
        passed = [dpid]
        while device := self.next(passed[-1], ip):
            other = self.ends[device]
            if other not in self.at:
                return passed, other
            if self.at[other] in passed:
                raise AssertionError(f"{ip} comes round to {tor_name(self.at[other])}")
            passed.append(self.at[other])
        return passed, None


@given(TOPOLOGIES)
def test_every_host_reaches_every_host_and_nothing_goes_round(topology: Topology) -> None:
    world = World(topology)
    for a in topology.hosts:
        for b in topology.hosts:
            passed, came = world.walk(addresses.tor_of(*a), addresses.host_ip(*b))
            assert came == addresses.host_name(*b)
            assert passed[-1] == addresses.tor_of(*b)
        for dpid in topology.switches:
            passed, came = world.walk(addresses.tor_of(*a), addresses.tor_ip(dpid))
            assert (passed[-1], came) == (dpid, None)
    for ip in ("10.0.1.199", "10.1.1.199", "10.9.1.1", "10.0.77.1", "10.3.77.1", "192.0.2.1"):
        for dpid in topology.switches:
            assert world.walk(dpid, ip)[1] is None


@given(CORED)
def test_over_circuits_or_a_core_every_host_reaches_every_host_and_nothing_goes_round(
    topology: Topology,
) -> None:
    world, direct = World(topology), {each.units for each in lit(topology)}
    for a in topology.hosts:
        for b in topology.hosts:
            passed, came = world.walk(addresses.tor_of(*a), addresses.host_ip(*b))
            assert came == addresses.host_name(*b)
            pair = (min(a[0], b[0]), max(a[0], b[0]))
            apart = a[0] != b[0] and pair not in direct
            assert (addresses.CORE_DPID in passed) == apart, "a circuit before the core, that before a detour"
            assert {addresses.tor_unit(dpid) for dpid in passed} <= {a[0], b[0], addresses.CORE_UNIT}
    for ip in ("10.0.1.199", "10.1.1.199", "10.0.77.1", "10.0.251.254", "192.0.2.1"):
        for dpid in topology.switches:
            assert world.walk(dpid, ip)[1] is None


@given(CORED)
def test_over_a_core_results_come_down_to_every_worker_once(topology: Topology) -> None:
    world, workers = World(topology), topology.hosts
    tree = below_top(workers, at_tor(topology.units[-1].switches[0]))
    (going_on,) = ways(Forest(workers, (tree,)), world.ask)
    came: list[Dpid] = []
    todo = [topology.units[-1].switches[0]]
    while todo:
        came.append(todo.pop())
        for bundle in going_on.get(came[-1], ()):
            todo += [world.at[world.ends[bundle[-1]]]]
    assert len(came) == len(set(came))
    assert {addresses.tor_of(*host) for host in workers} <= set(came)


def test_a_change_of_circuits_leaves_the_racks_of_pods_alone() -> None:
    before = tor_flows(PODS, lit(PODS))
    after = tor_flows(PODS, checked([("u1o1", "u3o1")], PODS.optical_ports))
    changed = {tor_name(dpid) for dpid in before if before[dpid] != after[dpid]}
    assert changed == {"u1", "u2", "u3"}


def test_a_change_of_circuits_makes_nothing_anew_for_the_racks_of_many_pods() -> None:
    """There are more ToRs than twice as many as units could be: what is kept is by switch."""
    topology = parse({"units": [{"hosts": 1, "optical_ports": 2, "racks": 64}] * 8}, "many")
    before, after = (
        tor_flows(topology, checked([pair], topology.optical_ports))
        for pair in (("u1o1", "u2o1"), ("u1o1", "u3o1"))
    )
    routes = {dpid: routes_of(dpid, before[dpid]) for dpid in before}
    anew = {tor_name(dpid) for dpid in before if after[dpid] is not before[dpid]}
    anew |= {tor_name(dpid) for dpid in before if routes_of(dpid, after[dpid]) is not routes[dpid]}
    assert anew == {"u1", "u2", "u3"}


def test_links_of_a_pod_have_their_own_rate_and_the_name_of_their_tor() -> None:
    wires = {wire.name: wire for wire in parts(PODS).wires}
    assert {name: wires[name].rate_mbps for name in ("u1r1h1", "u1r1", "u2r2", "u1o1", "u3h1")} == {
        "u1r1h1": 200.0,
        "u1r1": 400.0,
        "u2r2": 400.0,
        "u1o1": 200.0,
        "u3h1": 200.0,
    }
    assert (wires["u1r2"].a.device, wires["u1r2"].b.device) == ("u1r2-up", "u1-r2")


# ---- trees ----


def in_pod(unit: int, rack: int, host: int) -> Host:
    return (unit, in_rack(rack, host))  # type: ignore[return-value]


def shape(node: Node) -> Any:
    """Return a tree in words: a place, its workers, and what is below it."""
    return str(node.place), node.workers, [shape(child) for child in node.below]


TWO_RACKS = (in_pod(1, 1, 1), in_pod(1, 1, 2), in_pod(1, 2, 1))
TWO_PODS = (*TWO_RACKS, in_pod(2, 1, 1), in_pod(2, 2, 1))


def test_trees_go_by_the_tors_and_the_pod_switch() -> None:
    one_rack = TWO_RACKS[:2]
    assert str(meeting_switch(one_rack)) == "u1r1"
    assert shape(below_top(one_rack, meeting_switch(one_rack)).top) == ("u1r1", (0, 1), [])
    two = shape(below_top(TWO_RACKS, meeting_switch(TWO_RACKS)).top)
    assert two == ("u1", (), [("u1r1", (0, 1), []), ("u1r2", (2,), [])])
    across = shape(below_top(TWO_PODS, at_host((3, 1))).top)  # type: ignore[arg-type]
    pods = [
        ("u1", (), [("u1r1", (0, 1), []), ("u1r2", (2,), [])]),
        ("u2", (), [("u2r1", (3,), []), ("u2r2", (4,), [])]),
    ]
    assert across == ("u3h1", (), pods)
    below_a_pod = shape(below_top(TWO_PODS, switch(1)).top)  # type: ignore[arg-type]
    assert below_a_pod == ("u1", (), [*pods[0][2], pods[1]])
    with pytest.raises(RequestError, match="workers in 2 units; the switch of one unit is asked for"):
        meeting_switch(TWO_PODS)


def test_what_meets_in_a_queue_of_a_pod() -> None:
    def meeting(workers: tuple[Host, ...], top: Place) -> int:
        return Forest(workers, (below_top(workers, top),)).meeting()

    assert meeting(TWO_RACKS, switch(1)) == 1, "each ToR has a port of its own"  # type: ignore[arg-type]
    assert meeting(TWO_PODS, switch(1)) == 1  # type: ignore[arg-type]
    everybody = Forest(TWO_RACKS, (below_top(TWO_RACKS, at_host(in_pod(1, 2, 3))),))
    assert everybody.meeting() == 1, "the pod switch's sum alone"
    pushed = Node(switch(1), (0, 1, 2))  # type: ignore[arg-type]
    assert Forest(TWO_RACKS, (Tree(pushed),)).meeting() == 2, "both workers of a rack by its one port"
    up = Node(at_tor(tor_dpid(1, 2)), (2,), (Node(at_tor(tor_dpid(1, 1)), (0, 1)), Node(switch(2), (3, 4))))  # type: ignore[arg-type]
    assert Forest(TWO_PODS, (Tree(up),)).meeting() == 2, "from another rack and another unit, from above"


@st.composite
def forests(draw: st.DrawFn) -> tuple[Topology, Forest]:
    topology = draw(TOPOLOGIES)
    workers = tuple(draw(st.lists(st.sampled_from(topology.hosts), min_size=1, unique=True)))
    tops = [*map(at_tor, topology.switches), *map(at_host, topology.hosts)]
    return topology, Forest(workers, (below_top(workers, draw(st.sampled_from(tops))),))


def spread(world: World, forest: Forest, going_on: Any) -> Iterator[str]:
    """Yield the hosts that a result comes to, as the places' groups multiply it."""
    top = forest.trees[0].top.place
    waiting: list[tuple[Dpid, str | None]] = [(top.tor, None)]
    passed = set()
    while waiting:
        dpid, came_by = waiting.pop()
        assert dpid not in passed, f"a result comes to {tor_name(dpid)} twice"
        passed.add(dpid)
        yield from (addresses.host_name(*h) for h in forest.workers if addresses.tor_of(*h) == dpid)
        for *_, device in going_on.get(dpid, ()):  # of parallel circuits any: they lead to one switch
            if device != came_by:
                other = world.ends[device]
                waiting.append((world.at[other], other))
    assert set(going_on) <= passed, "every switch that is told is on the way"


@given(forests())
def test_results_come_once_to_every_worker(drawn: tuple[Topology, Forest]) -> None:
    topology, forest = drawn
    world = World(topology)
    (way,) = ways(forest, world.ask)
    assert sorted(spread(world, forest, way)) == sorted(addresses.host_name(*h) for h in forest.workers)


@given(forests())
def test_sums_are_where_packets_pass_on_their_way_to_the_top(drawn: tuple[Topology, Forest]) -> None:
    topology, forest = drawn
    world = World(topology)
    above = forest.trees[0].top.above()
    for place, node in above.items():
        passed, came = world.walk(place.tor, node.place.address)
        assert passed[-1] == node.place.tor
        assert came == (None if node.place.is_switch else str(node.place))
    for rank, host in enumerate(forest.workers):
        place = forest.trees[0].node_of(rank).place
        assert place.tor == addresses.tor_of(*host), "a worker pushes to what is at its own switch"


def test_a_pod_within_one_unit_asks_the_controller_nothing() -> None:
    forest = Forest(TWO_RACKS, (below_top(TWO_RACKS, switch(1)),))  # type: ignore[arg-type]
    (way,) = ways(forest, lambda *_, **__: pytest.fail("it was asked"))
    assert way == {tor_dpid(1): [("u1-r1",), ("u1-r2",)]}  # type: ignore[arg-type]


# ---- placement ----


def test_workers_are_placed_in_racks_or_in_any_of_a_pod() -> None:
    racks = racks_of(PODS)

    def placed(text: str | None, *busy: Host) -> list[str]:
        hosts = place_workers(racks, set(busy), None if text is None else parse_place(text))
        return [addresses.host_name(*host) for host in hosts]

    assert placed("u1r2:2,u1r1:1") == ["u1r2h1", "u1r2h2", "u1r1h1"]
    assert placed("u1:4") == ["u1r1h1", "u1r1h2", "u1r1h3", "u1r2h1"]
    assert placed("u1r1:2,u1:2") == ["u1r1h1", "u1r1h2", "u1r1h3", "u1r2h1"], "each host once"
    assert placed("u1:2", in_pod(1, 1, 1)) == ["u1r1h2", "u1r1h3"]
    assert placed(None) == [f"u1r{rack}h{host}" for rack in (1, 2) for host in (1, 2, 3)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("u1r3:1", r"--place u1r3:1: no such rack; accepted are u1 \(2 racks of 3 hosts\), u2"),
        ("u3r1:1", "--place u3r1:1: no such rack"),
        ("u9:1", "--place u9:1: no such unit"),
        ("u1r1:4", "--place u1r1:4: u1r1 has 3 hosts; 3 can be placed there"),
        ("u1r1:1,u1r1:1", "u1r1 is named twice"),
        ("u1r0:1", "accepted is UNIT:WORKERS, such as u1:2,u2:2, and for racks of a pod RACK:WORKERS"),
        ("u1r100:1", "switch u1r100: a name like u1, or u1r1 in a pod, is accepted"),
    ],
)
def test_what_cannot_be_placed_is_one_line(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        place_workers(racks_of(PODS), set(), parse_place(text))
    assert "\n" not in str(caught.value)


def test_queued_workers_are_drawn_in_pods() -> None:
    racks, busy = racks_of(PODS), {in_pod(1, 1, 1), in_pod(1, 2, 1)}
    draw = partial(draw_workers, racks, busy, together=False, ps_unit=None, random=Random(1))
    everybody = draw(10, None)
    assert everybody is not None
    assert len(set(everybody)) == 10
    assert not busy & set(everybody)
    assert draw(11, None) is None, "the cpu rack is for servers"
    assert draw(2, parse_place("u1r2:2")) == [in_pod(1, 2, 2), in_pod(1, 2, 3)]
    assert draw(3, parse_place("u1r2:3")) is None


def test_a_site_s_racks_survive_json() -> None:
    site = Site(racks_of(PODS), frozenset({in_pod(1, 2, 3)}), frozenset())
    assert site_from_json(json.loads(json.dumps(site_to_json(site)))) == site
    assert site.server((in_pod(1, 1, 1),)) == (3, 1)
