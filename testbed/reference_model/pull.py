"""The reference pull side: what a worker's host does with results and notices. docs/protocol.md says the same
in words.

The ring has a place for each slot of the job's segments, tree after tree, and holds the newest result of
each: it never fills, for a newer result takes its place's older one whether the worker has read that or not,
and the worker's window sees to it that it has. Pure: no I/O, no clock.
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
    """A worker as its host knows it; the fields are those of `PULLER` in testbed/wire/places.py."""

    job: int
    generation: int
    bases: tuple[int, ...]  # by tree: the segment's first slot, as results name it
    size: int  # slots of each segment
    lanes: int  # of every packet of the job
    ip: str
    mac: str
    port: int = spec.UDP_PORT  # of the socket that is woken
    first: int = 0  # the number of the first of its trees, which follow each other

    @property
    def places(self) -> int:
        """Return how many places its ring has."""
        return len(self.bases) * self.size

    def has(self, header: Header) -> bool:
        """Return whether a packet is of a tree of its job."""
        return header.job == self.job and 0 <= header.tree - self.first < len(self.bases)

    def place(self, tree: int, slot: int) -> int | None:
        """The place in the ring of a tree's slot, as results name it."""
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
    """A worker's ring, and the words that it shares with its worker. Verdicts are those of the contract."""

    def __init__(self, puller: Puller) -> None:
        self.puller = puller
        self.ring: list[Stored | None] = [None] * puller.places
        self.received = 0  # results stored
        self.wake_at = 0  # the worker's: the value of `received` at which it is woken
        self.notices = 0

    def take(self, packet: Frame, data: bytes) -> Reaction:
        """The verdict on a result; what goes on to the worker's socket, where it is the one to wake the
        worker.
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
        """The verdict on a notice."""
        refused = self._refused(packet)
        if not refused:
            self.notices = (self.notices + 1) % 2**32
        return refused or Verdict.NOTICE, []

    def hear(self, packet: Frame, data: bytes) -> Reaction:
        """The verdict on an answer, which goes on to the worker's socket."""
        refused = self._refused(packet)
        return (refused, []) if refused else (Verdict.ANSWERED, [behind(self._woken(data))])

    def hand(self, packet: Frame, data: bytes) -> Reaction:
        """The verdict on a packet for the end of an owned tree, which goes on to its socket."""
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
        """The result, addressed to the host itself; without a UDP checksum, which was that of the group's
        address.
        """
        destination = IPv4Address(self.puller.ip).packed
        ip = data[14:22] + bytes([frame.TTL]) + data[23:24] + b"\0\0" + data[26:30] + destination
        ip = ip[:10] + frame.checksum(ip).to_bytes(2, "big") + ip[12:]
        udp = data[34:36] + self.puller.port.to_bytes(2, "big") + data[38:40] + b"\0\0"
        return mac_bytes(self.puller.mac) + data[6:14] + ip + udp + data[42:]
