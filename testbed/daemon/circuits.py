"""The daemon's request `circuits`: change circuits by hand, and find the running jobs that lose circuits by
it.

The controller plans and sets the circuits; the daemon knows which jobs use them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from testbed.aggregation.system import Layout
from testbed.client.requests import CircuitsRequest
from testbed.errors import RequestError, TestbedError
from testbed.jobs.supply import hindrance, stranded
from testbed.machine.links import ETHERNET_BYTES
from testbed.messages.coding import decode
from testbed.messages.controller import (
    CircuitsExchanged,
    CircuitsMade,
    CircuitTargets,
    JobCircuitLoss,
    LitCircuits,
)
from testbed.messages.jobs import NetworkUse
from testbed.messages.status import CircuitUse
from testbed.messages.timetable import TimetableBegun, TimetableStatus
from testbed.ocs.circuits import Circuit, checked, circuit, ports_of
from testbed.ocs.claims import in_words
from testbed.ocs.routing import at_best
from testbed.ocs.timetable import Timetable, parse
from testbed.ocs.using import losing, over_core, used
from testbed.topology import addresses
from testbed.topology.addresses import unit_name
from testbed.topology.fields import shown
from testbed.topology.model import Topology
from testbed.topology.units import UnitPair

ACTIONS = ("request", "set", "add", "remove", "clear", "reset", "schedule", "unschedule")
_MOST_PAIRS = 8  # named in one note
_MOST_TRIES = 20  # in each the circuits had changed between reading and setting them

Controller = Callable[..., Any]  # (op, **arguments) -> result
Claimed = Callable[[], Mapping[int, frozenset[Circuit]]]


def answer(
    topology: Topology,
    layouts: Callable[[], Mapping[int, Layout]],
    controller: Controller,
    request: CircuitsRequest,
    claimed: Claimed = dict,
) -> CircuitsMade | TimetableBegun | None:
    """Set the requested circuits, or start or end a timetable (`schedule`, `unschedule`). Return the
    history's event (None if nothing had to change) and the jobs that lost circuits; of a timetable its data.
    Unless `force` is set, RequestError names the jobs that would lose circuits: those that their traffic
    uses, and those that they asked for (`claimed`).
    """
    action, force = request.action, request.force
    if action not in ACTIONS:
        raise RequestError(f"circuits {shown(action)}: accepted are {', '.join(ACTIONS)}")
    if not isinstance(force, bool):
        raise RequestError(f"force: {shown(force)}; true or false is accepted")
    if action == "schedule":
        if (held := claimed()) and not force:
            jobs = "; ".join(
                f"job {job} holds {in_words(circuits)}" for job, circuits in sorted(held.items())
            )
            raise RequestError(f"circuits schedule: {jobs}; --force takes them")
        return schedule(topology, layouts, controller, request)
    if action == "unschedule":
        unschedule(topology, layouts, controller, request)
        return None
    units = [unit.index for unit in topology.units]
    for _ in range(_MOST_TRIES):
        lit = decode(LitCircuits, controller("circuits"), "circuits")
        now = frozenset(circuit(*pair) for pair in lit.circuits)
        target = _target(topology, controller, request, now)
        lost = losing(now, target, units, _pairs(layouts()), topology.core_link is not None, lit.down)
        for job, circuits in claimed().items():
            if gone := (circuits & now) - target:
                known, cut = lost.get(job, (frozenset[Circuit](), []))
                lost[job] = (known | gone, cut)
        if lost and not force:
            raise RequestError(f"circuits {action}: {told(lost)}; --force takes them")
        answer = controller("exchange", circuits=_lists(target), instead_of=_lists(now))
        exchanged = decode(CircuitsExchanged, answer, "exchange")
        if exchanged.is_done:
            return CircuitsMade(exchanged.event, tuple(_lost(job, *lost[job]) for job in sorted(lost)))
    raise TestbedError(f"circuits {action}: others changed circuits {_MOST_TRIES} times meanwhile")


def schedule(
    topology: Topology,
    layouts: Callable[[], Mapping[int, Layout]],
    controller: Controller,
    request: CircuitsRequest,
) -> TimetableBegun:
    """Start the requested timetable, and return it as the controller accepted it. Unless `force` is set,
    RequestError names the running jobs that it hinders.
    """
    timetable = parse(request.schedule, topology.planes)
    down = decode(LitCircuits, controller("circuits"), "circuits").down
    hindered = _of_jobs(layouts(), lambda layout: hindrance(layout, timetable, topology, down))
    if hindered and not request.force:
        raise RequestError(f"circuits schedule: {hindered}; --force starts it")
    begun = decode(TimetableStatus, controller("schedule", schedule=request.schedule), "schedule")
    notes = tuple(_notes(topology, timetable, down))
    return TimetableBegun(begun.period_ms, begun.guard_ms, begun.matchings, begun.routing, notes)


def _notes(topology: Topology, table: Timetable, down: Collection[str] = ()) -> Iterator[str]:
    """Yield a line about pairs of units between which a timetable's packets are lost, one about its ports
    that are `down`, and one about queues that are shorter than a time slot.
    """
    units = [unit.index for unit in topology.units]
    apart = set(itertools.permutations(units, 2)) if topology.core_link is None else set()
    apart -= at_best(units, table, topology.core_link is not None, down).reached()
    if apart:
        pairs = sorted({(min(pair), max(pair)) for pair in apart})
        names = ", ".join(f"{unit_name(a)}-{unit_name(b)}" for a, b in pairs[:_MOST_PAIRS])
        more = f" and {len(pairs) - _MOST_PAIRS} more pairs" if len(pairs) > _MOST_PAIRS else ""
        yield f"no matching joins {names}{more}: packets between these units are lost"
    ports = {end for matching in table.matchings for end in ports_of(matching.circuits)}
    if dead := sorted(ports.intersection(down), key=addresses.parse_optical_port):
        names = f"{', '.join(dead)} {'is' if len(dead) == 1 else 'are'} down"
        yield f"{names}: circuits of a port that is down carry nothing"
    rates = [topology.emulated_mbps(topology.optical_mbps(port)) for port in topology.optical_ports]
    fastest_mbps = max((rate for rate in rates if rate is not None), default=0.0)
    starts_ns = [each.start_ns for each in table.matchings]
    longest_ns = max(end - start for start, end in itertools.pairwise([*starts_ns, table.period_ns]))
    frames = (longest_ns - table.guard_ns) * fastest_mbps / 8e3 / (topology.mtu + ETHERNET_BYTES)
    if topology.has_calendar and frames > topology.ocs.calendar_packets:
        yield (
            f"a time slot has time for {frames:.0f} full packets, and only {topology.ocs.calendar_packets} "
            f"wait for it (ocs.calendar_packets): a slot may end with its link idle"
        )


def unschedule(
    topology: Topology,
    layouts: Callable[[], Mapping[int, Layout]],
    controller: Controller,
    request: CircuitsRequest,
) -> None:
    """End the timetable. Unless `force` is set, RequestError names the running jobs whose units the circuits
    of before do not join.
    """
    before = decode(LitCircuits, controller("circuits"), "circuits")
    if before.timetable and not request.force:
        left = _of_jobs(layouts(), lambda layout: stranded(layout, before.circuits, topology, before.down))
        if left:
            raise RequestError(f"circuits unschedule: {left}; --force ends it")
    controller("unschedule")


def _of_jobs(layouts: Mapping[int, Layout], reason: Callable[[Layout], str | None]) -> str:
    reasons = {job: reason(layout) for job, layout in sorted(layouts.items())}
    return "; ".join(f"job {job}: {why}" for job, why in reasons.items() if why)


def told(lost: Mapping[int, tuple[frozenset[Circuit], list[UnitPair]]]) -> str:
    """Describe the circuits that jobs lose, and the units that this disconnects."""
    phrases = []
    for job, (circuits, cut) in sorted(lost.items()):
        names = ", ".join(f"{each.a}-{each.b}" for each in sorted(circuits))
        pairs = ", ".join(f"{addresses.unit_name(a)} from {addresses.unit_name(b)}" for a, b in cut)
        phrases.append(f"job {job} loses {names}" + (f", which cuts off {pairs}" if cut else ""))
    return "; ".join(phrases)


def _target(
    topology: Topology, controller: Controller, request: CircuitsRequest, now: frozenset[Circuit]
) -> frozenset[Circuit]:
    """Compute the circuits that a request asks for, `now` being those that are set."""
    action = request.action
    if action == "request":
        planned = decode(CircuitTargets, controller("plan", demands=request.demands), "plan")
        return frozenset(circuit(*pair) for pair in planned.target)
    if action == "clear":
        return frozenset()
    pairs = topology.ocs.circuits if action == "reset" else request.circuits
    if action != "reset" and not (
        isinstance(pairs, list)
        and pairs
        and all(isinstance(pair, list) and all(isinstance(end, str) for end in pair) for pair in pairs)
    ):
        raise RequestError(
            f"circuits: {shown(pairs)}; a list of pairs of optical ports like [u1o1, u2o1] is accepted"
        )
    named = checked(pairs or (), topology.planes)
    if action == "add":
        taken = {port for each in named for port in each.ports}
        return named | {each for each in now if taken.isdisjoint(each.ports)}
    if action == "remove":
        if unset := _names(named - now):
            names = ", ".join("-".join(pair) for pair in unset)
            raise RequestError(f"circuits remove: {names} is not set; set are {_shown(now)}")
        return now - named
    return named


def _shown(circuits: frozenset[Circuit]) -> str:
    return ", ".join("-".join(pair) for pair in _names(circuits)) or "none"


def _lists(circuits: frozenset[Circuit]) -> list[list[str]]:
    return [list(pair) for pair in _names(circuits)]


def _pairs(layouts: Mapping[int, Layout]) -> dict[int, tuple[UnitPair, ...]]:
    return {job: layout.demands for job, layout in layouts.items() if layout.demands}


def _names(circuits: frozenset[Circuit]) -> tuple[tuple[str, str], ...]:
    return tuple((each.a, each.b) for each in sorted(circuits))


def _lost(job: int, circuits: frozenset[Circuit], cut: list[UnitPair]) -> JobCircuitLoss:
    pairs = tuple((addresses.unit_name(a), addresses.unit_name(b)) for a, b in cut)
    return JobCircuitLoss(job, _names(circuits), pairs)


def uses(
    topology: Topology,
    circuits: Iterable[Sequence[str]] | None,
    layouts: Mapping[int, Layout],
    down: Collection[str] = (),
) -> tuple[dict[int, NetworkUse], tuple[CircuitUse, ...]]:
    """Return, for `status`, each job's use of the network, and the jobs that use each circuit. With
    `circuits` None, neither is known. Jobs use no link that is `down`.
    """
    lit = frozenset(circuit(*pair) for pair in circuits or ())
    units = [unit.index for unit in topology.units]
    by_job = used(lit, units, _pairs(layouts), topology.core_link is not None, down)
    of_jobs = {
        job: NetworkUse(
            circuits=_names(by_job.get(job, frozenset())),
            links=(
                *_links(layout, by_job.get(job, frozenset())),
                *(_core_links(topology, layout, lit, down) if topology.core_link else ()),
            ),
            places=tuple(str(place) for place in layout.forest.places) if layout.forest else (),
        )
        for job, layout in layouts.items()
    }
    of_circuits = tuple(
        CircuitUse((each.a, each.b), tuple(sorted(job for job, taken in by_job.items() if each in taken)))
        for each in sorted(lit)
    )
    return of_jobs, of_circuits


def _core_links(
    topology: Topology, layout: Layout, circuits: frozenset[Circuit], down: Collection[str]
) -> list[str]:
    units = [unit.index for unit in topology.units]
    return [addresses.core_link_name(unit) for unit in over_core(circuits, units, layout.demands, down)]


def _links(layout: Layout, circuits: frozenset[Circuit]) -> list[str]:
    """Return the links that a job's traffic uses: of its hosts, of their racks in pods if it has hosts in
    others, and of the optical ports.
    """
    hosts = sorted(layout.hosts())
    racks = {(unit, addresses.rack_of(host)) for unit, host in hosts}
    up = [addresses.tor_name(addresses.tor_of(*host)) for host in hosts if addresses.rack_of(host[1])]
    ports = [end for each in sorted(circuits) for end in each.ports]
    links = [addresses.host_name(*host) for host in hosts] + (up if len(racks) > 1 else []) + ports
    return list(dict.fromkeys(links))
