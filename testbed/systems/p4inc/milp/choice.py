"""The part of a program that chooses how each job runs: one mode each, and places for modes with INC
(equations 2 and 3).

A switch's places are filled with sets of jobs (`packing`), which removes the symmetry between places. Where
there are too many sets, each place is a machine with rows for late arrivals (`exact`), or all places share
their total time (a relaxation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from testbed.linear_programs.linear import LinearProgram
from testbed.scheduling.model import UnitIndex
from testbed.systems.p4inc.milp.instance import Instance, Mode
from testbed.systems.p4inc.milp.packing import Stay, held_at_least, largest_sets, starts


@dataclass(slots=True)
class ModeChoice:
    """`uses`: the column of each mode, by its index. `sets`: (column, place, modes); the modes share the
    place if the column is 1.
    """

    ct_bti_s: float
    modes: tuple[Mode, ...]
    uses: dict[int, int] = field(default_factory=dict)
    sets: list[tuple[int, tuple[int, int], tuple[int, ...]]] = field(default_factory=list)

    def chosen(self, values: Sequence[float]) -> dict[int, Mode]:
        """Return the chosen mode by job."""
        return {mode.job.id: mode for mode in self.modes if values[self.uses[mode.index]] > 0.5}

    def starts(self, values: Sequence[float]) -> dict[int, int]:
        """Return the first slot of each job that uses INC at its full rate."""
        left = {mode.index: mode for mode in self.chosen(values).values() if mode.fixed}
        shared: dict[tuple[int, int], list[Stay]] = {}
        for column, place, modes in self.sets:
            if values[column] > 0.5:
                mine = [left.pop(index) for index in modes if index in left]
                shared.setdefault(place, []).extend(Stay(m.job.id, m.job.arrival, m.slots) for m in mine)
        return {job: slot for tasks in shared.values() for job, slot in starts(tasks).items()}


def choose(
    program: LinearProgram, instance: Instance, ct_bti_s: float, modes: Sequence[Sequence[Mode]], exact: bool
) -> ModeChoice:
    """Add a column for each of `modes`, one of which each job takes, and the rows of their places."""
    choice = ModeChoice(ct_bti_s, tuple(mode for each in modes for mode in each))
    for each in modes:
        columns = [program.flag() for _ in each]
        choice.uses |= {mode.index: column for mode, column in zip(each, columns, strict=True)}
        program.row([(column, 1.0) for column in columns], 1.0, 1.0)
    for unit in instance.limits.units:
        _fill(program, instance, choice, unit, exact)
    return choice


def _fill(
    program: LinearProgram, instance: Instance, choice: ModeChoice, unit: UnitIndex, exact: bool
) -> None:
    held = [mode for mode in choice.modes if mode.load.inc == unit]
    fixed = [mode for mode in held if mode.fixed]
    count = instance.limits.inc[unit]
    if not held:
        return
    if len(fixed) < len(held):
        _share(program, instance, choice, held, count)
    if len(fixed) <= count:
        choice.sets += [
            (choice.uses[mode.index], (unit, place), (mode.index,)) for place, mode in enumerate(fixed)
        ]
        return
    end = instance.end(fixed[0], choice.ct_bti_s)
    sets = largest_sets([Stay(mode.index, mode.job.arrival, mode.slots) for mode in fixed], end)
    if sets is not None:
        columns = [(program.whole(0, count), each) for each in sets]
        choice.sets += [(column, (unit, place), each) for place, (column, each) in enumerate(columns)]
        program.row([(column, 1.0) for column, _ in columns], high=count)
        for mode in fixed:
            row = [(column, 1.0) for column, each in columns if mode.index in each]
            program.row([*row, (choice.uses[mode.index], -1.0)], 0.0)
    elif exact:
        _machines(program, choice, unit, fixed, count, end)
    elif len(fixed) == len(held):
        _share(program, instance, choice, held, count)


def _machines(
    program: LinearProgram, choice: ModeChoice, unit: UnitIndex, fixed: Sequence[Mode], count: int, end: int
) -> None:
    """Add rows so that the jobs of a place that arrive at or after each arrival fit between it and
    the end.
    """
    columns = {(mode.index, place): program.flag() for mode in fixed for place in range(count)}
    for mode in fixed:
        row = [(columns[mode.index, place], 1.0) for place in range(count)]
        program.row([*row, (choice.uses[mode.index], -1.0)], 0.0, 0.0)
    for place in range(count):
        for arrival in sorted({mode.job.arrival for mode in fixed}):
            late = [mode for mode in fixed if mode.job.arrival >= arrival]
            program.row([(columns[mode.index, place], mode.slots) for mode in late], high=end - arrival)
    choice.sets += [(column, (unit, place), (index,)) for (index, place), column in columns.items()]


def _share(
    program: LinearProgram, instance: Instance, choice: ModeChoice, held: Sequence[Mode], count: int
) -> None:
    """Add rows so that jobs hold at most the slots that all places have in any span: energetic reasoning over
    all arrivals and ends.
    """
    ends = sorted({instance.end(mode, choice.ct_bti_s) for mode in held})
    arrivals = sorted({mode.job.arrival for mode in held})
    for low in arrivals:
        for high in ends:
            needs = [
                (
                    choice.uses[mode.index],
                    held_at_least(
                        mode.job.arrival, mode.slots, instance.end(mode, choice.ct_bti_s), low, high
                    ),
                )
                for mode in held
            ]
            if low < high and sum(need for _, need in needs) > count * (high - low):
                program.row(
                    [(column, float(need)) for column, need in needs if need], high=count * (high - low)
                )
