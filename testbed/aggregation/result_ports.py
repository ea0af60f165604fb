"""The ports by which a forest's results go on from switch to switch: between units as the controller answers,
which knows the circuits, within a pod by its links, which are as they are.
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
    """Return, by tree, the devices by which results go on from each switch, from that of the top to those of
    the workers. `controller` is asked by operation and arguments. Raises what it raises.
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
    """Return the devices by which results go on from each unit's own switch, and from the core."""
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
