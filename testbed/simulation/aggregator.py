"""The reference aggregator: what one switch, or one parameter server host, does with a frame.
docs/protocol.md says the same in words.

Frames go in and out as bytes, so that whatever runs the tests' vectors runs on this model too. Pure: no I/O,
no clock; one frame is worked on at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address

import numpy as np
import numpy.typing as npt

from testbed.contract import frame, spec
from testbed.contract.frame import CorruptError, Frame
from testbed.contract.verdicts import Verdict
from testbed.errors import RequestError
from testbed.inc.job import Job, Role, Sender
from testbed.simulation.pull import PullSide
from testbed.simulation.ways import Emission, Outcome, To, Ways, back, behind

_MULTICAST = bytes([spec.GROUP_BYTE])  # the first byte of a group


@dataclass(slots=True)
class Slot:
    """A fragment's sum. `generation` None: empty."""

    generation: int | None = None
    fragment: int = 0
    members: int = 0
    count: int = 0
    complete: bool = False
    final: bool = False  # the lanes are the result, not a partial sum
    marked: bool = False  # whether a contribution came with congestion experienced
    lanes: npt.NDArray[np.uint32] = field(default_factory=lambda: frame.NO_LANES)


class Aggregator:
    """A ToR switch with the address `ip`, or with `is_host` a host. Verdicts are those of the contract.

    `ways` of a switch says by which ports frames leave. What a worker at a host pulls is its `pull_side`'s.
    """

    def __init__(self, ip: str, slots: int, lanes: int = spec.LANES, is_host: bool = False) -> None:
        self._ip, self._lanes, self._is_host = ip, lanes, is_host
        self._ip_bytes = IPv4Address(ip).packed
        self._slots = [Slot() for _ in range(slots)]
        self._jobs: dict[int, Job] = {}
        self._senders: dict[int, frozenset[Sender]] = {}
        self.ways = Ways()
        self.pull_side: PullSide | None = None

    def bind(self, port: int, senders: Iterable[Sender]) -> None:
        """Makes a port a host's: only these may send by it. A port that was never bound leads to another
        switch.
        """
        self._senders[port] = frozenset(senders)

    def admit(self, number: int, job: Job) -> None:
        """Gives a job its segment. RequestError if that is not there or another job's."""
        if job.base + job.size > len(self._slots):
            raise RequestError(
                f"job {number}: slots {job.base} to {job.base + job.size - 1}; there are {len(self._slots)}"
            )
        for other, held in self._jobs.items():
            if other != number and job.base < held.base + held.size and held.base < job.base + job.size:
                raise RequestError(
                    f"job {number}: slots {job.base} to {job.base + job.size - 1} meet those of job {other}"
                )
        self._jobs[number] = job

    def release(self, number: int) -> None:
        """Takes a job's segment back. Its slots keep what they hold; another generation takes them over."""
        self._jobs.pop(number, None)

    def slot(self, index: int) -> Slot:
        """What a slot holds, to compare."""
        return self._slots[index]

    # ------------------------------------------------------------------ one frame

    def receive(self, data: bytes, port: int) -> Outcome:
        """The verdict on a frame that came in by a port, and the frames that go out."""
        checked = self._is_host or port in self._senders or self._is_ours(data)
        if not frame.is_gradient(data) or not checked:
            return self._elsewhere(data)
        try:
            packet = Frame.parse(data, self._lanes)
        except CorruptError:
            return Verdict.CORRUPT, []
        except ValueError:
            return Verdict.MALFORMED, []
        return self._at_host(packet, data, port) if self._is_host else self._at_switch(packet, data, port)

    def _is_ours(self, data: bytes) -> bool:
        """239/8 is for results; what comes from another switch to other addresses passes through."""
        return data[30:34] == self._ip_bytes or data[30:31] == _MULTICAST

    def _elsewhere(self, data: bytes) -> Outcome:
        if self._is_host or not frame.is_ipv4(data):
            return ("passed" if self._is_host else Verdict.TO_OVS), [behind(data)]
        return self._forward(data)

    def _forward(self, data: bytes) -> Outcome:
        emission = self.ways.route(data)
        return Verdict.FORWARDED if emission.to is To.ROUTE else Verdict.TO_OVS, [emission]

    def _at_switch(self, packet: Frame, data: bytes, port: int) -> Outcome:
        header = packet.header
        if not self._may_send(port, packet):
            return Verdict.BAD_SENDER, []
        if header.op == spec.Op.NOTICE and packet.destination_ip != self._ip:
            return self._forward(data)
        job = self._jobs.get(header.job)
        if job is None:
            return Verdict.BAD_JOB, []
        if header.generation != job.generation:
            return Verdict.BAD_GENERATION, []
        if header.op == spec.Op.PUSH:
            return self._sum(packet, job, port)
        if header.op == spec.Op.NOTICE:
            if not job.members:
                return Verdict.BAD_WORKER, []
            return Verdict.NOTICE, [self.ways.to_group(To.WORKERS, data, header.job, port)]
        return self._pass_result(packet, data, job, port)

    def _may_send(self, port: int, packet: Frame) -> bool:
        """Pushes and partial sums do not come from other switches to this one; the rest was checked where it
        entered.
        """
        header = packet.header
        if port not in self._senders:
            return header.op in (spec.Op.RESULT, spec.Op.NOTICE)
        if header.op == spec.Op.PUSH:
            return (
                Sender(header.job, header.worker) in self._senders[port] and packet.destination_ip == self._ip
            )
        return (
            header.op in (spec.Op.RESULT, spec.Op.NOTICE) and Sender(header.job, None) in self._senders[port]
        )

    def _at_host(self, packet: Frame, data: bytes, port: int) -> Outcome:
        """Results and notices are a worker's, partial sums a parameter server's."""
        header = packet.header
        if header.op in (spec.Op.RESULT, spec.Op.NOTICE):
            if self.pull_side is None:
                return Verdict.BAD_JOB, []
            is_result = header.op == spec.Op.RESULT
            return self.pull_side.take(packet, data) if is_result else self.pull_side.heed(packet)
        if header.op == spec.Op.PUSH:
            return Verdict.MALFORMED, []
        job = self._jobs.get(header.job)
        if job is None or header.op != spec.Op.PARTIAL or packet.destination_ip != self._ip:
            return Verdict.BAD_JOB, []
        if header.generation != job.generation:
            return Verdict.BAD_GENERATION, []
        return self._sum(packet, job, port)

    def _pass_result(self, packet: Frame, data: bytes, job: Job, port: int) -> Outcome:
        header = packet.header
        if job.role is Role.FINAL or packet.destination_ip != job.group_ip:
            return Verdict.MALFORMED, []
        if job.role is Role.PARTIAL:
            offset = (header.slot - job.up_base) % 2**32
            if offset >= job.size:
                return Verdict.BAD_SLOT, []
            held = self._slots[job.base + offset]
            at = (held.generation, held.fragment)
            if held.complete and not held.final and at == (header.generation, header.fragment):
                held.lanes, held.count, held.final = packet.lanes.copy(), header.count, True
        return Verdict.RESULT, [self.ways.to_group(To.OTHERS, data, header.job, port)]

    def _sum(self, packet: Frame, job: Job, port: int) -> Outcome:
        """Steps 3 to 9."""
        header = packet.header
        if header.worker >= spec.MAX_WORKERS or not job.members >> header.worker & 1:
            return Verdict.BAD_WORKER, []
        offset = (header.slot - job.base) % 2**32
        if offset >= job.size:
            return Verdict.BAD_SLOT, []
        held, bit = self._slots[job.base + offset], 1 << header.worker
        newer = _difference(header.fragment, held.fragment) if held.generation == job.generation else 1
        if newer < 0:
            return Verdict.STALE, []
        if newer > 0:
            if held.generation == job.generation and not held.complete:
                return Verdict.MISMATCH, [self._notice(packet, job, port)]
            held = self._slots[job.base + offset] = Slot(
                job.generation, header.fragment, 0, lanes=np.zeros(self._lanes, np.uint32)
            )
        elif held.members & bit:
            if not held.complete:
                return Verdict.DUPLICATE, []
            return Verdict.RESENT, [self._sum_of(held, packet, job, port, repeated=True)]
        held.lanes = held.lanes + packet.lanes  # modulo 2**32
        held.members |= bit
        held.marked |= packet.is_marked
        held.count = header.count
        if held.members != job.members:
            return Verdict.AGGREGATED, []
        held.complete, held.final = True, job.role is Role.FINAL
        return Verdict.COMPLETED, [self._sum_of(held, packet, job, port, repeated=False)]

    # ------------------------------------------------------------------ what goes out

    def _sum_of(self, held: Slot, packet: Frame, job: Job, port: int, repeated: bool) -> Emission:
        """The result or partial sum that a slot holds, made of the packet that asked for it."""
        offset = packet.header.slot - job.base
        header = replace(packet.header, count=held.count, age=0, reserved=0, trailer=0)
        if held.final:
            header = replace(
                header,
                op=spec.Op.RESULT,
                flags=spec.Flag.FINAL,
                worker=spec.NO_WORKER,
                contributors=job.total,
                slot=(job.up_base if job.role is Role.PARTIAL else job.base) + offset,
            )
            ip, mac = job.group_ip, group_mac(job.group_ip)
        else:
            header = replace(
                header,
                op=spec.Op.PARTIAL,
                flags=0,
                worker=job.index,
                contributors=job.local,
                slot=job.up_base + offset,
            )
            ip, mac = job.up_ip, packet.destination_mac
        sent = replace(
            packet,
            header=header,
            lanes=held.lanes,
            source_ip=job.self_ip,
            destination_ip=ip,
            destination_mac=mac,
            ttl=frame.TTL,
            tos=packet.tos | (frame.CE if held.marked and not repeated else 0),
        )
        if not held.final:
            return self.ways.route(sent.pack())
        if repeated or self._is_host:
            return back(sent.pack(), port)
        return self.ways.to_group(To.GROUP, sent.pack(), header.job, port)

    def _notice(self, packet: Frame, job: Job, port: int) -> Emission:
        sent = replace(
            packet,
            header=replace(packet.header, op=spec.Op.NOTICE, flags=spec.Flag.ECN, count=0),
            lanes=frame.NO_LANES,
            source_ip=job.self_ip,
            destination_ip=packet.source_ip,
            ttl=frame.TTL,
        )
        return back(sent.pack(), port)


def group_mac(ip: str) -> str:
    """RFC 1112: 01:00:5e and the low 23 bits of the group."""
    low = int(IPv4Address(ip)) & 0x7FFFFF
    return (b"\x01\x00\x5e" + low.to_bytes(3, "big")).hex(":")


def _difference(a: int, b: int) -> int:
    """a - b as a signed 32-bit number."""
    return (a - b + 2**31) % 2**32 - 2**31
