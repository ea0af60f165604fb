"""Numbers that documents state of the code's own sizes are those that the code has."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.systems.luwu.hardware import Hardware
from testbed.systems.luwu.memory import STORED_BYTES, most_parameters
from testbed.systems.trio.contract import BLOCK, MOST_RECORDS
from testbed.wire.spec import lanes_for
from workloads.luwu.layout import PARAMETER_BYTES, STATE_BYTES

DOCS = Path(__file__).resolve().parents[2] / "docs"
STATED = (
    ("trio.md", f"{BLOCK.dtype(lanes_for(1500)).itemsize:,} bytes at an MTU of 1500"),
    ("trio.md", f"{BLOCK.dtype(1024).itemsize * MOST_RECORDS / 1e6:.0f} MB a switch"),
    ("studies/luwu.md", f"Disks hold {most_parameters(Hardware()) / 1e12:.1f}e12 parameters"),
    ("luwu.md", f"{STORED_BYTES} bytes for each parameter"),
)


@pytest.mark.parametrize(("document", "words"), STATED)
def test_a_document_states_what_the_code_has(document: str, words: str) -> None:
    assert words in " ".join((DOCS / document).read_text().split())


def test_the_store_has_three_copies() -> None:
    assert STORED_BYTES == 3 * (PARAMETER_BYTES + STATE_BYTES)
