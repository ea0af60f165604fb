"""Circuits, plans and routes: properties on random fabrics."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import RequestError, TestbedError
from testbed.ocs.circuits import Circuit, checked, circuit, ports_of
from testbed.ocs.exact import counted, exact
from testbed.ocs.plan import plan, plan_planes, servable
from testbed.ocs.routes import next_hops, tree
from testbed.ocs.using import losing, over_core, used
from testbed.topology.addresses import CORE_UNIT, CORE_WAY, optical_port_name, parse_optical_port
from tests.examples import examples


def ports(units: int, each: int) -> dict[int, tuple[str, ...]]:
    return {u: tuple(optical_port_name(u, p) for p in range(1, each + 1)) for u in range(1, units + 1)}


@st.composite
def fabrics(draw_: st.DrawFn) -> tuple[dict[int, tuple[str, ...]], frozenset[Circuit], list[tuple[int, int]]]:
    units, each = draw_(st.integers(2, 7)), draw_(st.integers(1, 3))
    table = ports(units, each)
    ends = draw_(st.permutations([name for names in table.values() for name in names]))
    pairs = list(zip(ends[::2], ends[1::2], strict=False))
    pairs = pairs[: draw_(st.integers(0, len(pairs)))]
    current = frozenset(circuit(a, b) for a, b in pairs if circuit(a, b).units[0] != circuit(a, b).units[1])
    left = dict.fromkeys(table, each)
    demands = []
    for a, b in draw_(st.lists(st.tuples(st.integers(1, units), st.integers(1, units)), max_size=8)):
        if a != b and left[a] and left[b]:
            left[a] -= 1
            left[b] -= 1
            demands.append((a, b))
    return table, current, demands


@given(fabrics())
def test_a_plan_serves_every_demand_and_uses_each_port_once(
    fabric: tuple[dict[int, tuple[str, ...]], frozenset[Circuit], list[tuple[int, int]]],
) -> None:
    table, current, demands = fabric
    result = plan(current, demands, table)
    assert len(ports_of(result.target)) == 2 * len(result.target)
    assert set(ports_of(result.target)) <= {name for names in table.values() for name in names}
    assert result.target == current - result.removed | result.added
    for pair in set(demands):
        count = demands.count(pair) + (demands.count(pair[::-1]) if pair[0] != pair[1] else 0)
        assert sum(c.units == tuple(sorted(pair)) for c in result.target) >= count
    again = plan(result.target, demands, table)
    assert again.removed == again.added == frozenset(), "a plan that is in force needs no change"
    assert plan(current, demands, table) == result
    idle = set(ports_of(current)) - set(ports_of(result.target))
    assert len({port.split("o")[0] for port in idle}) <= 1, "what lost its circuit is joined to what else did"


@settings(max_examples=examples(400))
@given(fabrics())
def test_the_units_stay_connected_whenever_the_ports_allow(
    fabric: tuple[dict[int, tuple[str, ...]], frozenset[Circuit], list[tuple[int, int]]],
) -> None:
    table, current, demands = fabric
    # A tree over parts with so many free ports each exists if each has one and all have 2 (parts - 1)
    # together.
    demanded = nx.Graph(demands)
    demanded.add_nodes_from(table)
    parts = list(nx.connected_components(demanded))
    taken = Counter(unit for pair in demands for unit in pair)
    free = [sum(len(table[unit]) - taken[unit] for unit in part) for part in parts]
    possible = len(parts) == 1 or (min(free) >= 1 and sum(free) >= 2 * (len(parts) - 1))
    graph = nx.Graph(c.units for c in plan(current, demands, table).target)
    graph.add_nodes_from(table)
    assert nx.is_connected(graph) == possible


def test_what_serves_already_is_left_alone() -> None:
    current = checked(
        [("u1o1", "u2o1"), ("u2o2", "u3o1"), ("u3o2", "u4o1"), ("u4o2", "u1o2")],
        sum(ports(4, 2).values(), ()),
    )
    assert plan(current, [(1, 2), (3, 2)], ports(4, 2)).removed == frozenset()
    changed = plan(current, [(1, 3), (2, 3)], ports(4, 2))
    assert circuit("u2o2", "u3o1") in changed.target, "the demand 2-3 was served"
    assert len(changed.removed) == 2, "no more than the demand 1-3 takes"
    graph = nx.Graph(c.units for c in changed.target)
    assert nx.is_connected(graph)
    assert len(graph) == 4


def test_more_demands_than_ports_names_the_unit() -> None:
    with pytest.raises(RequestError, match="need 3 optical ports of u1; it has 2"):
        plan(frozenset(), [(1, 2), (1, 3), (1, 4)], ports(4, 2))
    with pytest.raises(RequestError, match="no unit u9; there are u1 to u4"):
        plan(frozenset(), [(1, 9)], ports(4, 2))


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([("u1o1", "u1o1")], "two different"),
        ([("u1o1", "u9o1")], "no optical port u9o1"),
        ([("u1o1", "u2o1"), ("u2o1", "u1o2")], "u2o1 is in another"),
    ],
)
def test_circuits_that_cannot_be(pairs: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        checked(pairs, ["u1o1", "u1o2", "u2o1"])


@given(fabrics())
def test_next_hops_lead_to_every_reachable_unit(
    fabric: tuple[dict[int, tuple[str, ...]], frozenset[Circuit], list[tuple[int, int]]],
) -> None:
    table, current, _ = fabric
    hops = next_hops(current, table)
    graph = nx.Graph(c.units for c in current)
    graph.add_nodes_from(table)
    far = {end: other for c in current for end, other in (c.ports, c.ports[::-1])}
    for start in table:
        assert set(hops[start]) == nx.node_connected_component(graph, start) - {start}
        for goal in hops[start]:
            here, steps = start, 0
            while here != goal:
                ends = {far[optical_port_name(here, port)].split("o")[0] for port in hops[here][goal]}
                assert len(ends) == 1, "parallel circuits lead to one unit"
                here = int(ends.pop()[1:])
                steps += 1
            assert steps == nx.shortest_path_length(graph, start, goal)


@given(fabrics())
def test_of_several_next_units_that_are_as_near_the_first_is_taken(
    fabric: tuple[dict[int, tuple[str, ...]], frozenset[Circuit], list[tuple[int, int]]],
) -> None:
    """A reference that looks at each pair of units for itself."""
    table, current, _ = fabric
    graph = nx.Graph(c.units for c in current)
    graph.add_nodes_from(table)
    far = dict(nx.all_pairs_shortest_path_length(graph))
    bundles: dict[tuple[int, int], list[int]] = {}
    for c in sorted(current):
        (a, port_a), (b, port_b) = (parse_optical_port(port) for port in c.ports)
        bundles.setdefault((a, b), []).append(port_a)
        bundles.setdefault((b, a), []).append(port_b)
    wanted: dict[int, dict[int, tuple[int, ...]]] = {unit: {} for unit in table}
    for unit, goal in itertools.permutations(table, 2):
        if goal in far[unit]:
            via = min(near for near in graph[unit] if far[near][goal] == far[unit][goal] - 1)
            wanted[unit][goal] = tuple(bundles[unit, via])
    assert dict(next_hops(current, table)) == wanted


def test_both_ends_have_parallel_circuits_in_one_order() -> None:
    circuits = checked(
        [("u1o1", "u2o2"), ("u1o2", "u2o1"), ("u1o3", "u2o3"), ("u2o4", "u3o1")],
        ["u3o1", *(f"u{u}o{p}" for u in (1, 2) for p in (1, 2, 3, 4))],
    )
    hops = next_hops(circuits, [1, 2, 3])
    assert hops[1][2] == hops[1][3] == (1, 2, 3)
    assert hops[2][1] == (2, 1, 3)
    assert hops[3][1] == (1,)
    assert tree(circuits, [1, 2, 3], 3, [1]) == {1: [], 2: [(2, 1, 3)], 3: [(1,)]}


@given(fabrics(), st.data())
def test_exact_counts_are_met_with_as_few_new_circuits_as_that_takes(
    fabric: tuple[dict[int, tuple[str, ...]], frozenset[Circuit], list[tuple[int, int]]], data: st.DataObject
) -> None:
    table, current, _ = fabric
    left = {unit: len(names) for unit, names in table.items()}
    counts: dict[tuple[int, int], int] = {}
    for pair in itertools.combinations(sorted(table), 2):
        most = min(left[unit] for unit in pair)
        if count := data.draw(st.integers(0, most)):
            counts[pair] = count
            for unit in pair:
                left[unit] -= count
    target = exact(current, counts, table)
    assert counted(target) == counts
    assert checked([c.ports for c in target], [port for names in table.values() for port in names]) == target
    lit = counted(current)
    assert len(target - current) == sum(max(0, count - lit.get(pair, 0)) for pair, count in counts.items())


def test_more_circuits_than_ports_are_refused() -> None:
    with pytest.raises(RequestError, match="need 2 optical ports of u2; it has 1"):
        exact(frozenset(), {(1, 2): 1, (2, 3): 1}, {1: ("u1o1",), 2: ("u2o1",), 3: ("u3o1",)})


@given(fabrics())
def test_a_tree_reaches_each_member_once(
    fabric: tuple[dict[int, tuple[str, ...]], frozenset[Circuit], list[tuple[int, int]]],
) -> None:
    table, current, _ = fabric
    graph = nx.Graph(c.units for c in current)
    graph.add_nodes_from(table)
    members = nx.node_connected_component(graph, 1)
    downstream = tree(current, table, 1, members)
    far = {end: other for c in current for end, other in (c.ports, c.ports[::-1])}
    seen, todo = [], [1]
    while todo:
        here = todo.pop()
        seen.append(here)
        todo += [
            int(far[optical_port_name(here, bundle[-1])].split("o")[0][1:])
            for bundle in downstream.get(here, [])
        ]
    assert sorted(seen) == sorted(members)


def test_a_member_without_a_path_is_an_error() -> None:
    with pytest.raises(TestbedError, match="reach u2 from u1: no path"):
        tree(frozenset(), [1, 2], 1, [2])


@given(fabrics())
def test_with_a_core_circuits_are_for_direct_neighbours_alone(
    fabric: tuple[dict[int, tuple[str, ...]], frozenset[Circuit], list[tuple[int, int]]],
) -> None:
    table, current, _ = fabric
    hops, alone = next_hops(current, table, has_core=True), next_hops(current, table)
    direct = {c.units for c in current}
    for unit, goal in itertools.permutations(table, 2):
        joined = (min(unit, goal), max(unit, goal)) in direct
        assert hops[unit][goal] == (alone[unit][goal] if joined else (CORE_WAY,))


def test_a_tree_over_a_core_leaves_it_once_for_each_unit_that_is_not_joined_directly() -> None:
    circuits = checked([("u1o1", "u2o1"), ("u2o2", "u3o1")], ["u1o1", "u2o1", "u2o2", "u3o1"])
    ways = tree(circuits, [1, 2, 3, 4], 1, [1, 2, 3, 4], has_core=True)
    assert ways == {1: [(1,), (CORE_WAY,)], 2: [], 3: [], 4: [], CORE_UNIT: [(3,), (4,)]}
    assert tree(circuits, [1, 2, 3, 4], 1, [1, 2], has_core=True) == {1: [(1,)], 2: []}


def test_with_a_core_a_plan_cuts_and_joins_nothing_for_the_sake_of_a_path() -> None:
    table = {1: ("u1o1",), 2: ("u2o1", "u2o2"), 3: ("u3o1",), 4: ()}
    assert plan(frozenset(), [], table, has_core=True).target == frozenset()
    assert plan(frozenset(), [(1, 2)], table, has_core=True).target == {circuit("u1o1", "u2o1")}
    assert len(plan(frozenset(), [(1, 2)], table).target) == 2, "without one u3 is joined too"
    with pytest.raises(RequestError, match="need 1 optical ports of u4; it has 0"):
        plan(frozenset(), [(1, 4)], table, has_core=True)


def test_demands_for_which_there_are_no_ports_are_left_to_the_core() -> None:
    table = {1: ("u1o1",), 2: ("u2o1", "u2o2"), 3: ("u3o1",), 4: ()}
    assert servable([(1, 4), (1, 2), (1, 3), (2, 3), (2, 2)], table, {}) == [(1, 2), (2, 3), (2, 2)]


def test_jobs_use_the_core_between_units_that_no_circuit_joins_directly() -> None:
    circuits = checked([("u1o1", "u2o1"), ("u2o2", "u3o1")], ["u1o1", "u2o1", "u2o2", "u3o1"])
    pairs = {7: [(1, 3), (2, 3)], 8: [(1, 2)]}
    assert used(circuits, [1, 2, 3], pairs, has_core=True) == {
        7: {circuit("u2o2", "u3o1")},
        8: {circuit("u1o1", "u2o1")},
    }
    assert over_core(circuits, [1, 2, 3], pairs[7]) == [1, 3]
    assert over_core(circuits, [1, 2, 3], pairs[8]) == []
    lost = losing(circuits, frozenset(), [1, 2, 3], pairs, has_core=True)
    assert [cut for _, cut in lost.values()] == [[], []], "slower, and not cut off"


PLANES = {"u1o1": "a", "u1o2": "b", "u2o1": "a", "u2o2": "b", "u3o1": "a", "u4o1": "b"}
OF_PLANES = {1: ("u1o1", "u1o2"), 2: ("u2o1", "u2o2"), 3: ("u3o1",), 4: ("u4o1",)}


def test_a_circuit_is_within_one_plane() -> None:
    assert len(checked([("u1o1", "u2o1"), ("u1o2", "u2o2")], PLANES)) == 2
    with pytest.raises(
        RequestError, match="u1o1 is of plane a and u2o2 of plane b; a circuit is within one pl"
    ):
        checked([("u1o1", "u2o2")], PLANES)
    with pytest.raises(RequestError, match="no optical port u9o1; there are u1o1, u1o2"):
        checked([("u1o1", "u9o1")], PLANES)


def test_demands_go_to_planes_that_have_ports_of_both_units() -> None:
    def target(*demands: tuple[int, int], current: frozenset[Circuit] = frozenset()) -> frozenset[Circuit]:
        return plan_planes(current, demands, OF_PLANES, PLANES, has_core=True).target

    assert target((1, 3), (2, 4)) == {circuit("u1o1", "u3o1"), circuit("u2o2", "u4o1")}
    assert target((1, 2), (1, 2)) == {circuit("u1o1", "u2o1"), circuit("u1o2", "u2o2")}
    assert target((1, 2), (1, 3)) == {circuit("u1o2", "u2o2"), circuit("u1o1", "u3o1")}, (
        "u3 has but one plane"
    )
    lit = frozenset({circuit("u1o1", "u2o1")})
    assert target((1, 2), current=lit) == lit, "what serves stays"
    with pytest.raises(RequestError, match="demand u3-u4: no plane has an optical port left of both units"):
        target((3, 4))
    assert servable([(3, 4), (1, 3), (1, 2), (1, 4)], OF_PLANES, PLANES) == [(1, 3), (1, 2)]


@given(fabrics(), st.data())
def test_no_plan_has_a_circuit_across_planes(
    fabric: tuple[dict[int, tuple[str, ...]], frozenset[Circuit], list[tuple[int, int]]], data: st.DataObject
) -> None:
    table, lit, demands = fabric
    planes = {port: data.draw(st.sampled_from("abc")) for its in table.values() for port in its}
    current = frozenset(c for c in lit if planes[c.a] == planes[c.b])
    try:
        planned = plan_planes(current, demands, table, planes)
    except RequestError:  # no plane has a port left of both units
        return
    target = checked([c.ports for c in planned.target], planes)
    assert current - planned.removed | planned.added == target
    wanted = Counter((min(pair), max(pair)) for pair in demands if pair[0] != pair[1])
    assert all(counted(target).get(pair, 0) >= count for pair, count in wanted.items())


@given(
    st.dictionaries(st.integers(1, 6), st.text("abc", max_size=3), min_size=1),
    st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), max_size=12),
)
def test_what_is_servable_is_what_a_plan_can_be_made_for(
    planes_of: dict[int, str], demands: list[tuple[int, int]]
) -> None:
    planes = {
        optical_port_name(unit, place): plane
        for unit, its in planes_of.items()
        for place, plane in enumerate(its, 1)
    }
    table = {unit: tuple(port for port in planes if port.startswith(f"u{unit}o")) for unit in planes_of}
    for named in (planes, {}):
        served: list[tuple[int, int]] = []
        for pair in demands:
            with contextlib.suppress(RequestError):
                plan_planes(frozenset(), [*served, pair], table, named, has_core=True)
                served.append(pair)
        assert servable(demands, table, named) == served


@pytest.mark.parametrize("named", [PLANES, {}])
def test_what_is_servable_is_known_without_a_plan(
    named: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("a plan is made")

    monkeypatch.setattr("testbed.ocs.plan.plan", refuse)
    assert servable([(1, 2), (1, 2), (1, 2), (1, 3)], OF_PLANES, named) == [(1, 2), (1, 2)]
