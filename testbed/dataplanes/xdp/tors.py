"""The switches that aggregate by the fast path's own programs. They have no process that could end."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.places import XdpSwitch
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.model import Topology, UnitSpec

FOLDER = "xdp"


def require(_topology: Topology) -> None:
    """Do nothing: every testbed needs XDP, and loading its programs shows whether it works."""


class Tors:
    """The switches of this folder's units, and the core, by datapath id."""

    def __init__(self, topology: Topology, _log: Path, _progress: object) -> None:
        self._core = [addresses.core_far_device(unit.index) for unit in topology.units if topology.core_link]
        self._units = [unit for unit in topology.units if unit.data_plane.folder == FOLDER]
        self.by_dpid: dict[Dpid, XdpSwitch] = {}
        self.restarts: Counter[int] = Counter()

    @contextmanager
    def standing(self, cells: Cells) -> Iterator[None]:
        with ExitStack() as stack:
            for unit in self._units:
                for dpid in unit.switches:
                    self.by_dpid[dpid] = XdpSwitch(cells, dpid, *_ports(unit, dpid))
                    stack.callback(self.by_dpid[dpid].close)
            if self._core:
                port = socket.if_nametoindex(self._core[0])
                self.by_dpid[addresses.CORE_DPID] = XdpSwitch(cells, addresses.CORE_DPID, {}, port)
                stack.callback(self.by_dpid[addresses.CORE_DPID].close)
            yield

    def verdicts(self) -> Mapping[str, int]:
        return {}  # the fast path counts them

    def require_alive(self) -> None:
        pass

    def any_ended(self) -> bool:
        return False

    def has_ended(self, _dpid: Dpid) -> bool:
        return False

    def watch(self) -> tuple[()]:
        return ()

    def restart(self, _dpid: Dpid) -> None:
        """Do nothing: none of them ends."""

    def resettle(self, _controller: Path) -> None:
        pass


def _ports(unit: UnitSpec, dpid: Dpid) -> tuple[dict[int, int], int]:
    """Return the ifindices of a switch's ports to hosts, by host number, and that of any port."""
    rack = addresses.tor_rack(dpid)
    ifindex = {device: socket.if_nametoindex(device) for device in unit.ports_of(dpid)}
    at_hosts = {
        number: ifindex[addresses.tor_port_device(unit.index, number)]
        for number in unit.numbers
        if addresses.rack_of(number) == rack
    }
    return at_hosts, next(iter(ifindex.values()))
