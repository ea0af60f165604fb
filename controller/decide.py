"""The controller's decisions. Pure: a function from state, event and time to a new state and tasks.
`controller.conductor` carries the tasks out.

A reconfiguration, in order. The optical switch's flows are changed and read back. The fast path is told ahead
of time when the affected ports go dark, when they are lit again, and to which ports they then lead; it gets
its routes, and is watched until the ports carry light. In parallel, every ToR whose flows differ is set and
read back, and its routes are checked against its flows. Without a fast path, the dark time is the flows'
absence. Ports whose circuits stay are never written to. A switch that reads back other flows than it should
hold is sent the difference once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from controller.flows import (
    UNIT_PREFIX,
    Flow,
    RouteChanges,
    Routes,
    TorFlows,
    circuits_of,
    flows_by,
    oxc_flows,
    port_numbers,
    routes_of,
    tor_flows,
)
from controller.records import ChangeRecord
from controller.state import Change, Errand, State
from controller.steps import (
    LIGHT,
    MODEL,
    ROUTES,
    AskModel,
    Began,
    Came,
    ChangeRoutes,
    Complain,
    Darkness,
    Demanded,
    Done,
    Drawn,
    End,
    Event,
    Failed,
    Gone,
    Held,
    Join,
    Joined,
    Linked,
    Lit,
    Modify,
    Ordered,
    Overdue,
    Peers,
    Read,
    ReadLight,
    Restarted,
    SetRoutes,
    Step,
    Task,
    TellTime,
    Timed,
    Turn,
    WaitUntil,
    Watch,
)
from testbed.errors import RequestError, SettingError, TestbedError
from testbed.ocs.circuits import Circuit, circuit, ports_of
from testbed.ocs.glimpses import Turned
from testbed.ocs.routing import direct_hops, planned
from testbed.ocs.timetable import USERS, Kept, Matching, Timetable
from testbed.optics.model import CircuitTurn, DarkTimes, Ends
from testbed.topology import addresses
from testbed.topology.addresses import CORE_DPID, OXC_DPID, Dpid
from testbed.topology.model import Topology
from testbed.topology.units import Unit
from testbed.wire.places import AT_ONCE, ROUTINGS, Frames

TRIES = 2  # how often a switch is sent its flows before it counts as failed

Course = tuple[State, tuple[Task | End, ...]]


def decide(state: State, event: Event, now_ns: int) -> Course:
    """Return the state after an event, and what to do: tasks, whose answers are events, or the end of the
    errand. TestbedError, and no new state, for a request that cannot be met.
    """
    match event:
        case Began():
            return _settle(_new(state, Errand()), state.premises.silent, now_ns)
        case Came(dpid, others):
            came = {dpid, *others}
            for each in came:
                state = state.without_trust(each)
            state = _new(replace(state, connected=state.connected | came), Errand())
            if dpid == OXC_DPID:
                return _wait(state, _read(dpid))
            return _settle(state, came, now_ns)
        case Gone(dpid):
            return replace(state.without_trust(dpid), connected=state.connected - {dpid}), ()
        case Restarted(dpid):
            state.premises.check_switch(dpid)
            return _settle(_new(state.without_trust(dpid), Errand()), {dpid}, now_ns)
        case Overdue():
            unsettled = set(state.unsettled)
            state = _new(state, Errand())
            if OXC_DPID in unsettled:  # the other switches follow it
                return _wait(state, _read(OXC_DPID))
            return _settle(state, unsettled, now_ns)
        case Linked(down):
            return _lead_round(state, down, now_ns)
        case Done(about) if about == ROUTES:
            return _settle_rerouted(_answered(state, ROUTES), now_ns)
        case Failed(about, error) if about == ROUTES:
            state = _answered(state.without_trust(*_errand(state).rerouted), ROUTES)
            why = f"lead routes round links that are down: {error}; whole tables are set"
            return _wait(state, Task(ROUTES, (Complain(why),)))
        case Demanded(pairs):
            return _order(state, state.plan(pairs).target, now_ns)
        case Ordered(circuits):
            return _order(state, circuits, now_ns)
        case Drawn(times):
            return _plan_change(_answered(state, MODEL), times)
        case Failed(about, error) if about == MODEL:  # nothing was sent to a switch
            state = _answered(state, MODEL)
            return _wait(_with_errand(state, failures=(*_errand(state).failures, (MODEL, error))))
        case Timed(unix_s):
            return _begin_change(_answered(state, OXC_DPID), now_ns, unix_s)
        case Held(dpid, flows):
            return _compare(_answered(state, dpid), dpid, flows, now_ns)
        case Joined(peers):
            return _align(_answered(state, OXC_DPID), peers)
        case Lit(began_ns, at_ns, resolution_ns, routed_ns):
            state = _answered(state, LIGHT)
            if began_ns is not None:
                state = _with_change(state, began_ns=began_ns)
            return _wait(_with_change(state, lit_ns=at_ns, resolution_ns=resolution_ns, routed_ns=routed_ns))
        case Done(about) if about == LIGHT:
            return _follow(_answered(state, LIGHT), now_ns, Task(LIGHT, (Watch(_lit(_change(state))),)))
        case Failed(about, error) if about == LIGHT and not _change(state).are_tors_told:
            state = _answered(state.without_trust(OXC_DPID), LIGHT)
            return _follow(_failed(state, about, error), now_ns)
        case Done(about):
            return _verify(_answered(state, about), about, now_ns)
        case Failed(about, error):
            return _fail(_answered(state, about), about, error, now_ns)


# ---- bringing switches to their flows ----


def _settle(state: State, dpids: Iterable[Dpid], now_ns: int) -> Course:
    """Bring units' switches that can be set, and whose flows are decided, to these flows, and then to their
    routes.
    """
    tasks = []
    for dpid in sorted(dpids & state.tor_flows.keys()):
        state = replace(state, verified=state.verified - {dpid})
        if not state.can_be_told(dpid):
            continue
        if not state.premises.speaks_openflow(dpid):
            tasks.append(_set_routes(state, dpid))
        elif dpid in state.held:
            state, steps = _tell(state, dpid)
            tasks.append(Task(dpid, steps))
        else:
            tasks.append(_read(dpid))
    return _wait(_with_change(state, settled_ns=now_ns), *tasks)


def _compare(state: State, dpid: Dpid, flows: frozenset[Flow], now_ns: int) -> Course:
    """Continue with a switch whose flows were read; send it the difference if they are not as they
    should be.
    """
    if state.circuits is None:  # take over the circuits that an optical switch already has
        state = state.with_circuits(circuits_of(flows, state.premises.topology) or state.last_decided)
    state = replace(state, held={**state.held, dpid: flows})
    wanted, tries = state.wanted(dpid), _errand(state).tries.get(dpid, 0)
    if flows != wanted:
        missing, extra = len(wanted - flows), len(flows - wanted)
        difference = f"switch {dpid:#x}: {missing} flows missing and {extra} too many after the barrier"
        if tries >= TRIES:
            return _fail(state, dpid, SettingError(difference), now_ns)
        state, steps = _tell(state, dpid)
        return _wait(state, Task(dpid, (Complain(difference), *steps) if tries else steps))
    if dpid == OXC_DPID and _errand(state).change:
        return _connect(state, now_ns)
    if not state.premises.has_plane:
        return _verify(state, dpid, now_ns)
    return _wait(state, Task(dpid, (ReadLight(),)) if dpid == OXC_DPID else _set_routes(state, dpid))


def _tell(state: State, dpid: Dpid) -> tuple[State, tuple[Step, ...]]:
    """Return the steps from a switch's known flows to those that it should hold, in one modification, and the
    read-back.
    """
    held, wanted = state.held[dpid], state.wanted(dpid)
    return _told(state, dpid), (Modify(dpid, held - wanted, wanted - held), Read(dpid))


def _told(state: State, dpid: Dpid) -> State:
    """Count one more attempt at a switch."""
    tries = _errand(state).tries
    return _with_errand(state, tries={**tries, dpid: tries.get(dpid, 0) + 1})


def _align(state: State, peers: Mapping[int, int]) -> Course:
    """Bring the fast path to the circuits; those that it already has are not touched."""
    wanted = _peers(state.current)
    stale = [(port, None) for port in sorted(peers.keys() - wanted.keys())]
    missing = [(port, peer) for port, peer in sorted(wanted.items()) if peers.get(port) != peer]
    return _wait(state, Task(OXC_DPID, (Join((*stale, *missing)),)))


def _verify(state: State, dpid: Dpid, now_ns: int) -> Course:
    """Record that a switch holds what it should. After the optical switch, whose circuits are then known,
    continue with what waited for them: a requested change, or else the ToRs.
    """
    if dpid not in state.connected and state.premises.speaks_openflow(dpid):
        return _fail(state, dpid, TestbedError(f"set switch {dpid:#x}: it disconnected"), now_ns)
    failures = {each: why for each, why in state.failures.items() if each != dpid}
    state = replace(state, verified=state.verified | {dpid}, failures=failures)
    if dpid != OXC_DPID:
        return _wait(_with_change(state, settled_ns=now_ns))
    if _errand(state).target is not None:
        return _prepare_change(state)
    return _settle(state, state.tor_flows.keys(), now_ns)


# ---- a reconfiguration ----


def _order(state: State, target: frozenset[Circuit], now_ns: int) -> Course:
    """Begin to set these circuits; if an earlier change failed half-way, repair that first."""
    state.check_links(target)
    state = _new(state, Errand(target=target, asked_ns=now_ns))
    if OXC_DPID in state.connected - state.verified:
        return _wait(state, _read(OXC_DPID))
    return _prepare_change(state)


def _prepare_change(state: State) -> Course:
    """Ask how long the change will be dark, if there is any change."""
    target = _errand(state).target
    assert target is not None
    if target == state.current:
        return _wait(state)
    if OXC_DPID not in state.connected:
        error = TestbedError("change circuits: the optical switch is not connected")
        return _wait(_with_errand(state, failures=((OXC_DPID, error),)))
    return _wait(state, Task(MODEL, (AskModel(state.turn(state.current, target)),)))


def _plan_change(state: State, times: DarkTimes) -> Course:
    """Compute everything that a change needs except its time, so that this costs no dark time."""
    target = _errand(state).target
    assert target is not None
    removed, added = state.current - target, target - state.current
    topology = state.premises.topology
    times = times.for_circuits(c.ports for c in added)
    change = Change(
        target,
        removed,
        added,
        ports=ports_of(removed | added),
        tor_flows=tor_flows(topology, target, state.down),
        times=times,
        asked_ns=_errand(state).asked_ns,
    )
    state = _with_errand(state, change=change, tries={})  # attempts of an earlier repair do not count
    return _wait(state, Task(OXC_DPID, (TellTime(),)))


def _begin_change(state: State, now_ns: int, unix_s: float) -> Course:
    """Change the optical switch's flows to the new circuits. Without a fast path, the flows' absence is the
    dark time.
    """
    state = _with_change(state, planned_ns=now_ns, began_ns=now_ns, began_unix_s=unix_s)
    change = _change(state)
    remove, add = oxc_flows(change.removed), oxc_flows(change.added)
    steps: tuple[Step, ...]
    if state.premises.has_plane:
        steps = (Modify(OXC_DPID, remove, add),)
    else:
        nothing = frozenset[Flow]()
        steps = (
            Modify(OXC_DPID, remove, nothing),
            WaitUntil(change.due_ns),
            Modify(OXC_DPID, nothing, add),
        )
    return _wait(_told(state, OXC_DPID), Task(OXC_DPID, (*steps, Read(OXC_DPID))))


def _connect(state: State, now_ns: int) -> Course:
    """Give the fast path the new circuits and, while they are dark, its routes: the change is made. The ToRs'
    flows are computed and set afterwards (`_follow`).
    """
    change, before = _change(state), state.tor_flows
    state = replace(state, circuits=change.target, tor_flows=change.tor_flows)
    state = _with_change(state, is_made=True, made_ns=now_ns, before=before)
    if not state.premises.has_plane:
        return _follow(state, now_ns, Task(LIGHT, (Watch(()),)))
    new = _peers(change.added)
    turned: Peers = tuple((port, new.get(port)) for port in _numbers(change.ports))
    routed = _changed_routes(state, before, sorted(state.tor_flows.differing(before)))
    return _wait(state, Task(LIGHT, (Turn(turned, _darkness(change, turned)), *routed)))


def _follow(state: State, now_ns: int, *tasks: Task) -> Course:
    """Set each ToR whose flows differ, or that is not known to hold what it should."""
    change = _change(state)
    assert change.before is not None
    state = _with_change(state, are_tors_told=True)
    state = _with_errand(state, out=_errand(state).out | {task.about for task in tasks})
    stale = {dpid for dpid in state.tor_flows if dpid not in state.verified}
    state, others = _settle(state, change.tor_flows.differing(change.before) | stale, now_ns)
    return state, (*tasks, *others)


def _darkness(change: Change, peers: Peers) -> Darkness:
    """Return the dark times of ports: both ends of a circuit have the circuit's; ports without a circuit have
    the longest.
    """
    if not change.times.circuits:
        return change.dark_ns
    of_ports = {
        port: time.total_ns for ends, time in change.times.circuits.items() for port in _numbers(ends)
    }
    return tuple(of_ports.get(port, change.dark_ns) for port, _ in peers)


def _lit(change: Change) -> tuple[int, ...]:
    """Return the numbers of the ports that are lit by a change."""
    return _numbers(ports_of(change.added))


# ---- links that go down or come back ----


def _lead_round(state: State, down: frozenset[str], now_ns: int) -> Course:
    """Lead routes round the links that are down, over those that are up again too: first in the fast path,
    with the differences only, then at the switches. Circuits stay as they are. An errand that only waits for
    light goes on meanwhile (`Errand.takes_links`).
    """
    before = state.tor_flows
    state = state.with_links(down)
    if state.errand is None:
        state = _new(state, Errand())
    differing = state.tor_flows.differing(before) if state.circuits is not None else frozenset[Dpid]()
    if not differing:
        return _wait(state)
    state = _with_errand(state, rerouted=differing)
    steps = tuple(_changed_routes(state, before, sorted(differing))) if state.premises.has_plane else ()
    return _wait(state, Task(ROUTES, steps)) if steps else _settle_rerouted(state, now_ns)


def _settle_rerouted(state: State, now_ns: int) -> Course:
    """Set the switches whose flows lead round links."""
    errand = _errand(state)
    tries = {dpid: tries for dpid, tries in errand.tries.items() if dpid not in errand.rerouted}
    state = _with_errand(state, rerouted=frozenset(), tries=tries)
    return _settle(state, errand.rerouted, now_ns)


# ---- ends ----


def _fail(state: State, about: Dpid, error: Exception, now_ns: int) -> Course:
    """Give up a task. Its switch's contents then count as unknown."""
    state = _failed(state.without_trust(OXC_DPID if about == LIGHT else about), about, error)
    return _wait(_with_change(state, settled_ns=now_ns))


def _failed(state: State, about: Dpid, error: Exception) -> State:
    dpid = OXC_DPID if about == LIGHT else about
    state = replace(state, failures={**state.failures, dpid: str(error)})
    return _with_errand(state, failures=(*_errand(state).failures, (about, error)))


def _wait(state: State, *tasks: Task) -> Course:
    """Start these tasks; end the errand if no task is out."""
    errand = _errand(state)
    out = errand.out | {task.about for task in tasks}
    if out:
        return _with_errand(state, out=out), tasks
    failure = next((error for about, error in errand.failures if about == LIGHT), None)
    failure = failure or next((error for _, error in errand.failures), None)
    record = _record(errand.change, len(state.history) + 1) if errand.change else None
    if record:
        state = state.with_record(record)
    return replace(state, errand=None), (End(record, failure),)


def _record(change: Change, number: int) -> ChangeRecord | None:
    """Return the history's record of a change; None if it was not made."""
    if not change.is_made:
        return None
    measured_ns = change.lit_ns - change.began_ns if change.lit_ns and change.added else None
    since_asked = {
        "planned": change.planned_ns,
        "made": change.made_ns,
        "dark": change.began_ns,
        "routed": change.routed_ns,
        "lit": change.lit_ns,
        "settled": change.settled_ns,
    }
    return ChangeRecord(
        id=number,
        time=change.began_unix_s,
        ports=change.ports,
        asked_ms=change.dark_ns / 1e6,
        switch_ms=change.times.longest.switch_ns / 1e6,
        lock_ms=change.times.longest.lock_ns / 1e6,
        circuits_ms={_name(ends): time.total_ns / 1e6 for ends, time in change.times.circuits.items()},
        failed_locks=dict(change.times.failed),
        measured_ms=None if measured_ns is None else measured_ns / 1e6,
        resolution_ms=change.resolution_ns / 1e6,
        settled_ms=max(0, change.settled_ns - change.began_ns) / 1e6,
        since_asked_ms={
            part: max(0, at_ns - change.asked_ns) / 1e6 for part, at_ns in since_asked.items() if at_ns
        },
        removed=pairs(change.removed),
        added=pairs(change.added),
    )


# ---- states with a part changed ----


def _errand(state: State) -> Errand:
    assert state.errand is not None
    return state.errand


def _change(state: State) -> Change:
    change = _errand(state).change
    assert change is not None
    return change


def _new(state: State, errand: Errand) -> State:
    return replace(state, errand=errand)


def _with_errand(state: State, **fields: Any) -> State:
    return replace(state, errand=replace(_errand(state), **fields))


def _with_change(state: State, **fields: Any) -> State:
    """Replace fields of the state's change, if there is a change."""
    change = _errand(state).change
    return _with_errand(state, change=replace(change, **fields)) if change else state


def _answered(state: State, about: Dpid) -> State:
    return _with_errand(state, out=_errand(state).out - {about})


def _read(dpid: Dpid) -> Task:
    return Task(dpid, (Read(dpid),))


def _set_routes(state: State, dpid: Dpid) -> Task:
    return Task(dpid, (_routes(state, dpid),))


def _routes(state: State, dpid: Dpid) -> SetRoutes:
    return SetRoutes(dpid, routes_of(dpid, state.tor_flows[dpid]))


def _changed_routes(state: State, before: TorFlows, dpids: Iterable[Dpid]) -> Iterator[Step]:
    """Yield the steps to the routes of switches whose flows changed. For switches that hold the old routes
    these are one step with the differences only, since unchanged routes may be many; of the core's few
    routes, all are set.
    """
    changed: list[Dpid] = []
    for dpid in filter(state.premises.speaks_openflow, dpids):
        if dpid in state.verified and dpid != CORE_DPID:
            changed.append(dpid)
        else:
            yield _routes(state, dpid)
    if changed:
        yield ChangeRoutes(RouteChanges(before, state.tor_flows, changed))


def _ends(c: Circuit) -> tuple[int, int]:
    a, b = _numbers(c.ports)
    return a, b


def _peers(circuits: Iterable[Circuit]) -> dict[int, int]:
    """Return the peers of both ends of circuits, by port number."""
    return {port: peer for c in circuits for port, peer in (_ends(c), _ends(c)[::-1])}


def timed(
    topology: Topology, table: Timetable
) -> tuple[list[dict[int, int]], dict[Frames, list[Mapping[Dpid, Routes]]]]:
    """Return a timetable's matchings as the fast path holds them: peers by port; and for each kind of frames
    the routes of each unit's own switch to other units in each matching. Routes within a unit depend on no
    circuit. RequestError for a routing that this testbed cannot follow (`planned`).
    """
    if table.routing != AT_ONCE and not topology.has_calendar:
        raise RequestError(
            f"routing: {table.routing}: packets wait for no slot here (ocs.calendar_packets, mtu); "
            f"{AT_ONCE} is accepted"
        )
    peers = [_peers(matching.circuits) for matching in table.matchings]
    units = [unit.index for unit in topology.units]
    plan = planned(units, table, topology.core_link is not None)
    routes = {
        frames: [_to_units(flows_by(topology, each)) for each in by_matching]
        for frames, by_matching in plan.kinds.items()
    }
    if topology.has_calendar and topology.core_link is None:
        direct = direct_hops(units, table)
        routes[Frames.RESULT] = [_to_units(flows_by(topology, each)) for each in direct]
    return peers, routes


def _to_units(flows: TorFlows) -> Mapping[Dpid, Routes]:
    return {
        dpid: {goal: by for goal, by in routes_of(dpid, each).items() if goal[1] == UNIT_PREFIX}
        for dpid, each in flows.items()
        if dpid != addresses.CORE_DPID and not addresses.tor_rack(dpid)
    }


def table_of(ports: Mapping[Unit, tuple[str, ...]], kept: Kept) -> Timetable:
    """Convert a timetable from the fast path to port names."""
    names = port_numbers(ports)
    matchings = (
        Matching(start_ns, frozenset(circuit(names[a], names[b]) for a, b in peers.items() if a < b))
        for start_ns, peers in zip(kept.starts_ns, kept.peers, strict=True)
    )
    routing = (*ROUTINGS, USERS)[kept.routing]
    return Timetable(kept.period_ns, kept.guard_ns, tuple(matchings), routing)


def leaving_turn(state: State) -> CircuitTurn:
    """Return the end of a timetable as a change for the optical model: all circuits are lit anew."""
    return state.turn(frozenset(), state.current)


def leaving(state: State, times: DarkTimes, now_ns: int, unix_s: float) -> tuple[State, Peers, Darkness]:
    """Plan the dark time of all circuits' ports at the end of a timetable; each port keeps its peer."""
    times = times.for_circuits(c.ports for c in state.current)
    change = Change(
        target=state.current,
        removed=frozenset(),
        added=frozenset(),
        ports=ports_of(state.current),
        tor_flows=state.tor_flows,
        times=times,
        asked_ns=now_ns,
        began_ns=now_ns,
        began_unix_s=unix_s,
        is_made=True,
    )
    peers: Peers = tuple(sorted(_peers(state.current).items()))
    return _new(state, Errand(change=change)), peers, _darkness(change, peers)


def left(state: State, turned: Turned | None) -> tuple[State, ChangeRecord | None]:
    """Return the state after a timetable's end, and the history's record. Without an answer (`turned` None)
    it is unknown whether ports are lit; they are brought to their circuits before the next change.
    """
    if turned is None:
        return replace(state.without_trust(OXC_DPID), errand=None), None
    change = replace(
        _change(state), began_ns=turned.dark_at_ns, lit_ns=turned.lit_at_ns, settled_ns=turned.lit_at_ns
    )
    record = _record(change, len(state.history) + 1)
    assert record is not None
    record = replace(record, relit=pairs(change.target))
    return replace(state.with_record(record), errand=None), record


def _name(ends: Ends) -> str:
    return "-".join(ends)


def _numbers(ports: Iterable[str]) -> tuple[int, ...]:
    return tuple(addresses.oxc_port_number(*addresses.parse_optical_port(port)) for port in ports)


def pairs(circuits: Iterable[Circuit]) -> tuple[Ends, ...]:
    """Convert circuits for requests and the history."""
    return tuple(c.ports for c in sorted(circuits))
