"""The reference pull side: how a worker's host processes results and notices. docs/protocol.md describes the
same in words.

The ring has an entry for each slot of the job's segments, tree after tree, with the newest result of each. It
never fills: a newer result replaces an older one whether the worker has read that or not; the worker's window
ensures that it has. Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address

import numpy as np
import numpy.typing as npt

from testbed.reference_model.output_ports import Reaction, behind
from testbed.wire import frame, rings, spec
from testbed.wire.codec import Header
from testbed.wire.frame import Frame, mac_bytes
from testbed.wire.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Puller:
    """A worker, as its host knows it; the fields are those of `PULLER` in testbed/wire/places.py."""

    job: int
    generation: int
    bases: tuple[int, ...]  # by tree: the segment's first slot, as numbered in results
    size: int  # slots of each segment
    lanes: int  # in every packet of the job
    ip: str
    mac: str
    port: int = spec.UDP_PORT  # of the socket to wake
    first: int = 0  # the number of its first tree; the others follow

    @property
    def places(self) -> int:
        """The number of entries of its ring."""
        return len(self.bases) * self.size

    def has(self, header: Header) -> bool:
        """Return whether a packet belongs to a tree of its job."""
        return header.job == self.job and 0 <= header.tree - self.first < len(self.bases)

    def place(self, tree: int, slot: int) -> int | None:
        """Return the ring index of a tree's slot, as numbered in results; None outside the segment."""
        number = tree - self.first
        offset = (slot - self.bases[number]) % 2**32
        return number * self.size + offset if offset < self.size else None


@dataclass(frozen=True, slots=True)
class Stored:
    """A result in the ring."""

    fragment: int
    contributors: int
    flags: int  # those of the packet and of `rings.Stored`
    lanes: npt.NDArray[np.uint32]


class PullSide:
    """A worker's ring, and the words shared with the worker. Verdicts are the contract's."""

    def __init__(self, puller: Puller) -> None:
        self.puller = puller
        self.ring: list[Stored | None] = [None] * puller.places
        self.received = 0  # results stored
        self.wake_at = 0  # set by the worker: the value of `received` at which to wake it
        self.notices = 0

    def take(self, packet: Frame, data: bytes) -> Reaction:
        """Store a result; return the verdict, and the packet for the worker's socket if this result
        wakes it.
        """
        refused = self._refused(packet)
        if refused:
            return refused, []
        header = packet.header
        place = self.puller.place(header.tree, header.slot)
        if place is None:
            return Verdict.BAD_SLOT, []
        held = self.ring[place]
        if held is not None and (header.fragment - held.fragment + 2**31) % 2**32 <= 2**31:
            return Verdict.PULL_DUPLICATE, []
        flags = header.flags | (rings.Stored.MARKED if packet.is_marked else 0)
        flags |= rings.Stored.REPEATED if packet.tos >> 2 == frame.DSCP_REPEATED else 0
        self.ring[place] = Stored(header.fragment, header.contributors, flags, packet.lanes)
        self.received = (self.received + 1) % 2**32
        return Verdict.PULLED, [behind(self._woken(data))] if self.received == self.wake_at else []

    def heed(self, packet: Frame) -> Reaction:
        """Process a notice; return the verdict."""
        refused = self._refused(packet)
        if not refused:
            self.notices = (self.notices + 1) % 2**32
        return refused or Verdict.NOTICE, []

    def hear(self, packet: Frame, data: bytes) -> Reaction:
        """Process an answer; return the verdict, and the packet for the worker's socket."""
        refused = self._refused(packet)
        return (refused, []) if refused else (Verdict.ANSWERED, [behind(self._woken(data))])

    def hand(self, packet: Frame, data: bytes) -> Reaction:
        """Process a packet for the end of a tree with an owner; return the verdict, and the packet for its
        socket.
        """
        refused = self._refused(packet)
        return (refused, []) if refused else (Verdict.HANDED, [behind(self._woken(data))])

    def _refused(self, packet: Frame) -> str:
        header, puller = packet.header, self.puller
        if not puller.has(header):
            return Verdict.BAD_JOB
        if header.lanes != puller.lanes:
            return Verdict.MALFORMED
        return "" if header.generation == puller.generation else Verdict.BAD_GENERATION

    def _woken(self, data: bytes) -> bytes:
        """Return the packet, readdressed to the host itself, without the UDP checksum, which covered the
        group's address.
        """
        destination = IPv4Address(self.puller.ip).packed
        ip = data[14:22] + bytes([frame.TTL]) + data[23:24] + b"\0\0" + data[26:30] + destination
        ip = ip[:10] + frame.checksum(ip).to_bytes(2, "big") + ip[12:]
        udp = data[34:36] + self.puller.port.to_bytes(2, "big") + data[38:40] + b"\0\0"
        return mac_bytes(self.puller.mac) + data[6:14] + ip + udp + data[42:]
