"""The ToRs that sum by the fast path's own programs. There is no process of theirs that could end."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.aggregation.admission import Places
from testbed.dataplanes.xdp.places import Cells, XdpSwitch
from testbed.topology import addresses
from testbed.topology.model import Topology, UnitSpec
from testbed.topology.units import Unit

FOLDER = "xdp"


def require(_topology: Topology) -> None:
    """Nothing: every testbed needs XDP, and whether it works is seen when its programs are loaded."""


class Tors:
    """Those of the units of this folder, by unit."""

    def __init__(self, topology: Topology, _log: Path, _progress: object) -> None:
        self._units = [unit for unit in topology.units if unit.data_plane.folder == FOLDER]
        self.by_unit: dict[Unit, XdpSwitch] = {}
        self.restarts: Counter[int] = Counter()

    @contextmanager
    def standing(self, cells: Cells) -> Iterator[None]:
        with ExitStack() as stack:
            for unit in self._units:
                self.by_unit[unit.index] = XdpSwitch(cells, unit.index, _ports(unit))
                stack.callback(self.by_unit[unit.index].close)
            yield

    def verdicts(self) -> Mapping[str, int]:
        return {}  # the fast path counts them

    def require_alive(self) -> None:
        pass

    def any_ended(self) -> bool:
        return False

    def watch(self, _places: Places) -> tuple[()]:
        return ()

    def resettle(self, _controller: Path) -> None:
        pass


def _ports(unit: UnitSpec) -> dict[int, int]:
    """The ifindices of the ToR's ports, by host."""
    return {
        host: socket.if_nametoindex(addresses.tor_port_device(unit.index, host))
        for host in range(1, unit.hosts + 1)
    }
