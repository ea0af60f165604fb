"""The words on what workers wait for."""

from __future__ import annotations

import time
from collections.abc import Sequence

from testbed.contract.calls import Tables, disagreement

_OTHERS_S, _LOOK_S = 3.0, 0.05


def explained(tables: Tables, ranks: Sequence[int], group: int, number: int) -> str:
    """Return who asked for what in a call of which workers disagree, with the lines of their scripts. It
    waits up to three seconds for those who have not asked yet.
    """
    deadline = time.monotonic() + _OTHERS_S
    while len(calls := tables.asked(ranks, group, number)) < len(ranks) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return disagreement(calls, {rank: tables.where(rank, call) for rank, call in calls.items()})
