"""Ready topologies, in the same words as a user's file would have them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from testbed.errors import RequestError
from testbed.topology.load import STDIN, load, parse
from testbed.topology.model import Topology

# P4INC-AOI, section VII-B: two gpu racks of 4 servers, two cpu racks, 40 Gb/s ports, one OXC.
_FOUR_RACKS: dict[str, Any] = {
    "units": [
        {"kind": "gpu", "hosts": 4},
        {"kind": "gpu", "hosts": 4},
        {"kind": "cpu", "hosts": 2},
        {"kind": "cpu", "hosts": 2},
    ],
    "host_rate_mbps": 40_000,
    "optical_rate_mbps": 40_000,
    "optical_ports": 2,
}
READY: dict[str, dict[str, Any]] = {
    "default": {**_FOUR_RACKS, "scale": 200},
    "rack": {"units": [{"kind": "gpu", "hosts": 4}], "host_rate_mbps": 40_000, "scale": 200},
    "eight": {
        "units": [{"kind": "gpu", "hosts": 4}] * 4 + [{"kind": "cpu", "hosts": 2}] * 4,
        "host_rate_mbps": 40_000,
        "optical_rate_mbps": 40_000,
        "optical_ports": 2,
        "scale": 200,
    },
    # Pods of two racks below a switch of the pod, whose links carry a third less than the hosts' below them
    # could send, and a cpu rack for servers.
    "pods": {
        "units": [
            {"kind": "gpu", "racks": 2, "hosts": 3},
            {"kind": "gpu", "racks": 2, "hosts": 3},
            {"kind": "cpu", "hosts": 2},
        ],
        "host_rate_mbps": 40_000,
        "pod_rate_mbps": 80_000,
        "optical_rate_mbps": 40_000,
        "optical_ports": 2,
        "scale": 200,
    },
    # ALEPH, section 6.3: eight workers of unequal rates and a parameter server, all at switches that block
    # nothing.
    "aleph": {
        "units": [
            {
                "kind": "gpu",
                "hosts": [{"rate_mbps": rate} for rate in (30_000, 20_000, 20_000, *[10_000] * 5)],
            },
            {"kind": "cpu", "hosts": [{"rate_mbps": 40_000}]},
        ],
        "host_rate_mbps": 40_000,
        "optical_rate_mbps": 120_000,
        "optical_ports": 1,
        "scale": 400,
    },
    # Trio-ML, section 6.1: six servers at two PFEs of a chassis, whose own links hold up nobody, and a third
    # PFE above them.
    "trio": {
        "units": [{"kind": "gpu", "racks": 2, "hosts": 3}],
        "host_rate_mbps": 100_000,
        "pod_rate_mbps": 300_000,
        "scale": 1000,
    },
    # LuWu, section 4: eight workers and the node that has the model, 100 Gb/s.
    "luwu": {
        "units": [{"kind": "gpu", "hosts": 8}, {"kind": "optimizer", "hosts": 1}],
        "host_rate_mbps": 100_000,
        "optical_rate_mbps": 100_000,
        "optical_ports": 1,
        "scale": 1000,
    },
    # As default, at a scale at which two cores keep up with four workers that really compute: links set what
    # `testbed demo` shows.
    "demo": {**_FOUR_RACKS, "scale": 800},
}


def ready(name: str) -> Topology:
    """A ready topology by name. KeyError if there is none."""
    return parse(READY[name], name)


def find(name_or_file: str) -> Topology:
    """A ready topology, or one from a file or (`-`) the standard input. RequestError if it is none."""
    if name_or_file in READY:
        return ready(name_or_file)
    path = Path(name_or_file)
    if path != STDIN and not os.path.exists(path) and path.parent == Path() and not path.suffix:
        raise RequestError(
            f"configuration {name_or_file}: no such file, and the ready ones are {', '.join(READY)}"
        )
    return load(path)
