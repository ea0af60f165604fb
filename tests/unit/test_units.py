"""The numbers of units, from 1, scheduling's indices, from 0, and switches' datapath numbers: types that mypy
keeps apart, and checks where they come in.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testbed.aggregation.messages import layout_from_json, layout_to_json
from testbed.aggregation.system import Layout
from testbed.errors import RequestError
from testbed.scheduling.live import index_of, unit_at
from testbed.scheduling.model import UnitIndex
from testbed.topology.units import Unit, checked_unit, unit_named

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = """
from controller.state import State as Known
from controller.steps import Came
from testbed.ocs.exact import exact
from testbed.scheduling.live import circuits_of, index_of, unit_at
from testbed.scheduling.model import Decision, Job, State, UnitIndex
from testbed.topology.addresses import OXC_DPID, Dpid, tor_dpid, tor_unit, unit_name
from testbed.topology.places import Place, switch
from testbed.topology.units import Unit
"""
MIXED = (
    "unit_name(UnitIndex(0))",
    "unit_name(1)",
    "switch(UnitIndex(0))",
    "Place(UnitIndex(0), 2)",
    "Job(1, ((Unit(1), 4),), UnitIndex(2), 8.0)",
    "Job(1, ((UnitIndex(0), 4),), Unit(3), 8.0)",
    "unit_at(Unit(1))",
    "index_of(UnitIndex(0))",
    "exact(frozenset(), {(UnitIndex(0), UnitIndex(1)): 1}, {})",
    "Decision(inc={1: Unit(1)})",
    "def wrong(state: Known) -> bool: return Dpid(1) in state.premises.without_openflow",
    "def wrong_too(state: Known) -> bool: return Unit(1) in state.connected",
    "OXC_DPID == Unit(1)",
    "tor_unit(Unit(1))",
    "tor_dpid(OXC_DPID)",
    "Came(Unit(1))",
)
RIGHT = (
    "unit_name(unit_at(UnitIndex(0)))",
    "Job(1, ((index_of(Unit(1)), 4),), UnitIndex(2), 8.0)",
    "exact(frozenset(), circuits_of({(UnitIndex(0), UnitIndex(1)): 1}), {})",
    "def right(state: Known) -> bool: return tor_dpid(Unit(1)) in state.connected",
    "Came(OXC_DPID), tor_unit(tor_dpid(Unit(1)))",
)


def test_mypy_refuses_each_way_to_mix_them_up(tmp_path: Path) -> None:
    """One file with a line for each: mypy names every wrong line and no right one. What it imports is in
    mypy's cache where `make lint` ran before, as in the gate.
    """
    snippet = tmp_path / "snippet.py"
    snippet.write_text(IMPORTS + "\n".join((*MIXED, *RIGHT)) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(snippet)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    first = IMPORTS.count("\n") + 1
    wrong = {
        int(line.split(":")[1])
        for line in done.stdout.splitlines()
        if line.partition(":")[0].endswith("snippet.py") and ": error:" in line
    }
    assert wrong == set(range(first, first + len(MIXED))), done.stdout + done.stderr


def test_one_becomes_the_other_and_back() -> None:
    assert index_of(Unit(1)) == 0
    assert [unit_at(index_of(Unit(number))) for number in (1, 2, 250)] == [1, 2, 250]
    assert [index_of(unit_at(UnitIndex(index))) for index in (0, 1, 249)] == [0, 1, 249]


@pytest.mark.parametrize("number", [0, -1, 1.0, True, "1", None])
def test_what_is_no_unit_is_refused(number: object) -> None:
    with pytest.raises(ValueError, match=f"unit {number}: a whole number from 1 is accepted"):
        checked_unit(number)


@pytest.mark.parametrize("name", ["u0", "u", "1", "v1", "u-1", "u1h1", "", 1, None])
def test_a_name_that_is_no_units_is_refused(name: object) -> None:
    assert unit_named("u17") == 17
    with pytest.raises(RequestError, match="a name like u1 is accepted"):
        unit_named(name)


def test_a_layout_of_a_users_system_names_units_from_one() -> None:
    layout = layout_to_json(Layout("mine", ((Unit(1), 1),), "packets"))
    with pytest.raises(ValueError, match="no layout: ValueError: unit 0"):
        layout_from_json({**layout, "workers": [[0, 1]]})
