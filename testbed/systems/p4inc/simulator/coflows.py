"""Jobs drawn from a coflow trace (testbed/flows/coflow_trace.py). The file is the user's, none comes with the
project.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testbed.flows.coflow_trace import Coflow as Coflow
from testbed.flows.coflow_trace import load as load
from testbed.systems.p4inc.simulator.arrivals import MEGABYTES_A_GIGABIT, Demand


def demands(
    trace: Sequence[Coflow],
    count: int,
    random: np.random.Generator,
    *,
    volume: float,
    update_gbytes_per_s: float,
    nominal_gbps: float,
) -> list[Demand]:
    """Draw MapReduce jobs from the trace without repetition; when it is used up, draw from the whole trace
    again.

    The paper only says that numbers of workers and volumes are the trace's. Here the mappers are the workers,
    each with an equal part of the shuffle's bytes times `volume`, and the PS's unit has all reducers. The
    update is the reducing: all reducers process what they received at `update_gbytes_per_s`, in parallel.
    """
    drawn: list[int] = []
    while len(drawn) < count:
        drawn += [int(number) for number in random.permutation(len(trace))]
    demands = []
    for number in drawn[:count]:
        coflow = trace[number]
        whole = coflow.megabytes * volume
        each = whole / len(coflow.mappers)
        most = max(megabytes for _, megabytes in coflow.reducers) * volume
        held_s = each / MEGABYTES_A_GIGABIT / nominal_gbps
        demands.append(Demand(len(coflow.mappers), each, most / 1000 / update_gbytes_per_s, held_s))
    return demands
