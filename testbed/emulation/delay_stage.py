"""Delay links where the kernel has no netem: a program at the ingress of a wire's inner end hands each frame
to a thread, which sends it into the token bucket of the other inner end when its time has come.

Attached at a link's first delay and detached when that ends, so that a link without a delay pays nothing.
Owns names, attaching and counting; testbed/dataplanes/xdp/link_delays.py owns the program and the thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.dataplanes.xdp.link_delays import PROGRAM, DelayProgram, HoldingThread
from testbed.emulation.ingress import HAS_NONE, attach, detach
from testbed.emulation.namespaces import entered
from testbed.emulation.netlink import DELAY_PRIORITY, DeviceState, NetlinkError, RouteSocket
from testbed.emulation.pairs import add_pair
from testbed.machine.links import NO_DELAY, LinkDelay

_DEVICES = "delays-in", "delays-out"  # of the namespace of the inner ends; frames go from the first
_HEADER_BYTES = 14 + 8  # with a frame's own VLAN tags


@dataclass(frozen=True, slots=True)
class DelayedEnd:
    """One direction of a wire: the inner end where its frames arrive, the one by which they leave, its number
    among all directions, and how many bytes of frames are held at most.
    """

    ifindex: int
    egress: int
    number: int
    room_bytes: int


class DelayStage:
    """The delays of a fabric's links. Its caller serialises the calls. Its devices end with the namespace of
    the inner ends.
    """

    def __init__(self, namespace: int, mtu: int) -> None:
        with entered(namespace):
            self._route = RouteSocket()
            add_pair(_DEVICES, mtu)
            self._thread = HoldingThread(_DEVICES[1], mtu + _HEADER_BYTES)
        self._device = self._route.devices()[_DEVICES[0]].ifindex
        self._program = DelayProgram()
        self._ever: dict[int, DelayedEnd] = {}  # that had a delay, by ifindex
        self._attached: set[int] = set()
        self._overran: dict[int, int] = {}  # frames that found no room on their way here, by ifindex

    def close(self) -> None:
        """Detach every program, and end the thread with the frames that it holds."""
        with self._route, self._program:
            try:
                for ifindex in self._attached:
                    self._detach(ifindex)
            finally:
                self._thread.close()

    def _detach(self, ifindex: int) -> None:
        """Detach the program from a device, unless somebody deleted that."""
        try:
            detach(self._route, [ifindex], DELAY_PRIORITY)
        except NetlinkError as error:
            if error.code not in HAS_NONE:
                raise

    def set(self, end: DelayedEnd, delay: LinkDelay) -> None:
        """Set or end a direction's delay. Frames that are held leave when their time has come. HostError if
        this kernel has no BPF filters.
        """
        if delay == NO_DELAY:
            if end.ifindex in self._attached:
                self._detach(end.ifindex)
                self._attached.remove(end.ifindex)
            return
        self._thread.set(end.number, end.egress, delay.nanoseconds, end.room_bytes)
        if end.ifindex not in self._ever:
            self._program.set_direction(end.ifindex, self._device, end.number)
            self._ever[end.ifindex] = end
        if end.ifindex not in self._attached:
            attach(self._route, [end.ifindex], self._program, PROGRAM, DELAY_PRIORITY, "links delay")
            self._attached.add(end.ifindex)

    def watch(self) -> None:
        """Raise TestbedError if the thread has ended."""
        self._thread.watch()

    def lost(self, devices: Mapping[str, DeviceState]) -> dict[int, int]:
        """Count the frames that each direction has lost here for lack of room, by the ifindex where they
        arrived, given the devices of the inner ends' namespace.
        """
        lost, missing = {}, {}
        for ifindex, end in self._ever.items():
            handed, failed = self._program.counts(ifindex)
            received, dropped = self._thread.counts(end.number)
            lost[ifindex], missing[ifindex] = dropped + failed, handed - received
        overran = self._thread.overrun() + sum(devices[name].tx_dropped for name in _DEVICES)
        self._overran = booked(self._overran, missing, overran)
        return {ifindex: count + self._overran.get(ifindex, 0) for ifindex, count in lost.items()}


def booked(before: Mapping[int, int], missing: Mapping[int, int], overran: int) -> dict[int, int]:
    """Return how many of the `overran` frames of all directions each direction has lost. Only the sum is
    counted: new losses are those of the directions of which most is `missing`, some of which may still be on
    its way. Counts never fall.
    """
    counts = dict(before)
    left = overran - sum(counts.values())
    beyond = {key: count - counts.get(key, 0) for key, count in missing.items()}
    for key in sorted(beyond, key=lambda key: -beyond[key]):
        share = min(left, max(beyond[key], 0))
        counts[key] = counts.get(key, 0) + share
        left -= share
    if left > 0 and missing:
        first = max(missing, key=lambda key: missing[key])
        counts[first] = counts.get(first, 0) + left
    return counts
