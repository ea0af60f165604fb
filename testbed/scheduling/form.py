"""Check the type and range of every field of limits, jobs, circuits and decisions. Pure; makes no decisions.

Python lets `Limits` have 1.5 ports and a decision NaN circuits, and comparisons with NaN are false, so that a
check of capacities would pass them. Code that receives a schedule, a decision or an instance checks it here
first; then only the equations remain to be checked. A bool is not accepted as a number; NumPy's numbers are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

from testbed.errors import RequestError
from testbed.ocs.timetable import LONGEST_MS, SHORTEST_MS
from testbed.scheduling.model import Decision, Job, Limits, Pair, Rotation, RotationTurn, UnitIndex
from testbed.wire.places import MAX_MATCHINGS

MOST = 1_000_000
"""The largest number of a unit's ports or places, of its workers of a job, and of circuits between two
units.
"""
MOST_SLOT = 2**31 - 1
MOST_ID = 2**63 - 1
LEAST_REAL, MOST_REAL = 1e-12, 1e15
"""The least of numbers that must be above 0, and the largest of all: sums and products of them stay far from
the limits of a float."""
SHOWN = 40
"""The most characters shown of a value that is refused."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A field with an invalid value: `value` as text, and what is `accepted`; `job`, `unit` or `link` if it
    belongs to one.
    """

    field: str
    value: str
    accepted: str
    job: int | None = None
    unit: UnitIndex | None = None
    link: Pair | None = None

    def __str__(self) -> str:
        return f"{self.field}: {self.value}; {self.accepted} is accepted"


@dataclass(frozen=True, slots=True)
class _Whole:
    least: int
    most: int

    def __str__(self) -> str:
        return f"a whole number from {self.least} to {self.most}"

    def accepts(self, value: object) -> bool:
        if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
            return False
        return self.least <= int(value) <= self.most


@dataclass(frozen=True, slots=True)
class _Number:
    """A number of at least `least`, or above 0 if that is None; with `infinite`, also infinity."""

    least: float | None = LEAST_REAL
    infinite: bool = False

    def __str__(self) -> str:
        least = "above 0 and up" if self.least is None else f"from {self.least:g}"
        return f"a number {least} to {MOST_REAL:g}{', or infinite,' if self.infinite else ''}"

    def accepts(self, value: object) -> bool:
        if type(value) is not float and (isinstance(value, bool) or not isinstance(value, Real)):
            return False
        if value == math.inf:
            return self.infinite
        number: Any = value  # to mypy, a Real and an int cannot be compared
        high_enough = number > 0 if self.least is None else number >= self.least
        return bool(high_enough and number <= MOST_REAL)  # NaN is neither


COUNT, WORKERS, SLOT = _Whole(0, MOST), _Whole(1, MOST), _Whole(0, MOST_SLOT)
ID = _Whole(-MOST_ID, MOST_ID)
POSITIVE, FROM_ZERO, ENDLESS, RATE = _Number(), _Number(0.0), _Number(infinite=True), _Number(None)
_Accepted = _Whole | _Number

_LIMITS: Mapping[str, _Accepted] = {
    "port_gbps": POSITIVE,
    "host_gbps": ENDLESS,
    "ps_gbps": ENDLESS,
    "slot_s": POSITIVE,
    "reconfiguration_s": FROM_ZERO,
    "step_gbps": POSITIVE,
    "core_gbps": FROM_ZERO,
}
_UNITS: Mapping[str, _Accepted] = {
    "ports": COUNT,
    "inc": COUNT,
    "switch_gbps": ENDLESS,
    "unit_port_gbps": POSITIVE,
}
_OPTIONAL = ("unit_port_gbps",)  # may be empty


def of_limits(limits: object) -> Iterator[Fault]:
    """Yield the faults of limits."""
    if not isinstance(limits, Limits):
        yield Fault("limits", shown(limits), "Limits")
        return
    units = len(limits.ports) if isinstance(limits.ports, Sequence) and limits.ports else 1
    for name, accepted in _UNITS.items():
        values = getattr(limits, name)
        if name in _OPTIONAL and values == ():
            continue
        if not isinstance(values, Sequence) or isinstance(values, str | bytes) or len(values) != units:
            yield Fault(f"limits.{name}", shown(values), f"a number for each unit, {units} of them,")
            continue
        for unit, value in enumerate(values):
            if not accepted.accepts(value):
                yield Fault(f"limits.{name}[{unit}]", shown(value), str(accepted), unit=UnitIndex(unit))
    for name, accepted in _LIMITS.items():
        if not accepted.accepts(getattr(limits, name)):
            yield Fault(f"limits.{name}", shown(getattr(limits, name)), str(accepted))
    for name in ("partial_inc",):
        if type(getattr(limits, name)) is not bool:
            yield Fault(f"limits.{name}", shown(getattr(limits, name)), "True or False")


def of_job(limits: Limits, job: object) -> Iterator[Fault]:
    """Yield the faults of a job, given valid limits."""
    if not isinstance(job, Job):
        yield Fault("a job", shown(job), "a Job")
        return
    if not ID.accepts(job.id):
        yield Fault("a job's id", shown(job.id), str(ID))
        return
    id_, unit_ = int(job.id), _Whole(0, len(limits.ports) - 1)

    def fault(name: str, value: object, accepted: object) -> Fault:
        return Fault(f"job {id_}: {name}", shown(value), str(accepted), job=id_)

    if not _is_workers(job.workers):
        yield fault("workers", job.workers, "a (unit, workers) for each unit, at least one,")
    else:
        units = [unit for unit, _ in job.workers]
        placed = [unit for unit in units if unit_.accepts(unit)]
        for unit, count in job.workers:
            if not unit_.accepts(unit):
                yield fault("a unit of its workers", unit, unit_)
            if not WORKERS.accepts(count):
                yield fault(f"workers in unit {shown(unit)}", count, WORKERS)
        if placed == units and placed != sorted(set(placed)):
            yield fault("units of workers", ", ".join(map(str, placed)), "each once, ascending,")
    for name, value, accepted in (
        ("ps", job.ps, unit_),
        ("gigabits", job.gigabits, POSITIVE),
        ("update_s", job.update_s, FROM_ZERO),
        ("arrival", job.arrival, SLOT),
        ("meeting", job.meeting, COUNT),
        ("host_gbps", job.host_gbps, ENDLESS),
        ("ps_gbps", job.ps_gbps, ENDLESS),
    ):
        if not accepted.accepts(value):
            yield fault(name, value, accepted)


def of_jobs(limits: Limits, jobs: object) -> Iterator[Fault]:
    """Yield the faults of jobs, each alone and all together."""
    if not isinstance(jobs, Iterable):
        yield Fault("jobs", shown(jobs), "a list of jobs")
        return
    seen: set[int] = set()
    for job in jobs:
        wrong = list(of_job(limits, job))
        yield from wrong
        if isinstance(job, Job) and ID.accepts(job.id):
            if job.id in seen:
                yield Fault(f"job {job.id}: id", "of two jobs", "one of its own", job=int(job.id))
            seen.add(job.id)


def of_ports(limits: Limits, ports: object) -> Iterator[Fault]:
    """Yield the faults of the circuits between units, except too few ports."""
    if not isinstance(ports, Mapping):
        yield Fault("circuits", shown(ports), "a count for each two units")
        return
    units = len(limits.ports)
    for link, count in ports.items():
        if not _is_pair(link, units):
            yield Fault(
                "circuits between units", shown(link), f"two of units 0 to {units - 1}, the smaller first,"
            )
        elif not COUNT.accepts(count):
            low, high = UnitIndex(int(link[0])), UnitIndex(int(link[1]))
            yield Fault(
                f"circuits between units {low} and {high}", shown(count), str(COUNT), link=(low, high)
            )


def of_rotation(limits: Limits, rotation: object, ports: Mapping[Pair, int]) -> Iterator[Fault]:
    """Yield the faults of a rotation beside a decision's circuits, except too few ports."""
    if not isinstance(rotation, Rotation):
        yield Fault("rotation", shown(rotation), "a Rotation")
        return
    if ports:
        yield Fault("circuits beside a rotation", shown(dict(ports)), "none")
    turns: object = rotation.turns  # a policy may have put anything there
    if not isinstance(turns, tuple) or not 1 <= len(turns) <= MAX_MATCHINGS:
        count = f"{len(turns)} of them" if isinstance(turns, tuple) else shown(turns)
        yield Fault("rotation.turns", count, f"a tuple of 1 to {MAX_MATCHINGS}")
        return
    if not FROM_ZERO.accepts(rotation.guard_ms):
        yield Fault("rotation.guard_ms", shown(rotation.guard_ms), str(FROM_ZERO))
        return
    before_ms = 0.0
    for number, turn in enumerate(turns):
        key = f"rotation.turns[{number}]"
        if not isinstance(turn, RotationTurn):
            yield Fault(key, shown(turn), "a RotationTurn")
            return
        if not POSITIVE.accepts(turn.lasts_ms) or turn.lasts_ms < SHORTEST_MS:
            yield Fault(f"{key}.lasts_ms", shown(turn.lasts_ms), f"at least {SHORTEST_MS:g} ms")
            return
        if turn.lasts_ms <= rotation.guard_ms:
            guard = f"more than guard_ms, {rotation.guard_ms:g},"
            yield Fault(f"{key}.lasts_ms", shown(turn.lasts_ms), guard)
        for fault in of_ports(limits, turn.ports):
            yield replace(fault, field=f"{key}: {fault.field}")
        before_ms += turn.lasts_ms
    if before_ms > LONGEST_MS:
        yield Fault("the turns of a rotation", f"{before_ms:g} ms", f"at most {LONGEST_MS:g} ms")


def of_decision(limits: Limits, decision: object) -> Iterator[Fault]:
    """Yield the faults of a decision, except its circuits' (`of_ports`)."""
    if not isinstance(decision, Decision):
        yield Fault("a decision", shown(decision), "a Decision")
        return
    unit_ = _Whole(0, len(limits.ports) - 1)
    parts: tuple[tuple[str, object, _Accepted], ...] = (
        ("rate", decision.rates, RATE),
        ("unit of INC", decision.inc, unit_),
    )
    for name, values, accepted in parts:
        if not isinstance(values, Mapping):
            yield Fault(f"the {name} of each job", shown(values), f"a {name} for each job")
            continue
        for id_, value in values.items():
            if not ID.accepts(id_):
                yield Fault(f"a job with a {name}", shown(id_), str(ID))
            elif not accepted.accepts(value):
                yield Fault(f"job {id_}: {name}", shown(value), str(accepted), job=int(id_))


def require(limits: Limits, jobs: Sequence[Job], ports: Mapping[Pair, int], who: str) -> None:
    """Raise RequestError, in one line, for an instance's first fault."""
    for fault in of_instance(limits, jobs, ports):
        raise RequestError(f"{who}: {fault}")


def of_instance(limits: Limits, jobs: object, ports: object) -> Iterator[Fault]:
    """Yield the faults of limits; if there are none, those of the jobs and of the circuits lit at the
    start.
    """
    wrong = list(of_limits(limits))
    yield from wrong
    if not wrong:
        yield from of_jobs(limits, jobs)
        yield from of_ports(limits, ports)


def shown(value: object) -> str:
    """Format any value in at most SHOWN characters."""
    if isinstance(value, int) and abs(value) > MOST_ID:
        return f"a whole number of {value.bit_length()} bits"
    text = " ".join((value if isinstance(value, str) and "," in value else repr(value)).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _is_workers(workers: object) -> bool:
    if not isinstance(workers, Sequence) or isinstance(workers, str | bytes) or not workers:
        return False
    return all(isinstance(each, tuple) and len(each) == 2 for each in workers)


def _is_pair(link: object, units: int) -> bool:
    if not isinstance(link, tuple) or len(link) != 2:
        return False
    unit = _Whole(0, units - 1)
    return unit.accepts(link[0]) and unit.accepts(link[1]) and bool(link[0] < link[1])
