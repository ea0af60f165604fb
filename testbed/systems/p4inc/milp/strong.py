"""Search for the shortest CT-BTI: a bound from below, schedules from above, and the whole model for the
values between.

CT-BTI has few values: whole slots, and whole slots plus an update time. Each value determines the latest ends
of all jobs, so each program only asks whether a schedule exists, not how long it is. Bisection finds the
largest impossible and the smallest possible value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from functools import cached_property

from testbed.linear_programs.linear import Answer, LinearProgram
from testbed.scheduling.model import Schedule, set_up
from testbed.systems.p4inc.milp import phased, slots
from testbed.systems.p4inc.milp.instance import Instance
from testbed.systems.p4inc.milp.played import ct_bti_s, one_by_one
from testbed.systems.p4inc.milp.relaxed import relaxation
from testbed.systems.p4inc.milp.solution import Budget

PATIENCE, PATIENCE_S = 0.06, 1.0
"""The share of the time limit, and the least seconds, for one search for a schedule with phases."""
FEWER = 0.2
"""The share of the time limit for one search for fewer circuits."""
NODES = 400
"""The most nodes of a search for a schedule with phases, which might otherwise never end."""
MOST_COLUMNS = 60_000
"""The most columns of the whole model. Larger models are not tried: HiGHS did not solve their root in
minutes.
"""


@dataclass
class Search:
    instance: Instance
    budget: Budget
    gap: float
    schedule: Schedule | None = None
    high_s: float = math.inf
    low_s: float = 0.0
    tried: list[float] = field(default_factory=list)
    connections_bound: int | None = None

    @cached_property
    def plain(self) -> Schedule:
        """The schedule of one job at a time; no search needs to consider worse ones."""
        return one_by_one(self.instance)

    @property
    def done(self) -> bool:
        near = self.schedule is not None and self.high_s - self.low_s <= self.gap * self.high_s + 1e-9
        return near or self.budget.left_s <= 0

    def take(self, schedule: Schedule) -> None:
        """Store a schedule if it is better."""
        value = ct_bti_s(self.instance, schedule)
        if value < self.high_s - 1e-9:
            self.schedule, self.high_s = schedule, value

    def run(self, fewest: bool) -> None:
        self.low_s = self.instance.alone_s
        for name, relaxed in (("linear bound", True), ("integer bound", False)):
            if not self.done:
                with self.budget.stage(name):
                    self._raise_bound(relaxed)
        if not self.done:
            with self.budget.stage("phases"):
                self._lower_schedule(self._try_one_phase)
                if not self.done:
                    self._lower_schedule(self._try_phases)
                if not self.done:
                    self.take(self.plain)
        if not self.done:
            with self.budget.stage("slots"):
                self._between()
        if fewest and self.schedule is not None and self.budget.left_s > 0:
            with self.budget.stage("fewest circuits"):
                self._fewest()

    # -------------------------------------------------------------- lower bound

    def _raise_bound(self, relaxed: bool) -> None:
        """Raise the bound by bisection: below it there is no solution, at it there may be."""
        candidates = self._candidates(self.low_s, self._far(self.low_s))
        low, high, step = 0, 0, 1
        while not self._possible(candidates[high], relaxed):
            if self.budget.left_s <= 0:
                return
            low, step = high + 1, step * 2
            if low >= len(candidates):
                last = candidates[-1]
                candidates += [c for c in self._candidates(last, self._far(last)) if c > last]
            self.low_s = candidates[low]
            high = min(high + step, len(candidates) - 1)
        while low < high:
            middle = (low + high) // 2
            if self._possible(candidates[middle], relaxed):
                high = middle
            else:
                low = middle + 1
                self.low_s = candidates[low]
            if self.budget.left_s <= 0:
                return

    def _possible(self, value_s: float, relaxed: bool) -> bool:
        """Return False only if it is proven that no schedule of that CT-BTI exists."""
        made = relaxation(self.instance, value_s)
        if made is None:
            return False
        return self._solve(made[0], relaxed=relaxed, nodes=20 * NODES).status != "infeasible"

    def _candidates(self, low_s: float, high_s: float) -> list[float]:
        return self.instance.candidates(low_s, high_s)

    def _far(self, value_s: float) -> float:
        """Return a value far enough above to include a further candidate."""
        return min(
            1.3 * value_s + 2 * self.instance.limits.slot_s,
            max(self.high_s, value_s + 2 * self.instance.limits.slot_s),
        )

    # -------------------------------------------------------------- schedules

    def _lower_schedule(self, attempt: Callable[[float], Schedule | None]) -> None:
        """Search for a schedule at the bound; if none is known yet, upwards from there in growing steps; then
        by bisection downwards.
        """
        failed, step_s = self.low_s, 0.0
        most_s = min(self.high_s, ct_bti_s(self.instance, self.plain))
        value_s = self.low_s
        while True:
            value_s = next(iter(self._candidates(value_s, self._far(value_s))))
            if value_s >= most_s - 1e-9:
                break
            candidate = attempt(value_s)
            if candidate is not None:
                self.take(candidate)
                break
            if self.done:
                return
            failed = value_s
            if self.schedule is not None:
                break
            step_s = max(2 * step_s, 0.005 * self.low_s)
            value_s += step_s
        while self.schedule is not None and not self.done:
            between = [c for c in self._candidates(failed, self.high_s) if failed < c < self.high_s - 1e-9]
            if not between:
                return
            middle = between[(len(between) - 1) // 2]
            candidate = attempt(middle)
            if candidate is None:
                failed = middle
            else:
                self.take(candidate)

    def _try_one_phase(self, value_s: float) -> Schedule | None:
        """Try the initial circuits, then circuits that change in the first slot only."""
        first = [self.instance.first]
        return self._phased(value_s, first, kept=True) or self._phased(value_s, first)

    def _try_phases(self, value_s: float) -> Schedule | None:
        """Try the modes that the relaxation chooses, with more and more changes of circuits."""
        made = relaxation(self.instance, value_s, whole_ports=True)
        if made is None:
            return None
        answer = self._solve(made[0], any_solution=True, nodes=NODES)
        if answer.values is None:
            if answer.status == "infeasible":
                later = (c for c in self._candidates(value_s, self._far(value_s)) if c > value_s)
                self.low_s = max(self.low_s, min(next(later, value_s), self.high_s))
            return None
        modes = {mode.index for mode in made[1].chosen(answer.values).values()}
        phases = self._phases(value_s, modes)
        if phases is None:
            return None
        tight, candidate = self._tight(value_s), None
        for more in (
            (),
            tight[:2],
            (*tight[:3], *(slot + 1 for slot in phases)),
            (*tight, *self._even(value_s)),
        ):
            slots = sorted({*phases, *more})
            candidate = self._phased(
                value_s, [slot for slot in slots if slot <= self._last(value_s)], modes=modes
            )
            if candidate is not None or self.budget.left_s <= 0:
                break
        return candidate

    def _last(self, value_s: float) -> int:
        return self.instance.first + math.floor(value_s / self.instance.limits.slot_s + 1e-6) - 1

    def _even(self, value_s: float) -> list[int]:
        return list(range(self.instance.first, self._last(value_s), max(1, self._last(value_s) // 8)))

    def _tight(self, value_s: float) -> list[int]:
        """Return the arrivals of jobs that need links, least spare time first."""
        spare = []
        for modes in self.instance.possible(value_s):
            if all(mode.load.links for mode in modes):
                slots, mode = max(
                    (self.instance.end(mode, value_s) - mode.slots, mode.index) for mode in modes
                )
                spare.append((slots - modes[0].job.arrival, mode, modes[0].job.arrival))
        return [arrival for _, _, arrival in sorted(spare)[:4]]

    def _phases(self, value_s: float, modes: Set[int]) -> list[int] | None:
        """Find a small set of slots in which circuits have to change, if parts of ports were allowed: remove
        ever smaller blocks of slots.
        """
        phases = list(range(self.instance.first, self._last(value_s) + 1))

        def enough(slots: list[int]) -> bool:
            model = phased.phased(self.instance, value_s, slots, modes=modes)
            return model is not None and self._solve(model.program, relaxed=True).status == "optimal"

        if not enough(phases):
            return None
        block = max(1, len(phases) // 4)
        while block:
            at = 1
            while at < len(phases):
                if self.budget.left_s <= 0:
                    return None
                if enough(phases[:at] + phases[at + block :]):
                    phases = phases[:at] + phases[at + block :]
                else:
                    at += block
            block //= 2
        return phases

    def _phased(
        self,
        value_s: float,
        starts: list[int],
        *,
        kept: bool = False,
        fewest: bool = False,
        modes: Set[int] | None = None,
    ) -> Schedule | None:
        model = phased.phased(self.instance, value_s, starts, kept=kept, fewest=fewest, modes=modes)
        if model is None:
            return None
        patience_s = max(PATIENCE_S, (FEWER if fewest else PATIENCE) * self.budget.limit_s)
        answer = self._solve(model.program, any_solution=not fewest, nodes=NODES, patience_s=patience_s)
        return None if answer.values is None else phased.schedule(self.instance, model, answer.values)

    # -------------------------------------------------------------- between bound and schedule

    def _between(self) -> None:
        """Solve the whole model by bisection; each answer moves the bound or the schedule."""
        while not self.done:
            between = [c for c in self._candidates(self.low_s, self.high_s) if c < self.high_s - 1e-9]
            if not between:
                self.low_s = self.high_s
                return
            middle = between[(len(between) - 1) // 2]
            model = slots.slots(self.instance, middle)
            if model is not None and len(model.program.low) > MOST_COLUMNS:
                return
            patience_s = 0.9 * self.budget.left_s  # large programs' root checks the clock seconds late
            answer = (
                None
                if model is None
                else self._solve(model.program, any_solution=True, patience_s=patience_s)
            )
            if model is None or answer is None or answer.status == "infeasible":
                self.low_s = next((c for c in between if c > middle), self.high_s)
            elif answer.values is not None:
                self.take(slots.schedule(model, answer.values))
            else:
                return

    # -------------------------------------------------------------- fewest circuits

    def _fewest(self) -> None:
        """Minimise the circuits set up among the schedules with this CT-BTI, as far as time allows, with a
        bound: first with one phase, then with the phases of the current schedule, then by the whole model
        over all slots and modes.
        """
        assert self.schedule is not None
        value_s, first = self.high_s, [self.instance.first]
        self.connections_bound = 0
        for starts, kept in (
            (first, True),
            (first, False),
            (_changes(self.schedule, self.instance.first), False),
        ):
            if not _set_up(self.schedule):
                return
            self._take_fewer(self._phased(value_s, starts, kept=kept, fewest=True))
        model = slots.slots(self.instance, value_s, fewest=True)
        if model is None or len(model.program.low) > MOST_COLUMNS or not _set_up(self.schedule):
            return
        answer = self._solve(model.program, patience_s=0.9 * self.budget.left_s)
        if answer.values is not None:
            self._take_fewer(slots.schedule(model, answer.values))
        if math.isfinite(answer.bound):
            self.connections_bound = max(0, math.ceil(answer.bound - 1e-6))

    def _take_fewer(self, candidate: Schedule | None) -> None:
        assert self.schedule is not None
        if candidate is not None and _set_up(candidate) < _set_up(self.schedule):
            self.schedule = candidate

    def _solve(
        self,
        program: LinearProgram,
        *,
        relaxed: bool = False,
        any_solution: bool = False,
        nodes: int | None = None,
        patience_s: float = math.inf,
    ) -> Answer:
        limit_s = min(self.budget.left_s, patience_s)
        answer = program.solve(limit_s, nodes=nodes, relaxed=relaxed, any_solution=any_solution)
        self.budget.count(answer, len(program.low), len(program.row_low))
        return answer


def _changes(schedule: Schedule, first: int) -> list[int]:
    """Return the slots in which a schedule sets circuits up, its first slot included."""
    changed, before = {first}, schedule.ports
    for slot, decision in enumerate(schedule.decisions):
        if slot > first and set_up(before, decision.ports):
            changed.add(slot)
        before = decision.ports
    return sorted(changed)


def _set_up(schedule: Schedule) -> int:
    before, count = schedule.ports, 0
    for decision in schedule.decisions:
        count += set_up(before, decision.ports)
        before = decision.ports
    return count
