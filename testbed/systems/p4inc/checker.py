"""Verify a schedule against P4INC-AOI's equations (2) to (11), as docs/p4inc-aoi.md reads them. Makes no
decision.

Written independently of the policies, the simulator and the MILP, so as not to repeat their errors: it uses
the data of `testbed.scheduling.model`, but none of its functions, methods and properties, which a test
enforces. `form` first checks the values of all fields; if a field is malformed, nothing else is computed.
Equations (7) and (9) define quantities, and (1) is the objective; a schedule can break the others. Also
checked: jobs' arrivals, and the rates of servers and of paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from testbed.errors import TestbedError
from testbed.scheduling import form
from testbed.scheduling.model import Decision, Job, Pair, Schedule, UnitIndex

FINISHED = 1e-9
"""The share of a job's volume that may remain when it counts as finished."""
LISTED = 5


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken constraint: `left` should not exceed `right`, or should equal it; `what` names the quantity.
    `equation` is the paper's number, or "arrival", "server" or "form". `unit` or `link` where there is one.
    For "form", `what` may be a malformed field, `left` its value in words and `right` the accepted values.
    """

    equation: str
    what: str
    left: float | str
    right: float | str
    slot: int | None = None
    job: int | None = None
    unit: UnitIndex | None = None
    link: Pair | None = None

    def __str__(self) -> str:
        at = [] if self.job is None else [f"job {self.job}"]
        at += [] if self.unit is None else [f"unit {self.unit}"]
        at += [] if self.link is None else [f"units {self.link[0]}-{self.link[1]}"]
        at += [] if self.slot is None else [f"slot {self.slot}"]
        where = f" ({', '.join(at)})" if at else ""
        name = f"equation {self.equation}" if self.equation.isdigit() else self.equation
        left, right = (side if isinstance(side, str) else f"{side:.9g}" for side in (self.left, self.right))
        return f"{name}{where}: {self.what}: {left} against {right}"


class BrokenSchedule(TestbedError):
    """A schedule breaks constraints: `violations` has all of them, the message the first LISTED."""

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        self.violations = violations
        more = f"; and {len(violations) - LISTED} more" if len(violations) > LISTED else ""
        listed = "; ".join(str(violation) for violation in violations[:LISTED])
        super().__init__(f"check the schedule: {len(violations)} violations: {listed}{more}")


@dataclass(frozen=True, slots=True)
class Checked:
    """The figures of a correct schedule: t_j by job (equation 11), the CT-BTI, the circuits that were set up,
    and the slots with reconfigurations.
    """

    finish_s: Mapping[int, float]
    ct_bti_s: float
    reconfigured_connections: int
    reconfigurations: int


def check(schedule: Schedule, tolerance: float = 1e-5) -> Checked:
    """Check a schedule and compute its figures. Raises BrokenSchedule. `tolerance` is relative, and applies
    to capacities only, which solvers and sums of floats miss by about as much. A solver keeps each row to
    1e-6, but the deficits of many slots of a job may add up in one slot: 1.02e-6 of a server's rate has
    occurred.
    """
    malformed = _malformed(schedule)
    if malformed:
        raise BrokenSchedule(malformed)
    return _Check(schedule, tolerance).report()


def _malformed(schedule: Schedule) -> tuple[Violation, ...]:
    """List all malformed fields; fields of decisions only if limits and jobs are well-formed."""
    violations = list(_of_form(None, form.of_instance(schedule.limits, schedule.jobs, schedule.ports)))
    if not violations:
        checked = schedule.ports
        for slot, decision in enumerate(schedule.decisions):
            violations += _of_form(slot, form.of_decision(schedule.limits, decision))
            if isinstance(decision, Decision) and decision.ports is not checked:
                violations += _of_form(slot, form.of_ports(schedule.limits, decision.ports))
                checked = decision.ports
    return tuple(violations)


def _of_form(slot: int | None, faults: Iterable[form.Fault]) -> Iterator[Violation]:
    for fault in faults:
        yield Violation(
            "form", fault.field, fault.value, fault.accepted, slot, fault.job, fault.unit, fault.link
        )


@dataclass(slots=True)
class _Run:
    """A job in progress. `volume` is what each worker has left to send, `links` the workers' streams between
    units: D and B of (8) and (4).
    """

    job: Job
    volume: float
    links: dict[Pair, int] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    inc: int | None = None
    first: int | None = None
    last: int | None = None
    stopped: bool = False
    rate: float = 0.0

    @property
    def finished(self) -> bool:
        return self.volume <= FINISHED * self.job.gigabits


class _Check:
    def __init__(self, schedule: Schedule, tolerance: float) -> None:
        self.schedule, self.limits, self.slack = schedule, schedule.limits, 1 + tolerance
        self.found: list[Violation] = []
        self.runs: dict[int, _Run] = {}
        self.sending: dict[int, _Run] = {}  # jobs that sent in the previous slot
        self.connections = self.events = 0

    def report(self) -> Checked:
        for job in self.schedule.jobs:
            self.runs[job.id] = _Run(job, job.gigabits)
        self._circuits(None, self.schedule.ports)
        lit, checked = self.schedule.ports, self.schedule.ports
        for slot, decision in enumerate(self.schedule.decisions):
            if decision.ports is not checked:
                self._circuits(slot, decision.ports)
                checked = decision.ports
            grown = {pair for pair, count in decision.ports.items() if count > lit.get(pair, 0)}
            self.connections += sum(decision.ports[pair] - lit.get(pair, 0) for pair in grown)
            self.events += bool(grown)
            running = self._runs_of(slot, decision)
            self._capacities(slot, decision, running)
            self._send(slot, decision, running, grown)
            lit = decision.ports
        finish_s = self._finishes()
        if self.found:
            raise BrokenSchedule(tuple(self.found))
        began = min((run.first for run in self.runs.values() if run.first is not None), default=0)
        ct_bti_s = max(finish_s.values(), default=0.0) - began * self.limits.slot_s if finish_s else 0.0
        return Checked(finish_s, ct_bti_s, self.connections, self.events)

    def _broken(
        self, equation: str, what: str, left: float, right: float, **where: int | Pair | None
    ) -> None:
        self.found.append(Violation(equation, what, left, right, **where))  # type: ignore[arg-type]

    # -------------------------------------------------------------- circuits

    def _circuits(self, slot: int | None, ports: Mapping[Pair, int]) -> None:
        """Check equation (6), third line."""
        of_unit = [0] * len(self.limits.ports)
        for (low, high), count in ports.items():
            of_unit[low] += count
            of_unit[high] += count
        for unit, (count, most) in enumerate(zip(of_unit, self.limits.ports, strict=True)):
            if count > most:
                self._broken("6", "optical ports in use", count, most, slot=slot, unit=unit)

    # -------------------------------------------------------------- slot by slot

    def _runs_of(self, slot: int, decision: Decision) -> list[_Run]:
        """Return the jobs that send in this slot, each with its streams; check equations (2), (4) and (11),
        and arrivals.
        """
        for id_ in decision.inc:
            if id_ not in decision.rates:
                self._broken("11", "INC for a job without a rate", 1, 0, slot=slot, job=id_)
        running = []
        for id_, rate in decision.rates.items():
            run = self.runs.get(id_)
            if run is None:
                self._broken("form", "a rate for a job that is not given", rate, 0, slot=slot, job=id_)
                continue
            if slot < run.job.arrival:
                self._broken("arrival", "a slot in which it runs", slot, run.job.arrival, slot=slot, job=id_)
            self._enter_slot(slot, run, decision.inc.get(id_))
            running.append(run)
        for id_ in [id_ for id_ in self.sending if id_ not in decision.rates]:
            run = self.sending.pop(id_)
            run.rate = 0.0
            if not run.finished and not run.stopped:
                run.stopped = True
                self._broken("11", "Gb left when it stops", run.volume, 0, slot=slot, job=id_)
        return running

    def _enter_slot(self, slot: int, run: _Run, inc: int | None) -> None:
        if run.first is None:
            run.first, run.inc = slot, inc
            self._mode(slot, run)
        elif run.inc != inc:
            new, old = (-1 if unit is None else unit for unit in (inc, run.inc))
            self._broken("2", "its unit of INC changes, -1 being none", new, old, slot=slot, job=run.job.id)
        if run.finished:
            self._broken("11", "it runs after its last slot", slot, run.last or 0, slot=slot, job=run.job.id)

    def _mode(self, slot: int, run: _Run) -> None:
        """Check equation (2); then compute, for each Gb/s of the job's rate, its streams on links (equation
        4) and through switches (equation 5).
        """
        job, inc = run.job, run.inc
        if inc is not None:
            if inc not in [unit for unit, _ in job.workers]:
                self._broken("2", "its workers in its unit of INC", 0, 1, slot=slot, job=job.id, unit=inc)
            if len(job.workers) > 1 and not self.limits.partial_inc:
                self._broken(
                    "2", "units of a job with INC", len(job.workers), 1, slot=slot, job=job.id, unit=inc
                )
        in_one_unit = len(job.workers) == 1
        k = {unit: int(unit == inc) for unit, _ in job.workers}
        for unit, workers in job.workers:
            run.taken[unit] = run.taken.get(unit, 0) + workers
            if unit == job.ps:
                run.taken[unit] += (1 - k[unit]) * workers
                continue
            streams = k[unit] * (1 - in_one_unit) + (1 - k[unit]) * workers
            if streams:
                run.links[min(unit, job.ps), max(unit, job.ps)] = streams
                run.taken[job.ps] = run.taken.get(job.ps, 0) + streams

    def _capacities(self, slot: int, decision: Decision, running: list[_Run]) -> None:
        """Check equations (3), (5) and (6), second line, and the rates of servers' interfaces."""
        inc: dict[int, int] = {}
        switch: dict[int, float] = {}
        between: dict[Pair, float] = {}
        for run in running:
            rate, id_ = decision.rates[run.job.id], run.job.id
            if run.inc is not None:
                inc[run.inc] = inc.get(run.inc, 0) + 1
            for unit, streams in run.taken.items():
                switch[unit] = switch.get(unit, 0.0) + streams * rate
            for link, streams in run.links.items():
                between[link] = between.get(link, 0.0) + streams * rate
            if rate > (most := min(self.limits.host_gbps, run.job.host_gbps)) * self.slack:
                self._broken("server", "Gb/s of a worker", rate, most, slot=slot, job=id_)
            into_ps = _into_ps(run) * rate
            if into_ps > (most := min(self.limits.ps_gbps, run.job.ps_gbps)) * self.slack:
                self._broken("server", "Gb/s into a PS", into_ps, most, slot=slot, job=id_)
        for unit, count in inc.items():
            if count > self.limits.inc[unit]:
                self._broken("3", "jobs with INC", count, self.limits.inc[unit], slot=slot, unit=unit)
        for unit, gbps in switch.items():
            if gbps > self.limits.switch_gbps[unit] * self.slack:
                self._broken(
                    "5", "Gb/s of the switch", gbps, self.limits.switch_gbps[unit], slot=slot, unit=unit
                )
        for link, gbps in between.items():
            room = decision.ports.get(link, 0) * self._slower_end_gbps(link)
            if gbps > room * self.slack:
                self._broken("6", "Gb/s between two units", gbps, room, slot=slot, link=link)

    def _slower_end_gbps(self, link: Pair) -> float:
        """Return B_port of a circuit; of unequal ports, that of the slower."""
        each = self.limits.unit_port_gbps or (self.limits.port_gbps,) * len(self.limits.ports)
        return min(each[unit] for unit in link)

    def _send(self, slot: int, decision: Decision, running: list[_Run], grown: set[Pair]) -> None:
        """Apply equation (10): compute D of the next slot. All workers wait for the one whose circuits are
        set up last.
        """
        for run in running:
            rate = decision.rates[run.job.id]
            beta = max(0.0, rate - run.rate)
            lost = max(
                (beta * self.limits.reconfiguration_s for link in run.links if link in grown), default=0.0
            )
            run.volume = max(0.0, run.volume - (rate * self.limits.slot_s - lost))
            run.rate, run.last = rate, slot
            self.sending[run.job.id] = run

    def _finishes(self) -> dict[int, float]:
        """Check equation (10), second line, and compute t_j by equation (11), with the last slot counted to
        its end.
        """
        finish_s = {}
        for id_, run in self.runs.items():
            if not run.finished:
                if not run.stopped:
                    self._broken(
                        "10", "Gb left at the end", run.volume, 0, slot=len(self.schedule.decisions), job=id_
                    )
                continue
            switched = run.inc is not None and len(run.job.workers) == 1
            assert run.last is not None
            finish_s[id_] = (run.last + 1) * self.limits.slot_s + (0.0 if switched else run.job.update_s)
        return finish_s


def _into_ps(run: _Run) -> int:
    """Count the streams that end in the server of the job's PS: none if a switch is the whole PS."""
    if run.inc is not None and len(run.job.workers) == 1:
        return 0
    if run.job.meeting:
        return run.job.meeting
    beside = sum(count for unit, count in run.job.workers if unit == run.job.ps and run.inc != unit)
    return sum(run.links.values()) + beside
