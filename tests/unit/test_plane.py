"""What the plane leaves in the programs' maps, whatever happens while it writes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from testbed.dataplanes.xdp import kept, layout
from testbed.dataplanes.xdp.plane import Routes
from testbed.errors import RequestError, SettingError
from testbed.ocs.timetable import Matching, Timetable
from testbed.topology.addresses import Dpid
from tests.unit.model_maps import Killed, ModelMaps

U1 = Dpid(1)
BASE: Routes = {("10.0.1.1", 32): (("port1",), "02:00:00:00:00:01")}
TABLE = Timetable(4_000_000, 0, (Matching(0, frozenset()), Matching(2_000_000, frozenset())))
FIRST: tuple[Mapping[int, int], ...] = ({1: 2, 2: 1, 3: 4, 4: 3}, {1: 3, 3: 1})
SECOND: tuple[Mapping[int, int], ...] = ({1: 2, 2: 1}, {})


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> ModelMaps:
    return ModelMaps(monkeypatch)


def keep(maps: ModelMaps, peers: tuple[Mapping[int, int], ...], start_ns: int = 9) -> None:
    """Have a timetable kept by a plane that was just opened."""
    routes = [{U1: {("10.0.2.0", 24): ((f"port{min(met, default=1)}",), "")}} for met in peers]
    maps.plane(4).keep(TABLE, peers, routes, lambda: start_ns)


def of_timetables(maps: ModelMaps) -> tuple[int, int]:
    """Count meetings, and routes beside the one that depends on no timetable."""
    return len(maps.of("meetings")), len(maps.of("routes")) - 1


@pytest.fixture
def based(maps: ModelMaps) -> ModelMaps:
    maps.plane(4).set_routes(U1, BASE)
    return maps


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
