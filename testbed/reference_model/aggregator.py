"""The reference aggregator: how one place, a switch or a host, processes a frame. docs/protocol.md describes
the same in words.

Frames go in and out as bytes, so that the runner of the tests' vectors can run on this model too. Pure: no
I/O, no clock; one frame is processed at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from ipaddress import IPv4Address

import numpy as np

from testbed.aggregation.entries import Entry, Role, Sender
from testbed.errors import RequestError
from testbed.reference_model.output_ports import Emission, Reaction, To, Ways, back, behind
from testbed.reference_model.parts import HeldSum, MakePart, ModelPart, PassingPart, SummingPart
from testbed.reference_model.pull import PullSide
from testbed.reference_model.slots import Slot, contributors_of, difference
from testbed.topology import addresses
from testbed.topology.addresses import CONTROL_PORT, LOOP_PLACE_IP
from testbed.wire import frame, recovery, spec
from testbed.wire.frame import CorruptError, Frame
from testbed.wire.operations import BY_OWNERS, FOR_ENDS, NOT_IN_P4
from testbed.wire.recovery import Found
from testbed.wire.verdicts import Verdict

ETH0, LOOP_PORT = 1, 254  # ports of a host: all except LOOP_PORT and CONTROL_PORT are its eth0
_OP_AT = frame.HEADERS_BYTES + 3
_MULTICAST = bytes([spec.GROUP_BYTE])  # the first byte of a group's address
_PUSHES = (spec.Op.PUSH, spec.Op.EMPTY)
_CONTRIBUTIONS = (*_PUSHES, spec.Op.PARTIAL)
_UNKNOWN_TO_P4 = [bytes([op]) for op in NOT_IN_P4]


class Aggregator:
    """A ToR switch with the address `ip`, or with `is_host` a host. Verdicts are the contract's. `ways`
    determines the ports by which frames leave; `pull_side` processes what a host's worker receives. Ticks
    arrive by CONTROL_PORT, pushes of the host's own worker by LOOP_PORT. `parts` make the parts of systems'
    programs.
    """

    def __init__(
        self,
        ip: str,
        slots: int,
        lanes: int = spec.LANES,
        is_host: bool = False,
        takes_empties: bool = True,
        parts: Mapping[str, MakePart] | None = None,
    ) -> None:
        self._ip, self._lanes, self._is_host = ip, lanes, is_host
        self._takes_empties = takes_empties  # applies to switches; a host accepts no empty pushes
        self._ip_bytes = IPv4Address(ip).packed
        self._slots = [Slot() for _ in range(slots)]
        self._parts = {program: make(self._slots) for program, make in (parts or {}).items()}
        self._summing = {name: part for name, part in self._parts.items() if isinstance(part, SummingPart)}
        self._passing = {name: part for name, part in self._parts.items() if isinstance(part, PassingPart)}
        self._entries: dict[tuple[int, int], Entry] = {}  # by job and tree
        self._senders: dict[int, frozenset[Sender]] = {}
        self.ways = Ways()
        self.pull_side: PullSide | None = None

    def bind(self, port: int, senders: Iterable[Sender]) -> None:
        """Make a switch's port a host's: only these senders may send by it. A port that was never bound leads
        to another switch. At a host: the senders that push by LOOP_PORT.
        """
        self._senders[port] = frozenset(senders)

    def admit(self, number: int, entry: Entry) -> None:
        """Give a tree of job `number` its segment, or its program's equivalent. RequestError if the segment
        does not exist or overlaps another's.
        """
        if self._has_slots(entry):
            self._check_segment(number, entry)
        if part := self._parts.get(entry.program):
            part.admit(number, entry)
        self._entries[number, entry.tree] = entry

    def _has_slots(self, entry: Entry) -> bool:
        part = self._parts.get(entry.program)
        return part is None or part.has_slots

    def _check_segment(self, number: int, entry: Entry) -> None:
        first, last = entry.base, entry.base + entry.size - 1
        if last >= len(self._slots):
            raise RequestError(f"job {number}: slots {first} to {last}; there are {len(self._slots)}")
        for (job, tree), held in self._entries.items():
            if not self._has_slots(held):
                continue
            if (job, tree) != (number, entry.tree) and first < held.base + held.size and held.base <= last:
                raise RequestError(f"job {number}: slots {first} to {last} meet those of job {job}")

    def release(self, number: int, tree: int | None = None) -> None:
        """Release the segment of a tree, or of all trees of a job. Slots keep their contents, which another
        generation replaces.
        """
        for key in [key for key in self._entries if key[0] == number and tree in (None, key[1])]:
            del self._entries[key]
            for part in self._parts.values():
                part.release(*key)

    def slot(self, index: int) -> Slot:
        """Return a slot's present state, for comparisons."""
        return self._slots[index]

    def part(self, program: str) -> ModelPart | None:
        """Return a program's own part, or None."""
        return self._parts.get(program)

    # ------------------------------------------------------------------ one frame

    def receive(self, data: bytes, port: int) -> Reaction:
        """Process a frame that arrived by a port; return the verdict, and the frames that leave."""
        if port != CONTROL_PORT and not (frame.is_gradient(data) and self._looks_into(data, port)):
            return self._elsewhere(data)
        if not self._takes_empties and data[_OP_AT : _OP_AT + 1] in _UNKNOWN_TO_P4:
            return Verdict.MALFORMED, []  # an operation unknown to P4 switches
        try:
            packet = Frame.parse(data, self._lanes)
        except CorruptError:
            return Verdict.CORRUPT, []
        except ValueError:
            return Verdict.MALFORMED, []
        if not self._may_send(port, packet):
            return Verdict.BAD_SENDER, []
        if packet.header.op == spec.Op.TICK:
            return self._tick(packet, port)
        return self._at_host(packet, data, port) if self._is_host else self._at_switch(packet, data, port)

    def _looks_into(self, data: bytes, port: int) -> bool:
        """Return whether a gradient packet is processed here: 239/8 is for results; packets from another
        switch to other addresses pass through.
        """
        is_ours = data[30:34] == self._ip_bytes or data[30:31] == _MULTICAST
        return self._is_host or port in self._senders or is_ours

    def _elsewhere(self, data: bytes) -> Reaction:
        if self._is_host or not frame.is_ipv4(data):
            return ("passed" if self._is_host else Verdict.TO_OVS), [behind(data)]
        return self._forward(data)

    def _forward(self, data: bytes) -> Reaction:
        emission = self.ways.route(data)
        return Verdict.FORWARDED if emission.to is To.ROUTE else Verdict.TO_OVS, [emission]

    def _may_send(self, port: int, packet: Frame) -> bool:
        """Check rule 2. Packets that arrive at a host, or from another switch, were checked where they
        entered the fabric.
        """
        header = packet.header
        if port == CONTROL_PORT or header.op == spec.Op.TICK:
            return port == CONTROL_PORT and header.op == spec.Op.TICK
        if self._is_host and header.op == spec.Op.EMPTY:
            return False  # the packet that completes a sum would have no room for it
        senders = [sender for sender in self._senders.get(port, ()) if sender.job == header.job]
        if self._is_host and port == LOOP_PORT:
            is_own = header.op in (spec.Op.PUSH, spec.Op.QUESTION)
            is_own &= packet.destination_ip == LOOP_PLACE_IP
            return is_own and any(sender.worker == header.worker for sender in senders)
        if self._is_host or port not in self._senders:
            return True
        if header.op in (*_PUSHES, spec.Op.PARAMETER_BEAT):
            return any(sender.worker == header.worker for sender in senders)
        if header.op in FOR_ENDS:
            return header.op in BY_OWNERS and any(sender.is_owner for sender in senders)
        if header.op == spec.Op.QUESTION and any(sender.worker == header.worker for sender in senders):
            return True
        return any(sender.is_place for sender in senders)

    def _at_switch(self, packet: Frame, data: bytes, port: int) -> Reaction:
        header = packet.header
        known = self._entries.get((header.job, header.tree))
        if known and (passing := self._passing.get(known.program)):
            return self._at_passing(passing, packet, data, port)
        if (header.op != spec.Op.RESULT or self._is_copy(packet, port)) and packet.destination_ip != self._ip:
            return (Verdict.MALFORMED, []) if data[30:31] == _MULTICAST else self._forward(data)
        entry = self._entry(packet)
        if isinstance(entry, str):
            return entry, []
        if (summing := self._summing.get(entry.program)) and header.op in summing.unknown:
            return Verdict.MALFORMED, []
        if header.op in _CONTRIBUTIONS:
            return self._sum(packet, entry, port)
        if header.op == spec.Op.QUESTION:
            return self._ask(packet, entry, port)
        if header.op == spec.Op.ANSWER or header.op in FOR_ENDS:
            return Verdict.MALFORMED, []  # for a worker or an owner, not for a place
        key = (header.job, header.tree)
        if header.op == spec.Op.NOTICE:
            if not entry.members:
                return Verdict.BAD_WORKER, []
            return Verdict.NOTICE, [self.ways.to_group(To.WORKERS, data, key, port)]
        refused = self._keep(packet, entry)
        return (
            (refused, []) if refused else (Verdict.RESULT, [self.ways.to_group(To.OTHERS, data, key, port)])
        )

    def _at_passing(self, part: PassingPart, packet: Frame, data: bytes, port: int) -> Reaction:
        """Process a packet of a known tree with packets of its own."""
        header, is_to_group = packet.header, data[30:31] == _MULTICAST
        passed = part.passes.get(header.op) if is_to_group else None
        if packet.destination_ip != self._ip and passed is None:
            return (Verdict.MALFORMED, []) if is_to_group else self._forward(data)
        entry, key = self._entry(packet), (header.job, header.tree)
        if isinstance(entry, str):
            return entry, []
        if passed is not None and packet.destination_ip == entry.group_ip:
            return passed, [self.ways.to_group(To.OTHERS, data, key, port)]
        verdict, sent = part.react(packet)
        return verdict, [self.ways.route(sent.pack())] if sent else []

    def _is_copy(self, packet: Frame, port: int) -> bool:
        """Return whether a result is a copy from one host to another, which a switch does not process."""
        senders = self._senders.get(port, ())
        relays = any(sender.relays for sender in senders if sender.job == packet.header.job)
        ip = IPv4Address(packet.destination_ip).packed
        return relays and ip != self._ip_bytes and ip[:1] != _MULTICAST

    def _at_host(self, packet: Frame, data: bytes, port: int) -> Reaction:
        """Process a packet at a host: results and notices go to the worker, results to the place too."""
        op = packet.header.op
        if op in FOR_ENDS:
            return self.pull_side.hand(packet, data) if self.pull_side else (Verdict.BAD_JOB, [])
        if op == spec.Op.NOTICE:
            return self.pull_side.heed(packet) if self.pull_side else (Verdict.BAD_JOB, [])
        if op == spec.Op.ANSWER:
            return self.pull_side.hear(packet, data) if self.pull_side else (Verdict.BAD_JOB, [])
        is_for_place = op in _CONTRIBUTIONS or op == spec.Op.QUESTION
        if is_for_place and port != LOOP_PORT and packet.destination_ip != self._ip:
            return Verdict.BAD_JOB, []
        entry = self._entry(packet)
        if op == spec.Op.QUESTION:
            return (entry, []) if isinstance(entry, str) else self._ask(packet, entry, port)
        if op in _CONTRIBUTIONS:
            return (entry, []) if isinstance(entry, str) else self._sum(packet, entry, port)
        if entry == Verdict.BAD_JOB:  # this host is not a place of the tree
            return self.pull_side.take(packet, data) if self.pull_side else (Verdict.BAD_JOB, [])
        refused = entry if isinstance(entry, str) else self._keep(packet, entry)
        if refused:
            return refused, []
        if not isinstance(entry, str) and entry.is_relayed:
            return Verdict.RESULT, self._copies(packet, data, entry)
        is_its_own = self.pull_side is not None and self.pull_side.puller.has(packet.header)
        return self.pull_side.take(packet, data) if self.pull_side and is_its_own else (Verdict.RESULT, [])

    # ------------------------------------------------------------------ rules 3 to 10

    def _entry(self, packet: Frame) -> Entry | str:
        """Return the entry for a packet, or the verdict if there is none."""
        header = packet.header
        entry = self._entries.get((header.job, header.tree))
        if entry is None:
            return Verdict.BAD_JOB
        if header.lanes != entry.lanes:
            return Verdict.MALFORMED
        return entry if header.generation == entry.generation else Verdict.BAD_GENERATION

    def _sum(self, packet: Frame, entry: Entry, port: int) -> Reaction:
        header = packet.header
        if summing := self._summing.get(entry.program):
            return self._add(summing, packet, entry, port)
        is_push = header.op in _PUSHES
        expected = entry.workers if is_push else entry.places
        if header.worker >= spec.MAX_WORKERS or not expected >> header.worker & 1:
            return Verdict.BAD_WORKER, []
        offset = (header.slot - entry.base) % 2**32
        if offset >= entry.size:
            return Verdict.BAD_SLOT, []
        held, bit = self._slots[entry.base + offset], 1 << header.worker
        newer = difference(header.fragment, held.fragment) if held.generation == entry.generation else 1
        if newer < 0:
            return Verdict.STALE, []
        if newer > 0:
            if held.generation == entry.generation and not held.complete:
                return Verdict.MISMATCH, [self._notice(packet, entry, port)]
            held = self._slots[entry.base + offset] = Slot(
                entry.generation, header.fragment, lanes=np.zeros(entry.lanes, np.uint32)
            )
        elif held.complete:
            sent = self._sum_of(held, packet, entry, port, repeated=True)
            return (Verdict.RESENT if held.members & bit else Verdict.LATE), sent
        elif held.members & bit:
            return Verdict.DUPLICATE, []
        if header.op != spec.Op.EMPTY:
            held.lanes = held.lanes + packet.lanes  # modulo 2**32
        held.members |= bit
        held.contributors = (held.contributors + contributors_of(header)) % 2**32
        held.marked |= packet.is_marked
        held.degraded |= bool(header.flags & spec.Flag.DEGRADED)
        held.count = header.count
        if held.members != entry.members:
            return Verdict.AGGREGATED, []
        return Verdict.COMPLETED, self._complete(held, packet, entry, port, 0 if is_push else header.age)

    def _add(self, part: SummingPart, packet: Frame, entry: Entry, port: int) -> Reaction:
        """Add a contribution to a program's own kind of sum."""
        verdict, held = part.add(packet)
        if verdict is Verdict.CAPPED:
            return verdict, [self._notice(packet, entry, port)]
        repeated = verdict is not Verdict.COMPLETED
        return verdict, self._sum_of(held, packet, entry, port, repeated) if held else []

    def _tick(self, packet: Frame, port: int) -> Reaction:
        header, entry = packet.header, self._entry(packet)
        if isinstance(entry, str):
            return entry, []
        if entry.program in self._passing:
            return Verdict.BAD_JOB, []  # such trees are never ticked
        if not entry.members:
            return Verdict.BAD_WORKER, []
        if summing := self._summing.get(entry.program):
            verdict, made = summing.tick(packet)
            return verdict, self._sum_of(made, packet, entry, port, repeated=False) if made else []
        offset = (header.slot - entry.base) % 2**32
        if offset >= entry.size:
            return Verdict.BAD_SLOT, []
        held = self._slots[entry.base + offset]
        if (held.generation, held.fragment, held.complete) != (entry.generation, header.fragment, False):
            return Verdict.TICK_LATE, []
        held.degraded = True
        return Verdict.TICKED, self._complete(held, packet, entry, port, header.age)

    def _ask(self, packet: Frame, entry: Entry, port: int) -> Reaction:
        """Process a question: return the answer, or the question to the place above, with the findings of
        this place added. Changes no state.
        """
        header = packet.header
        if header.worker >= spec.MAX_WORKERS or not entry.members >> header.worker & 1:
            return Verdict.BAD_WORKER, []
        if header.count > recovery.MOST:
            return Verdict.MALFORMED, []
        lanes, is_open = packet.lanes.copy(), False
        for place in range(header.count):
            if recovery.state_in(int(lanes[place])) != Found.SUMMED:
                continue
            offset = recovery.offset_in(int(lanes[place]))
            if offset >= entry.size:
                return Verdict.BAD_SLOT, []
            held = self._slots[entry.base + offset]
            state = self._found(held, entry, (header.fragment + place) % 2**32, 1 << header.worker)
            lanes[place] = recovery.lane(offset, state)
            is_open |= state is Found.SUMMED
        goes_on = is_open and bool(header.flags & spec.Flag.RETRANSMIT) and port != LOOP_PORT
        sent = replace(
            packet,
            header=replace(header, worker=entry.number)
            if goes_on
            else replace(header, op=spec.Op.ANSWER, flags=header.flags & spec.Flag.RETRANSMIT),
            lanes=lanes,
            source_ip=packet.source_ip if goes_on else entry.self_ip,
            destination_ip=entry.up_ip if goes_on else packet.source_ip,
            destination_mac=packet.destination_mac if goes_on else packet.source_mac,
            ttl=frame.TTL,
        ).pack()
        if not goes_on and entry.workers >> header.worker & 1:
            return Verdict.ASKED, [back(sent, port)]
        return Verdict.ASKED, [Emission(To.ROUTE, sent, (ETH0,)) if self._is_host else self.ways.route(sent)]

    @staticmethod
    def _found(held: Slot, entry: Entry, fragment: int, bit: int) -> Found:
        newer = difference(fragment, held.fragment) if held.generation == entry.generation else 1
        if newer > 0:
            return Found.LACKS
        if newer < 0:
            return Found.HELD
        if held.complete:
            return Found.FINAL if held.final else Found.SUMMED
        return Found.HELD if held.members & bit else Found.LACKS

    def _complete(self, held: Slot, packet: Frame, entry: Entry, port: int, age: int) -> list[Emission]:
        held.complete, held.final, held.age = True, entry.role is Role.TOP, age
        return self._sum_of(held, packet, entry, port, repeated=False)

    def _keep(self, packet: Frame, entry: Entry) -> str:
        """Store a result that arrives at a place; return the verdict if it is not to be forwarded,
        else "".
        """
        header = packet.header
        to_ip = entry.self_ip if entry.is_relayed else entry.group_ip
        if entry.role is Role.TOP or packet.destination_ip != to_ip:
            return Verdict.MALFORMED
        if entry.role is Role.TRANSIT:
            return ""
        offset = (header.slot - entry.result_base) % 2**32
        if offset >= entry.size:
            return Verdict.BAD_SLOT
        if summing := self._summing.get(entry.program):
            summing.keep(packet)
            return ""
        held, degraded = self._slots[entry.base + offset], bool(header.flags & spec.Flag.DEGRADED)
        is_its_own = (held.generation, held.fragment) == (header.generation, header.fragment)
        if is_its_own and not held.final and (held.complete or degraded):
            held.lanes, held.count, held.age = packet.lanes.copy(), header.count, header.age
            held.contributors, held.degraded = header.contributors, degraded
            held.complete = held.final = True
        elif entry.is_relayed and is_its_own and held.final:
            return Verdict.PULL_DUPLICATE
        return ""

    # ------------------------------------------------------------------ outgoing frames

    def _sum_of(
        self, held: HeldSum, packet: Frame, entry: Entry, port: int, repeated: bool
    ) -> list[Emission]:
        """Return the result or partial that a slot holds, made from the packet that caused it to be sent."""
        relayed_to = packet.source_ip if repeated else entry.self_ip
        offset = packet.header.slot - entry.base
        header = replace(
            packet.header,
            op=spec.Op.RESULT if held.final else spec.Op.PARTIAL,
            flags=(spec.Flag.FINAL if held.final else 0) | (spec.Flag.DEGRADED if held.degraded else 0),
            worker=spec.NO_WORKER if held.final else entry.number,
            contributors=held.contributors % 2**16,
            slot=(entry.result_base if held.final else entry.up_base) + offset,
            count=held.count,
            age=held.age,
            reserved=0,
        )
        sent = replace(
            packet,
            header=header,
            lanes=held.lanes,
            source_ip=entry.self_ip,
            destination_ip=(relayed_to if entry.is_relayed else entry.group_ip)
            if held.final
            else entry.up_ip,
            destination_mac=group_mac(entry.group_ip)
            if held.final and not entry.is_relayed
            else packet.destination_mac,
            ttl=frame.TTL,
            tos=packet.tos | (frame.CE if held.marked and not repeated else 0),
        )
        data = sent.pack()
        if held.final and repeated:
            return [back(data, port)]
        if held.final and entry.is_relayed:
            return self._copies(sent, data, entry)
        if held.final:
            return [self.ways.to_group(To.GROUP, data, (header.job, header.tree), port)]
        return [Emission(To.ROUTE, data, (ETH0,)) if self._is_host else self.ways.route(data)]

    def _copies(self, packet: Frame, data: bytes, entry: Entry) -> list[Emission]:
        """Return a copy of a result for each member of this host's place; for the host's own worker, the
        result itself.
        """
        members, own = self.ways.copied_for((packet.header.job, packet.header.tree))
        copies = [
            replace(
                packet,
                source_ip=entry.self_ip,
                destination_ip=addresses.host_ip(*member),
                destination_mac=addresses.host_mac(*member),
                ttl=frame.TTL,
            ).pack()
            for member in members
        ]
        emissions = [Emission(To.COPIES, copy, (ETH0,)) for copy in copies]
        return [*emissions, *([Emission(To.COPIES, data, (LOOP_PORT,))] if own else [])]

    def _notice(self, packet: Frame, entry: Entry, port: int) -> Emission:
        sent = replace(
            packet,
            header=replace(packet.header, op=spec.Op.NOTICE, flags=spec.Flag.ECN, count=0),
            lanes=frame.NO_LANES,
            source_ip=entry.self_ip,
            destination_ip=packet.source_ip,
            ttl=frame.TTL,
        )
        return back(sent.pack(), port)


def group_mac(ip: str) -> str:
    """Return the MAC address of a group by RFC 1112: 01:00:5e and the group's low 23 bits."""
    low = int(IPv4Address(ip)) & 0x7FFFFF
    return (b"\x01\x00\x5e" + low.to_bytes(3, "big")).hex(":")
