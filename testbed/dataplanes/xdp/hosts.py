"""The hosts' side of the XDP data plane: the rings from which workers read results, and the hosts as places.
Not thread-safe.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from testbed.aggregation.place_interfaces import Ring
from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.places import Loops, XdpHostPlace
from testbed.dataplanes.xdp.routes import ip_number
from testbed.dataplanes.xdp.syscall import (
    F_INNER_MAP,
    F_MMAPABLE,
    MAP_TYPE_ARRAY,
    map_create,
    map_delete,
    map_update,
    u32,
)
from testbed.errors import RequestError, TestbedError
from testbed.topology import addresses
from testbed.topology.places import Host
from testbed.wire import spec
from testbed.wire.frame import mac_bytes
from testbed.wire.records import filled

MOST_SLOTS = 1 << 17  # in a ring


class XdpHosts:
    """The rings at hosts, and the hosts as places. `namespaces`: the network namespace of each host's
    devices.
    """

    def __init__(
        self, cells: Cells, namespaces: Mapping[Host, Path] | None = None, loops: Loops | None = None
    ) -> None:
        self._cells, self._programs, self._loops = cells, cells.programs, loops
        self._namespaces = namespaces or {}
        # by host and first tree: job, cell of `rings` and of `wakes`, descriptors, and the rows in `pullers`
        self._rings: dict[tuple[Host, int], tuple[int, int, Ring, dict[bytes, np.ndarray]]] = {}
        self._places: dict[Host, XdpHostPlace] = {}

    def close(self) -> None:
        """Close the descriptors of the places' slots."""
        for place in self._places.values():
            place.close()

    def place(self, host: Host) -> XdpHostPlace:
        """Return the place of a host; the same object each time."""
        if host not in self._places:
            self._places[host] = self._made_place(host, lambda: self._put_pullers(host))
        return self._places[host]

    def _made_place(self, host: Host, changed: Callable[[], None]) -> XdpHostPlace:
        return XdpHostPlace(self._cells, host, self._namespaces.get(host), self._loops, changed)

    def attach(
        self,
        host: Host,
        job: int,
        generation: int,
        bases: Sequence[int],
        size: int,
        lanes: int,
        first: int = 0,
        port: int = spec.UDP_PORT,
    ) -> Ring:
        """Make a ring for the results of some trees of a job, one tree after the other: results of tree
        `first` + t, with slots counted from `bases[t]`, begin at t * size. TestbedError if the host already
        has one for these trees, or one of another job.
        """
        if len(bases) * size > MOST_SLOTS:
            raise RequestError(f"job {job}: {len(bases)} segments of {size} slots; a ring has {MOST_SLOTS}")
        if (host, first) in self._rings or any(
            at == host and other != job for (at, _), (other, *_) in self._rings.items()
        ):
            raise TestbedError(f"admit job {job}: {addresses.host_name(*host)} is in another job")
        cell, ring = self._made_ring(max(layout.RING_SLOTS, len(bases) * size))
        devices = {
            addresses.host_ifindex(*host): addresses.host_mac(*host),
            addresses.loop_ifindex(*host): addresses.LOOP_WORKER_MAC,
        }
        pullers = {}
        for tree, base in enumerate(bases):
            for ifindex, mac in devices.items():
                puller = filled(
                    layout.PULLER,
                    job=job,
                    generation=generation,
                    ring=cell,
                    base=base,
                    size=size,
                    first=tree * size,
                    lanes=lanes,
                    ip=ip_number(addresses.host_ip(*host)),
                    mac=list(mac_bytes(mac)),
                    port=port,
                )
                pullers[np.array((ifindex, first + tree), layout.PULLER_KEY).tobytes()] = puller
        self._rings[host, first] = (job, cell, ring, pullers)
        try:
            map_update(self._programs.map_fd("rings"), u32(cell), u32(ring.fd))
            map_update(self._programs.map_fd("wakes"), u32(cell), u32(ring.wake_fd))
            self._put_pullers(host)
        except BaseException:
            self.detach(host, first)
            raise
        return ring

    def _put_pullers(self, host: Host) -> None:
        place = self._places.get(host)
        for (at, _), (*_, pullers) in self._rings.items():
            for key, puller in pullers.items() if at == host else ():
                puller["at_place"] = bool(place and place.has_entries)
                map_update(self._programs.map_fd("pullers"), key, puller.tobytes())

    def _made_ring(self, slots: int) -> tuple[int, Ring]:
        cell = self._cells.take("rings")
        item = layout.result(self._programs.lanes).itemsize
        fd = -1
        try:
            fd = map_create(MAP_TYPE_ARRAY, 4, item, slots, F_MMAPABLE | F_INNER_MAP, "ring")
            wake = map_create(MAP_TYPE_ARRAY, 4, layout.WAKE.itemsize, 1, F_MMAPABLE, "wake")
        except BaseException:
            if fd >= 0:
                os.close(fd)
            self._cells.free("rings", cell)
            raise
        return cell, Ring(fd, slots, wake, self._programs.lanes)

    def detach(self, host: Host, first: int = 0) -> None:
        """Remove the host's ring for the trees from `first` on."""
        _, cell, ring, pullers = self._rings.pop((host, first))
        for key in pullers:
            map_delete(self._programs.map_fd("pullers"), key)
        for name in ("rings", "wakes"):  # returns once no program writes there (RCU)
            map_delete(self._programs.map_fd(name), u32(cell))
        self._cells.free("rings", cell)
        for fd in (ring.fd, ring.wake_fd):
            os.close(fd)
