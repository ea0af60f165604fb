"""The constraints that a policy's answer must keep, slot by slot: equations (2), (3), (5) and (6) of
P4INC-AOI, section IV. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.errors import TestbedError
from testbed.scheduling import form
from testbed.scheduling.model import Decision, Limits, Pair, State
from testbed.scheduling.room import SLACK, Loads


def check_decision(state: State, decision: Decision, name: str) -> None:
    """Check a decision of the policy `name` against each constraint; TestbedError says what it breaks,
    RequestError that the state cannot be.
    """
    form.require(
        state.limits, [progress.job for progress in state.jobs], state.ports, f"{name}, slot {state.slot}"
    )
    check_form(state, decision, name)
    check_rates(state, decision, Loads(), name)
    check_ports(state.limits, decision.ports, f"{name}, slot {state.slot}")


def check_form(state: State, decision: Decision, name: str) -> None:
    """Check the fields before anything is compared: with NaN every comparison is false, and so no constraint
    broken.
    """
    for fault in form.of_decision(state.limits, decision):
        raise TestbedError(f"{name}, slot {state.slot}: {fault}")
    if decision.ports is not state.ports:
        for fault in form.of_ports(state.limits, decision.ports):
            raise TestbedError(f"{name}, slot {state.slot}: {fault}")


def check_rates(state: State, decision: Decision, loads: Loads, name: str) -> None:
    """Equations (2), (3), (5) and (6), and that jobs run on as they started."""

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
        its = loads.of(limits, job, unit)
        if rate > its.limit_gbps * (1 + SLACK):
            raise broken(f"job {job.id} has a rate of {rate} Gb/s; at most {its.limit_gbps} is possible")
        for at, count in its.switches:
            switch[at] += count * rate
        for pair, count in its.links:
            links[pair] = links.get(pair, 0.0) + count * rate
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
    for pair, gbps in links.items():
        most = decision.ports.get(pair, 0) * limits.port_gbps
        if gbps > most * (1 + SLACK) + SLACK:
            raise broken(f"the link {pair} has {gbps} Gb/s, and circuits for {most}")


def check_ports(limits: Limits, ports: Mapping[Pair, int], who: str) -> None:
    """Equation (6), second part: whether units have ports for the circuits."""
    used = [0] * len(limits.ports)
    for pair, count in ports.items():
        used[pair[0]] += count
        used[pair[1]] += count
    for unit in limits.units:
        if used[unit] > limits.ports[unit]:
            raise TestbedError(
                f"{who}: unit {unit} has {used[unit]} circuits, and {limits.ports[unit]} ports"
            )
