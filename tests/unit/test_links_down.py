"""Links that go down: routes lead round them, plans leave them out, and both come back."""

from __future__ import annotations

import contextlib
import errno
import itertools
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller import kernel_links
from controller.carriers import LinkEnds
from controller.conductor import Conductor
from controller.flows import tor_flows
from controller.history import LinkLog
from testbed.errors import RequestError, TestbedError
from testbed.ocs.circuits import Circuit, carrying, checked, circuit, ports_of
from testbed.ocs.exact import exact
from testbed.ocs.plan import Plan, plan, plan_planes
from testbed.ocs.routes import Hops, next_hops, tree
from testbed.ocs.using import over_core, used
from testbed.topology import addresses
from testbed.topology.addresses import CORE_DPID, CORE_UNIT, CORE_WAY, OXC_DPID, core_link_name
from testbed.topology.load import parse
from tests.examples import examples
from tests.unit.model_switches import ModelPlane, ModelSwitch, number
from tests.unit.test_controller import connected
from tests.unit.test_ocs import fabrics, ports

RING = checked(
    [("u1o1", "u2o1"), ("u2o2", "u3o1"), ("u3o2", "u4o1"), ("u1o2", "u4o2")],
    [name for names in ports(4, 2).values() for name in names],
)
Fabric = tuple[dict[int, tuple[str, ...]], frozenset[Circuit], list[tuple[int, int]]]


@st.composite
def failing(draw: st.DrawFn) -> tuple[Fabric, frozenset[str]]:
    fabric = draw(fabrics())
    links = [name for names in fabric[0].values() for name in names] + [core_link_name(u) for u in fabric[0]]
    return fabric, frozenset(draw(st.sets(st.sampled_from(links), max_size=5)))


def whole(fabric: Fabric, down: frozenset[str], has_core: bool) -> nx.Graph:
    """What a packet can cross: units, and the core."""
    table, current, _ = fabric
    graph = nx.Graph(c.units for c in current if not {*c.ports} & down)
    graph.add_nodes_from(table)
    graph.add_edges_from((unit, CORE_UNIT) for unit in table if has_core and core_link_name(unit) not in down)
    return graph


def next_unit(current: frozenset[Circuit], hops: Hops, here: int, goal: int) -> int:
    if here == CORE_UNIT:
        way = hops.from_core.get(goal, goal)
        assert way is not None
        return way
    return beyond(current, here, hops[here][goal][0])


def beyond(current: frozenset[Circuit], here: int, port: int) -> int:
    """The unit behind a port, or the core."""
    if port == CORE_WAY:
        return CORE_UNIT
    name = addresses.optical_port_name(here, port)
    (crossed,) = [c for c in current if name in c.ports]
    (far,) = [end for end in crossed.ports if end != name]
    return addresses.parse_optical_port(far)[0]


@settings(max_examples=examples(300))
@given(failing(), st.booleans())
def test_every_packet_gets_where_there_is_a_way_and_crosses_no_link_that_is_down(
    case: tuple[Fabric, frozenset[str]], has_core: bool
) -> None:
    """A packet is followed from switch to switch, each of which decides for itself."""
    (table, current, _), down = case
    graph = whole(case[0], down, has_core)
    hops = next_hops(current, table, has_core, down)
    for unit, goal in itertools.permutations(table, 2):
        assert (goal in hops[unit]) == nx.has_path(graph, unit, goal)
        here, crossed = unit, 0
        while goal in hops[unit] and here != goal:
            then = next_unit(current, hops, here, goal)
            assert graph.has_edge(here, then), "a link that is down"
            here, crossed = then, crossed + 1
            assert crossed <= len(graph), "a loop"


@given(failing())
def test_without_a_core_routes_are_those_of_the_circuits_that_carry(
    case: tuple[Fabric, frozenset[str]],
) -> None:
    (table, current, _), down = case
    assert dict(next_hops(current, table, down=down)) == dict(next_hops(carrying(current, down), table))


@given(fabrics())
def test_a_core_link_that_is_down_changes_nothing_between_other_units(fabric: Fabric) -> None:
    table, current, _ = fabric
    hops = next_hops(current, table, True)
    less = next_hops(current, table, True, {core_link_name(1)})
    for unit, goal in itertools.permutations([unit for unit in table if unit != 1], 2):
        assert less[unit][goal] == hops[unit][goal]
    assert set(less.from_core) <= {1}


@given(failing(), st.booleans())
def test_a_tree_reaches_its_members_round_links_that_are_down(
    case: tuple[Fabric, frozenset[str]], has_core: bool
) -> None:
    (table, current, _), down = case
    graph = whole(case[0], down, has_core)
    members = [unit for unit in nx.node_connected_component(graph, 1) if unit != CORE_UNIT]
    ways = tree(current, table, 1, members, has_core, down)
    reached, todo = set(), [1]
    while todo:
        here = todo.pop()
        assert here not in reached, "twice"
        reached.add(here)
        for bundle in ways.get(here, []):
            todo.append(bundle[0] if here == CORE_UNIT else beyond(current, here, bundle[0]))
            assert graph.has_edge(here, todo[-1]), "a link that is down"
    assert reached - {CORE_UNIT} >= {*members}
    apart = [unit for unit in table if unit not in members]
    if apart:
        with pytest.raises(TestbedError, match="no path over the circuits"):
            tree(current, table, 1, apart, has_core, down or {"u9c"})


@settings(max_examples=examples(200))
@given(failing(), st.booleans())
def test_a_plan_leaves_out_ports_that_are_down(case: tuple[Fabric, frozenset[str]], has_core: bool) -> None:
    (table, current, demands), down = case
    planes = {port: "oxc" for names in table.values() for port in names}
    lacking = {port for pair in demands for unit in pair for port in table[unit] if port in down}
    try:
        planned = plan_planes(current, demands, table, planes, has_core, down)
    except RequestError as error:
        refusal = str(error)
    else:
        check_plan(planned, case[0], down)
        return
    assert lacking
    assert all(port in refusal for port in lacking)


def check_plan(planned: Plan, fabric: Fabric, down: frozenset[str]) -> None:
    _, current, demands = fabric
    assert not {*ports_of(planned.added)} & down
    assert len(ports_of(planned.target)) == 2 * len(planned.target)
    for pair in set(demands):
        count = demands.count(pair) + demands.count(pair[::-1])
        assert sum(c.units == tuple(sorted(pair)) for c in carrying(planned.target, down)) >= count
    for dead in planned.removed - carrying(current, down):
        assert {*dead.ports} & {*ports_of(planned.added)}, "its other port was needed"


def test_the_plan_takes_another_port() -> None:
    table, planes = ports(4, 2), dict.fromkeys(itertools.chain(*ports(4, 2).values()), "oxc")
    planned = plan_planes(RING, [(2, 3)], table, planes, down={"u2o2"})
    assert circuit("u2o1", "u3o1") in planned.added
    with pytest.raises(
        RequestError, match=r"^demands need 2 optical ports of u2; it has 1; u2o2 is down, and no free port$"
    ):
        plan_planes(RING, [(2, 3), (1, 2)], table, planes, down={"u2o2", "u4o1"})
    assert plan_planes(RING, [(2, 3)], table, planes, down={"u9c"}) == plan(RING, [(2, 3)], table)


def test_exactly_so_many_circuits_have_no_new_one_of_a_port_that_is_down() -> None:
    table = ports(3, 2)
    kept = exact(RING, {(2, 3): 1, (1, 3): 1}, table, {"u2o2"})
    assert kept == {circuit("u2o2", "u3o1"), circuit("u1o1", "u3o2")}
    assert exact(frozenset(), {(2, 3): 1}, table, {"u2o1"}) == {circuit("u2o2", "u3o1")}
    with pytest.raises(
        RequestError,
        match=r"^a circuit between u2 and u3 needs an optical port of u2; none is free, and u2o1 is down$",
    ):
        exact(frozenset(), {(2, 3): 2}, table, {"u2o1"})


def test_jobs_use_the_way_round() -> None:
    pairs = {7: [(2, 3)]}
    assert used(RING, [1, 2, 3, 4], pairs) == {7: {circuit("u2o2", "u3o1")}}
    assert used(RING, [1, 2, 3, 4], pairs, down={"u3o1"}) == {7: RING - {circuit("u2o2", "u3o1")}}
    units = [1, 2, 3, 4]
    assert over_core(RING, units, [(1, 3), (1, 2)]) == [1, 3]
    assert over_core(RING, units, [(1, 3), (1, 2)], {"u1o1", "u1c"}) == [2, 4], "u1 by a circuit to u4"
    assert over_core(RING, units, [(1, 3)], {"u1c", "u3c"}) == [], "over circuits alone"
    ways = {7: [(1, 3)]}
    last = frozenset({circuit("u2o2", "u3o1")})
    assert used(last, units, ways, True, {"u3c"}) == {7: last}, "beyond the core too"
    assert over_core(last, units, [(1, 3)], {"u3c"}) == [1, 2]


# ---------------------------------------------------------------- the controller


def test_a_link_is_down_if_either_end_has_no_carrier() -> None:
    ends = LinkEnds(parse({"units": [{"hosts": 2}] * 2, "optical_ports": 2, "core": {}}, "two"))
    assert ends.links == {"u1o1", "u1o2", "u1c", "u2o1", "u2o2", "u2c"}
    optical = {addresses.oxc_port_number(unit, port) for unit in (1, 2) for port in (1, 2)}
    assert ends.down_at(OXC_DPID, optical) == frozenset()
    assert ends.down_at(OXC_DPID, optical - {number("u2o1")}) == {"u2o1"}
    unit = {1, 2, addresses.optical_number(1), addresses.optical_number(CORE_WAY)}
    assert ends.down_at(addresses.tor_dpid(1), unit) == {"u1o2"}
    assert ends.down_at(CORE_DPID, {addresses.core_port_number(1)}) == {"u2c"}
    assert ends.down_at(addresses.tor_dpid(1, 1), set()) == frozenset(), "a ToR's links are the only way"


def devices(plane: ModelPlane, unit: int, goal: int) -> tuple[str, ...]:
    return plane.routes[unit][addresses.unit_network(goal), 24][0]


def carriers(*without: str) -> set[int]:
    names = [name for unit in range(1, 5) for name in (f"u{unit}o1", f"u{unit}o2")]
    return {number(name) for name in names if name not in without}


def follows(conductor: Conductor, switches: dict[int, ModelSwitch], plane: ModelPlane) -> None:
    """Assert that flows and routes are those of the links that are up."""
    state = conductor.state
    wanted = tor_flows(state.premises.topology, state.current, state.down)
    assert all(switches[dpid].held == flows for dpid, flows in wanted.items())
    assert state.is_ready
    assert conductor.state.routes()["u2"]["10.0.3.0/24"] == "+".join(devices(plane, 2, 3))


def test_routes_lead_round_a_link_that_is_down_and_back(tmp_path: Path) -> None:
    plane = ModelPlane()
    conductor, switches = connected(tmp_path, plane)
    circuits, turns = conductor.state.current, conductor.turned(-1)
    plane.touched.clear()
    assert (devices(plane, 2, 3), devices(plane, 3, 2)) == (("u2-o2",), ("u3-o1",))
    for down in ("u2o2", "u3o1"):
        conductor.carriers(OXC_DPID, carriers(down))
        conductor.take_links()
        assert conductor.state.down == {down}
        assert (devices(plane, 2, 3), devices(plane, 3, 2)) == (("u2-o1",), ("u3-o2",))
        follows(conductor, switches, plane)
    conductor.carriers(OXC_DPID, carriers())
    conductor.take_links()
    assert (devices(plane, 2, 3), devices(plane, 3, 2)) == (("u2-o2",), ("u3-o1",))
    follows(conductor, switches, plane)
    assert (conductor.state.current, plane.touched, conductor.state.history) == (circuits, set(), ())
    assert conductor.turned(-1) > turns, "who follows circuits follows links"
    assert [down for _, down in conductor.link_changes()] == [{"u2o2"}, {"u3o1"}, set()]


def test_what_is_set_down_by_hand_counts_until_a_switch_reports_it(tmp_path: Path) -> None:
    conductor, _ = connected(tmp_path, ModelPlane())

    def down() -> set[str]:
        conductor.take_links()
        return {*conductor.state.down}

    conductor.set_by_hand(["u2o2", "u1h1", "u9o9"], False)
    assert down() == {"u2o2"}
    conductor.carriers(OXC_DPID, carriers())  # of before
    assert down() == {"u2o2"}
    conductor.set_by_hand(["u2o2"], True)
    assert down() == set()
    conductor.set_by_hand(["u2o2"], False)
    conductor.carriers(OXC_DPID, carriers("u2o2"))
    conductor.set_by_hand(["u2o2"], True)
    assert down() == {"u2o2"}, "it has no carrier yet"
    conductor.carriers(OXC_DPID, carriers())
    assert down() == set()


def test_a_link_set_down_that_no_switch_reports_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came up before its report: `link set all --down`, and then `ip link set`."""
    conductor, _ = connected(tmp_path, ModelPlane())
    ended = threading.Event()
    conductor.carriers(OXC_DPID, carriers("u2o2"))
    conductor.set_by_hand(["u2o2", "u3o1"], False)
    conductor.carriers(OXC_DPID, carriers())
    monkeypatch.setattr("controller.conductor.BY_HAND_NS", 0)
    following = threading.Thread(target=conductor.follow_links, args=(ended,))
    following.start()
    deadline = time.monotonic() + 60
    while conductor.state.down or conductor._down:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    ended.set()
    following.join(60)


def test_a_request_knows_a_link_that_was_reported_just_before(tmp_path: Path) -> None:
    conductor, _ = connected(tmp_path, ModelPlane())
    conductor.carriers(OXC_DPID, carriers("u2o2"))
    conductor.request([(2, 3)])
    assert conductor.state.down == {"u2o2"}
    assert circuit("u2o1", "u3o1") in (conductor.state.current or ())


def test_a_controller_that_is_started_again_knows_when_links_were_down(tmp_path: Path) -> None:
    conductor, _ = connected(tmp_path, ModelPlane())
    conductor.carriers(OXC_DPID, carriers("u2o2"))
    conductor.take_links()
    before = conductor.link_changes()
    again, _ = connected(tmp_path, ModelPlane())
    again.carriers(OXC_DPID, carriers("u2o2", "u3o1"))
    again.take_links()
    changes = again.link_changes()
    assert changes[: len(before)] == before
    assert [down for _, down in changes] == [{"u2o2"}, set(), {"u2o2", "u3o1"}]
    assert [at_ns for at_ns, _ in changes] == sorted(at_ns for at_ns, _ in changes)
    (tmp_path / "history.links").write_text("\nx y\n5 u1o1\n99999999999999999999 u2o1")
    assert LinkLog(tmp_path / "history.links").read(7) == [(5, {"u1o1"}), (7, frozenset())]


def test_a_new_circuit_of_a_port_that_is_down_is_refused_and_an_old_one_stays(tmp_path: Path) -> None:
    conductor, _ = connected(tmp_path, ModelPlane())
    conductor.set_by_hand(["u2o2"], False)
    conductor.take_links()
    before = conductor.state.current
    with pytest.raises(
        RequestError,
        match=r"^circuit u1o1-u2o2: the link of u2o2 is down; ports whose links are up are accepted$",
    ):
        conductor.apply([("u1o1", "u2o2")])
    assert conductor.state.current == before
    conductor.apply([("u2o2", "u3o1")])
    assert conductor.state.current == {circuit("u2o2", "u3o1")}
    conductor.request([(2, 3)])
    assert conductor.state.current >= {circuit("u2o1", "u3o1")}


def test_a_change_that_waits_for_late_light_does_not_hold_up_routes(tmp_path: Path) -> None:
    """A transceiver that locks late is no failure, and takes seconds; a link that dies meanwhile is one."""
    is_lit, asked = threading.Event(), threading.Event()

    class LatePlane(ModelPlane):
        def lit(self, port: int) -> bool:
            asked.set()
            return is_lit.wait(60)

    plane = LatePlane()
    conductor, switches = connected(tmp_path, plane)
    ended = threading.Event()
    following = threading.Thread(target=conductor.follow_links, args=(ended,))
    with ThreadPoolExecutor(1) as pool:
        try:
            change = pool.submit(conductor.apply, [("u1o1", "u2o1"), ("u2o2", "u3o1"), ("u3o2", "u1o2")])
            assert asked.wait(60)
            assert conductor.state.down == frozenset(), "dark ports have carrier"
            following.start()
            turns = conductor.turned(-1)
            conductor.set_by_hand(["u2o2"], False)
            assert conductor.turned(turns) > turns
            while devices(plane, 2, 3) != ("u2-o1",):
                assert not change.done()
        finally:
            is_lit.set()
            record = change.result(60)
            ended.set()
            if following.ident:
                following.join(60)
    assert record is not None
    assert conductor.state.down == {"u2o2"}
    follows(conductor, switches, plane)


def test_a_core_link_that_is_down_is_gone_round_over_circuits() -> None:
    topology = parse({"units": [{"hosts": 2}] * 3, "optical_ports": 1, "core": {}}, "three")
    lit = checked([("u1o1", "u2o1")], topology.optical_ports)
    up, less = tor_flows(topology, lit), tor_flows(topology, lit, frozenset({"u1c"}))
    core = addresses.optical_number(CORE_WAY)

    def way(flows: Any, dpid: int, goal: int) -> int | None:
        by_ip = {flow.ip: flow.out_port for flow in flows[dpid]}
        out: int | None = by_ip.get(addresses.unit_network(goal))
        return out

    assert (way(up, 1, 3), way(up, 2, 3), way(up, CORE_DPID, 1)) == (core, core, 301)
    assert (way(less, 1, 3), way(less, 2, 3), way(less, 3, 1)) == (addresses.optical_number(1), core, core)
    assert way(less, CORE_DPID, 1) == addresses.core_port_number(2)
    assert less.differing(up) == {1, CORE_DPID}
    alone = tor_flows(topology, lit, frozenset({"u1c", "u2o1"}))
    assert (way(alone, 1, 3), way(alone, CORE_DPID, 1), way(alone, 3, 1)) == (None, None, None)


# ---------------------------------------------------------------- the kernel's reports


def message(kind: int, device: str, flags: int) -> bytes:
    """A message of route netlink about a device, as the kernel writes it."""
    name = device.encode() + b"\0"
    attributes = struct.pack("=HHI", 8, 4, 1500) + struct.pack("=HH", 4 + len(name), 3) + name
    attributes += bytes(-len(attributes) % 4)
    body = struct.pack("=BxHiII", 0, 1, 7, flags, 0) + attributes
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


UP, NO_CARRIER, DOWN = 0x11043, 0x1043, 0x1002  # as veth has them


def test_the_kernel_reports_devices_without_carrier() -> None:
    data = message(16, "x-u2o2", NO_CARRIER) + message(16, "u2-o2", UP) + message(28, "x", UP)
    data += message(16, "u1-h1", DOWN) + message(17, "u1-o1", UP)
    assert list(kernel_links.carriers(data)) == [
        ("x-u2o2", False),
        ("u2-o2", True),
        ("u1-h1", False),
        ("u1-o1", False),
    ]
    assert list(kernel_links.carriers(data[:20])) == []


def test_links_are_down_while_one_of_their_devices_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    heard: list[Any] = [
        message(16, "x-u2o2", NO_CARRIER) + message(16, "u2-h1", NO_CARRIER),
        message(16, "u2-o2", NO_CARRIER),
        TimeoutError(),
        message(16, "x-u2o2", UP),
        message(16, "u2-o2", UP),
        message(17, "u2-o2", UP),
        OSError(errno.ENOBUFS, "some were lost"),
    ]

    class Kernel(contextlib.nullcontext[Any]):
        def __enter__(self) -> Any:
            return self

        def bind(self, address: tuple[int, int]) -> None:
            assert address == (0, 1)

        def settimeout(self, seconds: float) -> None:
            """Do nothing: no answer here is late."""

        def recv(self, size: int) -> bytes:
            now = heard.pop(0)
            if not heard:
                ended.set()
            if isinstance(now, Exception):
                raise now
            data: bytes = now
            return data

    monkeypatch.setattr(kernel_links.socket, "socket", lambda *_: Kernel())
    links = LinkEnds(parse({"units": [{"hosts": 1}] * 2, "optical_ports": 2}, "two")).devices
    told: list[frozenset[str]] = []
    kernel_links.follow(links, told.append, ended)
    assert told == [{"u2o2"}, {"u2o2"}, {"u2o2"}, set(), {"u2o2"}, set()]
