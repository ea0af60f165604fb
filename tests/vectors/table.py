"""The table of all packet vectors: scenes at one aggregator, in the words of docs/protocol.md. Data only; the
reference model, XDP and P4 run it.

The scenes of the optical switch, which parses no protocol, are in tests/vectors/lights.py.
"""

from __future__ import annotations

from tests.vectors import (
    blocks,
    empties,
    forest,
    forged,
    owned,
    pulls,
    questions,
    relays,
    sums,
    ticks,
    units,
    widths,
)
from tests.vectors.build import Table

TABLE: Table = {
    **sums.TABLE,
    **empties.TABLE,
    **forged.TABLE,
    **units.TABLE,
    **forest.TABLE,
    **relays.TABLE,
    **questions.TABLE,
    **ticks.TABLE,
    **pulls.TABLE,
    **widths.TABLE,
    **blocks.TABLE,
    **owned.TABLE,
}
