"""A topology in the words of a YAML file: the inverse of testbed.topology.load.parse."""

from __future__ import annotations

from typing import Any

from testbed.errors import RequestError
from testbed.topology.model import Delay, HostSpec, Topology, UnitSpec


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
                "optical_ports": unit.optical_ports,
                "engine": unit.engine,
                **({"racks": unit.racks} if unit.racks else {}),
            }
            for unit in topology.units
        ],
        "host_rate_mbps": rate_said(topology.host_link.rate_mbps),
        "optical_rate_mbps": rate_said(topology.optical_link.rate_mbps),
        **({"pod_rate_mbps": rate_said(topology.pod_link.rate_mbps)} if topology.pod_link else {}),
        "buffer_packets": topology.host_link.buffer_packets,
        "ocs": {
            "switch_ms": _delay(topology.ocs.switch_ms),
            "lock_ms": _delay(topology.ocs.lock_ms),
            "seed": topology.ocs.seed,
            "circuits": [list(circuit) for circuit in topology.ocs.circuits],
        },
        "inc": {
            "jobs": topology.inc.jobs,
            "timers": topology.inc.timers,
            **({} if topology.inc.blocks is None else {"blocks": topology.inc.blocks}),
        },
        "scale": topology.scale,
        "mtu": topology.mtu,
        "bmv2": {"layout": topology.bmv2.layout, "log": topology.bmv2.log},
        "controller": topology.controller,
    }


def rate_said(rate_mbps: float | None) -> float | str:
    """Return a declared rate as a file has it."""
    return "unshaped" if rate_mbps is None else rate_mbps


def _hosts(unit: UnitSpec) -> int | list[dict[str, Any]]:
    return [_host(host) for host in unit.unequal] if unit.unequal else unit.hosts


def _host(host: HostSpec) -> dict[str, Any]:
    cpus = {} if host.cpus is None else {"cpus": host.cpus}
    return {"rate_mbps": rate_said(host.rate_mbps), **cpus}


def _delay(delay: Delay) -> float | dict[str, list[float]]:
    return delay.a if delay.kind == "constant" else {delay.kind: [delay.a, delay.b]}
