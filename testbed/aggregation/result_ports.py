"""Find the ports by which switches forward a forest's results: between units from the controller, which knows
the circuits; within a pod from its fixed links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from testbed.aggregation.admission import Ways
from testbed.aggregation.forest import Forest
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.places import Host, Place
from testbed.topology.units import Unit, checked_unit


def ways(forest: Forest, controller: Callable[..., Any]) -> list[Ways]:
    """Return, by tree, the devices by which each switch, from the top's to the workers', forwards results.
    Calls `controller` with an operation and arguments, and raises its errors.
    """
    return [_way(tree.top.place, forest.workers, controller) for tree in forest.trees]


def _way(top: Place, receivers: Iterable[Host], controller: Callable[..., Any]) -> Ways:
    racks = sorted({(unit, addresses.rack_of(host)) for unit, host in receivers} - {(top.unit, top.rack)})
    devices = _between_units(top.unit, {unit for unit, _ in racks} | {top.unit}, controller)
    if top.rack and racks:
        devices.setdefault(addresses.tor_dpid(top.unit), [])
        devices[top.tor] = [(addresses.uplink_device(top.unit, top.rack),)]
    for unit, rack in racks:
        if rack:
            above = devices.setdefault(addresses.tor_dpid(unit), [])
            above.append((addresses.rack_device(unit, rack),))
    return devices


def _between_units(
    root: Unit, units: set[Unit], controller: Callable[..., Any]
) -> dict[Dpid, list[tuple[str, ...]]]:
    """Return the devices by which each unit's own switch, and the core, forward results."""
    if units == {root}:
        return {}
    members = [addresses.unit_name(unit) for unit in sorted(units)]
    ports = controller("tree", root=addresses.unit_name(root), members=members)
    devices: dict[Dpid, list[tuple[str, ...]]] = {}
    for number, bundles in ports.items():  # JSON's keys are texts
        unit = checked_unit(int(number))
        devices[addresses.tor_of(unit, 0)] = [
            tuple(addresses.way_device(unit, port) for port in bundle) for bundle in bundles
        ]
    return devices
