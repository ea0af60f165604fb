"""A lower bound on CT-BTI: prove that no schedule of a given time exists. Owns the relaxation; makes no
schedules.

It keeps each job's single mode, largest rate, arrival and end, and the whole slots of INC places. It drops
whole ports (a circuit may be lit for part of the time), epsilon, and the times of rate changes: time is cut
only where a job arrives or must have ended, and within such a span only the volume counts. Every schedule is
a solution, so without a solution there is no schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from testbed.linear_programs.linear import LinearProgram
from testbed.scheduling.model import Pair, UnitIndex
from testbed.systems.p4inc.milp.choice import ModeChoice, choose
from testbed.systems.p4inc.milp.instance import ROUNDING, Instance, Mode


def relaxation(
    instance: Instance, ct_bti_s: float, *, whole_ports: bool = False
) -> tuple[LinearProgram, ModeChoice] | None:
    """Build a program that has no solution if there is no schedule of `ct_bti_s`; None if a job cannot end in
    time even alone.

    With `whole_ports`, a pair's ports, summed over the slots of a span, are a whole number, as in every
    schedule.
    """
    modes = instance.possible(ct_bti_s)
    if not all(modes):
        return None
    program = LinearProgram()
    choice = choose(program, instance, ct_bti_s, modes, exact=False)
    binding = binding_switches(instance, choice.modes)
    moved = [
        mode
        for mode in choice.modes
        if mode.load.links or any(unit in binding for unit, _ in mode.load.switches)
    ]
    cuts = sorted({mode.job.arrival for mode in moved} | {instance.end(mode, ct_bti_s) for mode in moved})
    limits = instance.limits
    flows: dict[int, list[tuple[int, int]]] = {}
    for mode in moved:
        end = instance.end(mode, ct_bti_s)
        use = choice.uses[mode.index]
        spans = [(low, high) for low, high in pairwise(cuts) if mode.job.arrival <= low and high <= end]
        flows[mode.index] = []
        for low, high in spans:
            volume = program.real()
            flows[mode.index].append((low, volume))
            most = min(mode.limit_gbps * (high - low) * limits.slot_s, mode.job.gigabits)
            program.row([(volume, 1.0), (use, -most)], high=0.0)
        program.row(
            [*((v, 1.0) for _, v in flows[mode.index]), (use, -mode.job.gigabits * (1 - ROUNDING))], 0.0
        )
    for low, high in pairwise(cuts):
        seconds = (high - low) * limits.slot_s
        between: dict[Pair, list[tuple[int, float]]] = {}
        switched: dict[UnitIndex, list[tuple[int, float]]] = {}
        for mode in moved:
            for volume in (v for at, v in flows[mode.index] if at == low):
                for p, streams in mode.load.links:
                    between.setdefault(p, []).append((volume, streams))
                for unit, taken in mode.load.switches:
                    if unit in binding:
                        switched.setdefault(unit, []).append((volume, taken))
        if whole_ports:
            _whole(program, instance, between, high - low)
        else:
            for unit in limits.units:
                # equation (6), in ports of the slowest rate: a circuit between faster ones counts for fewer
                through = [
                    (column, streams * limits.port_gbps / limits.circuit_gbps(p))
                    for p, terms in between.items()
                    if unit in p
                    for column, streams in terms
                ]
                if through:
                    program.row(through, high=limits.ports[unit] * limits.port_gbps * seconds)
        for unit, terms in switched.items():
            program.row(terms, high=limits.switch_gbps[unit] * seconds)
    return program, choice


def _whole(
    program: LinearProgram,
    instance: Instance,
    between: Mapping[Pair, Sequence[tuple[int, float]]],
    slots: int,
) -> None:
    """Add equation (6), in ports times slots."""
    limits = instance.limits
    lit = {p: program.whole(0, slots * min(limits.ports[p[0]], limits.ports[p[1]])) for p in between}
    for p, terms in between.items():
        program.row([*terms, (lit[p], -limits.circuit_gbps(p) * limits.slot_s)], high=0.0)
    for unit in limits.units:
        mine = [(column, 1.0) for p, column in lit.items() if unit in p]
        if mine:
            program.row(mine, high=limits.ports[unit] * slots)


def binding_switches(instance: Instance, modes: Sequence[Mode]) -> set[UnitIndex]:
    """Return the units that could reach B_PDP at all: full INC places, full ports, and other traffic within
    the unit.
    """
    limits, binding = instance.limits, set()
    for unit in limits.units:
        inc: list[float] = []
        beside = limits.optical_gbps(unit)
        for mode in modes:
            gbps = dict(mode.load.switches).get(unit, 0) * mode.limit_gbps
            crossing = sum(streams for p, streams in mode.load.links if unit in p) * mode.limit_gbps
            if mode.load.inc == unit:
                inc.append(gbps)
            else:
                beside += max(0.0, gbps - crossing)
        if (
            sum(sorted(inc)[-limits.inc[unit] :] if limits.inc[unit] else []) + beside
            > limits.switch_gbps[unit]
        ):
            binding.add(unit)
    return binding
