"""The demands of a job beside those that run: a dead circuit is gone round, a core carries what it can."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings

from testbed.errors import RequestError
from testbed.ocs.circuits import carrying, checked
from testbed.ocs.demanded import demanded
from testbed.ocs.plan import plan_planes, up
from testbed.ocs.routes import next_hops
from tests.examples import examples
from tests.unit.test_links_down import RING, Fabric, failing
from tests.unit.test_ocs import ports

TABLE = ports(4, 2)
PLANES = dict.fromkeys(itertools.chain(*TABLE.values()), "oxc")


def asked(own: list[tuple[int, int]], others: list[tuple[int, int]], *down: str) -> list[tuple[int, int]]:
    return demanded(own, others, RING, TABLE, PLANES, down=frozenset(down))


def test_all_is_demanded_while_ports_suffice() -> None:
    assert asked([(2, 1)], [(2, 3)]) == [(2, 3), (1, 2)]
    assert asked([(1, 3)], [(2, 3)], "u2o2") == [(2, 3), (1, 3)]


def test_a_pair_that_is_led_round_keeps_its_way() -> None:
    """u2 has one port left, by which u1 reaches it; u2 and u3 are joined over u1 and u4."""
    way = [(1, 2), (1, 4), (3, 4)]
    assert asked([(1, 2)], [(2, 3)], "u2o2") == way
    assert asked([(2, 3)], [(1, 2)], "u2o2") == way
    assert asked([(2, 3), (1, 2)], [], "u2o2") == way
    planned = plan_planes(RING, way, TABLE, PLANES, down={"u2o2"})
    assert carrying(planned.target, {"u2o2"}) >= carrying(RING, {"u2o2"})


def test_a_job_that_is_cut_off_has_no_others_refused() -> None:
    assert asked([(1, 4)], [(2, 3)], "u2o1", "u2o2") == [(1, 4)]
    assert asked([(2, 3)], [], "u2o1", "u2o2") == [(2, 3)], "its own is refused"
    with pytest.raises(RequestError, match="u2o1, u2o2 are down"):
        plan_planes(RING, [(2, 3)], TABLE, PLANES, down={"u2o1", "u2o2"})


def test_a_unit_whose_core_link_is_down_gets_circuits_first() -> None:
    table = ports(3, 1)
    planes = dict.fromkeys(itertools.chain(*table.values()), "oxc")
    lit = checked([("u1o1", "u2o1")], planes)
    assert demanded([(1, 3)], [(1, 2)], lit, table, planes, True) == [(1, 2)]
    assert demanded([(1, 3)], [(1, 2)], lit, table, planes, True, {"u3c"}) == [(1, 3)]


@settings(max_examples=examples(200))
@given(failing())
def test_who_is_joined_without_a_request_is_refused_none(case: tuple[Fabric, frozenset[str]]) -> None:
    (table, current, pairs), down = case
    hops = next_hops(carrying(current, down), table)
    joined = [(a, b) for a, b in pairs if a == b or b in hops[a]]
    planes = {port: "oxc" for names in table.values() for port in names}
    for number in range(len(joined)):
        own, others = joined[number : number + 1], joined[:number] + joined[number + 1 :]
        request = demanded(own, others, current, table, planes, down=down)
        target = plan_planes(current, request, table, planes, down=down).target
        ways = next_hops(carrying(target, down), table)
        assert all(a == b or b in ways[a] for a, b in joined)
    assert set(up(table, down)) == set(table)
