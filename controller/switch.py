"""Communication with one connected switch: send flows, a barrier, read flows back. Calls block; replies
arrive on another thread.
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
_ALL_BITS, _OURS = (
    0xFFFFFFFFFFFFFFFF,
    0xFFFF,
)  # masks of a cookie; the bits above the lower 16 number the change

_LIKE_OUT, _LIKE_IN = 0x0F71A5C3, 0x0F71C35A  # placeholder ports, which no switch has

# Open vSwitch's extensions (openflow/nicira-ext.h), by its names.
NX_BD_ALG_HRW, NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP, NXM_OF_IN_PORT = 1, 3, 0x00000002


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request to a switch, and the part of its answer that has arrived."""

    xid: int
    answered: threading.Event = field(default_factory=threading.Event)
    entries: list[Any] = field(default_factory=list)


class Switch:
    """One datapath of OpenFlow 1.3. The application's event thread calls `handle_*`."""

    def __init__(self, datapath: Any, management: Management | None = None) -> None:
        """Wrap a connected datapath. `management`: additional connections to it, for changes of
        many flows.
        """
        self._datapath, self._management = datapath, management
        self._waiting: dict[int, _Asked] = {}
        self._ahead: tuple[_Asked, _Asked] | None = None  # requests already sent after a change, for `flows`
        self._errors: list[str] = []
        self._held: frozenset[Flow] | None = None  # its flows if all changes took effect; None: unknown
        self._added: frozenset[Flow] = (
            frozenset()
        )  # flows added since the last read-back, all with one cookie
        self._serial = 0
        self._gone = False
        self._lock = threading.Lock()

    @property
    def dpid(self) -> Dpid:
        return Dpid(self._datapath.id)

    @property
    def is_gone(self) -> bool:
        """Return whether the connection has ended; a switch that reconnects has another `Switch`."""
        return self._gone

    def change(self, remove: Iterable[Flow], add: Iterable[Flow]) -> None:
        """Delete and add flows, and wait for the barrier. TestbedError if the switch refuses or does not
        answer.

        A flow is not deleted first if its match is added again: OpenFlow's ADD replaces it in one step, so
        that no packet meets the table without it. The requests of `flows` are sent directly after the
        barrier: Open vSwitch visits all of its bridges, of which there may be 250, before it answers one
        again.
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
        """Encode flow modifications. Those of circuits differ only in their ports, which change each time:
        they are made from one template (500 took 12 ms).
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
        """Return the controller's flows in the switch. After a change to known flows, only the added flows
        are read back, by their cookie, and all flows are counted, in a time independent of the fabric's size;
        if either differs, all are read.
        """
        if self._held is None or not self._is_as_told(self._held):
            self._held = self._read(self._begin(self._flows_by(COOKIE, _OURS)))
        self._added, self._serial = frozenset(), self._serial + 1
        return self._held

    @property
    def _cookie(self) -> int:
        """The cookie of flows that are added from now until the next read-back."""
        return self._serial << 16 | COOKIE

    def _is_as_told(self, held: frozenset[Flow]) -> bool:
        """Return whether the switch has the flows added since the last read-back, and the right
        total number.
        """
        ahead, self._ahead = self._ahead or self._look(self._cookie), None
        added = self._read(ahead[0])
        (counted,) = self._finish(ahead[1], "a count of flows")
        return added == self._added and bool(counted.flow_count == len(held))

    def _look(self, cookie: int) -> tuple[_Asked, _Asked]:
        """Request the flows with this cookie, and the total number of flows."""
        return self._begin(self._flows_by(cookie, _ALL_BITS)), self._begin(self._count())

    def _forget_ahead(self) -> None:
        for asked in self._ahead or ():
            self._drop(asked)
        self._ahead = None

    def _read(self, asked: _Asked) -> frozenset[Flow]:
        entries = self._finish(asked, "flow statistics")
        # another process may have added some: what is added next needs an unused cookie
        self._serial = max((self._serial, *(entry.cookie >> 16 for entry in entries)))
        return frozenset(_flow(entry) for entry in entries)

    def _flows_by(self, cookie: int, mask: int) -> Any:
        """Make the request for all flows with such a cookie."""
        parser = self._datapath.ofproto_parser
        return parser.OFPFlowStatsRequest(self._datapath, 0, *self._any_table(), cookie, mask)

    def _count(self) -> Any:
        """Make the request for the number of the controller's flows."""
        parser = self._datapath.ofproto_parser
        every = parser.OFPMatch()
        return parser.OFPAggregateStatsRequest(self._datapath, 0, *self._any_table(), COOKIE, _OURS, every)

    def _any_table(self) -> tuple[int, int, int]:
        protocol = self._datapath.ofproto
        return protocol.OFPTT_ALL, protocol.OFPP_ANY, protocol.OFPG_ANY

    def handle_reply(self, xid: int, entries: list[Any], more: bool) -> None:
        """Process a barrier reply, or a part of a statistics reply."""
        with self._lock:
            asked = self._waiting.get(xid)
        if asked:
            asked.entries.extend(entries)
            if not more:
                asked.answered.set()

    def handle_error(self, text: str) -> None:
        """Record an error message of the switch."""
        self._errors.append(text)

    def handle_end(self) -> None:
        """Mark the connection as ended, and wake those who wait for answers."""
        with self._lock:
            self._gone = True
            for asked in self._waiting.values():
                asked.answered.set()

    def _begin(self, request: Any) -> _Asked:
        """Send a request whose answer `_finish` waits for."""
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
        if flow.ip and not flow.prefix:  # Open vSwitch reads a mask of zero bits back as no match at all
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
        """Make the action that sends a packet by one of several ports: Open vSwitch's `bundle`, by a hash of
        addresses and TCP or UDP ports that is equal for both directions of a connection. When a port goes
        down, only its packets move to others (highest random weight).
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
    """Decode a flow of a statistics reply. A flow of another shape becomes one that no switch should hold, so
    that it is removed.
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
