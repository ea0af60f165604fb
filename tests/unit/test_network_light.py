"""The network over a job's time: circuits by timetables and by hand, the light between units, the bound that
goes by it, and the links and losses that are a job's.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.aggregation.system import Layout
from testbed.messages.coding import decode
from testbed.messages.controller import LinksDown, NetworkLight
from testbed.telemetry.bound import bound
from testbed.telemetry.demand import Traffic, tcp_framing
from testbed.telemetry.network import Light, LitNetwork, Windows, network, pair_of
from testbed.topology.units import Unit
from testbed.wire.transports import GLOO, PACKETS
from tests.forests import p4inc
from tests.unit.results import read_event
from tests.unit.test_bound import ALONE_S, BEGAN_S, COMPUTING_S, MTU, SIZE_BYTES, Neighbours, the

ROT = {
    "period_ms": 15,
    "guard_ms": 0.5,
    "matchings": [
        {"start_ms": 0, "circuits": [["u1o1", "u2o1"], ["u3o1", "u4o1"]]},
        {"start_ms": 5, "circuits": [["u1o1", "u3o1"], ["u2o1", "u4o1"]]},
        {"start_ms": 10, "circuits": [["u1o1", "u4o1"], ["u2o1", "u3o1"]]},
    ],
}
BY_HAND = [["u1o1", "u2o1"], ["u3o1", "u4o1"]]
UNITS = (1, 2, 3, 4)
LIT = 4.5 / 15  # of rot's time, for any two units


def answer(circuits: list[list[str]] = BY_HAND, tables: Any = (), crossings: Any = None) -> NetworkLight:
    light = {"circuits": circuits, "timetables": tables, "crossings": crossings or {}, "flows": []}
    return decode(NetworkLight, {**light, "last_event": 0, "links": []}, "light")


def kept(began_s: float, ended_s: float | None = None) -> dict[str, Any]:
    ended_ns = None if ended_s is None else round(ended_s * 1e9)
    return {"schedule": ROT, "began_ns": round(began_s * 1e9), "ended_ns": ended_ns}


def made(*tables: dict[str, Any], events: Any = (), has_core: bool = False, **crossed: Any) -> LitNetwork:
    before = answer(crossings={name: {"lit": 0, "dark": 1, "unlit": 1} for name in crossed})
    after = answer(tables=tables, crossings=crossed)
    return network(UNITS, has_core, before, after, events, BEGAN_S - 1, 0.0)


def rotating(routing: str, *matchings: list[list[str]], guard_ms: float = 1.0) -> LitNetwork:
    """Return the network while such a timetable of slots of 5 ms runs."""
    listed = [{"start_ms": 5 * place, "circuits": each} for place, each in enumerate(matchings)]
    table = {"period_ms": 5 * len(listed), "guard_ms": guard_ms, "routing": routing, "matchings": listed}
    return made({"schedule": table, "began_ns": 0, "ended_ns": None})


def opened(net: LitNetwork, *pair: int) -> tuple[tuple[float, float], ...]:
    [stretch] = net.lights([pair])[pair].stretches  # type: ignore[index,list-item]
    return tuple((round(begin * 1e3, 6), round(end * 1e3, 6)) for begin, end in stretch.open)


def test_a_circuit_that_stays_is_open_in_the_guard_time_and_others_are_not() -> None:
    stays, other, third = ["u1o1", "u2o1"], ["u3o1", "u4o1"], ["u1o2", "u3o2"]
    net = rotating("direct", [stays], [stays, other], [third])
    assert opened(net, 1, 2) == ((1, 10),), "dark where it was not in the matching before"
    assert opened(net, 3, 4) == ((6, 10),)
    assert opened(net, 1, 3) == ((11, 15),)


@pytest.mark.parametrize(
    ("routing", "open_ms"), [("direct", ((1, 5),)), ("vlb", ((1, 5), (6, 10), (11, 15)))]
)
def test_detours_leave_by_every_circuit(routing: str, open_ms: Any) -> None:
    net = rotating(routing, *(each["circuits"] for each in ROT["matchings"]))  # type: ignore[index]
    assert opened(net, 1, 2) == open_ms == opened(net, 2, 1)


def test_a_routings_links_are_those_that_it_may_take() -> None:
    listed = [each["circuits"] for each in ROT["matchings"]]  # type: ignore[index]
    pair = (Unit(1), Unit(2))
    assert rotating("direct", *listed).ways([pair]) == {pair: {"u1o1", "u2o1"}}
    assert rotating("vlb", *listed).ways([pair]) == {pair: {f"u{unit}o1" for unit in UNITS}}


def test_parallel_circuits_of_a_way_over_two_units_carry_it_together() -> None:
    double = [["u1o1", "u2o1"], ["u1o2", "u2o2"], ["u2o3", "u3o1"], ["u2o4", "u3o2"]]
    net = rotating("at-once", double, [])
    pair = (Unit(1), Unit(3))
    assert net.lights([pair])[pair].circuits == 2


def across(*hosts: tuple[int, int]) -> Layout:
    pairs = tuple({(a[0], b[0]) for a in hosts for b in hosts if a[0] < b[0]})
    return Layout("ring", hosts, GLOO, demands=pairs)


# ---------------------------------------------------------------- light


def test_light_that_is_always_there_is_no_matter_of_the_bound() -> None:
    assert made().lights([(1, 2), (3, 4)]) == {}
    assert list(made(kept(BEGAN_S)).lights([(1, 2), (1, 1)])) == [(1, 2)]
    assert made(kept(BEGAN_S), has_core=True).lights([(1, 3)]) == {}, "the core joins them meanwhile"


def test_a_timetable_lights_two_units_for_its_part_of_the_time() -> None:
    for pair in ((1, 2), (1, 3), (2, 3)):
        light = made(kept(BEGAN_S)).lights([pair])[pair]
        assert light.share(BEGAN_S, BEGAN_S + 30) == pytest.approx(LIT, rel=1e-3)
    half = made(kept(BEGAN_S, BEGAN_S + 5)).lights([(1, 2)])[1, 2]
    assert half.share(BEGAN_S, BEGAN_S + 10) == pytest.approx((LIT + 1) / 2, rel=1e-2)
    never = made(kept(BEGAN_S, BEGAN_S + 5)).lights([(1, 3)])[1, 3]
    assert never.share(BEGAN_S, BEGAN_S + 10) == pytest.approx(LIT / 2, rel=1e-2)


def test_a_reconfiguration_is_dark_from_its_begin_to_its_light() -> None:
    event = replace(
        read_event(1, BEGAN_S + 2),
        ports=("u1o1", "u2o1"),
        asked_ms=400,
        measured_ms=500,
        removed=(),
        added=(),
    )
    light = made(events=[event]).lights([(1, 2)])[1, 2]
    assert light.share(BEGAN_S, BEGAN_S + 4) == pytest.approx(3.5 / 4)
    assert light.through_s(BEGAN_S + 1.9, 0.2) == pytest.approx(BEGAN_S + 2.6)
    gone = replace(event, removed=(("u1o1", "u2o1"),), added=(("u1o1", "u3o1"),))
    lights = made(events=[gone]).lights([(1, 2), (1, 3)])
    assert lights[1, 2].share(BEGAN_S, BEGAN_S + 4) == pytest.approx(0.5)
    assert lights[1, 3].share(BEGAN_S, BEGAN_S + 4) == pytest.approx(1.5 / 4)
    apart_s = made(events=[gone]).apart_s([(1, 2), (1, 3), (2, 2)], BEGAN_S + 4)
    assert apart_s == {"u1-u2": pytest.approx(2.0), "u1-u3": pytest.approx(3.5)}, "from a second before"


def test_a_link_that_is_down_is_dark_and_what_goes_round_uses_other_links() -> None:
    ring = [["u1o1", "u2o1"], ["u2o2", "u3o1"], ["u3o2", "u4o1"], ["u1o2", "u4o2"]]
    spells = ((-9, ["u3o1"]), (-8, []), (1, ["u2o2"]), (2, ["u2o2", "u4o2"]), (3, []))

    def seen(*tables: dict[str, Any], has_core: bool = False) -> LitNetwork:
        links = tuple(LinksDown(round((BEGAN_S + at_s) * 1e9), tuple(down)) for at_s, down in spells)
        after = replace(answer(ring, tables=tables), links=links)
        return network(UNITS, has_core, answer(ring), after, (), BEGAN_S, 0.0)

    lights = seen().lights([(2, 3), (1, 2)])
    assert list(lights) == [(2, 3)], "u1 and u2 have their own circuit"
    assert lights[2, 3].share(BEGAN_S, BEGAN_S + 4) == pytest.approx(3 / 4)
    assert lights[2, 3].through_s(BEGAN_S + 1.9, 0.2) == pytest.approx(BEGAN_S + 3.1)
    assert seen().apart_s([(2, 3)], BEGAN_S + 4) == {"u2-u3": pytest.approx(1.0)}
    assert seen().down_s(BEGAN_S + 4) == {"u2o2": pytest.approx(2.0), "u4o2": pytest.approx(1.0)}
    ways = seen().ways([(2, 3), (1, 2)])
    assert (ways[2, 3], ways[1, 2]) == ({end for pair in ring for end in pair}, {"u1o1", "u2o1"})
    assert {"u2c", "u3c"} <= seen(has_core=True).ways([(2, 3)])[2, 3]
    rotating = seen(kept(BEGAN_S)).lights([(3, 4)])[3, 4]
    assert rotating.share(BEGAN_S, BEGAN_S + 0.015) == pytest.approx(LIT, rel=1e-3)


@given(
    st.floats(0, 50),
    st.floats(1e-4, 2),
    st.lists(st.floats(0.001, 0.999), min_size=2, max_size=6, unique=True),
)
def test_time_in_light_passes_only_in_light(from_s: float, needed_s: float, edges: list[float]) -> None:
    edges = sorted(edges[: len(edges) // 2 * 2])
    open_ = tuple(zip(edges[::2], edges[1::2], strict=True))
    if sum(end - begin for begin, end in open_) < 0.01:
        return
    light = Light((Windows(0.0, 20.0, 0.0, 1.0, open_), Windows(20.0, math.inf, 20.0, 1.0, ((0.0, 1.0),))))
    end_s = light.through_s(from_s, needed_s)
    assert end_s >= from_s + needed_s - 1e-9
    assert light.share(from_s, end_s) * (end_s - from_s) == pytest.approx(needed_s, abs=1e-6)


# ---------------------------------------------------------------- the bound


def test_the_bound_is_of_circuits_as_they_were_lit() -> None:
    """A sum needs its time of a circuit that is there 30 % of it; the machine adds nothing."""
    lit_s = SIZE_BYTES * tcp_framing(MTU) * 8e-6 / 100.0 / LIT
    world = Neighbours(lit_s, 0.0, 0.0, {})
    traffic = Traffic(GLOO, ("u1h1", "u2h1"), None, MTU)
    recording, timelines = recorded(world)
    always = the(bound(recording, timelines, traffic, {}))
    assert always.bound_ms == pytest.approx(1e3 * (COMPUTING_S + ALONE_S), rel=0.02)
    assert always.ratio > 2.5
    by_table = the(bound(recording, timelines, traffic, {}, made(kept(BEGAN_S - 3))))
    assert by_table.ratio == pytest.approx(1.0, abs=0.06)
    assert by_table.lit_share == pytest.approx(LIT, rel=0.01)
    assert "circuits as they were lit, those of some units 30 % of the time" in by_table.how


def recorded(world: Neighbours) -> tuple[Any, list[dict[str, Any]]]:
    """Return a recording in which only the job's own links carried something, and its timelines."""
    from testbed.telemetry.counters import MachineReading
    from testbed.telemetry.samples import LinkReading, Recording, Sample

    names = ("u1h1", "u2h1", "u1o1", "u2o1")
    recording = Recording(0.1, names, (100.0,) * 4, 1e9)
    for at in range(200):
        reading = LinkReading(BEGAN_S + at * 0.1, BEGAN_S + at * 0.1, np.zeros((4, 4), np.int64))
        machine = MachineReading(np.zeros((2, 4)), np.zeros((2, 2)), 0.0)
        recording.samples.append(Sample(BEGAN_S + at * 0.1, None, machine, reading, {}))
    return recording, [world.timeline()] * 2


def test_a_job_within_a_unit_has_nothing_to_do_with_a_timetable() -> None:
    traffic = Traffic(PACKETS, ("u1h1", "u1h2"), None, MTU, p4inc([(1, 1), (1, 2)]))
    assert traffic.forest is not None
    assert made(kept(BEGAN_S)).lights([(1, 1)]) == {}
    assert pair_of("u10", "u2") == (2, 10)


# ---------------------------------------------------------------- links and losses


def test_a_job_has_the_links_that_its_traffic_went_by_at_some_time() -> None:
    assert made().links(across((1, 1), (2, 1))) == {"u1h1", "u2h1", "u1o1", "u2o1"}
    assert made().links(Layout("inc", ((4, 1),), PACKETS)) == {"u4h1"}
    by_table = made(kept(BEGAN_S)).links(across((1, 1), (3, 1)))
    assert by_table == {"u1h1", "u3h1", "u1o1", "u3o1"}


def test_frames_lost_in_the_dark_are_those_of_the_jobs_ports() -> None:
    crossed = {
        "u1o1": {"lit": 0, "dark": 31, "unlit": 1},
        "u1": {"lit": 0, "dark": 1, "unlit": 51},
        "u3o1": {"lit": 0, "dark": 8, "unlit": 9},
        "u2o1": {"lit": 0, "dark": 1, "unlit": 1},
    }
    lost = made(kept(BEGAN_S), **crossed).losses(across((1, 1), (2, 1)))
    assert lost == {"u1o1": (30, 0), "u1": (0, 50)}
    assert made(kept(BEGAN_S), **crossed).losses(Layout("inc", ((3, 1), (3, 2)), PACKETS)) == {}
