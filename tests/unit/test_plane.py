"""The plane's writes to the programs' maps: what they leave there, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from controller.flows import oxc_flows
from controller.planes import FastPath
from testbed.dataplanes.xdp import kept, layout, routes
from testbed.dataplanes.xdp.routes import Routes
from testbed.errors import RequestError, SettingError
from testbed.ocs.timetable import Kept, Matching, Timetable
from testbed.topology.addresses import OXC_DPID, Dpid
from tests.unit.model_maps import Killed, ModelMaps
from tests.unit.model_switches import ModelPlane, ModelSwitch
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
    maps.plane(4).keep(TABLE, peers, by_matching, lambda: start_ns)


def of_timetables(maps: ModelMaps) -> tuple[int, int]:
    """Count meetings, and routes beside the one that depends on no timetable."""
    return len(maps.of("meetings")), len(maps.of("routes")) - 1


@pytest.fixture
def based(maps: ModelMaps) -> ModelMaps:
    maps.plane(4).routes.set(U1, BASE)
    return maps


WAYS: Routes = {("10.0.2.0", 24): (("port2", "port3", "port4"), ""), ("10.0.3.0", 24): (("port2",), "")}


@pytest.mark.parametrize("whole_from", [1, 1000])
def test_a_change_of_routes_leaves_what_setting_them_would(
    maps: ModelMaps, monkeypatch: pytest.MonkeyPatch, whole_from: int
) -> None:
    monkeypatch.setattr(routes, "READ_WHOLE_FROM", whole_from)
    plane = maps.plane(4)
    plane.routes.set(U1, {**BASE, **WAYS})
    plane.routes.set(U2, WAYS)
    held = dict(maps.of("routes"))
    fewer: Routes = {("10.0.2.0", 24): (("port4", "port3"), "")}
    plane.routes.change({U1: (WAYS, fewer), U2: (fewer, {})})
    plane.routes.change({U2: (WAYS, WAYS), U1: ({}, {})})
    changed = dict(maps.of("routes"))
    for dpid, table in ((U1, {**BASE, **fewer}), (U2, WAYS)):
        plane.routes.set(dpid, table)
        maps.plane(4).routes.set(dpid, table)  # another that knows nothing
    assert maps.of("routes") == changed
    plane.routes.change({U1: (fewer, WAYS)})
    assert maps.of("routes") == held


@pytest.mark.parametrize("whole_from", [1, 1000])
def test_a_change_that_reads_back_another_is_an_error_and_is_made_good(
    maps: ModelMaps, monkeypatch: pytest.MonkeyPatch, whole_from: int
) -> None:
    monkeypatch.setattr(routes, "READ_WHOLE_FROM", whole_from)
    plane = maps.plane(4)
    plane.routes.set(U1, {**BASE, **WAYS})
    plane.routes.change({U1: (BASE, {})})
    with monkeypatch.context() as broken:
        broken.setattr(routes, "map_delete_all", lambda fd, keys: None)
        with pytest.raises(SettingError, match="routes of u1: what was set"):
            plane.routes.change({U1: (WAYS, BASE)})
    plane.routes.set(U1, BASE)
    assert len(maps.of("routes")) == 1


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
        kept, "map_update", lambda fd, key, value: based.entries[fd].update({key: value[::-1]})
    )
    with pytest.raises(SettingError, match="read back differ"):
        keep(based, FIRST)
    assert of_timetables(based) == (0, 0)


def test_one_that_does_not_fit_is_refused_before_anything_is_written(
    based: ModelMaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(layout.SIZES, "MAX_ROUTES", 2)
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
    plane.keep(TABLE, FIRST, [{}, {}], lambda: seen.append(of_timetables(based)[0]) or 9)  # type: ignore[func-returns-value]
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
