"""The whole model for one CT-BTI, slot by slot: a solution is a schedule, and without a solution there is no
schedule.

Differences from the paper's form: rates are of workers and modes, not of pairs; a job has a start instead of
a set of durations; slots after a job's end are left out; and each product of equation (10) is one row, with
the largest rate for M.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testbed.linear_programs.linear import LinearProgram
from testbed.scheduling.model import Pair, Schedule, UnitIndex
from testbed.systems.p4inc.milp.choice import ModeChoice, choose
from testbed.systems.p4inc.milp.instance import ROUNDING, Instance, Mode
from testbed.systems.p4inc.milp.played import early, played
from testbed.systems.p4inc.milp.relaxed import binding_switches


@dataclass(slots=True)
class Slots:
    """Columns: `starts`, `runs` and `rates` by mode and slot, `ports` and `grows` by pair and slot. Modes in
    `tight` run at full rate.
    """

    instance: Instance
    ct_bti_s: float
    program: LinearProgram
    choice: ModeChoice
    tight: set[int]
    starts: dict[tuple[int, int], int] = field(default_factory=dict)
    runs: dict[tuple[int, int], int] = field(default_factory=dict)
    rates: dict[tuple[int, int], int] = field(default_factory=dict)
    ports: dict[tuple[Pair, int], int] = field(default_factory=dict)
    grows: dict[tuple[Pair, int], int] = field(default_factory=dict)

    def span(self, mode: Mode) -> range:
        return range(mode.job.arrival, self.instance.end(mode, self.ct_bti_s))

    def running(self, mode: Mode, slot: int) -> list[tuple[int, float]]:
        """Return a sum that is 1 if the mode runs in the slot; for a job of known length, that it started
        less than this length ago.
        """
        if mode.index in self.tight:
            began = range(slot - mode.slots + 1, slot + 1)
            return [(self.starts[mode.index, at], 1.0) for at in began if (mode.index, at) in self.starts]
        return [(self.runs[mode.index, slot], 1.0)] if (mode.index, slot) in self.runs else []


def slots(instance: Instance, ct_bti_s: float, *, fewest: bool = False) -> Slots | None:
    """Build the model; None if a job cannot end in time even alone. `fewest` minimises the circuits that are
    set up over all slots.
    """
    modes = instance.possible(ct_bti_s)
    if not all(modes):
        return None
    program = LinearProgram()
    choice = choose(program, instance, ct_bti_s, modes, exact=False)
    binding = binding_switches(instance, choice.modes)
    tight = {mode.index for mode in choice.modes if mode.fixed and mode.load.inc not in binding}
    model = Slots(instance, ct_bti_s, program, choice, tight)
    horizon = max(model.span(mode).stop for mode in choice.modes)
    _circuits(model, horizon)
    if fewest:
        _set_up(model)
    for mode in choice.modes:
        _runs(model, mode)
        if mode.index not in tight:
            _rates(model, mode)
    for slot in range(instance.first, horizon):
        _capacities(model, slot, binding)
    return model


def _circuits(model: Slots, horizon: int) -> None:
    """Add equations (6) and (7). In slots before the first arrival circuits change without cost."""
    program, limits, first = model.program, model.instance.limits, model.instance.first
    for p in model.instance.pairs:
        most = min(limits.ports[p[0]], limits.ports[p[1]])
        for slot in range(first, horizon):
            now = model.ports[p, slot] = program.whole(0, most)
            grows = model.grows[p, slot] = program.flag()
            if slot == first == 0:
                lit = model.instance.ports.get(p, 0)
                program.row([(now, 1.0), (grows, -max(0, most - lit))], high=lit)
            elif slot > first:
                program.row([(now, 1.0), (model.ports[p, slot - 1], -1.0), (grows, -most)], high=0.0)
    for slot in range(first, horizon):
        for unit in limits.units:
            mine = [(model.ports[p, slot], 1.0) for p in model.instance.pairs if unit in p]
            if mine:
                program.row(mine, high=limits.ports[unit])


def _set_up(model: Slots) -> None:
    """Add the minimised columns: by how much the circuits between each two units grow in each slot; in the
    first, over the initial circuits.
    """
    program, first = model.program, model.instance.first
    for (p, slot), now in list(model.ports.items()):
        new = program.real(cost=1.0)
        if slot == first:
            program.row([(new, 1.0), (now, -1.0)], -model.instance.ports.get(p, 0))
        else:
            program.row([(new, 1.0), (now, -1.0), (model.ports[p, slot - 1], 1.0)], 0.0)


def _runs(model: Slots, mode: Mode) -> None:
    """Let each job start once and then run without a pause: the set of durations of section IV-B."""
    program, use, span = model.program, model.choice.uses[mode.index], model.span(mode)
    for slot in span:
        if slot + mode.slots <= span.stop:
            model.starts[mode.index, slot] = program.flag()
    begun = [(model.starts[mode.index, slot], 1.0) for slot in span if (mode.index, slot) in model.starts]
    program.row([*begun, (use, -1.0)], 0.0, 0.0)
    if mode.index in model.tight:
        return
    for slot in span:
        now = model.runs[mode.index, slot] = program.flag()
        started = [(model.starts[mode.index, slot], -1.0)] if (mode.index, slot) in model.starts else []
        before = [(model.runs[mode.index, slot - 1], -1.0)] if slot > span.start else []
        program.row([(now, 1.0), *started, *before], high=0.0)
        program.row([(now, 1.0), (use, -1.0)], high=0.0)


def _rates(model: Slots, mode: Mode) -> None:
    """Add equations (9) and (10) for a job in a mode."""
    program, limits = model.program, model.instance.limits
    use, most, late_s = model.choice.uses[mode.index], mode.limit_gbps, limits.reconfiguration_s
    sent = []
    for slot in model.span(mode):
        rate = model.rates[mode.index, slot] = program.real(0.0, most)
        program.row([(rate, 1.0), (model.runs[mode.index, slot], -most)], high=0.0)
        sent.append((rate, limits.slot_s))
        if not mode.load.links or not late_s:
            continue
        lost = program.real(0.0, most * late_s)
        sent.append((lost, -1.0))
        before = [(model.rates[mode.index, slot - 1], late_s)] if slot > mode.job.arrival else []
        for p, _ in mode.load.links:
            grows = model.grows[p, slot]
            program.row([(lost, 1.0), (rate, -late_s), *before, (grows, -late_s * most)], -late_s * most)
    program.row([*sent, (use, -mode.job.gigabits * (1 - ROUNDING))], 0.0)


def _capacities(model: Slots, slot: int, binding: set[UnitIndex]) -> None:
    """Add equations (3), (5) and (6). A running job has a rate, so each of its links has a port."""
    program, limits = model.program, model.instance.limits
    here = [mode for mode in model.choice.modes if slot in model.span(mode)]
    between: dict[Pair, list[tuple[int, float]]] = {}
    switched: dict[UnitIndex, list[tuple[int, float]]] = {unit: [] for unit in binding}
    held: dict[UnitIndex, list[tuple[int, float]]] = {}
    for mode in here:
        if mode.load.inc is not None:
            held.setdefault(mode.load.inc, []).extend(model.running(mode, slot))
        rate = model.rates.get((mode.index, slot))
        if rate is None:
            continue
        for p, streams in mode.load.links:
            between.setdefault(p, []).append((rate, streams))
            program.row([(model.runs[mode.index, slot], 1.0), (model.ports[p, slot], -1.0)], high=0.0)
        for unit, taken in mode.load.switches:
            if unit in binding:
                switched[unit].append((rate, taken))
    for p, terms in between.items():
        program.row([*terms, (model.ports[p, slot], -limits.circuit_gbps(p))], high=0.0)
    for unit, terms in switched.items():
        program.row(terms, high=limits.switch_gbps[unit])
    for unit, terms in held.items():
        if len(terms) > limits.inc[unit]:
            program.row(terms, high=limits.inc[unit])


def schedule(model: Slots, values: Sequence[float]) -> Schedule:
    """Convert a solution to a schedule, slot by slot."""
    instance = model.instance
    chosen = model.choice.chosen(values)
    rates: dict[int, dict[int, float]] = {}
    for id_, mode in chosen.items():
        if mode.index in model.tight:
            (began,) = (
                s
                for s in model.span(mode)
                if values[model.starts.get((mode.index, s), 0)] > 0.5 and (mode.index, s) in model.starts
            )
            rate = min(mode.limit_gbps, mode.job.gigabits / instance.limits.slot_s)
            rates[id_] = dict.fromkeys(range(began, began + mode.slots), rate)
        else:
            its = [s for s in model.span(mode) if values[model.runs[mode.index, s]] > 0.5]
            rates[id_] = {s: values[model.rates[mode.index, s]] for s in its}
    last = max(model.span(mode).stop for mode in chosen.values())
    lit: list[Mapping[Pair, int]] = []
    for slot in range(instance.first, last):
        now = {p: round(values[model.ports[p, slot]]) for p in instance.pairs}
        lit.append({p: count for p, count in now.items() if count})
    return played(instance, chosen, rates, [*early(instance, lit[0]), *lit])
