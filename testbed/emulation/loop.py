"""Device pairs within a host's network namespace: the loop, over which a host that aggregates receives what
its own worker pushes; and the pairs by which a host copies results, one for each member.

The worker sends to addresses.LOOP_PLACE_IP over one end; programs at both ends (testbed/dataplanes/xdp)
process what arrives there. Like a link, a pair carries packets of the fabric's MTU, with their checksums.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from testbed.emulation.links import set_offloads
from testbed.emulation.namespaces import entered
from testbed.emulation.netlink import (
    DeviceSpec,
    RouteSocket,
    add_address,
    add_neighbour,
    add_veth,
    delete_device,
    set_up,
)
from testbed.emulation.pairs import add_pair
from testbed.topology import addresses
from testbed.topology.places import Host

# The wake-up packet for a result made on this host comes from the host's own address.
_SYSCTLS = {"accept_local": "1", "rp_filter": "0"}


class Loops:
    """Makes and removes these pairs. `namespaces`: of every host; `mtu`: of the fabric."""

    def __init__(self, namespaces: Mapping[Host, Path], mtu: int) -> None:
        self._namespaces, self._mtu = namespaces, mtu

    def make(self, host: Host) -> None:
        """Make a host's loop, both ends up. NetlinkError if it has one."""
        with self._namespaces[host].open("rb") as namespace:
            try:
                self._make(host, namespace.fileno())
            except BaseException:
                with entered(namespace.fileno()), RouteSocket() as route:
                    route.delete(addresses.LOOP_WORKER_DEVICE)
                raise

    def _make(self, host: Host, namespace: int) -> None:
        worker, place = addresses.loop_ifindex(*host), addresses.loop_place_ifindex(*host)
        ends = [
            DeviceSpec(addresses.LOOP_WORKER_DEVICE, namespace, self._mtu, addresses.LOOP_WORKER_MAC, worker),
            DeviceSpec(addresses.LOOP_PLACE_DEVICE, namespace, self._mtu, addresses.LOOP_PLACE_MAC, place),
        ]
        with entered(namespace), RouteSocket() as route:
            route.send([add_veth(*ends)])
            for end in ends:
                set_offloads(end.name, gro=False, namespace=namespace)
                for name, value in _SYSCTLS.items():
                    Path("/proc/sys/net/ipv4/conf", end.name, name).write_text(value)
            route.send(
                [
                    *(set_up(end.name) for end in ends),
                    add_address(worker, addresses.LOOP_WORKER_IP, addresses.LOOP_PREFIX),
                    add_neighbour(worker, addresses.LOOP_PLACE_IP, addresses.LOOP_PLACE_MAC),
                ]
            )

    def make_control(self, host: Host) -> None:
        """Make the pair over which ticks reach a host, both ends up; it ends with the namespace."""
        with self._namespaces[host].open("rb") as namespace, entered(namespace.fileno()):
            add_pair(addresses.CONTROL_DEVICES, self._mtu, addresses.control_ifindices(*host))
            for name in addresses.CONTROL_DEVICES:
                set_offloads(name, gro=False)

    def make_copy(self, host: Host, number: int) -> None:
        """Make a pair by which a host copies results for one member, both ends up. NetlinkError if the number
        is in use.
        """
        with self._namespaces[host].open("rb") as namespace, entered(namespace.fileno()):
            names = addresses.copy_devices(number)
            add_pair(names, self._mtu, addresses.copy_ifindices(number))
            try:
                for name in names:
                    set_offloads(name, gro=False)
            except BaseException:
                self._delete(names[0])
                raise

    def remove_copy(self, host: Host, number: int) -> None:
        """Remove such a pair. NetlinkError if there is none."""
        with self._namespaces[host].open("rb") as namespace, entered(namespace.fileno()):
            self._delete(addresses.copy_devices(number)[0])

    @staticmethod
    def _delete(device: str) -> None:
        with RouteSocket() as route:
            route.send([delete_device(device)])

    def remove(self, host: Host) -> None:
        """Remove a host's loop. NetlinkError if there is none."""
        with self._namespaces[host].open("rb") as namespace, entered(namespace.fileno()):
            self._delete(addresses.LOOP_WORKER_DEVICE)
