"""Ready-made topologies, in the words of a user's file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from testbed.errors import RequestError
from testbed.topology.load import STDIN, AtUp, load, parse
from testbed.topology.model import Topology

# P4INC-AOI, section VII-B: two gpu racks of 4 servers, two cpu racks, 40 Gb/s ports, one OXC.
_FOUR_RACKS = {
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
    # Pods of two racks below a pod switch, and a cpu rack for servers. A rack's link to the pod switch
    # carries a third less than its hosts can send together.
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
    # ALEPH, section 6.3: eight workers of unequal rates and a parameter server, all at non-blocking switches.
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
    # Trio-ML, section 6.1: six servers at two PFEs of a chassis with non-blocking internal links, and a third
    # PFE above them.
    "trio": {
        "units": [{"kind": "gpu", "racks": 2, "hosts": 3}],
        "host_rate_mbps": 100_000,
        "pod_rate_mbps": 300_000,
        "scale": 1000,
    },
    # LuWu, section 4: eight workers and the optimizer node, 100 Gb/s.
    "luwu": {
        "units": [{"kind": "gpu", "hosts": 8}, {"kind": "optimizer", "hosts": 1}],
        "host_rate_mbps": 100_000,
        "optical_rate_mbps": 100_000,
        "optical_ports": 1,
        "scale": 1000,
    },
    # As default, at a scale at which two cores keep up with four workers that really compute, so that links
    # determine the results of `testbed demo`.
    "demo": {**_FOUR_RACKS, "scale": 800},
}


def ready(name: str, at_up: AtUp | None = None) -> Topology:
    """Return a ready-made topology by name. Raises KeyError if there is none."""
    return parse(READY[name], name, at_up=at_up)


def find(name_or_file: str, at_up: AtUp | None = None) -> Topology:
    """Return a ready-made topology, or read one from a file or (`-`) the standard input. Raises RequestError
    if that is none.
    """
    if name_or_file in READY:
        return ready(name_or_file, at_up)
    path = Path(name_or_file)
    if path != STDIN and not os.path.exists(path) and path.parent == Path() and not path.suffix:
        raise RequestError(
            f"configuration {name_or_file}: no such file, and the ready ones are {', '.join(READY)}"
        )
    return load(path, at_up)
