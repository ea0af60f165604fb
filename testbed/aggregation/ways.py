"""The optical ports by which a forest's results go on from unit to unit: the controller's answer, which knows
the circuits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.aggregation.admission import Ways
from testbed.aggregation.forest import Forest
from testbed.topology import addresses
from testbed.topology.units import Unit, checked_unit


def ways(forest: Forest, controller: Callable[..., Any]) -> list[Ways]:
    """Return, by tree, the devices by which results go on from each unit, from the unit of the top to those
    of the receivers. `controller` is asked by operation and arguments. Raises what it raises.
    """
    return [
        _way(tree.top.place.unit, {unit for unit, _ in forest.receivers(number)}, controller)
        for number, tree in enumerate(forest.trees)
    ]


def _way(root: Unit, units: set[Unit], controller: Callable[..., Any]) -> Ways:
    if units == {root}:
        return {}
    members = [addresses.unit_name(unit) for unit in sorted(units)]
    ports = controller("tree", root=addresses.unit_name(root), members=members)
    devices: dict[Unit, list[str]] = {}
    for number, numbers in ports.items():  # JSON's keys are texts
        unit = checked_unit(int(number))
        devices[unit] = [addresses.optical_device(unit, port) for port in numbers]
    return devices
