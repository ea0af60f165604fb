"""A job over two parallel circuits, of which one is cleared and set up again; test_parallel.py judges."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from testbed.daemon.network import Network
from tests.privileged.commands import wait_for
from tests.privileged.fault_scenarios import begin, figures, follow

DARK_MS = 2000.0  # long enough for results to arrive, even if other work occupies the cores for a second
STAYS, GOES = ["u1o1", "u2o1"], ["u1o2", "u2o2"]
WORKERS, SERVER = [(1, 1), (2, 1)], (2, 2)

TOPOLOGY = json.dumps(
    {
        "units": [{"hosts": 1}, {"hosts": 2}],
        "ocs": {"circuits": [STAYS, GOES], "switch_ms": DARK_MS},
        "host_rate_mbps": 40_000,
        "optical_rate_mbps": 40_000,
        "scale": 200,
    }
)

Crossings = dict[str, dict[str, int]]


def taken_over(network: Network) -> dict[str, Any]:
    """Return the frames that crossed each circuit before, while one was dark, and after, and the job's
    results.
    """
    job = begin(network, 1, WORKERS, SERVER, held=True)
    job.first()
    both = _carried(network, [*STAYS, *GOES])
    turns = network.ask("turned", other_than=-1)
    follower = threading.Thread(target=follow, args=(network, job, turns, 2))
    follower.start()
    start = _crossings(network)
    network.ask("apply", circuits=[STAYS])
    alone = _carried(network, STAYS)
    asked = time.monotonic()
    event = network.ask("apply", circuits=[STAYS, GOES])
    dark, lit = (asked + event["since_asked_ms"][name] / 1000 for name in ("dark", "lit"))
    again = _carried(network, [*STAYS, *GOES])
    follower.join()
    end = _crossings(network)
    workers = job.reports()
    return {
        **figures(workers),
        "carried": {"both": both, "alone": alone, "again": again},
        "lost": {
            port: sum(end[port][name] - start[port][name] for name in ("dark", "unlit")) for port in end
        },
        "added": event["added"],
        "dark_ms": event["measured_ms"],
        "results_in_the_dark": [sum(dark < end < lit for end in worker["ends"]) for worker in workers],
    }


def _crossings(network: Network) -> Crossings:
    crossings: Crossings = network.ask("crossings")
    return crossings


def _carried(network: Network, ports: list[str]) -> dict[str, int]:
    """Wait until frames have crossed each of these ports, and return how many by then, by port."""
    before = _crossings(network)

    def carried() -> dict[str, int]:
        now = _crossings(network)
        return {port: now[port]["lit"] - before[port]["lit"] for port in now}

    wait_for(lambda: min(carried()[port] for port in ports) >= 100, f"frames by {', '.join(ports)}")
    return carried()
