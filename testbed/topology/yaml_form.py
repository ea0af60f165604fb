"""A topology in the words of a YAML file: the inverse of testbed.topology.load.parse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.errors import RequestError
from testbed.optics.delays import Delay
from testbed.topology.model import HostSpec, Topology, UnitSpec
from testbed.topology.optical import OcsSpec


def words(topology: Topology) -> dict[str, Any]:
    """Return what `parse` reads back to an equal topology. RequestError for one whose links have queues of
    two lengths, which a file cannot say.
    """
    if topology.host_link.buffer_packets != topology.optical_link.buffer_packets:
        raise RequestError(
            f"buffer_packets: {topology.host_link.buffer_packets} for hosts and "
            f"{topology.optical_link.buffer_packets} for optical ports; links have one value"
        )
    return {
        "name": topology.name,
        "units": [
            {
                "kind": unit.kind,
                "hosts": _hosts(unit),
                "optical_ports": dict(unit.planes) or unit.optical_ports,
                "engine": unit.engine,
                **({"racks": unit.racks} if unit.racks else {}),
            }
            for unit in topology.units
        ],
        "host_rate_mbps": rate_said(topology.host_link.rate_mbps),
        "optical_rate_mbps": rate_said(topology.optical_link.rate_mbps),
        **({"pod_rate_mbps": rate_said(topology.pod_link.rate_mbps)} if topology.pod_link else {}),
        **({"links": _links(topology)} if topology.link_rates else {}),
        **({"core": {"rate_mbps": rate_said(topology.core_link.rate_mbps)}} if topology.core_link else {}),
        "buffer_packets": topology.host_link.buffer_packets,
        "ocs": _ocs(topology.ocs),
        "inc": {
            "jobs": topology.inc.jobs,
            "timers": topology.inc.timers,
            **({} if topology.inc.blocks is None else {"blocks": topology.inc.blocks}),
        },
        "scale": topology.scale,
        "mtu": topology.mtu,
        "bmv2": {"layout": topology.bmv2.layout, "log": topology.bmv2.log},
        "controller": topology.controller,
        **({"programs": list(topology.programs)} if topology.programs else {}),
        "shared": topology.shared,
    }


def rate_said(rate_mbps: float | None) -> float | str:
    """Return a declared rate as a file has it."""
    return "unshaped" if rate_mbps is None else rate_mbps


def _links(topology: Topology) -> dict[str, float | str]:
    return {link: rate_said(rate_mbps) for link, rate_mbps in topology.link_rates.items()}


def _hosts(unit: UnitSpec) -> int | list[dict[str, Any]]:
    return [_host(host) for host in unit.unequal] if unit.unequal else unit.hosts


def _host(host: HostSpec) -> dict[str, Any]:
    cpus = {} if host.cpus is None else {"cpus": host.cpus}
    return {"rate_mbps": rate_said(host.rate_mbps), **cpus}


def _ocs(ocs: OcsSpec) -> dict[str, Any]:
    settings = ocs.settings
    said = {name: value for name, value in settings.values.items() if value or not ocs.is_usual}
    return {
        **({} if ocs.is_usual else {"model": ocs.model}),
        **values_said(said),
        **(
            {"ports": {port: values_said(own) for port, own in settings.ports.items()}}
            if settings.ports
            else {}
        ),
        **(
            {"planes": {plane: values_said(own) for plane, own in settings.planes.items()}}
            if settings.planes
            else {}
        ),
        "seed": ocs.seed,
        "circuits": [list(circuit) for circuit in ocs.circuits],
    }


def values_said(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an optical model's parameters as a file has them."""
    return {name: _delay(value) if isinstance(value, Delay) else value for name, value in values.items()}


def _delay(delay: Delay) -> float | dict[str, list[float]]:
    if delay.kind == "constant":
        return delay.a
    return {delay.kind: list(delay.values) if delay.kind == "values" else [delay.a, delay.b]}
