"""The XDP programs with an added stage that drops the packets that a test names, fragment by fragment."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from testbed.daemon.network import Network
from testbed.dataplanes.xdp import layout, plane
from testbed.dataplanes.xdp.program import Programs, source
from testbed.dataplanes.xdp.syscall import map_keys, map_lookup, map_update, u32
from testbed.plugins.registry import sources
from testbed.topology import addresses
from tests.privileged.scenarios import sums

AHEAD = '#line 1 "parse.h"'
INTACT = "	return is_intact(p, UDP_BYTES) ? HAS_LANES : LOST;\n"
LOSE = "	if (is_lost(ctx, p->inc))\n		return LOST;\n"


def before_network() -> None:
    """Make the next network load these programs instead of the product's."""
    text = source(layout.BPF_DIR / "programs.c", sources("xdp"))
    assert text.count(AHEAD) == text.count(INTACT) == 1
    stage = Path(__file__).with_name("losses.h").read_text()
    text = text.replace(AHEAD, stage + AHEAD).replace(INTACT, LOSE + INTACT)
    plane.Programs = lambda systems, lanes: Programs(systems, lanes, text)  # type: ignore[assignment,misc]


def sums_with_losses(network: Network) -> dict[str, Any]:
    """Sum in one unit and across two; pushes, partial sums and results are lost on arrival."""
    map_fd = network.machine.plane.programs.map_fd("losses")

    def lose(ifindex: int, fragments: Iterable[int], copies: int = 1) -> None:
        for fragment in fragments:
            map_update(map_fd, u32(ifindex) + u32(fragment), u32(copies))

    lose(_port(addresses.tor_port_device(1, 2)), (0, 3, 64, 131, 132, 133))  # pushes of a worker
    lose(_port(addresses.tor_port_device(1, 2)), (901,), copies=3)
    lose(addresses.host_ifindex(1, 1), (0, 5, 127, 200))  # results at a worker
    lose(addresses.host_ifindex(3, 1), (7, 8, 300))  # partial sums at the PS
    for port in (1, 2):
        lose(_port(addresses.optical_device(2, port)), range(400, 411))  # results on their way into a unit
    asked = _left(map_fd)
    jobs = sums(network)
    jobs["lost"] = asked - _left(map_fd)
    return jobs


def _port(device: str) -> int:
    return socket.if_nametoindex(device)


def _left(map_fd: int) -> int:
    """Count the copies that are still to be lost."""
    return sum(
        int.from_bytes(map_lookup(map_fd, key, 4) or b"", "little") for key in list(map_keys(map_fd, 8))
    )
