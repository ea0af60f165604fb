"""Programs' parts of a P4 switch, without one: the calls that would be made to it, in their order."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.aggregation.entries import NO_IP
from testbed.dataplanes.bmv2.program import compiled
from testbed.dataplanes.bmv2.switch import Bmv2Switch
from testbed.systems.luwu.bmv2 import SwitchOwnedRecords
from testbed.systems.trio.bmv2.blocks import SwitchBlocks
from testbed.systems.trio.contract import P4_RECORDS, P4_SOURCES
from testbed.systems.trio.parts import BlockCounts
from testbed.topology.addresses import Dpid
from testbed.wire.places import P4_ENTRY
from tests.vectors.blocks import job

RECORD = [parameter.name for parameter in P4_ENTRY].index("record")


class Client:
    """The tables of a switch: it answers with what was added, and keeps the names of the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.entries: list[Any] = []

    def add_group(self, group: int, _ports: Any) -> int:
        return group

    def delete_group(self, *_: int) -> None:
        self.calls.append("delete group")

    def add_entry(self, table: str, _key: Any, action: Any) -> int:
        self.calls.append(f"add to {table}")
        self.entries.append(action)
        return len(self.entries)

    def replace_entry(self, table: str, _handle: int, action: Any) -> None:
        self.calls.append(f"replace in {table}")
        self.entries.append(action)

    def delete_entry(self, table: str, _handle: int) -> None:
        self.calls.append(f"delete from {table}")

    def fill_register(self, name: str, _start: int, _end: int, _value: int) -> None:
        self.calls.append(f"fill {name}")

    def register(self, name: str) -> list[int]:
        return [0, 3, *[0] * P4_RECORDS] if name == "block_missed" else [7] * P4_SOURCES


@pytest.fixture
def switch(tmp_path: Any) -> Any:
    made: Any = Bmv2Switch(Dpid(1), {"u1-h1": 1}, compiled("wide", 1500), tmp_path, False)
    made._client, made._process = Client(), SimpleNamespace(ended=lambda *_: None)
    return made


def test_blocks_have_records_before_their_entry_and_no_slots(switch: Any) -> None:
    switch.set_group(5, 0, ["u1-h1"])
    assert switch.part("blocks") is None
    switch.admit(5, job(2))
    calls = switch._client.calls
    assert calls[-2:] == ["add to terms", "add to entries"]
    blocks = switch.part("blocks")
    assert isinstance(blocks, SwitchBlocks)
    assert blocks.counts(5, 0) == BlockCounts(7, 7, {1: 3})
    assert blocks.counts(6, 0) is None
    del calls[:]
    switch.admit(5, job(2))
    assert calls == ["replace in entries"]
    switch.release(5)
    assert calls[1:] == ["delete from entries", "delete from terms", "delete group"]
    assert blocks.counts(5, 0) is None


def test_a_trees_owned_record_is_named_in_its_entry_and_goes_with_the_switch(switch: Any) -> None:
    for number in (5, 6):
        switch.set_group(number, 0, ["u1-h1"])
        switch.admit(number, replace(job(2), program="owned", terms=None, up_ip=NO_IP))
    assert [action.data[RECORD] for action in switch._client.entries] == [0, 1]
    assert switch._client.calls[-2:] == ["fill slot_state", "add to entries"], "its slots are the switch's"
    records = switch.part("owned")
    assert isinstance(records, SwitchOwnedRecords)
    assert records.record(6) == 1
    switch.set_group(6, 0, ["u1-h1"], [["u1-h1", "u1-h1"]])  # another number of ways: the entry is put again
    assert switch._client.entries[-1].data[RECORD] == 1
    switch._process = SimpleNamespace(ended=lambda *_: "signal 9")
    switch.release(6)
    with pytest.raises(KeyError):
        records.record(6)
    assert records.record(5) == 0
    switch._forget()
    with pytest.raises(KeyError):
        records.record(5)


def test_a_switch_that_ended_counts_no_blocks(switch: Any) -> None:
    switch.set_group(5, 0, ["u1-h1"])
    switch.admit(5, job(2))
    switch._process = SimpleNamespace(ended=lambda *_: "signal 9")
    assert switch.part("blocks").counts(5, 0) is None
