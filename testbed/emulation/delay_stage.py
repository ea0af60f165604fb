"""Delay links where the kernel has no netem: a program at the ingress of a wire's inner end hands each frame
to a thread, which sends it into the token bucket of the other inner end when its time has come.

Attached at a link's first delay and detached when that ends, so that a link without a delay pays nothing.
Owns names, attaching and counting; testbed/dataplanes/xdp/link_delays.py owns the program and the thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.dataplanes.xdp.link_delays import PROGRAM, DelayProgram, HoldingThread
from testbed.emulation.ingress import attach, detach
from testbed.emulation.namespaces import entered
from testbed.emulation.netlink import DELAY_PRIORITY, DeviceState, RouteSocket
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

    def close(self) -> None:
        """Detach every program, and end the thread with the frames that it holds."""
        with self._route:
            detach(self._route, sorted(self._attached), DELAY_PRIORITY)
            self._thread.close()
            self._program.__exit__(None, None, None)

    def set(self, end: DelayedEnd, delay: LinkDelay) -> None:
        """Set or end a direction's delay. Frames that are held leave when their time has come. HostError if
        this kernel has no BPF filters.
        """
        if delay == NO_DELAY:
            if end.ifindex in self._attached:
                detach(self._route, [end.ifindex], DELAY_PRIORITY)
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
        lost = {}
        overran = self._thread.overrun() or any(devices[name].tx_dropped for name in _DEVICES)
        for ifindex, end in self._ever.items():
            received, dropped = self._thread.counts(end.number)
            handed, failed = self._program.counts(ifindex)
            # which direction's frames found no room on their way is not counted; some may still be on it
            lost[ifindex] = dropped + failed + (max(handed - received, 0) if overran else 0)
        return lost
