"""Check a policy's decision against the constraints of each time slot: equations (2), (3), (5) and (6) of
P4INC-AOI, section IV. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations

from testbed.errors import TestbedError
from testbed.scheduling import form
from testbed.scheduling.free_capacity import SLACK, Loads
from testbed.scheduling.model import Decision, Limits, Load, Pair, State, pair, possible_gbps


def check_decision(state: State, decision: Decision, name: str) -> None:
    """Check a decision of the policy `name` against each constraint. Raises TestbedError with the broken
    constraint, or RequestError if the state itself is invalid.
    """
    form.require(
        state.limits, [progress.job for progress in state.jobs], state.ports, f"{name}, slot {state.slot}"
    )
    check_form(state, decision, name)
    check_rates(state, decision, Loads(), name)
    check_circuits(state.limits, decision, f"{name}, slot {state.slot}")


def check_form(state: State, decision: Decision, name: str) -> None:
    """Check the form of all fields before any comparison: comparisons with NaN are false, so NaN would break
    no constraint.
    """
    for fault in form.of_decision(state.limits, decision):
        raise TestbedError(f"{name}, slot {state.slot}: {fault}")
    if decision.ports is not state.ports:
        for fault in form.of_ports(state.limits, decision.ports):
            raise TestbedError(f"{name}, slot {state.slot}: {fault}")
    if decision.rotation is not None:
        for fault in form.of_rotation(state.limits, decision.rotation, decision.ports):
            raise TestbedError(f"{name}, slot {state.slot}: {fault}")


def check_rates(state: State, decision: Decision, loads: Loads, name: str) -> None:
    """Check equations (2), (3), (5) and (6), the core's links, and that running jobs keep their mode and do
    not stop.
    """

    def broken(what: str) -> TestbedError:
        return TestbedError(f"{name}, slot {state.slot}: {what}")

    limits = state.limits
    switch = [0.0] * len(limits.ports)
    places = list(limits.inc)
    links: dict[Pair, float] = {}
    rates, inc = decision.rates, decision.inc
    seen = 0
    for progress in state.jobs:
        job = progress.job
        rate = rates.get(job.id)
        if rate is None:
            if progress.started is not None:
                raise broken(f"job {job.id} is stopped before it is finished")
            continue
        seen += 1
        unit = inc.get(job.id)
        if progress.started is not None:
            if unit != progress.inc:
                raise broken(f"job {job.id} changes its mode from INC in unit {progress.inc} to {unit}")
        elif unit is not None and unit not in job.inc_units(limits):
            raise broken(f"job {job.id} may not use INC in unit {unit}; it may in {job.inc_units(limits)}")
        if unit is not None:
            places[unit] -= 1
        job_load = loads.of(limits, job, unit)
        limit = possible_gbps(limits, job_load) if decision.rotation is None else job_load.ends_gbps
        if rate > limit * (1 + SLACK):
            raise broken(
                f"job {job.id} has a rate of {rate} Gb/s; at most {limit} is possible"
                f"{_short(limits, job_load)}"
            )
        for at, count in job_load.switches:
            switch[at] += count * rate
        for pair_, count in job_load.links:
            links[pair_] = links.get(pair_, 0.0) + count * rate
    if seen < len(rates):
        here = {progress.job.id for progress in state.jobs}
        raise broken(f"job {min(set(rates) - here)} has a rate, but is finished or has not arrived")
    for unit in limits.units:
        if places[unit] < 0:
            raise broken(
                f"unit {unit} has {limits.inc[unit] - places[unit]} INC jobs, and room for {limits.inc[unit]}"
            )
        if switch[unit] > limits.switch_gbps[unit] * (1 + SLACK):
            raise broken(
                f"the switch of unit {unit} has {switch[unit]} Gb/s, and {limits.switch_gbps[unit]} of "
                f"capacity"
            )
    if decision.rotation is not None:
        check_meetings(state, decision, f"{name}, slot {state.slot}")
    circuits = decision.circuits
    over_core = [0.0] * len(limits.ports)
    for pair_, gbps in links.items():
        if limits.core_gbps and not circuits.get(pair_):
            for unit in pair_:
                over_core[unit] += gbps
                if over_core[unit] > limits.core_gbps * (1 + SLACK):
                    raise broken(
                        f"unit {unit} has {over_core[unit]} Gb/s over the core, and {limits.core_gbps} there"
                    )
            continue
        most = circuits.get(pair_, 0) * limits.circuit_gbps(pair_)
        if gbps > most * (1 + SLACK) + SLACK:
            raise broken(f"the link {pair_} has {gbps} Gb/s, and circuits for {most}")


def _short(limits: Limits, job_load: Load) -> str:
    """Say where a job's links have too few optical ports; empty if they have enough, or if there is a
    core.
    """
    if limits.core_gbps:
        return ""
    needs = Counter(unit for pair_, _ in job_load.links for unit in pair_)
    lacks = [
        f"unit {unit} has {limits.ports[unit]} optical ports, and {count} of its links meet there"
        for unit, count in sorted(needs.items())
        if count > limits.ports[unit]
    ]
    return "".join(f"; {lack}" for lack in lacks)


def check_meetings(state: State, decision: Decision, who: str) -> None:
    """Check that each two units of a running job have circuits in some turn of a rotation: its workers also
    talk to each other, and a turn may offer no path through a third unit.
    """
    circuits = decision.circuits
    for job in (progress.job for progress in state.jobs if progress.job.id in decision.rates):
        is_summed_there = job.is_local and job.id in decision.inc
        units = {unit for unit, _ in job.workers} | (set() if is_summed_there else {job.ps})
        for a, b in combinations(sorted(units), 2):
            if pair(a, b) not in circuits:
                raise TestbedError(f"{who}: rotation: units {a} and {b} of job {job.id} meet in no turn")


def check_circuits(limits: Limits, decision: Decision, who: str) -> None:
    """Check that units have enough ports for a decision's circuits, in each turn of a rotation."""
    check_ports(limits, decision.ports, who)
    for number, turn in enumerate(decision.rotation.turns if decision.rotation else ()):
        check_ports(limits, turn.ports, f"{who}: rotation.turns[{number}]")


def check_ports(limits: Limits, ports: Mapping[Pair, int], who: str) -> None:
    """Check equation (6), second part: units have enough ports for the circuits."""
    used = [0] * len(limits.ports)
    for (a, b), count in ports.items():
        used[a] += count
        used[b] += count
    for unit in limits.units:
        if used[unit] > limits.ports[unit]:
            raise TestbedError(
                f"{who}: unit {unit} has {used[unit]} circuits, and {limits.ports[unit]} ports"
            )
