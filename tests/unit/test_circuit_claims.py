"""Circuits that jobs ask for while they run: who holds which, what a demand gets, and what refuses it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import RequestError
from testbed.ocs.circuits import Circuit, circuit, ports_of
from testbed.ocs.claims import CircuitDemand, Claims, Granted, Holder, Obstacle, Optics, beside, grant
from testbed.topology.addresses import optical_port_name
from testbed.topology.units import UnitPair


def optics(*lit: str, units: int = 4, each: int = 1, **more: object) -> Optics:
    ports = {u: tuple(optical_port_name(u, p) for p in range(1, each + 1)) for u in range(1, units + 1)}
    planes = {port: "" for names in ports.values() for port in names}
    return Optics(circuits(*lit), ports, planes, **more)  # type: ignore[arg-type]


def circuits(*names: str) -> frozenset[Circuit]:
    return frozenset(circuit(*name.split("-")) for name in names)


def pairs(*names: str) -> CircuitDemand:
    ends = [[int(end.removeprefix("u")) for end in name.split("-")] for name in names]
    return CircuitDemand(tuple((a, b) for a, b in ends))


RING = ("u1o1-u2o1", "u2o2-u3o1", "u3o2-u4o1", "u1o2-u4o2")


def test_a_circuit_is_held_until_its_last_holder_releases_it() -> None:
    claims, shared = Claims(), circuits("u1o1-u2o1")
    claims.hold(Holder(1, 0, "a"), shared)
    claims.hold(Holder(1, 1, "a"), shared)
    claims.hold(Holder(1, 1, "b"), circuits("u3o1-u4o1"))
    assert claims.release(1, 0, "a") == frozenset()
    assert claims.by_job() == {1: circuits("u1o1-u2o1", "u3o1-u4o1")}
    assert [each.rank for each in claims.holders(1, *shared)] == [1]
    assert claims.release(1, 1) == circuits("u1o1-u2o1", "u3o1-u4o1"), "a worker that ended"
    assert claims.by_job() == {}
    assert claims.release(1) == frozenset()


def test_lit_circuits_serve_a_demand_without_a_change() -> None:
    lit = optics("u1o1-u2o1", "u3o1-u4o1", has_core=True)
    assert grant(1, pairs("u2-u1"), {}, {}, lit) == Granted(circuits("u1o1-u2o1"), lit.lit)
    changed = grant(1, pairs("u1-u3"), {}, {}, lit)
    assert changed == Granted(circuits("u1o1-u3o1"), circuits("u1o1-u3o1", "u2o1-u4o1"))


def test_workers_of_a_job_share_circuits_and_jobs_do_not() -> None:
    lit = optics("u1o1-u2o1", each=2, has_core=True)
    held = {1: circuits("u1o1-u2o1")}
    assert grant(1, pairs("u1-u2"), held, {}, lit) == Granted(held[1], lit.lit)
    other = grant(2, pairs("u1-u2"), held, {}, lit)
    assert isinstance(other, Granted)
    assert other.circuits == circuits("u1o2-u2o2")
    assert held[1] < other.target
    full = optics("u1o1-u2o1", "u1o2-u2o2", each=2, has_core=True)
    assert grant(3, pairs("u1-u2"), held | {2: other.circuits}, {}, full) == Obstacle(held)


def test_what_other_jobs_use_stays_and_what_the_job_uses_may_go() -> None:
    lit = optics("u1o1-u2o1", "u3o1-u4o1", has_core=True)
    demand = pairs("u1-u3")
    assert grant(1, demand, {}, {2: circuits("u1o1-u2o1")}, lit) == Obstacle({2: circuits("u1o1-u2o1")})
    assert isinstance(grant(1, demand, {}, {1: circuits("u1o1-u2o1")}, lit), Granted)
    assert grant(1, demand, {1: circuits("u1o1-u2o1")}, {}, lit) == Obstacle({1: circuits("u1o1-u2o1")})


def test_named_circuits_are_set_as_they_are_named() -> None:
    lit = optics(*RING, each=2)
    named = CircuitDemand(circuits=circuits("u1o2-u3o2"))
    outcome = grant(1, named, {}, {}, lit)
    assert isinstance(outcome, Granted)
    assert outcome.circuits == named.circuits
    assert named.circuits <= outcome.target
    held = {1: circuits("u1o2-u4o2")}
    assert grant(2, named, held, {}, lit) == Obstacle(held)
    with pytest.raises(RequestError, match="the link of u3o2 is down"):
        grant(1, named, {}, {}, optics(*RING, each=2, down=("u3o2",)))


def test_a_demand_that_never_fits_is_refused_and_dead_ports_serve_none() -> None:
    with pytest.raises(RequestError, match="need 2 optical ports of u1; it has 1"):
        grant(1, pairs("u1-u2", "u1-u3"), {}, {2: circuits("u1o1-u2o1")}, optics("u1o1-u2o1"))
    with pytest.raises(RequestError, match="u1o1 is down, and no free port"):
        grant(1, pairs("u1-u2"), {}, {}, optics("u1o1-u2o1", has_core=True, down=("u1o1",)))
    outcome = grant(1, pairs("u1-u2"), {}, {}, optics(*RING, each=2, down=("u1o1",)))
    assert isinstance(outcome, Granted)
    assert "u1o1" not in ports_of(outcome.circuits)


def test_a_core_carries_the_demands_that_held_circuits_leave_no_ports_for() -> None:
    held = circuits("u1o1-u3o1")
    assert held <= beside(held, [(1, 2), (2, 4)], optics(has_core=True))
    with pytest.raises(RequestError, match="optical ports of u1"):
        beside(held, [(1, 2)], optics())


UNIT_PAIRS = st.tuples(st.integers(1, 4), st.integers(1, 4)).filter(lambda pair: pair[0] != pair[1])


@given(
    st.lists(st.tuples(st.integers(1, 3), st.lists(UNIT_PAIRS, min_size=1, max_size=2)), max_size=8),
    st.integers(1, 3),
    st.booleans(),
)
def test_no_job_loses_what_it_holds(
    asks: list[tuple[int, list[UnitPair]]], each: int, has_core: bool
) -> None:
    lit, held = optics(each=each, has_core=has_core), dict[int, frozenset[Circuit]]()
    for job, wanted in asks:
        try:
            outcome = grant(job, CircuitDemand(tuple(wanted)), held, {}, lit)
        except RequestError:
            continue
        if isinstance(outcome, Obstacle):
            assert all(lost <= held[other] for other, lost in outcome.in_the_way.items())
            continue
        held[job] = held.get(job, frozenset()) | outcome.circuits
        assert frozenset().union(*held.values()) <= outcome.target
        assert sum(len(mine) for mine in held.values()) == len(frozenset().union(*held.values()))
        assert len(ports_of(outcome.target)) == 2 * len(outcome.target)
        lit = Optics(outcome.target, lit.ports, lit.planes, has_core)
