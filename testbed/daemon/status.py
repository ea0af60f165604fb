"""Make the parts of a testbed's status that come from its topology and its counters. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from testbed.client.caller import user_name
from testbed.messages.coding import UNSET, UnsetType
from testbed.messages.links import LinkStatus
from testbed.messages.status import HostCommand, HostStatus, OpticalModelStatus, RackStatus, UnitStatus
from testbed.telemetry.samples import LinkCounters
from testbed.topology import addresses
from testbed.topology.model import Topology, UnitSpec
from testbed.topology.optical import OcsSpec
from testbed.topology.places import Host
from testbed.topology.yaml_text import written


def units(topology: Topology, restarts: Mapping[int, int]) -> tuple[UnitStatus, ...]:
    """Return the status of units, with the number of restarts of each ToR."""
    return tuple(
        UnitStatus(
            name=unit.name,
            kind=unit.kind,
            hosts=len(unit.members),
            optical_ports=unit.optical_ports,
            planes=dict(unit.planes),
            engine=unit.engine,
            restarts=restarts[addresses.tor_dpid(unit.index)],
            link_rates_mbps={
                link: rate_mbps for link, rate_mbps in topology.link_rates.items() if link in unit.links
            },
            racks=_racks(unit, restarts) if unit.racks else UNSET,
        )
        for unit in topology.units
    )


def _racks(unit: UnitSpec, restarts: Mapping[int, int]) -> tuple[RackStatus, ...]:
    return tuple(RackStatus(addresses.tor_name(tor), unit.hosts, restarts[tor]) for tor in unit.switches[1:])


def hosts(
    topology: Topology,
    held: Mapping[str, int],
    guests: Mapping[Host, Collection[int]],
    commands: Mapping[str, HostCommand],
) -> tuple[HostStatus, ...]:
    """Return the status of hosts, with the jobs that hold them, the users who run commands there, and the
    commands that they run from the start.
    """
    return tuple(
        _host(topology, (unit.index, number), held, guests, commands)
        for unit in topology.units
        for number in unit.numbers
    )


def _host(
    topology: Topology,
    host: Host,
    held: Mapping[str, int],
    guests: Mapping[Host, Collection[int]],
    commands: Mapping[str, HostCommand],
) -> HostStatus:
    name, spec = addresses.host_name(*host), topology.host(*host)
    return HostStatus(
        name=name,
        unit=addresses.unit_name(host[0]),
        ip=addresses.host_ip(*host),
        rate_mbps=spec.rate_mbps,
        cpus=spec.cpus,
        job=held.get(name),
        commands_of=tuple(user_name(uid) for uid in sorted(guests.get(host, ()))),
        second_name=spec.name,
        exec=commands.get(name),
    )


def links(statistics: Mapping[str, LinkCounters]) -> tuple[LinkStatus, ...]:
    """Return the status of links, with their counters."""
    return tuple(
        LinkStatus(
            name=name,
            rate_mbps=link.rate_mbps,
            bytes=link.bytes_ab + link.bytes_ba,
            bytes_up=link.bytes_ab,
            bytes_down=link.bytes_ba,
            drops=link.drops,
            up=link.is_up,
            queued_bytes=link.backlog_bytes,
        )
        for name, link in statistics.items()
    )


def optical_model(ocs: OcsSpec) -> OpticalModelStatus | UnsetType:
    """Return the optical model and its settings; nothing for the default model."""
    if ocs.is_usual:
        return UNSET
    settings = ocs.settings
    values = {name: _written(value) for name, value in settings.values.items()}
    planes, ports = (
        {name: {key: _written(value) for key, value in own.items()} for name, own in of.items()}
        for of in (settings.planes, settings.ports)
    )
    return OpticalModelStatus(ocs.model, values, planes, ports)


def _written(value: Any) -> str:
    """Format a value in one line, as in a configuration."""
    return written([value], in_a_line=True)[1:-1]
