"""Engines: what a further one would have to say of itself, and that nobody asks which one it is."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from testbed.dataplanes import folders
from testbed.dataplanes.tors import AllTors
from testbed.emulation.parts import parts
from testbed.machine.interface import EndedSwitch
from testbed.topology.dataplanes import DATA_PLANES, DataPlane
from testbed.topology.load import parse

CHECKOUT = Path(__file__).resolve().parents[2]
NAMES = {"xdp", "bmv2"}  # "none" is a word of other things too: of those, what is compared to `engine`


def asked(path: Path) -> Iterator[int]:
    """The lines that tell engines apart by name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            sides = [*ast.walk(node.left), *(part for side in node.comparators for part in ast.walk(side))]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "units_with":
            sides = [part for argument in node.args for part in ast.walk(argument)]
        elif isinstance(node, ast.match_case):
            sides = list(ast.walk(node.pattern))
        else:
            continue
        constants = {side.value for side in sides if isinstance(side, ast.Constant)}
        of_engine = any(getattr(side, "attr", getattr(side, "id", "")) == "engine" for side in sides)
        if constants & NAMES or (of_engine and "none" in constants):
            yield node.lineno if hasattr(node, "lineno") else 0


def test_nobody_asks_which_engine_it_is() -> None:
    tops = ("testbed", "controller", "workloads", "reproductions")
    files = [path for top in tops for path in sorted((CHECKOUT / top).rglob("*.py"))]
    assert {path.relative_to(CHECKOUT).parts[0] for path in files} == {*tops}
    assert len(files) > 200
    outside = [path for path in files if "dataplanes" not in path.parts]
    wrong = [f"{path.relative_to(CHECKOUT)}:{line}" for path in outside for line in asked(path)]
    assert not wrong, f"ask testbed/topology/dataplanes.py instead: {', '.join(wrong)}"


class ThirdTors:
    """Those of an engine that there is not: one of its ToRs has ended."""

    def __init__(self, topology: Any, _log: Path, _progress: Any) -> None:
        units = [unit.index for unit in topology.units if unit.data_plane.folder == "third"]
        self.by_dpid = {unit: f"ToR of unit {unit}" for unit in units}
        self.restarts = Counter({unit: 1 for unit in units})
        self.stands = False
        self.restarted: list[int] = []

    @contextmanager
    def standing(self, _cells: Any) -> Iterator[None]:
        self.stands = True
        yield
        self.stands = False

    def verdicts(self) -> dict[str, int]:
        return {"completed": 5}

    def any_ended(self) -> bool:
        return True

    def watch(self) -> list[EndedSwitch]:
        return [EndedSwitch(unit, f"unit {unit}'s third ended", 1) for unit in self.by_dpid]

    def has_ended(self, dpid: int) -> bool:
        return dpid not in self.restarted

    def restart(self, dpid: int) -> None:
        self.restarted.append(dpid)


def test_a_further_engine_is_a_line_and_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    third = DataPlane(
        "third",
        folder="third",
        sums=True,
        takes_fewer=True,
        takes_empties=True,
        answers=True,
        passes_copies=True,
        is_bridge=False,
    )
    monkeypatch.setitem(DATA_PLANES, "none", third)  # by a name that a topology may have
    tors, routes = ModuleType("tors"), ModuleType("routes")
    needed: list[str] = []
    tors.Tors, tors.require = ThirdTors, lambda topology: needed.append(topology.name)  # type: ignore[attr-defined]
    routes.router = lambda unit, dpid: f"router {dpid} of {unit.name}"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "testbed.dataplanes.third.tors", tors)
    monkeypatch.setitem(sys.modules, "testbed.dataplanes.third.routes", routes)

    topology = parse({"units": [{"hosts": 1}, {"hosts": 1, "engine": "none"}]}, "mixed")
    folders.require(topology)
    assert needed == ["mixed"]
    assert folders.used_by(topology) == ["xdp", "third"]
    assert folders.routers(topology) == {2: "router 2 of u2"}
    assert [bridge.name for bridge in parts(topology).bridges] == ["u1", "oxc"]
    every = AllTors(topology, tmp_path, lambda *_: None)
    assert (every.by_dpid, every.restarts, every.verdicts()) == (
        {2: "ToR of unit 2"},
        {2: 1},
        {"completed": 5},
    )
    assert every.any_ended()
    (ended,) = every.watch()
    assert ended == EndedSwitch(2, "unit 2's third ended", 1)
    assert every.has_ended(ended.dpid)
    every.restart(ended.dpid)
    assert not every.has_ended(ended.dpid)
