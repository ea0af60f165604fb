"""Admission for LuWu's data-plane program: segments as the core's `sum` program has, whose sums go to an
owner (docs/luwu-network.md). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from testbed.aggregation.packets import Packets
from testbed.aggregation.program import REFERENCE
from testbed.aggregation.slots import SlotProgram
from testbed.aggregation.system import Layout
from testbed.errors import RequestError
from testbed.systems.luwu.contract import OWNED_RECORD
from testbed.topology.units import Unit
from testbed.wire.records import Record
from testbed.wire.recovery import Recovery


class OwnedProgram(SlotProgram):
    """The program for owned trees: each tree has a segment, and its ends recover lost packets themselves."""

    name = "owned"
    sources = MappingProxyType({"xdp": Path("systems/owned.h"), "bmv2": Path("systems/owned.p4")})
    parts: Mapping[str, str] = MappingProxyType(
        {
            "xdp": "testbed.systems.luwu.xdp:OwnedRecords",
            "bmv2": "testbed.systems.luwu.bmv2:SwitchOwnedRecords",
            REFERENCE: "testbed.systems.luwu.reference:ReferenceOwned",
        }
    )
    maps: Mapping[str, Record] = MappingProxyType({"owned_records": OWNED_RECORD})

    def check(self, layout: Layout, packets: Packets, engines: Mapping[Unit, str]) -> None:
        """Raise RequestError for the options of workers that receive sums: recovery other than by window, and
        options of programs.
        """
        given = [] if packets.recovery is Recovery.WINDOW else [f"--recovery {packets.recovery}"]
        given += [f"{choice.flag} {choice.value}" for choice in packets.choices]
        if given:
            raise RequestError(
                f"{given[0]}: {layout.system} sends by acknowledgements and credit, and sums wait for every "
                "worker; it is accepted where workers have the sums"
            )
