"""The cost of not knowing the future on Table I's own instances: TW+ beside the optimum without hindsight.

`python -m tests.bench.tw_online [--json FILE] [--into FILE] [--seeds 20]`. In each slot with arrivals a
linear program decides over the jobs that have arrived: which use INC and when they begin, and which use their
PS, so that the last of them ends as early as possible. It plans to the end; jobs that begin in the slot are
fixed, everything else is decided again at the next arrival. Many solutions are equally good for the known
jobs; a rule selects one. Nothing here can fail.

INC's places are modelled exactly, slot by slot. For the optical ports the program knows only the volume that
they can carry until the end, jobs with the longest update first; rates and circuits are assigned as by TW+.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.linear_programs.linear import LinearProgram
from testbed.scheduling.free_capacity import Loads
from testbed.scheduling.model import Decision, Job, Limits, Load, Progress, State
from testbed.systems.p4inc import milp as exact
from testbed.systems.p4inc.policies.catalogue import make
from testbed.systems.p4inc.policies.time_window_plus import with_rates
from testbed.systems.p4inc.policies.tw_plus_modes import Sending, Tuning
from testbed.systems.p4inc.simulator.fluid import simulate
from testbed.systems.p4inc.simulator.settings import SETTINGS
from tests.bench.host import facts
from tests.bench.policies import least_s
from tests.bench.tables import publish, table

CASES = ((60.0, 60), (60.0, 80), (60.0, 100), (100.0, 60), (100.0, 80), (100.0, 100))
"""Iterations and jobs of Table I's rows in which TW+ is more than 5 % over the bound."""
RULES = ("early", "spare", "late")
"""How to select among solutions with the earliest end. "early": the fewest PSs, then the earliest starts;
"spare": a free place in as many units as possible, then as "early"; "late": the fewest jobs that start in
this slot.
"""
SOLVE_S = 2.0
"""Seconds for one program; then the best solution so far counts, or else the first found within `ANY_S`."""
ANY_S = 300.0
BOUND_S = 2.0
"""Seconds for the MILP that knows all arrivals."""


@dataclass(slots=True)
class Choice:
    """The program of one slot. `starts`: columns by job and by the slot in which it begins with INC, counted
    from this slot; `uses_ps`: columns by job; `end`: the column of the end, in seconds from this slot.
    """

    limits: Limits
    slot: int
    running: Sequence[Progress]
    waiting: Sequence[Progress]
    loads: Loads
    program: LinearProgram = field(default_factory=LinearProgram)
    starts: dict[tuple[int, int], int] = field(default_factory=dict)
    uses_ps: dict[int, int] = field(default_factory=dict)
    end: int = 0

    def __post_init__(self) -> None:
        program, limits, slot_s = self.program, self.limits, self.limits.slot_s
        self.end = program.real()
        places: dict[tuple[int, int], list[tuple[int, float]]] = {}  # by unit and slot
        # remaining slots of running jobs, by unit
        taken: dict[int, list[int]] = {unit: [] for unit in limits.units}
        carried: list[tuple[Progress, Load, int | None]] = []
        for progress in self.running:
            its = self.loads.of(limits, progress.job, progress.inc)
            least = progress.remaining_gigabits / its.limit_gbps
            program.row([(self.end, 1.0)], least + its.update_s)
            if its.inc is not None:
                taken[its.inc].append(math.ceil(least / slot_s - 1e-9))
            carried.append((progress, its, None))
        horizon = self._horizon()
        for progress in self.waiting:
            job = progress.job
            ps = self.loads.of(limits, job, None)
            ends: list[tuple[int, float]] = []
            if ps.limit_gbps > 0:
                self.uses_ps[job.id] = program.flag()
                ends.append((self.uses_ps[job.id], job.gigabits / ps.limit_gbps + ps.update_s))
                carried.append((progress, ps, self.uses_ps[job.id]))
            for unit in self._inc(job):
                slots = self.slots(job, unit)
                for begin in range(horizon[unit] - slots + 1):
                    self.starts[job.id, begin] = column = program.flag()
                    ends.append((column, (begin + slots) * slot_s))
                    for at in range(begin, begin + slots):
                        places.setdefault((unit, at), []).append((column, 1.0))
            program.row([(column, 1.0) for column, _ in ends], 1.0, 1.0)
            program.row([(self.end, 1.0), *((column, -end_s) for column, end_s in ends)], 0.0)
        for (unit, at), terms in places.items():
            program.row(terms, high=limits.inc[unit] - sum(left > at for left in taken[unit]))
        self._ports(carried)

    def slots(self, job: Job, unit: int) -> int:
        """Return the slots for which a job occupies an INC place."""
        gbps = self.loads.of(self.limits, job, unit).limit_gbps
        return max(1, math.ceil(job.gigabits / (gbps * self.limits.slot_s) - 1e-9))

    def _horizon(self) -> dict[int, int]:
        """Return by unit the slots in which its places can serve all jobs that could use them, one after
        another: in no best solution does a job with INC need to end later.
        """
        horizon = dict.fromkeys(self.limits.units, 0)
        for unit in self.limits.units:
            slots = [self.slots(each.job, unit) for each in self.waiting if unit in self._inc(each.job)]
            slots += [self.slots(each.job, unit) for each in self.running if each.inc == unit]
            if slots:
                horizon[unit] = math.ceil(sum(slots) / self.limits.inc[unit]) + max(slots)
        return horizon

    def _inc(self, job: Job) -> tuple[int, ...]:
        """Return the unit in which a job may use INC, if it has one: all its workers are there."""
        return job.inc_units(self.limits)[:1]

    def _ports(self, carried: Sequence[tuple[Progress, Load, int | None]]) -> None:
        """Add rows for the volume that a unit's ports carry before an update can begin. Jobs without a column
        are always carried.
        """
        limits = self.limits
        for unit in limits.units:
            gbps = limits.ports[unit] * limits.port_gbps
            mine = []
            for progress, its, column in carried:
                streams = sum(count for pair, count in its.links if unit in pair)
                if streams:
                    mine.append((its.update_s, streams * progress.remaining_gigabits, column))
            for update_s in sorted({last_s for last_s, _, _ in mine}):
                inside = [entry for entry in mine if entry[0] >= update_s]
                always = math.fsum(volume for _, volume, column in inside if column is None)
                terms = [(column, -volume) for _, volume, column in inside if column is not None]
                self.program.row([(self.end, gbps), *terms], always + gbps * update_s)

    def solved(self, rule: str) -> tuple[float, dict[int, int], set[int]]:
        """Solve the program. Return the end in seconds, the slots from this one in which jobs begin with INC,
        and the jobs that use their PS.
        """
        program = self.program
        program.cost[self.end] = 1.0
        first = program.solve(SOLVE_S)
        if first.values is None:
            first = program.solve(ANY_S, any_solution=True)
        assert first.values is not None, f"slot {self.slot}: {first.status} in {ANY_S} s"
        end_s = first.values[self.end]
        program.high[self.end] = end_s + 1e-6
        program.cost[self.end] = 0.0
        late = rule == "late"
        for (_, begin), column in self.starts.items():
            program.cost[column] = float(begin == 0) if late else begin * 1e-3
        for column in self.uses_ps.values():
            program.cost[column] = 1.001 if late else 1.0
        if rule == "spare":
            for unit in self.limits.units:
                held = sum(progress.inc == unit for progress in self.running)
                now = [
                    (self.starts[progress.job.id, 0], -1.0)
                    for progress in self.waiting
                    if unit in self._inc(progress.job) and (progress.job.id, 0) in self.starts
                ]
                full = program.real(cost=100.0)
                program.row([(full, 1.0), *now], held - self.limits.inc[unit] + 1)
        second = program.solve(SOLVE_S)
        values = second.values or first.values
        starts = {id_: begin for (id_, begin), column in self.starts.items() if values[column] > 0.5}
        return end_s, starts, {id_ for id_, column in self.uses_ps.items() if values[column] > 0.5}


class Reoptimised:
    """A policy that decides by `Choice` in each slot with arrivals, and follows that plan until the next."""

    def __init__(self, rule: str) -> None:
        self.name = f"re-optimised, {rule}"
        self._rule = rule
        self._loads = Loads()
        self._known = 0  # the highest job number seen
        self._end_s = 0.0
        self._begin: dict[int, int] = {}
        self._ps: set[int] = set()

    def decide(self, state: State) -> Decision:
        limits = state.limits
        newest = max(progress.job.id for progress in state.jobs)
        if newest > self._known:
            self._known = newest
            running = [progress for progress in state.jobs if progress.started is not None]
            waiting = [progress for progress in state.jobs if progress.started is None]
            choice = Choice(limits, state.slot, running, waiting, self._loads)
            end_s, starts, self._ps = choice.solved(self._rule)
            self._end_s = state.slot * limits.slot_s + end_s
            self._begin = {id_: state.slot + begin for id_, begin in starts.items()}
        sending = []
        for progress in state.jobs:
            job, started = progress.job, progress.started is not None
            if not (started or job.id in self._ps or self._begin[job.id] <= state.slot):
                continue
            able = job.inc_units(limits)[:1]
            unit = progress.inc if started else None if job.id in self._ps else able[0]
            its = self._loads.of(limits, job, unit)
            least_s = progress.remaining_gigabits / its.limit_gbps + its.update_s
            may_wait = bool(able) and not started and unit is None
            sending.append(Sending(progress, its, least_s, may_wait))
        return with_rates(state, sending, self._end_s - state.slot * limits.slot_s, Tuning())


def run(iterations: float, jobs: int, seed: int) -> dict[str, Any]:
    """Simulate one instance. Return CT-BTI over the bound, less 1, of the MILP's schedule with hindsight,
    TW+, and each rule.
    """
    setting = SETTINGS["table1"].having({"job_count": jobs, "iterations": iterations})
    limits, drawn = setting.limits, setting.jobs(seed)
    ours = simulate(limits, drawn, make("inc-tw+"), setting.initial, record=True)
    solved = exact.solve(
        limits, drawn, ports=setting.initial, time_limit_s=BOUND_S, gap=0.005, warm=ours.schedule
    )
    low_s = max(least_s(limits, drawn, whole=True), solved.bound_s)
    over = {"hindsight": solved.ct_bti_s / low_s - 1, "tw+": ours.ct_bti_s / low_s - 1}
    for rule in RULES:
        outcome = simulate(limits, drawn, Reoptimised(rule), setting.initial)
        over[rule] = outcome.ct_bti_s / low_s - 1
    return {"iterations": iterations, "jobs": jobs, "seed": seed, "bound_s": low_s, "over": over}


def _run(wanted: tuple[float, int, int]) -> dict[str, Any]:
    return run(*wanted)


def shown(figures: dict[str, Any]) -> str:
    """Return the table: a row for each case, means over seeds, the worst in brackets."""
    cases: dict[tuple[float, int], list[dict[str, float]]] = {}
    for each in figures["runs"]:
        cases.setdefault((each["iterations"], each["jobs"]), []).append(each["over"])
    rows = []
    for (iterations, jobs), overs in sorted(cases.items()):
        cells = []
        for name in ("hindsight", "tw+", *RULES):
            shares = [over[name] for over in overs]
            cells.append(f"{statistics.mean(shares):.1%} ({max(shares):.0%})")
        rows.append([f"{iterations:g}", f"{jobs}", f"{len(overs)}", *cells])
    rules = [f"re-optimised, {rule}" for rule in RULES]
    return table(["iterations", "jobs", "runs", "MILP, with hindsight", "INC-TW+", *rules], rows)


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tw_online", description=__doc__)
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--into", type=Path, help="a document whose table to replace")
    parser.add_argument("--seeds", type=int, default=20, help="of each case")
    parser.add_argument("--processes", type=int, default=1, help="at once")
    arguments = parser.parse_args(argv)
    wanted = [(iterations, jobs, seed) for seed in range(arguments.seeds) for iterations, jobs in CASES]
    runs = []
    with multiprocessing.Pool(arguments.processes) as pool:
        for each in pool.imap(_run, wanted):
            runs.append(each)
            print(f"{len(runs)} of {len(wanted)}: {each}", file=sys.stderr)
    figures = {"host": facts(), "solve_s": SOLVE_S, "bound_s": BOUND_S, "runs": runs}
    publish("tw_online", shown(figures), figures, arguments.json, arguments.into)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
