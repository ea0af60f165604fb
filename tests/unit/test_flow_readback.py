"""The read-back of flows after a change, against a table in memory that speaks OpenFlow 1.3."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from os_ken.ofproto import ofproto_v1_3, ofproto_v1_3_parser

from controller.flows import Flow
from controller.ryu_api import share_parts
from controller.switch import Switch, _flow


class Table:
    """An OpenFlow 1.3 switch's table as a connection: it does what it is told, but for what `deaf` names, and
    counts how many flows it sent.
    """

    id = 5
    ofproto, ofproto_parser = ofproto_v1_3, ofproto_v1_3_parser

    def __init__(self) -> None:
        self.flows: dict[str, Any] = {}
        self.deaf: set[int] = set()
        self.sent = self.asked = 0
        self.switch: Switch | None = None

    def set_xid(self, request: Any) -> None:
        self.asked += 1
        request.xid = self.asked

    def encoded(self, make: Callable[..., Any], each: Iterable[tuple[Any, ...]]) -> list[Any]:
        return [make(*of) for of in each]

    def send_all(self, messages: Iterable[Any]) -> None:
        for message in messages:
            self.send_msg(message)

    def send_msg(self, message: Any) -> None:
        parser, protocol = ofproto_v1_3_parser, ofproto_v1_3
        assert self.switch
        if isinstance(message, parser.OFPFlowMod):
            if message.command in self.deaf:
                return
            key = f"{message.priority} {sorted(message.match.items())}"
            if message.command == protocol.OFPFC_ADD:
                self.flows[key] = message
            else:
                self.flows.pop(key, None)
            return
        answer: list[Any] = []
        if isinstance(message, parser.OFPFlowStatsRequest | parser.OFPAggregateStatsRequest):
            mask = message.cookie_mask
            answer = [flow for flow in self.flows.values() if flow.cookie & mask == message.cookie & mask]
            if isinstance(message, parser.OFPAggregateStatsRequest):
                answer = [SimpleNamespace(flow_count=len(answer))]
            else:
                self.sent += len(answer)
        self.switch.handle_reply(message.xid, answer, more=False)


def circuit_flows(ports: Iterable[int]) -> frozenset[Flow]:
    return frozenset(Flow(100, in_port=port, out_port=port + 1) for port in ports)


@pytest.fixture
def table() -> Table:
    table = Table()
    table.switch = Switch(table)
    table.switch.change((), circuit_flows(range(1, 101)))
    assert table.switch.flows() == circuit_flows(range(1, 101))
    table.sent = 0
    return table


def test_only_what_a_change_added_is_read_back(table: Table) -> None:
    assert table.switch
    held = circuit_flows(range(1, 101))
    for first in (1, 20, 40):  # the third removes what the second added, too
        remove, add = circuit_flows(range(first, first + 30)) & held, circuit_flows(range(200, 200 + first))
        table.sent = 0
        table.switch.change(remove, add)
        held = (held - remove) | add
        assert table.switch.flows() == held
        assert table.sent == first
    moved = frozenset({Flow(100, in_port=90, out_port=7)})  # another way for what came by this port
    table.sent = 0
    table.switch.change((), moved)
    assert table.switch.flows() == (held - circuit_flows([90])) | moved
    assert table.sent == 1


@pytest.mark.parametrize("lost", ["OFPFC_ADD", "OFPFC_DELETE_STRICT"])
def test_what_a_switch_did_not_do_is_seen(table: Table, lost: str) -> None:
    assert table.switch
    held = circuit_flows(range(1, 101))
    table.deaf = {getattr(ofproto_v1_3, lost)}
    remove, add = circuit_flows(range(1, 6)), circuit_flows(range(200, 207))
    table.switch.change(remove, add)
    assert table.switch.flows() == (held - remove if lost == "OFPFC_ADD" else held | add)


def test_flows_that_somebody_took_away_are_missed_by_the_next_change(table: Table) -> None:
    assert table.switch
    held, add = circuit_flows(range(1, 101)), circuit_flows([300])
    taken = next(iter(table.flows))
    del table.flows[taken]
    table.switch.change((), add)
    assert len(table.switch.flows()) == len(held | add) - 1


def test_two_changes_before_a_look_are_seen_together(table: Table) -> None:
    assert table.switch
    held, first, second = circuit_flows(range(1, 101)), circuit_flows([300, 400]), circuit_flows([500])
    table.switch.change((), first)
    table.sent = 0
    table.switch.change(circuit_flows([400, 1]), second)
    assert table.switch.flows() == (held | first | second) - circuit_flows([400, 1])
    assert table.sent == 2


def shown(flow: Flow, cookie: int) -> bytes:
    """A flow as a switch shows it in its statistics, which begin with eight bytes of the reply."""
    protocol = ofproto_v1_3
    sent = Switch(Table())._modification(flow, protocol.OFPFC_ADD, cookie)
    rest = bytearray()
    at = sent.match.serialize(rest, 0)
    for instruction in sent.instructions:
        instruction.serialize(rest, at)
    head = struct.Struct(protocol.OFP_FLOW_STATS_0_PACK_STR)
    length = head.size + len(rest)
    return bytes(8) + head.pack(length, 0, 1, 2, flow.priority, 0, 0, 0, cookie, 3, 4) + bytes(rest)


def test_flows_with_the_same_parts_are_decoded_as_they_are() -> None:
    parser = SimpleNamespace(
        OFPFlowStats=ofproto_v1_3_parser.OFPFlowStats, OFPFlowStatsReply=SimpleNamespace()
    )
    share_parts(ofproto_v1_3, parser)
    decoded = parser.OFPFlowStatsReply.cls_stats_body_cls.parser
    flows = [
        Flow(100, in_port=3, out_port=5),
        Flow(200, in_port=3, out_port=5),
        Flow(100, in_port=3, out_port=6),
        Flow(100, ip="10.0.3.0", prefix=24, out_port=201, parallel_ports=(202,)),
        Flow(200, ip="10.0.3.1", prefix=32, out_port=7, set_mac="02:00:00:00:00:07"),
    ]
    for cookie in (7, 9):
        for flow in flows:
            data = shown(flow, cookie)
            entry, whole = decoded(data, 8), ofproto_v1_3_parser.OFPFlowStats.parser(data, 8)
            assert str(entry) == str(whole)
            assert _flow(entry) == flow
