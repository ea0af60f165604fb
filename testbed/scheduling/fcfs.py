"""First come, first served: P4INC-AOI's benchmark (section VII-A), with INC and without. Pure."""

from __future__ import annotations

from testbed.scheduling import circuits
from testbed.scheduling.model import Load, Plan, Progress, State
from testbed.scheduling.room import Loads, Room


class Fcfs:
    """Jobs start one by one in the order of arrival, each with INC if there is a place, else with its PS, and with the largest rate
    that fits; it keeps that rate. The first job for which there is not room for one step of delta B blocks those behind it."""

    def __init__(self, *, inc: bool) -> None:
        self._inc = inc
        self._loads = Loads()

    @property
    def name(self) -> str:
        return "inc-fcfs" if self._inc else "noinc-fcfs"

    def plan(self, state: State) -> Plan:
        fabric = state.fabric
        running = [p for p in state.jobs if p.started is not None]
        its = [(p, self._loads.of(fabric, p.job, p.inc)) for p in running]
        room = Room.beside(fabric, its)
        rates = {p.job.id: p.rate_gbps for p in running}
        inc = {p.job.id: p.inc for p in running if p.inc is not None}
        for waiting in state.jobs:
            if waiting.started is not None:
                continue
            load = self._load(state, waiting, room)
            least = min(fabric.step_gbps, load.limit_gbps)
            rate = room.largest(load, min(load.limit_gbps, _useful(state, waiting)))
            if rate <= 0 or rate < min(least, _useful(state, waiting)):
                break
            room.take(load, rate)
            rates[waiting.job.id] = rate
            if load.inc is not None:
                room.inc_left[load.inc] -= 1
                inc[waiting.job.id] = load.inc
        return Plan(rates, inc, circuits.kept(state.ports, room.circuits, fabric.ports))

    def _load(self, state: State, waiting: Progress, room: Room) -> Load:
        job = waiting.job
        unit = None
        if self._inc:
            workers = dict(job.workers)
            units = [unit for unit in job.inc_units(state.fabric) if room.inc_left[unit] > 0]
            unit = max(units, key=lambda unit: (workers[unit], -unit), default=None)
        return self._loads.of(state.fabric, job, unit)


def _useful(state: State, waiting: Progress) -> float:
    """The rate that finishes a job in this slot, whatever circuits must be set up for it."""
    fabric = state.fabric
    return waiting.remaining_gigabits / (fabric.slot_s - fabric.reconfiguration_s)
