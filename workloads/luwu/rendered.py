"""Render the contract of the compiled ends of owned trees as a C header."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.wire import render_c
from workloads.luwu.contract import NUMBERS, RECORDS

_SOURCE = "workloads/luwu", "contract"


def rendered() -> Mapping[str, str]:
    """Return the header's text, by its path in the checkout."""
    header = render_c.header_of("ENDS_CONTRACT_H", *_SOURCE, NUMBERS, RECORDS)
    return {"workloads/native/ends_contract.h": header}
