"""The most that a rotation of matchings can carry, by fluid flows over its average rates. Pure.

Rates and demands are shares of a port's rate, by sender and receiver.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from testbed.errors import TestbedError
from testbed.linear_programs.linear import LinearProgram

Demand: TypeAlias = Mapping[tuple[int, int], float]
_LIMIT_S = 60.0


def direct(demand: Demand, pair_share: float) -> float:
    """Return the most that circuits between sender and receiver carry, if each two units meet for a share of
    the time.
    """
    return math.fsum(min(wanted, pair_share) for wanted in demand.values())


def two_hops(demand: Demand, pair_share: float, units: int) -> float:
    """Return the most that circuits carry with detours over one other unit (Valiant's, as in RotorNet)."""
    program = LinearProgram()
    used: dict[tuple[int, int], list[int]] = {}
    for (sender, goal), wanted in demand.items():
        ways = []
        for by in range(1, units + 1):
            if by == sender:
                continue
            way = program.real(cost=-1.0)  # by the goal itself: the direct circuit
            ways.append(way)
            for hop in [(sender, by), (by, goal)] if by != goal else [(sender, goal)]:
                used.setdefault(hop, []).append(way)
        program.row([(way, 1.0) for way in ways], high=wanted)
    for columns in used.values():
        program.row([(column, 1.0) for column in columns], high=pair_share)
    return _most(program)


def any_hops(demand: Demand, pair_share: float, units: int) -> float:
    """Return the most that circuits carry over any number of other units."""
    program = LinearProgram()
    numbers = range(1, units + 1)
    hops = [(a, b) for a in numbers for b in numbers if a != b]
    goals = sorted({goal for _, goal in demand})
    flow = {(goal, hop): program.real() for goal in goals for hop in hops if hop[0] != goal}
    carried = {pair: program.real(high=wanted, cost=-1.0) for pair, wanted in demand.items()}
    for goal in goals:
        for unit in numbers:
            if unit != goal:
                leaves = [(flow[goal, hop], 1.0) for hop in hops if hop[0] == unit]
                comes = [(flow[goal, hop], -1.0) for hop in hops if hop[1] == unit and hop[0] != goal]
                own = [(carried[unit, goal], -1.0)] if (unit, goal) in carried else []
                program.row([*leaves, *comes, *own], low=0.0, high=0.0)
    for hop in hops:
        program.row([(flow[goal, hop], 1.0) for goal in goals if hop[0] != goal], high=pair_share)
    return _most(program)


def _most(program: LinearProgram) -> float:
    answer = program.solve(_LIMIT_S)
    if answer.status != "optimal":
        raise TestbedError(f"the bound of a demand: {answer.status}")
    return -answer.objective
