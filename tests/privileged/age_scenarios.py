"""Blocks that age out on a running network: how long from a contribution to the result without the others."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import numpy as np

from testbed.aggregation.packets import Packets
from testbed.contract import spec
from testbed.contract.frame import HEADERS_BYTES
from testbed.daemon.network import Network
from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.program import in_namespace
from testbed.topology import addresses
from tests.forests import p4inc
from tests.privileged.tick_scenarios import _mapped
from tests.vectors.build import push, worker_lanes

BLOCKS, LATE_S = 20, 20.0
TIMEOUTS_MS = (1.0, 2.0, 5.0, 10.0, 20.0)
HOSTS = [(1, 1), (1, 2)]


def fabric() -> str:
    return json.dumps({"units": [{"hosts": 2}], "host_rate_mbps": 10_000, "scale": 10})


def recovered(network: Network) -> dict[str, list[float]]:
    """Return by timeout how many ms each of 20 blocks took that one of two workers pushed back to back."""
    took = {}
    for number, timeout_ms in enumerate(TIMEOUTS_MS, 41):
        packets = Packets(age_out_ms=timeout_ms)
        admission = network.places.admit(
            number, number, p4inc(HOSTS), packets=packets, programs={"xdp": "blocks"}
        )
        try:
            took[f"{timeout_ms:g}"] = _recovered(network, admission)
        finally:
            network.places.release(number)
    return took


def _recovered(network: Network, admission: Any) -> list[float]:
    ring = _mapped(admission.rings[0].fd, layout.result(admission.lanes), admission.rings[0].entries)
    way = admission.worker_env(0)["trees"][0]
    fields = {"job": admission.job, "generation": admission.generation}
    datagrams = [
        push(0, block, slot=block, data=np.resize(worker_lanes(0, block), admission.lanes), **fields)
        for block in range(BLOCKS)
    ]
    sent, came = [0.0] * BLOCKS, [0.0] * BLOCKS

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
            for block, data in enumerate(datagrams):
                sent[block] = time.monotonic()
                opened.sendto(data[HEADERS_BYTES:], (way["address"], spec.UDP_PORT))

    in_namespace(network.fabric.host_namespace(addresses.host_name(*HOSTS[0])), send)
    deadline = time.monotonic() + LATE_S
    while not all(came):
        now = time.monotonic()
        assert now < deadline, came
        for block in range(BLOCKS):
            if not came[block] and ring[block]["sequence"] == block + 1:
                came[block] = time.monotonic()
                assert ring[block]["contributors"] == 1
        time.sleep(0.00005)
    return [(end - start) * 1e3 for start, end in zip(sent, came, strict=True)]
