"""Find the folder of each engine, and define the modules that it must have.

A folder has two modules that are used here; nothing outside knows more of it:
- `tors`: `Tors(topology, log, progress)`, a `testbed.dataplanes.tors.Tors`, and `require(topology)`, which
  raises what the host lacks for it before anything starts.
- `routes`, if switches are no bridges: `router(unit, dpid)`, which sets a switch's whole table.

Modules are imported when a topology needs them: one engine's libraries are not required for another's.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from testbed.topology.addresses import Dpid
from testbed.topology.dataplanes import DATA_PLANES
from testbed.topology.model import Topology, UnitSpec

Router = Callable[[Mapping[tuple[str, int], tuple[tuple[str, ...], str]]], None]


def used_by(topology: Topology) -> list[str]:
    """Return the folders of the engines of a topology's units, and of its core, in the order of
    DATA_PLANES.
    """
    used = {unit.data_plane.folder for unit in topology.units}
    if topology.core_link:
        used.add(DATA_PLANES["none"].folder)
    return [
        folder for folder in dict.fromkeys(plane.folder for plane in DATA_PLANES.values()) if folder in used
    ]


def part(folder: str, name: str) -> Any:
    """Import a module of a folder of testbed/dataplanes/."""
    return importlib.import_module(f"testbed.dataplanes.{folder}.{name}")


def require(topology: Topology) -> None:
    """Raise HostError or RequestError for the first thing that the topology's engines lack on this host."""
    for folder in used_by(topology):
        part(folder, "tors").require(topology)


def routers(topology: Topology) -> dict[Dpid, Router]:
    """Return, for each switch without OpenFlow, the function that sets its routes."""
    units = [unit for unit in topology.units if not unit.data_plane.is_bridge]
    return {dpid: _router(unit, dpid) for unit in units for dpid in unit.switches}


def _router(unit: UnitSpec, dpid: Dpid) -> Router:
    router: Router = part(unit.data_plane.folder, "routes").router(unit, dpid)
    return router
