"""The MILP of P4INC-AOI, equations (1) to (11), letter by letter, with the linearisations of its appendix.
For a few jobs and slots.

Each correction has a name; docs/p4inc-aoi.md quotes the printed text and says why it cannot be meant. Without
corrections this is the printed model; with all of them it has the optimum of `strong`. Columns that an
equation makes 0 (streams to a unit without the PS) are left out.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass, field

from testbed.errors import RequestError
from testbed.linear_programs.linear import Answer, LinearProgram
from testbed.scheduling.model import Job, Pair, Schedule, UnitIndex, pair
from testbed.systems.p4inc.milp.instance import Instance
from testbed.systems.p4inc.milp.linearised import ZERO, Linear, at_least, both, equal, maximum, product
from testbed.systems.p4inc.milp.played import played

CORRECTIONS = {
    "local": "(4), (8): the second lines leave workers beside the PS, and INC with the PS elsewhere, "
    "without data",
    "increase": "(7): the third line makes alpha 1 where the ports stay as they are",
    "initial": "(7), (9): begin at i = 1, which makes the circuits and rates of slot 0 free",
    "one-rate": "(10): D is of a pair, though all workers of a job move at one rate",
    "runs": "(11): a job in the midst of its duration may have a rate of 0",
    "slots": "durations are of slots 1 to T, and (10) moves data in slots 0 to T - 1",
    "end": "(11): max(i x) is where the last slot begins",
    "update": "(11): a_j is in slots, and added to seconds",
    "arrival": "no equation says that a job does not run before it arrives",
    "server": "no equation limits what a server's interface takes",
}
ALL = frozenset(CORRECTIONS)
SMALL = 1e-3
"""m, relative to the rate that sends a job's volume in one slot. The paper lists it among the notations and
uses it in no equation; (11) lacks it.
"""


@dataclass(frozen=True, slots=True)
class Literal:
    """The result. `objective_s` is max t_j from time 0, as the equations used count it; `schedule` is set
    only with all corrections. `size`: columns and rows.
    """

    answer: Answer
    objective_s: float
    bound_s: float
    schedule: Schedule | None
    size: tuple[int, int]


def solve(instance: Instance, last: int, time_limit_s: float, corrections: Set[str] = ALL) -> Literal:
    """Solve the model; `last` is T. Raises RequestError for a correction that is not in CORRECTIONS."""
    unknown = set(corrections) - ALL
    if unknown:
        raise RequestError(f"correction {min(unknown)!r}: accepted are {', '.join(CORRECTIONS)}")
    instance.within(last)
    model = _Model(instance, last, frozenset(corrections))
    model.build()
    answer = model.program.solve(time_limit_s)
    has_values = answer.values is not None
    schedule = model.schedule(answer.values) if answer.values is not None and model.read == ALL else None
    size = len(model.program.low), len(model.program.row_low)
    return Literal(answer, answer.objective if has_values else math.inf, answer.bound, schedule, size)


@dataclass(slots=True)
class _Model:
    instance: Instance
    last: int
    read: frozenset[str]
    program: LinearProgram = field(default_factory=LinearProgram)
    big: float = 0.0
    inc: dict[tuple[int, int], Linear] = field(default_factory=dict)  # k by job and unit
    used: dict[tuple[int, int], Linear] = field(default_factory=dict)  # x by job and slot
    rate: dict[tuple[int, int], Linear] = field(default_factory=dict)  # B_j x by job and slot
    flow: dict[tuple[int, int, int], Linear] = field(
        default_factory=dict
    )  # B_vu by job, v and slot; u has the PS
    ports: dict[tuple[Pair, int], Linear] = field(default_factory=dict)
    grows: dict[tuple[Pair, int], Linear] = field(default_factory=dict)  # alpha

    def build(self) -> None:
        limits = self.instance.limits
        fastest = max(mode.limit_gbps for modes in self.instance.modes for mode in modes)
        streams = max(sum(count for _, count in job.workers) for job in self.instance.jobs)
        volume = max(job.gigabits for job in self.instance.jobs)
        self.big = 2 * max(fastest * streams, volume * streams, *limits.ports, self.last)
        for job in self.instance.jobs:
            self._inc_and_slots(job)
        self._places()
        for job in self.instance.jobs:
            self._flows(job)
        self._circuits()
        for slot in range(self.last + 1):
            self._capacities(slot)
        ends = [self._end(job) for job in self.instance.jobs]
        for job in self.instance.jobs:
            self._volumes(job)
        latest = Linear.of(self.program.real(cost=1.0))  # (1)
        for end in ends:
            at_least(self.program, latest, end)

    def _flag(self) -> Linear:
        return Linear.of(self.program.flag())

    def _units(self, job: Job) -> list[UnitIndex]:
        return [unit for unit, _ in job.workers]

    def _inc_and_slots(self, job: Job) -> None:
        """Add (2), and x by the durations of (11)."""
        limits, program = self.instance.limits, self.program
        for unit in self._units(job):
            self.inc[job.id, unit] = self._flag() if unit in job.inc_units(limits) else ZERO
        at_least(program, ZERO + 1, sum((self.inc[job.id, unit] for unit in self._units(job)), ZERO))
        first, beyond = (0, self.last) if "slots" in self.read else (1, self.last + 1)
        if "arrival" in self.read:
            first = max(first, job.arrival)
        durations = {
            (low, high): self._flag() for low in range(first, beyond) for high in range(low + 1, beyond + 1)
        }
        equal(program, sum(durations.values(), ZERO), ZERO + 1)
        for slot in range(self.last + 1):
            its = [z for (low, high), z in durations.items() if low <= slot < high]
            self.used[job.id, slot] = sum(its, ZERO)

    def _places(self) -> None:
        """Add (3)."""
        for unit, most in enumerate(self.instance.limits.inc):
            for slot in range(self.last + 1):
                held = [
                    both(self.program, k, self.used[id_, slot])
                    for (id_, at), k in self.inc.items()
                    if at == unit and k.factors and self.used[id_, slot].factors
                ]
                at_least(self.program, ZERO + most, sum(held, ZERO))

    def _flows(self, job: Job) -> None:
        """Add (4). B_j x and B_j x k are products by (13)."""
        limits, here = self.instance.limits, int(job.is_local)
        for slot in range(self.last + 1):
            bandwidth = Linear.of(self.program.real(0.0, self.big))
            used = self.used[job.id, slot]
            rate = self.rate[job.id, slot] = (
                product(self.program, used, bandwidth, self.big) if used.factors else ZERO
            )
            if "runs" in self.read and used.factors:
                at_least(self.program, rate, used * (SMALL * job.gigabits / limits.slot_s))
            into_ps = ZERO
            for unit, count in job.workers:
                k = self.inc[job.id, unit]
                with_inc = product(self.program, k, rate, self.big) if k.factors and used.factors else ZERO
                without = rate - with_inc
                if unit != job.ps:
                    flow = with_inc * (1 - here) + without * count
                elif "local" in self.read:
                    flow = without * count
                else:
                    flow = rate * (here * count)
                self.flow[job.id, unit, slot] = flow
                into_ps = into_ps + flow
            if "server" in self.read:
                if (most := limits.host_gbps_of(job)) < math.inf:
                    at_least(self.program, ZERO + most, rate)
                if (most := limits.ps_gbps_of(job)) < math.inf:
                    at_least(self.program, ZERO + most, into_ps)

    def _circuits(self) -> None:
        """Add (6), first and third line, and (7)."""
        limits, program = self.instance.limits, self.program
        pairs = [(a, b) for a in limits.units for b in limits.units if a < b]
        for slot in range(self.last + 1):
            for p in pairs:
                most = min(limits.ports[p[0]], limits.ports[p[1]])
                self.ports[p, slot] = Linear.of(program.whole(0, most))
            for unit in limits.units:
                mine = [self.ports[p, slot] for p in pairs if unit in p]
                at_least(program, ZERO + limits.ports[unit], sum(mine, ZERO))
            for p in pairs:
                grows = self.grows[p, slot] = self._flag()
                if slot == 0 and "initial" not in self.read:
                    equal(program, grows, ZERO)
                    continue
                before = self.ports[p, slot - 1] if slot else ZERO + self.instance.ports.get(p, 0)
                change = self.ports[p, slot] - before
                at_least(program, product(program, grows, change, self.big), ZERO)
                at_least(program, grows * self.big, change + (0.0 if "increase" in self.read else 1.0))

    def _capacities(self, slot: int) -> None:
        """Add (5), where B_uv already has the factor x, and (6), second line."""
        limits, program = self.instance.limits, self.program
        between: dict[Pair, Linear] = {}
        switched = dict.fromkeys(limits.units, ZERO)
        for job in self.instance.jobs:
            rate = self.rate[job.id, slot]
            for unit, count in job.workers:
                flow = self.flow[job.id, unit, slot]
                switched[unit] = switched[unit] + rate * count
                if unit != job.ps:
                    p = pair(unit, job.ps)
                    between[p] = between.get(p, ZERO) + flow
                    switched[job.ps] = switched[job.ps] + flow
                else:
                    k = self.inc[job.id, unit]
                    without = (
                        rate - product(program, k, rate, self.big) if k.factors and rate.factors else rate
                    )
                    switched[unit] = switched[unit] + without * count
        for p, gbps in between.items():
            at_least(program, self.ports[p, slot] * limits.circuit_gbps(p), gbps)
        for unit, gbps in switched.items():
            if limits.switch_gbps[unit] < math.inf:
                at_least(program, ZERO + limits.switch_gbps[unit], gbps)

    def _volumes(self, job: Job) -> None:
        """Add (8) to (10), for each pair, or once for the job."""
        if "one-rate" in self.read:
            rates = [self.rate[job.id, slot] for slot in range(self.last + 1)]
            lit = [self._any_grows(job, slot) for slot in range(self.last + 1)]
            self._volume(ZERO + job.gigabits, rates, lit)
            return
        here = int(job.is_local)
        for unit, count in job.workers:
            k = self.inc[job.id, unit]
            flows = [self.flow[job.id, unit, slot] for slot in range(self.last + 1)]
            if unit != job.ps:
                factor = k * (1 - here) + (ZERO + 1 - k) * count
                lit = [self.grows[pair(unit, job.ps), slot] for slot in range(self.last + 1)]
            else:
                factor = (ZERO + 1 - k) * count if "local" in self.read else ZERO + here * count
                lit = [ZERO] * (self.last + 1)
            self._volume(factor * job.gigabits, flows, lit)
            if "local" in self.read and here:
                # INC of a local job: its workers' streams end at the switch
                inside = [
                    product(self.program, k, self.rate[job.id, slot] * count, self.big) if k.factors else ZERO
                    for slot in range(self.last + 1)
                ]
                self._volume(k * (count * job.gigabits), inside, [ZERO] * (self.last + 1))

    def _any_grows(self, job: Job, slot: int) -> Linear:
        """Return whether the circuits of any link of the job grow; a local job with INC has no links."""
        links = [unit for unit in self._units(job) if unit != job.ps]
        if not links:
            return ZERO
        lit = self._flag()
        for unit in links:
            without = self.inc[job.id, unit] * float(job.is_local)
            at_least(self.program, lit, self.grows[pair(unit, job.ps), slot] - without)
        return lit

    def _volume(self, volume: Linear, rates: list[Linear], lit: list[Linear]) -> None:
        """Add (9) and (10): the volume left after each slot, and none at T."""
        limits, program = self.instance.limits, self.program
        left = volume
        for slot in range(self.last):
            lost = ZERO
            if lit[slot].factors and (slot or "initial" in self.read):
                change = rates[slot] - (rates[slot - 1] if slot else ZERO)
                more = self._flag()  # beta
                at_least(program, product(program, more, change, self.big), ZERO)
                at_least(program, more * self.big, change)
                lost = (
                    product(program, both(program, more, lit[slot]), change, self.big)
                    * limits.reconfiguration_s
                )
            left = maximum(program, ZERO, left - rates[slot] * limits.slot_s + lost, self.big)
        equal(program, left, ZERO)

    def _end(self, job: Job) -> Linear:
        """Return t_j by (11), second line; the sum over k there is printed under E's, but is over its own
        units.
        """
        limits = self.instance.limits
        last = ZERO
        for slot in range(self.last + 1):
            number = slot + 1 if "end" in self.read else slot
            if self.used[job.id, slot].factors:
                last = maximum(self.program, last, self.used[job.id, slot] * number, self.big)
        switched = sum((self.inc[job.id, unit] for unit in self._units(job)), ZERO) * float(job.is_local)
        update = job.update_s if "update" in self.read else job.update_s / limits.slot_s
        return last * limits.slot_s + (ZERO + 1 - switched) * update

    def schedule(self, values: tuple[float, ...]) -> Schedule:
        chosen, rates = {}, {}
        for job, modes in zip(self.instance.jobs, self.instance.modes, strict=True):
            units = [unit for unit in self._units(job) if self.inc[job.id, unit].value(values) > 0.5]
            inc = units[0] if units else None
            (chosen[job.id],) = (mode for mode in modes if mode.load.inc == inc)
            slots = [slot for slot in range(self.last) if self.used[job.id, slot].value(values) > 0.5]
            rates[job.id] = {slot: self.rate[job.id, slot].value(values) for slot in slots}
        lit = [
            {
                p: count
                for (p, at), c in self.ports.items()
                if at == slot and (count := round(c.value(values)))
            }
            for slot in range(self.last)
        ]
        return played(self.instance, chosen, rates, lit)
