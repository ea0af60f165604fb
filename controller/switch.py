"""A conversation with one connected switch: flows out, a barrier, flows read back. Calls block; replies come
from another thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from controller.flows import COOKIE, NOWHERE, Flow
from controller.management import PER_TURN, Management
from testbed.errors import TestbedError
from testbed.topology.addresses import Dpid

REPLY_TIMEOUT_S = 10.0
_IPV4 = 0x0800  # EtherType
_ALL_BITS, _OURS = 0xFFFFFFFFFFFFFFFF, 0xFFFF  # of a cookie; the bits above say with which change

_LIKE_OUT, _LIKE_IN = 0x0F71A5C3, 0x0F71C35A  # ports that no switch has, in what is made for others

# Of Open vSwitch's extensions (openflow/nicira-ext.h), by its names.
NX_BD_ALG_HRW, NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP, NXM_OF_IN_PORT = 1, 3, 0x00000002


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question to a switch, and what of its answer has come."""

    xid: int
    answered: threading.Event = field(default_factory=threading.Event)
    entries: list[Any] = field(default_factory=list)


class Switch:
    """One datapath of OpenFlow 1.3. `handle_*` are called by the application's event thread."""

    def __init__(self, datapath: Any, management: Management | None = None) -> None:
        """`management`: further connections to it, for changes of many flows."""
        self._datapath, self._management = datapath, management
        self._waiting: dict[int, _Asked] = {}
        self._ahead: tuple[_Asked, _Asked] | None = None  # behind a change, for whoever looks at it
        self._errors: list[str] = []
        self._held: frozenset[Flow] | None = None  # what it holds if its changes took effect; None: unknown
        self._added: frozenset[Flow] = frozenset()  # since what it holds was last seen; these have one cookie
        self._serial = 0
        self._gone = False
        self._lock = threading.Lock()

    @property
    def dpid(self) -> Dpid:
        return Dpid(self._datapath.id)

    @property
    def is_gone(self) -> bool:
        """Say whether the connection has ended; a switch that comes back has another `Switch`."""
        return self._gone

    def change(self, remove: Iterable[Flow], add: Iterable[Flow]) -> None:
        """Deletes and adds flows and waits for the barrier. TestbedError if the switch refuses or does not
        answer.

        A flow whose match is added anew is not deleted first: OpenFlow's ADD replaces it in one step, so that
        no packet meets the table without it. What `flows` will ask follows the barrier at once: Open vSwitch
        looks at all of its bridges before it answers one again, and there may be 250.
        """
        self._forget_ahead()
        add, remove = sorted(add), sorted(remove)
        replaced = {flow.match for flow in add}
        held, self._held = self._held, None
        protocol, parser = self._datapath.ofproto, self._datapath.ofproto_parser
        self._errors.clear()
        gone = [flow for flow in remove if flow.match not in replaced]
        changes = [(protocol.OFPFC_DELETE_STRICT, flow) for flow in gone]
        changes += [(protocol.OFPFC_ADD, flow) for flow in add]
        cookie = self._cookie
        if self._management and len(changes) > PER_TURN:
            self._errors += self._management.send(self._encoded(changes, cookie))
        else:
            each = [(flow, command, cookie) for command, flow in changes]
            self._datapath.send_all(self._datapath.encoded(self._modification, each))
        barrier = self._begin(parser.OFPBarrierRequest(self._datapath))
        if held is not None:
            self._ahead = self._look(cookie)
        try:
            self._finish(barrier, "a barrier")
        except TestbedError:
            self._forget_ahead()
            raise
        if self._errors:
            self._forget_ahead()
            raise TestbedError(f"set flows of switch {self.dpid:#x}: {self._errors[0]}")
        stale = {flow.match for flow in remove} | replaced
        self._added = frozenset(flow for flow in self._added if flow.match not in stale) | frozenset(add)
        if held is not None:
            self._held = frozenset(flow for flow in held if flow.match not in stale) | frozenset(add)

    def _encoded(self, changes: Iterable[tuple[int, Flow]], cookie: int) -> list[bytes]:
        """Return flow modifications as they are sent. Those of circuits are the same but for their ports, and
        each change has others: they are made from one (500 took 12 ms).
        """
        encoded: list[bytes] = []
        likes: dict[tuple[int, int], bytes] = {}
        for command, flow in changes:
            if flow.ip or flow.set_mac or flow.parallel_ports or flow.out_port == NOWHERE:
                encoded += self._datapath.encoded(self._modification, [(flow, command, cookie)])
                continue
            like = likes.get((command, flow.priority))
            if like is None:
                made = self._datapath.encoded(
                    self._modification, [(Flow(flow.priority, _LIKE_OUT, _LIKE_IN), command, cookie)]
                )
                like = likes[command, flow.priority] = made[0]
            message = like.replace(_bytes(_LIKE_OUT), _bytes(flow.out_port))
            encoded.append(message.replace(_bytes(_LIKE_IN), _bytes(flow.in_port)))
        return encoded

    def flows(self) -> frozenset[Flow]:
        """The flows of ours that the switch holds now. After a change of what was seen before, what it added
        is read back, by its cookie, and all are counted, in a time that does not grow with the fabric; where
        either is not as it should be, all are read.
        """
        if self._held is None or not self._is_as_told(self._held):
            self._held = self._read(self._begin(self._flows_by(COOKIE, _OURS)))
        self._added, self._serial = frozenset(), self._serial + 1
        return self._held

    @property
    def _cookie(self) -> int:
        """Return the cookie of what is added from now on until it is seen."""
        return self._serial << 16 | COOKIE

    def _is_as_told(self, held: frozenset[Flow]) -> bool:
        """Return whether it has what was added since the last look, and as many flows as it should."""
        ahead, self._ahead = self._ahead or self._look(self._cookie), None
        added = self._read(ahead[0])
        (counted,) = self._finish(ahead[1], "a count of flows")
        return added == self._added and bool(counted.flow_count == len(held))

    def _look(self, cookie: int) -> tuple[_Asked, _Asked]:
        """Ask for what has this cookie, and how many there are in all."""
        return self._begin(self._flows_by(cookie, _ALL_BITS)), self._begin(self._count())

    def _forget_ahead(self) -> None:
        for asked in self._ahead or ():
            self._drop(asked)
        self._ahead = None

    def _read(self, asked: _Asked) -> frozenset[Flow]:
        entries = self._finish(asked, "flow statistics")
        # another process may have added some: what is added next has a cookie that none has
        self._serial = max((self._serial, *(entry.cookie >> 16 for entry in entries)))
        return frozenset(_flow(entry) for entry in entries)

    def _flows_by(self, cookie: int, mask: int) -> Any:
        """Return the question for all flows with such a cookie."""
        parser = self._datapath.ofproto_parser
        return parser.OFPFlowStatsRequest(self._datapath, 0, *self._any_table(), cookie, mask)

    def _count(self) -> Any:
        """Return the question how many flows of ours there are."""
        parser = self._datapath.ofproto_parser
        every = parser.OFPMatch()
        return parser.OFPAggregateStatsRequest(self._datapath, 0, *self._any_table(), COOKIE, _OURS, every)

    def _any_table(self) -> tuple[int, int, int]:
        protocol = self._datapath.ofproto
        return protocol.OFPTT_ALL, protocol.OFPP_ANY, protocol.OFPG_ANY

    def handle_reply(self, xid: int, entries: list[Any], more: bool) -> None:
        """A barrier's or a statistics reply's part."""
        with self._lock:
            asked = self._waiting.get(xid)
        if asked:
            asked.entries.extend(entries)
            if not more:
                asked.answered.set()

    def handle_error(self, text: str) -> None:
        """An error message of the switch."""
        self._errors.append(text)

    def handle_end(self) -> None:
        """The connection is gone: whoever waits for an answer is told so."""
        with self._lock:
            self._gone = True
            for asked in self._waiting.values():
                asked.answered.set()

    def _begin(self, request: Any) -> _Asked:
        """Ask something whose answer `_finish` waits for."""
        self._datapath.set_xid(request)
        asked = _Asked(request.xid)
        with self._lock:
            self._waiting[request.xid] = asked
            if self._gone:
                asked.answered.set()
        self._datapath.send_msg(request)
        return asked

    def _finish(self, asked: _Asked, what: str) -> list[Any]:
        """Return an answer. TestbedError if there is none."""
        try:
            if not asked.answered.wait(REPLY_TIMEOUT_S):
                raise TestbedError(
                    f"ask switch {self.dpid:#x} for {what}: no answer in {REPLY_TIMEOUT_S:g} s"
                )
            if self._gone:
                raise TestbedError(f"ask switch {self.dpid:#x} for {what}: it disconnected")
        finally:
            self._drop(asked)
        return asked.entries

    def _drop(self, asked: _Asked) -> None:
        with self._lock:
            self._waiting.pop(asked.xid, None)

    def _modification(self, flow: Flow, command: int, cookie: int) -> Any:
        protocol, parser = self._datapath.ofproto, self._datapath.ofproto_parser
        if flow.ip and not flow.prefix:  # Open vSwitch reads a mask without a bit back as no match at all
            match = parser.OFPMatch(eth_type=_IPV4)
        elif flow.ip:
            mask = ".".join(str(0xFFFFFFFF << (32 - flow.prefix) >> shift & 0xFF) for shift in (24, 16, 8, 0))
            match = parser.OFPMatch(
                eth_type=_IPV4, ipv4_dst=flow.ip if flow.prefix == 32 else (flow.ip, mask)
            )
        else:
            match = parser.OFPMatch(in_port=flow.in_port)
        actions = [parser.OFPActionSetField(eth_dst=flow.set_mac)] if flow.set_mac else []
        if flow.parallel_ports:
            actions.append(self._spread(flow.out_ports))
        elif flow.out_port != NOWHERE:
            actions.append(parser.OFPActionOutput(flow.out_port))
        return parser.OFPFlowMod(
            self._datapath,
            cookie=cookie,
            command=command,
            priority=flow.priority,
            out_port=protocol.OFPP_ANY,
            out_group=protocol.OFPG_ANY,
            match=match,
            instructions=[parser.OFPInstructionActions(protocol.OFPIT_APPLY_ACTIONS, actions)],
        )

    def _spread(self, ports: tuple[int, ...]) -> Any:
        """Return the action that sends a packet by one of several ports: Open vSwitch's `bundle`, by a hash
        of addresses and of the ports of TCP and UDP in which both directions of a connection are the same.
        When a port goes, only what took it takes others (highest random weight).
        """
        return self._datapath.ofproto_parser.NXActionBundle(
            algorithm=NX_BD_ALG_HRW,
            fields=NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP,
            basis=0,
            slave_type=NXM_OF_IN_PORT,
            n_slaves=len(ports),
            ofs_nbits=0,
            dst=0,
            slaves=list(ports),
        )


def _bytes(port: int) -> bytes:
    return port.to_bytes(4, "big")


def _flow(entry: Any) -> Flow:
    """A flow of a statistics reply. One that is not of our shapes comes out as one that nobody wants, so that
    it is removed.
    """
    match = dict(entry.match.items())
    out_ports, mac = (NOWHERE,), ""
    for instruction in entry.instructions:
        for action in getattr(instruction, "actions", ()):
            if hasattr(action, "port"):
                out_ports = (action.port,)
            if getattr(action, "fields", None) == NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP:
                out_ports = tuple(action.slaves)
            mac = getattr(action, "value", mac) if getattr(action, "key", "") == "eth_dst" else mac
    ip, prefix = match.get("ipv4_dst", "0.0.0.0" if match.get("eth_type") == _IPV4 else ""), 0
    if isinstance(ip, tuple):
        prefix = sum(bin(int(part)).count("1") for part in ip[1].split("."))
        ip = ip[0]
    elif "ipv4_dst" in match:
        prefix = 32
    return Flow(
        entry.priority,
        out_ports[0],
        in_port=match.get("in_port", 0),
        ip=ip,
        prefix=prefix,
        set_mac=mac,
        parallel_ports=out_ports[1:],
    )
