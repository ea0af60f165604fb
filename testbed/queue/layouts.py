"""Check which layouts policies can decide on: those with all circuits between one unit, the hub, and the
workers' units. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from testbed.aggregation.site import Rack, Site, racks_of
from testbed.aggregation.system import Layout, System
from testbed.errors import RequestError
from testbed.jobs.automatic import candidates_by_name
from testbed.jobs.placement import (
    check_asks,
    check_narrow,
    check_packets,
    check_width,
    draw_server,
    draw_workers,
    hosts_in_words,
    laid_out,
    place_in_queue,
)
from testbed.ocs.plan import check_demands
from testbed.plugins.policies import Choice, choice
from testbed.plugins.registry import AUTO, find, programs_for, where_to_have
from testbed.plugins.user_class import is_users
from testbed.queue.submission import JobSpec, Submission
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.units import Unit
from testbed.wire.transports import SERVER


def hub_of(layout: Layout) -> Unit:
    """Return the unit where a job's circuits meet: its server's unit; without a server, that of a tree's top
    or of a worker. Raises RequestError unless all circuits join it to a unit with workers, because policies
    decide only on such circuits.
    """
    tops = [tree.top.place.unit for tree in layout.forest.trees] if layout.forest else []
    able = [layout.server[0]] if layout.server else [*tops, *layout.units]
    for hub in able:
        if all(hub in pair and {*pair} <= {hub, *layout.units} for pair in layout.demands):
            return hub
    joined = ", ".join("-".join(addresses.unit_name(unit) for unit in pair) for pair in layout.demands)
    raise RequestError(
        f"sync {layout.system}: it needs circuits {joined}; policies decide on circuits between one unit and "
        f"those of the workers: place it in fewer units, or run it by testbed run"
    )


def meeting_of(layout: Layout) -> int:
    """Return the largest number of a job's streams that meet in one queue."""
    if layout.forest is not None:
        return layout.forest.meeting()
    return len(layout.workers) if layout.transport == SERVER else 1


def served_where_asked(layout: Layout, unit: Unit | None) -> bool:
    """Return whether the job's server, if it has one, is in the requested unit, if one was requested."""
    return layout.server is None or unit is None or layout.server[0] == unit


def check_circuits(layout: Layout, policy: str, topology: Topology) -> None:
    """Raise RequestError if units lack optical ports for all circuits of a layout at once: no decision could
    let the job run. Not checked if there is a core, if all workers are in one unit (its switch may sum for
    them), or for a user's own policy (its circuits may rotate).
    """
    if topology.core_link or is_users(policy) or len({unit for unit, _ in layout.workers}) == 1:
        return
    check_demands(layout.demands, topology.scheduled_ports)


def check_choice(policy: str, between: Choice, topology: Topology) -> None:
    """Raise RequestError if this policy's system for sums at switches names a program that an engine of this
    testbed lacks.
    """
    for engine in sorted({unit.engine for unit in topology.units}):
        program, known = between.with_inc.programs.get(engine), programs_for(engine)
        if program is not None and program not in known:
            raise RequestError(
                f"policy {policy}: its jobs are summed by {between.with_inc.name}, whose program for "
                f"engine: {engine} is {program!r}; accepted are {', '.join(known) or 'none'}"
                f"{where_to_have(engine, program)}"
            )


def check_against(submission: Submission, topology: Topology) -> None:
    """Raise RequestError for a job that could never be placed on this testbed."""
    racks = racks_of(topology)
    units = {rack.unit: rack for rack in racks}
    known = ", ".join(f"{addresses.unit_name(rack.unit)} ({hosts_in_words(rack)})" for rack in racks)
    between = choice(submission.policy)
    check_choice(submission.policy, between, topology)
    for job in submission.jobs:
        for dpid, count in job.place or ():
            unit, rack = addresses.tor_unit(dpid), addresses.tor_rack(dpid)
            if unit not in units or count > len(units[unit].members(rack)):
                raise RequestError(
                    f"job {job.name}: place: {addresses.tor_name(dpid)}:{count}; there are {known}"
                )
        if job.ps is not None and job.ps not in units:
            raise RequestError(f"job {job.name}: ps: {addresses.unit_name(job.ps)}; there are {known}")
        gpu = {rack.unit: rack.size - (rack.unit == job.ps) for rack in racks if rack.kind == "gpu"}
        most = max(gpu.values(), default=0) if job.together else sum(gpu.values())
        ps_unit = None if job.ps is None else addresses.unit_name(job.ps)
        if job.place is None and job.workers > most:
            beside = f" beside its parameter server in {ps_unit}" if job.ps in gpu else ""
            raise RequestError(
                f"job {job.name}: workers: {job.workers}; {most} hosts of gpu units can be had "
                f"{'in one' if job.together else 'in all'}"
                f"{beside}; there are {known}"
            )
        _check_packets(job, topology, between)
        lay_out = partial(_lay_out_empty, job, racks, topology, between.without_inc)
        if not _has_server(job, lay_out):
            of = ps_unit or ("a cpu unit" if any(rack.kind == "cpu" for rack in racks) else "any unit")
            raise RequestError(
                f"job {job.name}: ps: no host of {of} is left for its parameter server; there are {known}"
            )
        if job.place is not None and job.sync != AUTO and not is_users(job.sync or ""):
            servers = [rack.unit for rack in racks if rack.kind == "cpu"] or list(units)
            layouts = [lay_out(ps) for ps in ([job.ps] if job.ps else servers)]
            _check_circuits_possible(job, [each for each in layouts if each], submission.policy, topology)


def _check_packets(job: JobSpec, topology: Topology, between: Choice) -> None:
    """Raise RequestError if the job's packets do not fit, or if its policy may let a switch sum that has no
    program for them.
    """
    summing = {unit.index: unit.engine for unit in topology.units if unit.engine in between.with_inc.programs}
    try:
        if job.options.lanes is not None:
            check_width(job.options.lanes, topology.mtu)
            if job.sync is None:
                check_narrow(job.options.lanes, summing, topology.mtu)
        if job.sync is None:
            check_asks(job.options.packets.recovery, summing)
    except RequestError as error:
        raise RequestError(f"job {job.name}: {str(error).removeprefix('--')}") from error


def _has_server(job: JobSpec, lay_out: Callable[[Unit | None], Layout | None]) -> bool:
    """Return whether an empty testbed has a host for the job's parameter server, if it needs one. Raises
    RequestError if its system has no layout, or one that policies cannot decide on. A user's own system is
    asked only when the job gets hosts.
    """
    if job.sync is not None and is_users(job.sync):
        return True
    layout = lay_out(job.ps)
    return layout is not None and served_where_asked(layout, job.ps)


def _lay_out_empty(
    job: JobSpec, racks: Sequence[Rack], topology: Topology, without_inc: System, ps: Unit | None
) -> Layout | None:
    """Lay out a job on an empty testbed, with its server in `ps` or anywhere; None if no host is left for
    it.
    """
    engines = {unit.index: unit.engine for unit in topology.units}
    if job.sync is None:
        wanted = (job.workers, job.place, job.together, ps)
        lay_out = partial(laid_out, without_inc, engines=engines)
        return place_in_queue(racks, (), *wanted, Random(0), lay_out)
    chosen = draw_workers(racks, (), job.workers, job.place, job.together, ps, Random(0))
    if chosen is None:
        return None
    kept = draw_server(racks, chosen, ps, Random(0))
    site = Site(tuple(racks), frozenset(), frozenset(), kept)
    refused = []
    for system in candidates_by_name().values() if job.sync == AUTO else [find(job.sync)]:
        try:
            layout = laid_out(system, chosen, site, engines)
            check_packets(layout, job.options.packets, engines, topology.mtu)
            hub_of(layout)
        except RequestError as error:
            refused.append(str(error))
        else:
            return layout
    raise RequestError(f"job {job.name}: {'; '.join(refused)}")


def _check_circuits_possible(
    job: JobSpec, layouts: Sequence[Layout], policy: str, topology: Topology
) -> None:
    """Raise RequestError, with the first layout's shortage, if none of a job's layouts can have its
    circuits.
    """
    lacks = []
    for layout in layouts:
        try:
            check_circuits(layout, policy, topology)
        except RequestError as error:
            lacks.append(f"job {job.name}: {error}")
        else:
            return
    if lacks:
        raise RequestError(lacks[0])
