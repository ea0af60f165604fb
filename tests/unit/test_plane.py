"""The plane's writes to the programs' maps: what they leave there, whatever happens meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.flows import RouteChanges, TorFlows, oxc_flows, routes_of, tor_flows
from controller.planes import FastPath
from testbed.dataplanes.xdp import plane, routes, timetable
from testbed.dataplanes.xdp.routes import PinnedRoutes, Routes
from testbed.dataplanes.xdp.syscall import Rows
from testbed.errors import RequestError, SettingError
from testbed.ocs.circuits import Circuit, checked
from testbed.ocs.timetable import Kept, Matching, Timetable
from testbed.topology.addresses import OXC_DPID, Dpid
from testbed.topology.load import parse
from testbed.topology.model import Topology
from testbed.wire.places import Frames
from tests.unit.model_maps import Killed, ModelMaps
from tests.unit.model_switches import ModelPlane, ModelSwitch, with_change
from tests.unit.test_controller import connected

U1, U2 = Dpid(1), Dpid(2)
BASE: Routes = {("10.0.1.1", 32): (("port1",), "02:00:00:00:00:01")}
TABLE = Timetable(4_000_000, 0, (Matching(0, frozenset()), Matching(2_000_000, frozenset())))
FIRST: tuple[Mapping[int, int], ...] = ({1: 2, 2: 1, 3: 4, 4: 3}, {1: 3, 3: 1})
SECOND: tuple[Mapping[int, int], ...] = ({1: 2, 2: 1}, {})


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> ModelMaps:
    return ModelMaps(monkeypatch)


def keep(maps: ModelMaps, peers: tuple[Mapping[int, int], ...], start_ns: int = 9) -> None:
    """Have a timetable kept by a plane that was just opened."""
    by_matching = [{U1: {("10.0.2.0", 24): ((f"port{min(met, default=1)}",), "")}} for met in peers]
    maps.plane(4).keep(TABLE, peers, {Frames.OWN: by_matching}, lambda: start_ns)


def of_timetables(maps: ModelMaps) -> tuple[int, int]:
    """Count meetings, and routes beside the one that depends on no timetable."""
    return len(maps.of("meetings")), len(maps.of("routes")) - 1


@pytest.fixture
def based(maps: ModelMaps) -> ModelMaps:
    maps.plane(4).routes.set(U1, BASE)
    return maps


UNITS = st.fixed_dictionaries(
    {"hosts": st.integers(1, 2), "optical_ports": st.integers(1, 4)}, optional={"racks": st.integers(1, 3)}
)


def wired(topology: Topology, chance: Random) -> frozenset[Circuit]:
    """Circuits between ports of a fabric, any."""
    ports = list(topology.optical_ports)
    chance.shuffle(ports)
    pairs = list(zip(ports[::2], ports[1::2], strict=False))
    return checked(pairs[: chance.randint(0, len(pairs))], ports)


def filled(routes: PinnedRoutes, flows: TorFlows) -> None:
    for dpid in flows:
        routes.set(dpid, routes_of(dpid, flows[dpid]))


@pytest.mark.parametrize("whole_from", [1, 100_000])
@settings(max_examples=60, deadline=None)
@given(
    units=st.lists(UNITS, min_size=1, max_size=7),
    chance=st.randoms(use_true_random=False),
    left_out=st.sets(st.integers(1, 7), max_size=2),
)
def test_a_change_of_routes_leaves_what_setting_them_would(
    whole_from: int, units: list[dict[str, int]], chance: Random, left_out: set[int]
) -> None:
    """Any fabric is changed three times; switches that are left out have their table set."""
    topology = parse({"units": units}, "some")
    steps = [tor_flows(topology, wired(topology, chance)) for _ in range(4)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(routes, "READ_WHOLE_FROM", whole_from)
        maps, plane = (made := ModelMaps(monkeypatch)), made.plane(4)
        filled(plane.routes, steps[0])
        for before, now in itertools.pairwise(steps):
            rerouted = now.differing(before) - left_out
            changes = RouteChanges(before, now, sorted(rerouted))
            for dpid in changes:
                gone, new = changes[dpid]
                was = routes_of(dpid, before[dpid])
                assert with_change(was, gone, new) == routes_of(dpid, now[dpid])
            plane.routes.change(changes.rerouted())
            for dpid in now.keys() - rerouted:
                plane.routes.set(dpid, routes_of(dpid, now[dpid]))
            changed = dict(maps.of("routes"))
            filled(plane.routes, now)  # which knows what it changed
            filled(maps.plane(4).routes, now)  # and another, which reads all
            assert maps.of("routes") == changed
        other = ModelMaps(monkeypatch)
        filled(other.plane(4).routes, steps[-1])
        assert changed == other.of("routes")


PAIR = parse({"units": [{"hosts": 1, "optical_ports": 3}] * 2}, "pair")
ONE, THREE = (
    tor_flows(PAIR, checked([(f"u1o{n}", f"u2o{n}") for n in range(1, count + 1)], PAIR.optical_ports))
    for count in (1, 3)
)


def test_further_ways_are_written_before_the_first_and_go_after_it(maps: ModelMaps) -> None:
    def ways(rows: Rows) -> list[int]:
        return [int(row["way"]) for row in rows if row["owner"] == U1]

    _, keys, values = routes.packed_changes(THREE.rerouted(ONE, [U1, U2]))
    assert (ways(keys), values["ways"].tolist()) == ([2, 1, 0], [3] * 6)
    gone, keys, _ = routes.packed_changes(ONE.rerouted(THREE, [U1, U2]))
    assert (ways(gone), ways(keys)) == ([1, 2], [0])


@pytest.mark.parametrize("whole_from", [1, 1000])
@pytest.mark.parametrize("broken", ["map_delete_rows", "map_update_rows"])
def test_a_change_that_reads_back_another_is_an_error_and_is_made_good(
    maps: ModelMaps, monkeypatch: pytest.MonkeyPatch, whole_from: int, broken: str
) -> None:
    monkeypatch.setattr(routes, "READ_WHOLE_FROM", whole_from)
    plane = maps.plane(4)
    filled(plane.routes, ONE)
    plane.routes.change(THREE.rerouted(ONE, [U1]))
    plane.routes.change(THREE.rerouted(ONE, [U2]))
    with monkeypatch.context() as context:
        context.setattr(routes, broken, lambda *arguments: None)
        with pytest.raises(SettingError, match="routes of u1: what was set"):
            plane.routes.change(ONE.rerouted(THREE, [U1]))
    filled(plane.routes, ONE)
    assert len(maps.of("routes")) == 4


def test_a_circuit_that_reads_back_another_is_an_error(
    maps: ModelMaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane_of_four = maps.plane(4)
    plane_of_four.turn({1: 2, 2: 1}, 0, 0)
    monkeypatch.setattr(plane, "map_update_rows", lambda *arguments: None)
    with pytest.raises(SettingError, match="optical port 3: the circuit read back"):
        plane_of_four.darken({3: 1, 1: 3}, 5)


def test_a_timetable_that_fails_half_way_leaves_nothing(based: ModelMaps) -> None:
    based.room = {"routes": 2}
    with pytest.raises(SettingError, match="Argument list too long"):
        keep(based, FIRST)
    assert of_timetables(based) == (0, 0)
    assert not based.plane(4).is_kept()


def test_a_timetable_that_reads_back_another_leaves_nothing(
    based: ModelMaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        timetable, "map_update", lambda fd, key, value: based.entries[fd].update({key: value[::-1]})
    )
    with pytest.raises(SettingError, match="read back differ"):
        keep(based, FIRST)
    assert of_timetables(based) == (0, 0)


def test_one_that_does_not_fit_is_refused_before_anything_is_written(
    based: ModelMaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timetable, "MAX_ROUTES", 2)
    with pytest.raises(RequestError) as error:
        keep(based, FIRST)
    assert str(error.value) == "schedule: 2 routes of all its matchings; 1 are accepted"
    assert of_timetables(based) == (0, 0)


@pytest.mark.parametrize("writes", range(9))
def test_what_a_killed_process_wrote_is_in_no_later_timetable(based: ModelMaps, writes: int) -> None:
    based.killed_after = writes
    with pytest.raises(Killed):
        keep(based, FIRST)
    based.killed_after = -1
    keep(based, SECOND)
    assert of_timetables(based) == (2, 2), "ports 3 and 4 have no circuit"


def test_what_is_left_of_an_end_half_way_is_in_no_later_timetable(based: ModelMaps) -> None:
    keep(based, FIRST)
    based.killed_after = 1
    with pytest.raises(Killed):
        based.plane(4).leave()
    assert not based.plane(4).is_kept()
    based.killed_after = -1
    keep(based, SECOND)
    assert of_timetables(based) == (2, 2)
    based.plane(4).leave()
    assert of_timetables(based) == (0, 0)


def test_the_start_is_taken_once_all_is_written(based: ModelMaps) -> None:
    seen = []
    plane = based.plane(4)
    plane.keep(TABLE, FIRST, {Frames.OWN: [{}, {}]}, lambda: seen.append(of_timetables(based)[0]) or 9)  # type: ignore[func-returns-value]
    assert (seen, plane.kept_from_ns()) == ([6], 9)


def test_a_timetable_that_is_kept_is_read_back(based: ModelMaps) -> None:
    assert based.plane(4).kept() is None
    keep(based, FIRST)
    assert based.plane(4).kept() == Kept(4_000_000, 0, (0, 2_000_000), FIRST)


def test_ports_whose_darkness_nobody_ends_are_lit_when_the_optical_switch_comes(
    maps: ModelMaps, tmp_path: Path
) -> None:
    plane = maps.plane(1 << 10)
    conductor, _ = connected(tmp_path, plane=FastPath(plane, ModelPlane()))  # type: ignore[arg-type]
    lit = plane.circuits()
    a, b = min(lit.items())
    plane.darken({a: b, b: a}, 5)
    assert plane.circuits() == lit | {a: 0, b: 0}
    conductor.connected(ModelSwitch(OXC_DPID, oxc_flows(conductor.state.current)))  # type: ignore[arg-type]
    assert plane.circuits() == lit
    plane.darken({a: b, b: a}, 5)
    plane.darken({a: None, b: None}, 5)
    connected(tmp_path, plane=FastPath(plane, ModelPlane()))  # type: ignore[arg-type]
    assert plane.circuits() == lit, "of a controller that is started again, too"
