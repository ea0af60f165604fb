"""Search for schedules whose circuits change in a few slots (phases) only and whose INC jobs run at full
rate. There are fewer choices than in the whole model, so solutions are found early. Every solution is a
schedule; having none proves nothing.

Between arrivals, ends and phases a job's rate is constant. So equation (10) applies in the first slot of a
phase only, with one alpha per pair and phase.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from testbed.linear_programs.linear import LinearProgram
from testbed.scheduling.model import Pair, Schedule, UnitIndex
from testbed.systems.p4inc.milp.choice import ModeChoice, choose
from testbed.systems.p4inc.milp.instance import Instance, Mode
from testbed.systems.p4inc.milp.played import early, played
from testbed.systems.p4inc.milp.relaxed import binding_switches

LEAST = 1e-4
"""A running job's least rate, relative to its largest, since a transfer does not pause (section IV-B)."""


@dataclass(frozen=True, slots=True)
class Phased:
    """A program and the columns of its solution: `rates` (first slot, slot after the last, column) by mode,
    `ports` by phase and pair.
    """

    program: LinearProgram
    choice: ModeChoice
    phases: tuple[int, ...]
    rates: Mapping[int, Sequence[tuple[int, int, int]]]
    ports: tuple[Mapping[Pair, int], ...]


def phased(
    instance: Instance,
    ct_bti_s: float,
    phases: Sequence[int],
    *,
    kept: bool = False,
    fewest: bool = False,
    modes: Set[int] | None = None,
) -> Phased | None:
    """Build the program; None if a job has no possible mode. `phases` are the slots in which circuits may
    change. `kept` fixes the initial circuits; `fewest` minimises the circuits set up; `modes` restricts the
    choice to modes of these indices.
    """
    possible = instance.possible(ct_bti_s)
    simple = [[mode for mode in each if mode.fixed or mode.load.inc is None] for each in possible]
    if modes is not None:
        simple = [[mode for mode in each if mode.index in modes] for each in simple]
    if not all(simple):
        return None
    program = LinearProgram()
    choice = choose(program, instance, ct_bti_s, simple, exact=True)
    ports = _circuits(program, instance, phases, kept, fewest)
    moved = [mode for mode in choice.modes if not mode.fixed]
    alphas = {} if kept else _grown(program, instance, phases, ports)
    first_slots = {slot for phase in phases for slot in (phase, phase + 1)} if not kept else set()
    cuts = sorted(
        {mode.job.arrival for mode in moved} | {instance.end(mode, ct_bti_s) for mode in moved} | first_slots
    )
    rates: dict[int, list[tuple[int, int, int]]] = {}
    for mode in moved:
        rates[mode.index] = _rates(program, instance, choice, mode, cuts, phases, alphas)
    _capacities(program, instance, choice, moved, cuts, rates, phases, ports)
    return Phased(program, choice, tuple(phases), rates, tuple(ports))


def _circuits(
    program: LinearProgram, instance: Instance, phases: Sequence[int], kept: bool, fewest: bool
) -> list[dict[Pair, int]]:
    """Add equation (6): whole ports in each phase, and the circuits set up at its start."""
    limits, before = instance.limits, None
    ports: list[dict[Pair, int]] = []
    every = sorted(set(instance.pairs) | set(instance.ports))
    for _ in phases:
        now = {p: program.whole(0, min(limits.ports[p[0]], limits.ports[p[1]])) for p in every}
        ports.append(now)
        for p, column in now.items():
            lit = instance.ports.get(p, 0)
            if kept:
                program.fix(column, lit)
            elif fewest:
                new = program.real(cost=1.0)
                if before is None:
                    program.row([(new, 1.0), (column, -1.0)], -lit)
                else:
                    program.row([(new, 1.0), (column, -1.0), (before[p], 1.0)], 0.0)
        for unit in limits.units:
            mine = [(column, 1.0) for p, column in now.items() if unit in p]
            if mine:
                program.row(mine, high=limits.ports[unit])
        before = now
    return ports


def _grown(
    program: LinearProgram, instance: Instance, phases: Sequence[int], ports: Sequence[Mapping[Pair, int]]
) -> dict[tuple[Pair, int], int]:
    """Add equation (7): alpha by pair and first slot of a phase; none where the first phase can be set up
    before any job arrives.
    """
    alphas: dict[tuple[Pair, int], int] = {}
    for number, (slot, now) in enumerate(zip(phases, ports, strict=True)):
        if 0 < slot == instance.first:
            continue
        for p in instance.pairs:
            most = min(instance.limits.ports[p[0]], instance.limits.ports[p[1]])
            alpha = alphas[p, slot] = program.flag()
            if number:
                program.row([(now[p], 1.0), (ports[number - 1][p], -1.0), (alpha, -most)], high=0.0)
            else:
                lit = instance.ports.get(p, 0)
                program.row([(now[p], 1.0), (alpha, -max(0, most - lit))], high=lit)
    return alphas


def _rates(
    program: LinearProgram,
    instance: Instance,
    choice: ModeChoice,
    mode: Mode,
    cuts: Sequence[int],
    phases: Sequence[int],
    alphas: Mapping[tuple[Pair, int], int],
) -> list[tuple[int, int, int]]:
    """Add equation (10) for a job: its rates send its volume, if it runs in this mode."""
    limits, use = instance.limits, choice.uses[mode.index]
    end = instance.end(mode, choice.ct_bti_s)
    rated, sent = [], []
    active = _active(program, use, [slot for slot in phases[1:] if mode.job.arrival < slot < end])
    for low, high in pairwise(cuts):
        if mode.job.arrival <= low and high <= end:
            rate = program.real()
            runs = active[max(slot for slot in active if slot <= low)]
            rated.append((low, high, rate))
            sent.append((rate, (high - low) * limits.slot_s))
            grown = [alphas[p, low] for p, _ in mode.load.links if (p, low) in alphas]
            if grown:
                most = mode.limit_gbps * limits.reconfiguration_s
                lost = program.real(0.0, most)
                sent.append((lost, -1.0))
                before = [(rated[-2][2], limits.reconfiguration_s)] if len(rated) > 1 else []
                for alpha in grown:
                    program.row(
                        [(lost, 1.0), (rate, -limits.reconfiguration_s), *before, (alpha, -most)], -most
                    )
            program.row([(rate, 1.0), (runs, -mode.limit_gbps)], high=0.0)
            program.row([(rate, 1.0), (runs, -mode.limit_gbps * LEAST)], 0.0)
    program.row([*sent, (use, -mode.job.gigabits)], 0.0, 0.0)
    return rated


def _active(program: LinearProgram, use: int, phases: Sequence[int]) -> dict[int, int]:
    """Add columns for the phases in which a job runs, and return them by first slot. Rows make the phases
    contiguous, so that the job starts once.
    """
    if not phases:
        return {0: use}
    active = {slot: program.flag() for slot in (0, *phases)}
    begins = []
    for before, now in pairwise((0, *phases)):
        begins.append(program.real())
        program.row([(begins[-1], 1.0), (active[now], -1.0), (active[before], 1.0)], 0.0)
        program.row([(active[now], 1.0), (use, -1.0)], high=0.0)
    program.row([(active[0], 1.0), *((begun, 1.0) for begun in begins), (use, -1.0)], high=0.0)
    return active


def _capacities(
    program: LinearProgram,
    instance: Instance,
    choice: ModeChoice,
    moved: Sequence[Mode],
    cuts: Sequence[int],
    rates: Mapping[int, Sequence[tuple[int, int, int]]],
    phases: Sequence[int],
    ports: Sequence[Mapping[Pair, int]],
) -> None:
    """Add equations (5) and (6) for each span. Where a switch could be full, all its INC places count as
    running at once.
    """
    limits = instance.limits
    binding = binding_switches(instance, choice.modes)
    inc = {
        unit: [(column, _gbps(instance, choice, each)) for column, (at, _), each in choice.sets if at == unit]
        for unit in binding
    }
    for unit, terms in inc.items():
        program.row(terms, high=limits.switch_gbps[unit])
    for low, _ in pairwise(cuts):
        phase = max((n for n, slot in enumerate(phases) if slot <= low), default=0)
        between: dict[Pair, list[tuple[int, float]]] = {}
        switched: dict[UnitIndex, list[tuple[int, float]]] = {}
        for mode in moved:
            for column in (column for at, _, column in rates[mode.index] if at == low):
                for p, streams in mode.load.links:
                    between.setdefault(p, []).append((column, streams))
                for unit, taken in mode.load.switches:
                    switched.setdefault(unit, []).append((column, taken))
        for p, terms in between.items():
            program.row([*terms, (ports[phase][p], -limits.circuit_gbps(p))], high=0.0)
        for unit in binding:
            program.row([*switched.get(unit, []), *inc[unit]], high=limits.switch_gbps[unit])


def _gbps(instance: Instance, choice: ModeChoice, indices: Sequence[int]) -> float:
    """Return the most that jobs that follow each other in an INC place take of its switch."""
    modes = [mode for mode in choice.modes if mode.index in indices]
    return max(
        mode.limit_gbps * (0 if mode.load.inc is None else dict(mode.load.switches).get(mode.load.inc, 0))
        for mode in modes
    )


def schedule(instance: Instance, model: Phased, values: Sequence[float]) -> Schedule:
    """Convert a solution to a schedule, slot by slot."""
    chosen = model.choice.chosen(values)
    slots = max(instance.end(mode, model.choice.ct_bti_s) for mode in chosen.values())
    rates: dict[int, dict[int, float]] = {}
    for id_, slot in model.choice.starts(values).items():
        mode = chosen[id_]
        rates[id_] = dict.fromkeys(
            range(slot, slot + mode.slots), min(mode.limit_gbps, mode.job.gigabits / instance.limits.slot_s)
        )
    for id_, mode in chosen.items():
        if not mode.fixed:
            spans = model.rates[mode.index]
            least = LEAST * mode.limit_gbps / 2
            rates[id_] = {
                slot: values[at] for low, high, at in spans if values[at] > least for slot in range(low, high)
            }
    given = [{p: round(values[column]) for p, column in now.items()} for now in model.ports]
    ports = early(instance, {p: count for p, count in given[0].items() if count})
    for number, low in enumerate(model.phases):
        high = model.phases[number + 1] if number + 1 < len(model.phases) else slots
        ports += [{p: count for p, count in given[number].items() if count}] * (high - low)
    return played(instance, chosen, rates, ports[:slots])
