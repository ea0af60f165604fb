"""Render the contract of block records, for the XDP programs and for the P4 program."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.systems.trio.contract import NUMBERS, P4_NUMBERS, P4_TERMS, RECORDS
from testbed.wire import render_c, render_p4

_SOURCE = "testbed/systems/trio", "contract"
_TERMS = render_p4.HeaderType("terms_h", P4_TERMS, "A tree that is summed by blocks, beside its entry.")


def rendered() -> Mapping[str, str]:
    """Return the files' contents, by their paths in the checkout."""
    return {
        "bpf/systems/blocks_contract.h": render_c.header_of("BLOCKS_CONTRACT_H", *_SOURCE, NUMBERS, RECORDS),
        "p4/systems/terms.p4": render_p4.header_of("TERMS_P4", *_SOURCE, P4_NUMBERS, _TERMS),
        "p4/systems/set_terms.p4": render_p4.setting("set_terms", "hdr.terms", P4_TERMS, *_SOURCE),
    }
