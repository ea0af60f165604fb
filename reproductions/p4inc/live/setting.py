"""The testbed of section VII-B as a configuration. Owns no experiment."""

from __future__ import annotations

from typing import Any

SCALE = 400
"""At 200, four workers of a rack with a declared 40 Gb/s each are more than two cores can carry."""
FOUR = ("noinc-fcfs", "noinc-tw", "inc-fcfs", "inc-tw")


def configuration(
    scale: int = SCALE, optical_gbps: float = 40.0, optical_ports: int = 2, inc_jobs: int = 4
) -> dict[str, Any]:
    """Return section VII-B's testbed: two gpu racks of 4 servers and two cpu racks, 40 Gb/s.

    The paper does not state how many servers a cpu rack has, how many optical ports a rack has, and for how
    many jobs a switch can sum. Two servers suffice for the parameter servers of all jobs that have gpus.
    """
    gpu, cpu = {"kind": "gpu", "hosts": 4}, {"kind": "cpu", "hosts": 2}
    return {
        "units": [gpu, gpu, cpu, cpu],
        "host_rate_mbps": 40_000,
        "optical_rate_mbps": optical_gbps * 1e3,
        "optical_ports": optical_ports,
        "mtu": 3476,
        "scale": scale,
        "inc": {"jobs": inc_jobs},
    }
