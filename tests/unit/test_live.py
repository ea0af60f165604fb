"""A running testbed in the model's terms, decisions as actions, and both on their way to a policy's process
and back.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.encoding import to_json
from testbed.errors import RequestError, TestbedError
from testbed.plugins import registry
from testbed.scheduling import live
from testbed.scheduling.constraints import check_decision
from testbed.scheduling.messages import decision_from_json, state_from_json
from testbed.scheduling.model import Decision, Job, Limits, Progress, State, load
from testbed.topology import catalogue
from testbed.topology.load import parse
from testbed.topology.model import LinkSpec

TOPOLOGY = catalogue.ready("default")
PROGRAMS = {"xdp": "sum", "bmv2": "sum"}  # of the system that sums at switches
JOB = Job(7, ((0, 2), (1, 1)), 3, 12.5, 0.25, 4, host_gbps=30.0)


def test_policies_see_the_declared_rates() -> None:
    limits = live.limits_of(TOPOLOGY, 0.5, None, PROGRAMS)
    assert (limits.port_gbps, limits.host_gbps, limits.ps_gbps, limits.step_gbps) == (40.0, 40.0, 40.0, 10.0)
    assert (limits.ports, limits.inc, limits.slot_s) == ((2,) * 4, (4,) * 4, 0.5)
    assert limits.reconfiguration_s == pytest.approx(0.020)
    assert live.limits_of(TOPOLOGY, 0.5, 2.5, PROGRAMS).step_gbps == 2.5
    assert live.emulated_mbps(TOPOLOGY, 40.0) == 200.0


def test_circuits_to_one_server_add_up() -> None:
    narrow = replace(live.limits_of(TOPOLOGY, 1.0, None, PROGRAMS), port_gbps=15.0)
    in_a_unit, across, beside = (
        Job(1, workers, 2, 1.0) for workers in (((0, 4),), ((0, 3), (1, 1)), ((2, 4),))
    )
    assert load(narrow, in_a_unit, None).limit_gbps == 7.5, "two ports of each"
    assert load(narrow, across, None).limit_gbps == 5.0, "two ports of the server's unit, one for each"
    assert load(narrow, in_a_unit, 0).limit_gbps == 40.0, "summed in its unit"
    assert load(narrow, beside, None).limit_gbps == 10.0, "beside its server"


def test_what_takes_a_second_at_the_declared_rate_takes_one_at_the_emulated_rate() -> None:
    volume = live.gigabits(TOPOLOGY, megabytes=2.5, iterations=10)
    assert volume / 40.0 == pytest.approx(10 * 2.5 * 8 / 200.0 * 1514 / 1440, rel=1e-3), "headers included"


def test_packets_with_fewer_lanes_are_more_headers() -> None:
    full, narrow = (live.gigabits(TOPOLOGY, 2.5, 10, lanes) for lanes in (None, 64))
    assert full == live.gigabits(TOPOLOGY, 2.5, 10, 360)
    assert narrow / full == pytest.approx((74 + 256) / 256 / ((74 + 1440) / 1440))


def test_units_whose_engine_sums_nothing_have_no_place() -> None:
    units = tuple(replace(unit, engine="none") if unit.index == 2 else unit for unit in TOPOLOGY.units)
    assert live.limits_of(replace(TOPOLOGY, units=units), 1.0, None, PROGRAMS).inc == (4, 0, 4, 4)


@pytest.mark.parametrize("programs", [{"xdp": "sum"}, {"xdp": "sum", "bmv2": "of another engine"}, {}])
def test_units_whose_engine_has_no_program_of_the_summing_system_have_no_place(
    programs: dict[str, str],
) -> None:
    units = tuple(replace(unit, engine="bmv2") if unit.index == 2 else unit for unit in TOPOLOGY.units)
    inc = live.limits_of(replace(TOPOLOGY, units=units), 1.0, None, registry.available(programs)).inc
    assert inc == ((4, 0, 4, 4) if programs else (0, 0, 0, 0))


def test_a_job_is_bounded_by_the_links_of_its_own_hosts() -> None:
    hosts = [{"rate_mbps": 10_000}, {"rate_mbps": 30_000}, {}]
    topology = parse({"units": [{"hosts": hosts}, {"hosts": hosts}, {"hosts": 1}]}, "unequal")
    limits = live.limits_of(topology, 1.0, None, PROGRAMS)
    assert (limits.host_gbps, limits.ps_gbps) == (40.0, 40.0)
    slow, fast, near = (
        live.model_job(1, workers, server[0], 1.0, 0.0, 0, live.host_limits(topology, workers, server))
        for workers, server in (
            ([(1, 1), (1, 2)], (3, 1)),
            ([(1, 2), (1, 3)], (3, 1)),
            ([(1, 3)], (2, 1)),
        )
    )
    assert [load(limits, job, None).limit_gbps for job in (slow, fast, near)] == [10.0, 20.0, 10.0]
    assert [load(limits, job, 0).limit_gbps for job in (slow, fast)] == [10.0, 30.0], "summed in its unit"
    assert live.host_limits(topology, [(1, 2), (1, 3)], None) == (30.0, 30.0)


def test_policies_see_the_slowest_optical_port_of_each_unit() -> None:
    units = [{"hosts": 2}, {"hosts": 2, "rate_mbps": 80_000}, {"hosts": 1, "optical_ports": 1}]
    topology = parse({"units": units, "links": {"u1o2": 10_000, "u3h1": 5_000}}, "unlike")
    limits = live.limits_of(topology, 1.0, None, PROGRAMS)
    assert (limits.port_gbps, limits.unit_port_gbps) == (10.0, (10.0, 80.0, 40.0))
    assert [limits.circuit_gbps(pair) for pair in ((0, 1), (1, 2), (0, 2))] == [10.0, 40.0, 10.0]
    assert live.host_limits(topology, [(1, 1)], (3, 1)) == (40.0, 5.0)
    wide, narrow = (Job(1, ((unit, 1),), 2, 1.0) for unit in (1, 0))
    assert [load(limits, job, None).limit_gbps for job in (wide, narrow)] == [40.0, 10.0]
    state = State(limits, 0, (Progress(replace(wide, workers=((1, 2),)), 1.0),), {})
    check_decision(state, Decision({1: 20.0}, {}, {(1, 2): 1}), "ours")
    both = Job(2, ((0, 2),), 1, 1.0)
    two = State(limits, 0, (Progress(both, 1.0),), {})
    check_decision(two, Decision({2: 10.0}, {}, {(0, 1): 2}), "ours")
    with pytest.raises(TestbedError, match=r"the link \(0, 1\) has 20.0 Gb/s, and circuits for 10.0"):
        check_decision(two, Decision({2: 10.0}, {}, {(0, 1): 1}), "ours")
    across = Job(3, ((0, 1), (1, 1)), 2, 1.0)
    three = State(limits, 0, (Progress(across, 1.0),), {})
    lacks = r"at most 0.0 is possible; unit 2 has 1 optical ports, and 2 of its links meet there$"
    with pytest.raises(TestbedError, match=lacks):
        check_decision(three, Decision({3: 5.0}, {}, {}), "ours")
    assert live.limits_of(TOPOLOGY, 1.0, None, PROGRAMS).unit_port_gbps == ()
    with pytest.raises(RequestError, match=r"^links.u1o1: unshaped; to schedule jobs, links need a rate"):
        live.limits_of(replace(topology, link_rates={"u1o1": None}), 1.0, None, PROGRAMS)


def test_policies_see_the_core_and_may_leave_jobs_to_it() -> None:
    units = [{"hosts": 2}, {"hosts": 2}, {"hosts": 1, "optical_ports": 0}]
    topology = parse({"units": units, "core": {"rate_mbps": 10_000}, "links": {"u3c": 8_000}}, "cored")
    limits = live.limits_of(topology, 1.0, None, PROGRAMS)
    assert (limits.core_gbps, limits.ports, limits.port_gbps) == (8.0, (2, 2, 0), 40.0)
    assert live.limits_of(TOPOLOGY, 1.0, None, PROGRAMS).core_gbps == 0.0
    near, far = Job(1, ((0, 1),), 1, 1.0), Job(2, ((0, 1), (1, 1)), 2, 1.0)
    state = State(limits, 0, (Progress(near, 1.0), Progress(far, 1.0)), {})

    def check(rates: dict[int, float], ports: dict[tuple[int, int], int]) -> None:
        check_decision(state, Decision(rates, {}, ports), "ours")  # type: ignore[arg-type]

    check({1: 40.0, 2: 4.0}, {(0, 1): 1})
    check({1: 4.0, 2: 4.0}, {})
    with pytest.raises(TestbedError, match=r"job 2 has a rate of 5.0 Gb/s; at most 4.0 is possible"):
        check({1: 1.0, 2: 5.0}, {})
    with pytest.raises(TestbedError, match=r"unit 0 has 9.0 Gb/s over the core, and 8.0 there"):
        check({1: 5.0, 2: 4.0}, {})


def test_policies_decide_on_the_circuits_of_the_first_plane() -> None:
    ocs = {"planes": {"mems": {"switch_ms": 30}, "fast": {"switch_ms": 0, "lock_ms": 0}}, "lock_ms": 10}
    units = [{"hosts": 1}, {"hosts": 1, "optical_ports": {"fast": 2}}]
    topology = parse({"units": units, "optical_ports": {"mems": 2, "fast": 1}, "ocs": ocs}, "planes")
    limits = live.limits_of(replace(topology, link_rates={"u1o3": 500.0}), 1.0, None, PROGRAMS)
    assert (limits.ports, limits.port_gbps, limits.unit_port_gbps) == ((2, 0), 40.0, ())
    assert limits.reconfiguration_s == pytest.approx(0.040)


def test_links_without_a_rate_cannot_be_scheduled() -> None:
    own = parse({"units": [{"hosts": [{}, {"rate_mbps": "unshaped"}]}]}, "unequal")
    with pytest.raises(RequestError, match=r"^units\[0\].hosts\[1\].rate_mbps: unshaped; to schedule jobs"):
        live.limits_of(own, 1.0, None, PROGRAMS)
    with pytest.raises(RequestError, match="host_rate_mbps: unshaped"):
        live.limits_of(replace(TOPOLOGY, host_link=LinkSpec(None)), 1.0, None, PROGRAMS)


def test_units_count_from_0_in_the_model() -> None:
    job = live.model_job(7, [(2, 1), (1, 3), (1, 1)], 4, 12.5, 0.25, 4)
    assert job == replace(JOB, host_gbps=math.inf)
    assert live.ports_of({(1, 3): 2}) == {(0, 2): 2}
    assert live.circuits_of({(0, 2): 2, (1, 2): 0}) == {(1, 3): 2}


def test_something_is_left_as_long_as_a_job_runs() -> None:
    assert live.remaining_gigabits(10.0, 0.25) == 7.5
    assert live.remaining_gigabits(10.0, 1.0) > 0
    assert live.remaining_gigabits(10.0, 1.3) > 0
    assert live.remaining_gigabits(10.0, 0.9, slot_gigabits=4.0) == 4.0, "what its rate carries in a slot"
    assert live.remaining_gigabits(10.0, 0.25, slot_gigabits=4.0) == 7.5
    assert live.remaining_gigabits(10.0, 0.25, slot_gigabits=40.0) == 10.0


def test_a_decision_comes_to_what_it_changes() -> None:
    limits = live.limits_of(TOPOLOGY, 1.0, None, PROGRAMS)
    rates = {1: 10.0, 2: 20.0, 3: 5.0}
    running = [Progress(replace(JOB, id=job), 1.0, 0, None, rate) for job, rate in rates.items()]
    state = State(
        limits, 3, (*running, Progress(replace(JOB, id=4), 1.0), Progress(replace(JOB, id=5), 1.0)), {}
    )
    acts = live.actions(state, Decision({1: 5.0, 2: 20.0, 3: 7.0, 4: 1.0}, {4: 0}, {(0, 3): 1}))
    assert (acts.lower, acts.higher, acts.start, acts.circuits) == ({1: 5.0}, {3: 7.0}, {4: 0}, {(1, 4): 1})
    left = live.lasting(Decision({1: 5.0, 9: 1.0}, {9: 0}, {(0, 3): 1}), [1, 2])
    assert left == Decision({1: 5.0}, {}, {(0, 3): 1})


RATES = st.floats(0.001, 400.0)
STATES = st.builds(
    State,
    st.builds(
        Limits.uniform,
        st.integers(2, 5),
        st.integers(1, 4),
        st.integers(0, 3),
        RATES,
        st.just(math.inf) | RATES,
    ),
    st.integers(0, 99),
    st.lists(
        st.builds(
            Progress, st.just(JOB), RATES, st.none() | st.integers(0, 9), st.none() | st.integers(0, 3), RATES
        )
    ).map(tuple),
    st.dictionaries(st.tuples(st.integers(0, 1), st.integers(2, 4)), st.integers(0, 3)),
)


@given(STATES)
def test_a_state_crosses_as_it_is(state: State) -> None:
    assert state_from_json(json.loads(json.dumps(to_json(state)))) == state


@given(
    st.dictionaries(st.integers(0, 9), RATES),
    st.dictionaries(st.tuples(st.integers(0, 1), st.integers(2, 4)), st.integers(0, 3)),
)
def test_a_decision_crosses_as_it_is(rates: dict[int, float], ports: dict[tuple[int, int], int]) -> None:
    decision = Decision(rates, dict.fromkeys(rates, 1), ports)
    assert decision_from_json(json.loads(json.dumps(to_json(decision)))) == decision


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"rates": [[1]], "inc": [], "ports": []},
        {"rates": [[1, math.nan]], "inc": [], "ports": []},
        {"rates": [[1, math.inf]], "inc": [], "ports": []},
        {"rates": [["a", 1.0]], "inc": [], "ports": []},
        {"rates": [], "inc": [[1, 0.5]], "ports": []},
        {"rates": [], "inc": [], "ports": [[0, 1]]},
        {"rates": [], "inc": [], "ports": [[0, 1, True]]},
    ],
)
def test_what_is_no_decision_is_said(data: Any) -> None:
    with pytest.raises(ValueError, match="no decision"):
        decision_from_json(data)
