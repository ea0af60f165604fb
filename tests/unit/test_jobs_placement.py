"""Placement and demands: examples from the default configuration, and what must hold for any."""

from __future__ import annotations

import json
from random import Random

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.aggregation.messages import site_from_json, site_to_json
from testbed.aggregation.packets import Packets
from testbed.aggregation.site import Rack, Site, racks_of
from testbed.aggregation.system import Layout
from testbed.errors import RequestError
from testbed.jobs.placement import (
    check_packets,
    check_programs,
    draw_server,
    draw_workers,
    parse_place,
    place_workers,
)
from testbed.plugins.registry import find, with_programs
from testbed.topology.load import parse
from testbed.topology.places import Host
from testbed.wire.recovery import Recovery
from testbed.wire.transports import PACKETS
from tests.forests import p4inc

RACKS = [Rack(1, "gpu", 4), Rack(2, "gpu", 4), Rack(3, "cpu", 2), Rack(4, "cpu", 2)]


def test_nothing_asked_means_the_first_gpu_unit() -> None:
    assert place_workers([RACKS[2], *RACKS[:2]], (), None) == [(1, 1), (1, 2), (1, 3), (1, 4)]


def test_ranks_follow_the_order_asked_and_skip_busy_hosts() -> None:
    assert place_workers(RACKS, {(2, 1)}, parse_place("u2:2, u1:1")) == [(2, 2), (2, 3), (1, 1)]


UNEQUAL = [Rack(1, "gpu", 4, (10.0, 40.0, None, 40.0)), Rack(2, "cpu", 3, (10.0, 40.0, 20.0))]


def test_jobs_get_the_fastest_free_hosts_and_ranks_go_by_number() -> None:
    assert place_workers(UNEQUAL, (), ((1, 2),)) == [(1, 2), (1, 3)]
    assert place_workers(UNEQUAL, {(1, 3)}, ((1, 3), (2, 1))) == [(1, 1), (1, 2), (1, 4), (2, 2)]
    drawn = draw_workers(UNEQUAL, (), 3, None, True, None, Random(1))
    assert drawn == [(1, 2), (1, 3), (1, 4)]
    assert draw_server(UNEQUAL, {(2, 2)}, None, Random(1)) == (2, 3)
    assert site(racks=UNEQUAL).server([(1, 1)]) == (2, 2)
    assert site((2, 1), (2, 2), (2, 3), racks=UNEQUAL).server([(1, 2)]) == (1, 3), "unshaped"


def test_systems_are_told_the_rates_of_hosts() -> None:
    hosts = [{"rate_mbps": 8_000}, {}]
    assert racks_of(parse({"units": [{"hosts": hosts}, {"hosts": 1}]}, "t")) == (
        Rack(1, "gpu", 2, (8_000, 40_000), usual_mbps=40_000, reach_mbps=40_000),
        Rack(2, "gpu", 1, usual_mbps=40_000, reach_mbps=40_000),
    )
    seen = site(racks=UNEQUAL)
    assert site_from_json(json.loads(json.dumps(site_to_json(seen)))) == seen


@pytest.mark.parametrize("text", ["", "u1", "u1:0", "u1:-1", "1:2", "u0:1", "u1:2,", "u1:2;u2:2", "u1:x"])
def test_bad_place(text: str) -> None:
    with pytest.raises(RequestError, match="accepted is UNIT:WORKERS"):
        parse_place(text)


@pytest.mark.parametrize("text", ["u257:2", "u1:1,u513:1", "u1r65:1"])
def test_a_number_that_runs_over_is_no_other_rack_s(text: str) -> None:
    with pytest.raises(RequestError, match="units to 250 and racks to 64 are accepted"):
        parse_place(text)


def test_a_unit_twice() -> None:
    with pytest.raises(RequestError, match="u1 is named twice"):
        parse_place("u1:1,u2:1,u1:1")


def test_unknown_unit_names_the_accepted() -> None:
    with pytest.raises(RequestError, match=r"u9:1: no such unit; accepted are u1 \(4 hosts\), u2"):
        place_workers(RACKS, (), ((9, 1),))


def test_too_many_workers_says_how_many_fit() -> None:
    with pytest.raises(RequestError, match="u1 has 4 hosts; 4 can be placed there"):
        place_workers(RACKS, (), ((1, 5),))
    with pytest.raises(RequestError, match="4 hosts, 3 of them in use; 1 can be placed"):
        place_workers(RACKS, {(1, 1), (1, 2), (1, 3)}, ((1, 2),))


def test_no_gpu_unit() -> None:
    with pytest.raises(RequestError, match="say --place"):
        place_workers(RACKS[2:], (), None)


def site(*busy: Host, racks: list[Rack] = RACKS, joined: tuple[tuple[int, int], ...] = ()) -> Site:
    return Site(tuple(racks), frozenset(busy), frozenset(map(frozenset, joined)))


def test_a_server_prefers_a_cpu_unit_that_is_joined_already() -> None:
    assert site().server([(1, 1), (2, 1)]) == (3, 1)
    assert site(joined=((4, 1),)).server([(1, 1), (2, 1)]) == (4, 1)
    assert site((3, 1)).server([(1, 1)]) == (3, 2)
    assert site((3, 1), (3, 2), (4, 1), (4, 2)).server([(1, 1)]) == (1, 2)


def test_no_free_host_for_a_server() -> None:
    with pytest.raises(RequestError, match=r"no free host for the parameter server: .* wait for a job"):
        site((1, 1), racks=[Rack(1, "gpu", 2)]).server([(1, 2)])
    with pytest.raises(RequestError, match=r"all 2 hosts are workers': place fewer$"):
        site(racks=[Rack(1, "gpu", 2)]).server([(1, 1), (1, 2)])
    with pytest.raises(RequestError, match="the testbed has one host"):
        site(racks=[Rack(1, "gpu", 1)]).server([(1, 1)])


def test_layouts_of_each_system() -> None:
    workers: list[Host] = [(1, 1), (1, 2), (2, 1), (2, 2)]
    inc, ps, ring, switches = (
        find(name).lay_out(workers, site()) for name in ("inc", "ps", "ring", "switches")
    )
    assert (inc.server, inc.demands) == ((3, 1), ((1, 3), (2, 3)))
    assert (ps.server, ps.demands, ps.forest) == ((3, 1), ((1, 3), (2, 3)), None)
    assert (ring.server, ring.demands, ring.forest) == (None, ((1, 2),), None)
    assert (switches.server, switches.demands) == (None, ((2, 1),))
    around = find("ring").lay_out([(1, 1), (2, 1), (3, 1)], site())
    assert around.demands == ((1, 2), (2, 3), (3, 1))
    for name in ("inc", "ring", "switches"):
        within = find(name).lay_out(workers[:2], site())
        assert (within.server, within.demands) == (None, ()), name


def test_bad_sync() -> None:
    with pytest.raises(
        RequestError,
        match=r"--sync 'tree': accepted are auto, aleph, aleph-mwcha, aleph-servers, inc, luwu, ps, ring, "
        r"switches, trio, FILE\.py:CLASS",
    ):
        find("tree")


@pytest.mark.parametrize(
    ("system", "lanes", "said"),
    [
        ("inc", 63, "--lanes 63: 64 to 360 are accepted, as many as the MTU of 1500 holds"),
        ("inc", 361, "--lanes 361: 64 to 360 are accepted"),
        ("ring", 360, "--lanes 360: ring sums at no place, so its packets have no lanes"),
        ("inc", 359, "--lanes 359: u2 has engine: bmv2, whose program takes packets of 360 lanes only"),
    ],
)
def test_lanes_that_a_job_cannot_have(system: str, lanes: int, said: str) -> None:
    layout = find(system).lay_out([(1, 1), (2, 1)], site())
    with pytest.raises(RequestError, match=said):
        check_packets(layout, Packets(lanes), {1: "xdp", 2: "bmv2", 3: "xdp", 4: "bmv2"}, 1500)


@pytest.mark.parametrize(
    ("system", "workers", "said"),
    [
        ("ring", [(1, 1), (1, 2)], "--recovery integrity: ring sums at no place, so nobody can be asked"),
        (
            "inc",
            [(1, 1), (2, 1)],
            "--recovery integrity: u2 has engine: bmv2, whose program knows no questions; window is accepted",
        ),
    ],
)
def test_questions_that_a_job_cannot_ask(system: str, workers: list[Host], said: str) -> None:
    layout = find(system).lay_out(workers, site())
    engines = {1: "xdp", 2: "bmv2", 3: "xdp", 4: "bmv2"}
    with pytest.raises(RequestError, match=said):
        check_packets(layout, Packets(recovery=Recovery.INTEGRITY), engines, 1500)
    check_packets(layout, Packets(), engines, 1500)
    within = find("inc").lay_out([(1, 1), (1, 2)], site())
    check_packets(within, Packets(recovery=Recovery.INTEGRITY), engines, 1500)


def test_no_recovery_is_for_packets_that_are_pushed_to_places() -> None:
    packets, engines = Packets(recovery=Recovery.NONE), {1: "xdp", 2: "bmv2", 3: "xdp", 4: "bmv2"}
    for system in ("inc", "switches"):
        check_packets(find(system).lay_out([(1, 1), (2, 1)], site()), packets, engines, 1500)
    said = "^--recovery none: ring sums at no place, so TCP recovers its packets$"
    with pytest.raises(RequestError, match=said):
        check_packets(find("ring").lay_out([(1, 1), (1, 2)], site()), packets, engines, 1500)


def test_lanes_that_a_job_can_have() -> None:
    engines = {1: "xdp", 2: "bmv2", 3: "xdp", 4: "bmv2"}
    across, within = (
        find("inc").lay_out(workers, site()) for workers in ([(1, 1), (2, 1)], [(1, 1), (1, 2)])
    )
    check_packets(across, Packets(None), engines, 1500)
    check_packets(across, Packets(360), engines, 1500)
    for lanes in (64, 101, 360):
        check_packets(within, Packets(lanes), engines, 1500)


racks_strategy = st.lists(
    st.tuples(st.sampled_from(["gpu", "cpu"]), st.integers(1, 5)), min_size=1, max_size=6
).map(lambda rows: [Rack(unit, kind, hosts) for unit, (kind, hosts) in enumerate(rows, 1)])


@st.composite
def requests(
    draw: st.DrawFn,
) -> tuple[list[Rack], set[Host], str, list[tuple[int, int]], list[tuple[int, int]]]:
    racks = draw(racks_strategy)
    hosts = [host for rack in racks for host in rack.members()]
    busy = draw(st.sets(st.sampled_from(hosts)))
    units = draw(st.lists(st.sampled_from([rack.unit for rack in racks]), min_size=1, unique=True))
    wanted = [(unit, draw(st.integers(1, 5))) for unit in units]
    pairs = st.tuples(st.sampled_from(units), st.sampled_from(units))
    return (
        racks,
        busy,
        draw(st.sampled_from(["inc", "ring", "ps", "switches"])),
        wanted,
        draw(st.lists(pairs)),
    )


@given(requests())
def test_what_is_placed_is_free_distinct_and_as_asked(
    request_: tuple[list[Rack], set[Host], str, list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    racks, busy, sync, wanted, circuits = request_
    try:
        workers = place_workers(racks, busy, wanted)
        placed = find(sync).lay_out(workers, site(*busy, racks=racks, joined=tuple(circuits)))
    except RequestError:
        return
    everyone = [*placed.workers, *([placed.server] if placed.server else [])]
    assert placed.hosts() == set(everyone)
    assert len(set(everyone)) == len(everyone)
    assert not set(everyone) & busy
    assert [unit for unit, _ in placed.workers] == [unit for unit, count in wanted for _ in range(count)]
    pairs = [frozenset(pair) for pair in placed.demands]
    assert len(set(pairs)) == len(pairs)
    assert all(len(pair) == 2 for pair in pairs)
    # demands, taken as circuits, join every unit of the job
    units = {unit for unit, _ in everyone}
    assert nx.is_connected(nx.Graph([*placed.demands, *[(unit, unit) for unit in units]]))


ACROSS = Layout("mine", ((1, 1), (2, 1)), PACKETS, None, p4inc([(1, 1), (2, 1)], (3, 1)))


@pytest.mark.parametrize(
    ("programs", "engines", "message"),
    [
        ({"xdp": "sum", "bmv2": "sum"}, "xdp bmv2 none", None),
        (
            {"xdp": "sum"},
            "xdp bmv2 xdp",
            "u2 has engine: bmv2, which cannot sum for it; accepted are units with xdp, "
            "and there ps and ring",
        ),
        (
            {},
            "xdp xdp xdp",
            "u1 has engine: xdp, which cannot sum for it; accepted are units with no engine: it names no "
            "programs, and there ps and ring",
        ),
        (
            {"xdp": "sum", "none": "sum"},
            "none xdp xdp",
            "u1 has engine: none, which has no program 'sum'; accepted are none",
        ),
        (
            {"xdp": "vote"},
            "xdp xdp xdp",
            "u1 has engine: xdp, which has no program 'vote'; accepted are sum, blocks, owned",
        ),
    ],
)
def test_a_place_without_the_systems_program_is_refused(
    programs: dict[str, str], engines: str, message: str | None
) -> None:
    by_unit = dict(enumerate(engines.split(), 1))
    if message is None:
        check_programs(ACROSS, programs, by_unit)
        return
    with pytest.raises(RequestError) as refused:
        check_programs(ACROSS, programs, by_unit)
    assert str(refused.value) == f"--sync mine: {message}"


def test_a_program_that_the_configuration_leaves_out_is_refused_with_what_to_write() -> None:
    with pytest.raises(RequestError) as refused, with_programs([], {"bmv2": []}):
        check_programs(ACROSS, {"bmv2": "blocks", "xdp": "sum"}, {1: "bmv2", 2: "bmv2", 3: "xdp"})
    assert str(refused.value) == (
        "--sync mine: u1 has engine: bmv2, which has no program 'blocks'; accepted are sum; "
        "a testbed has it with bmv2: {programs: [blocks]} in its configuration"
    )


def test_hosts_relay_where_their_switches_let_copies_pass() -> None:
    layout = find("aleph").lay_out([(1, 1), (2, 1)], site())
    check_programs(layout, {}, {1: "xdp", 2: "none", 3: "xdp"})
    message = (
        "--sync aleph: u2 has engine: bmv2, which passes no results from host to host; accepted are units "
    )
    with pytest.raises(RequestError, match=f"{message}with xdp or none"):
        check_programs(layout, {}, {1: "xdp", 2: "bmv2", 3: "xdp"})
