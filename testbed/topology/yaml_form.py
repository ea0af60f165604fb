"""Convert a topology to the words of a YAML file: the inverse of testbed.topology.load.parse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.errors import RequestError
from testbed.topology.model import LinkStart, Topology, UnitSpec
from testbed.topology.optical import Group, OcsSpec
from testbed.topology.values import rate_said, section_said, value_said


def words(topology: Topology) -> dict[str, Any]:
    """Return words that `parse` reads back to an equal topology. Raises RequestError for links with queues of
    two lengths, which a file cannot express.
    """
    if topology.host_link.buffer_packets != topology.optical_link.buffer_packets:
        raise RequestError(
            f"buffer_packets: {topology.host_link.buffer_packets} for hosts and "
            f"{topology.optical_link.buffer_packets} for optical ports; links have one value"
        )
    core = topology.core_link
    instead = {
        "units": [_unit(unit) for unit in topology.units],
        "host_link": rate_said(topology.host_link.rate_mbps),
        "optical_link": rate_said(topology.optical_link.rate_mbps),
        "pod_link": None if topology.pod_link is None else rate_said(topology.pod_link.rate_mbps),
        "link_rates": _links(topology) or None,
        "core_link": None if core is None else {"rate_mbps": rate_said(core.rate_mbps)},
        "usual_ports": None,
        "queues": topology.host_link.buffer_packets,
        "ocs": _ocs(topology.ocs),
    }
    return section_said(topology, **instead)


def _links(topology: Topology) -> dict[str, Any]:
    """Return the words about single links: the rate of each, and what else it has from the start."""
    words: dict[str, Any] = {link: rate_said(rate) for link, rate in topology.link_rates.items()}
    for link, start in topology.link_starts.items():
        without = {"own_rate": None} | ({} if start.has_fault else {"distance": None, "seed": None})
        rate = {LinkStart.own_rate.name: words[link]} if link in words else {}
        words[link] = rate | section_said(start, **without)
    return words


def _unit(unit: UnitSpec) -> dict[str, Any]:
    instead = {
        "racks": unit.racks or None,
        "hosts": [section_said(host) for host in unit.unequal] or unit.hosts,
        "own_rate": None,
        "optical_ports": dict(unit.planes) or unit.optical_ports,
    }
    return section_said(unit, **instead)


def _ocs(ocs: OcsSpec) -> dict[str, Any]:
    settings = ocs.settings
    values = {name: value for name, value in settings.values.items() if value or not ocs.is_usual}
    instead = {
        "of_ports": _groups(settings.ports) or None,
        "of_planes": _groups(settings.planes) or None,
        "circuits": [list(circuit) for circuit in ocs.circuits],
        "model": None if ocs.is_usual else ocs.model,
    }
    return {**{name: value_said(value) for name, value in values.items()}, **section_said(ocs, **instead)}


def _groups(groups: Mapping[str, Group]) -> dict[str, Group]:
    """Return the values that planes or ports have of their own."""
    return {of: {name: value_said(value) for name, value in own.items()} for of, own in groups.items()}
