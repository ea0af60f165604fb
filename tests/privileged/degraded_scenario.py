"""A job of three workers, of which the last never comes, by two trees on a running network: the place's
daemon sends ticks for waiting sums.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from testbed.aggregation.forest import Forest, Node, Tree
from testbed.daemon.network import Network
from testbed.topology import addresses
from testbed.topology.places import switch
from testbed.wire import mapping
from testbed.wire.settings import written
from tests.privileged.degraded_worker import LANES, VALUES

ROOT = Path(__file__).resolve().parents[2]
UNIT = {"host_rate_mbps": 10_000, "scale": 100}
NUMBER, AGE_MS, END_S = 31, 7, 120.0
COMING = 2


def described(engine: str) -> str:
    """Return the topology: one unit of this engine."""
    return json.dumps({"units": [{"hosts": 3, "engine": engine}], **UNIT})


def without_the_last(network: Network) -> list[dict[str, Any]]:
    """Return the output of each worker that came."""
    hosts = [(1, 1), (1, 2), (1, 3)]
    node = Node(switch(1), (0, 1, 2))
    forest = Forest(tuple(hosts), (Tree(node, weight=1), Tree(node, weight=2)))
    admission = network.places.admit(NUMBER, NUMBER, forest)
    processes = [
        network.machine.fabric.popen_in(
            addresses.host_name(*hosts[worker]),
            [
                sys.executable,
                "-m",
                "tests.privileged.degraded_worker",
                written(admission.worker_env(worker)),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            pass_fds=admission.worker_fds(worker),
        )
        for worker in range(COMING)
    ]
    width = admission.lanes
    fragments = -(-LANES // width) + -(-VALUES // width)
    data_slots = admission.grant.size - mapping.VOTE_SLOTS
    places = mapping.places(NUMBER, data_slots)
    try:
        while any(process.poll() is None for process in processes):
            for vote in range(2):
                offset = data_slots + vote % mapping.VOTE_SLOTS
                network.places.tick(NUMBER, 0, switch(1), offset, mapping.FIRST_VOTE + vote, AGE_MS)
            for tree in range(2):
                for fragment in range(fragments):
                    offset = int(places[fragment % data_slots])
                    network.places.tick(NUMBER, tree, switch(1), offset, fragment, AGE_MS)
        return [json.loads(process.communicate(timeout=END_S)[0].splitlines()[-1]) for process in processes]
    finally:
        for process in processes:
            process.kill()
        network.places.release(NUMBER)
