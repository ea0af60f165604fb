"""Render the contract of owned trees at places, for the XDP programs and for the P4 program."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.systems.luwu.contract import NUMBERS, P4_NUMBERS, RECORDS
from testbed.wire import render_c, render_p4

_SOURCE = "testbed/systems/luwu", "contract"


def rendered() -> Mapping[str, str]:
    """Return the files' contents, by their paths in the checkout."""
    return {
        "bpf/systems/owned_contract.h": render_c.header_of("OWNED_CONTRACT_H", *_SOURCE, NUMBERS, RECORDS),
        "p4/systems/records.p4": render_p4.defines_of("RECORDS_P4", *_SOURCE, P4_NUMBERS),
    }
