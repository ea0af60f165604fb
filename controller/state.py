"""The controller's complete state, as frozen data, and values derived from it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller.flows import NO_TOR_FLOWS, Flow, TorFlows, oxc_flows, routes_of, tor_flows
from controller.records import ChangeRecord
from controller.steps import LIGHT
from testbed.errors import RequestError, TestbedError
from testbed.ocs.circuits import Circuit, checked, circuit, ports_of
from testbed.ocs.plan import Plan, plan_planes
from testbed.ocs.routes import tree
from testbed.optics.model import CircuitTurn, DarkTimes, Ends, PastTurn
from testbed.topology import addresses
from testbed.topology.addresses import Dpid, queued_way
from testbed.topology.model import Topology
from testbed.topology.units import Unit, UnitPair


@dataclass(frozen=True, slots=True)
class Premises:
    """The facts that last for a controller's life. `has_plane`: there is a fast path besides the flows."""

    topology: Topology
    has_plane: bool
    ports: Mapping[Unit, tuple[str, ...]]
    without_openflow: frozenset[Unit]

    @property
    def has_core(self) -> bool:
        return self.topology.core_link is not None

    @property
    def planes(self) -> Mapping[str, str]:
        """The plane of each optical port, by name; empty if there is a single optical switch."""
        return self.topology.planes if self.topology.ocs.planes else {}

    def speaks_openflow(self, dpid: Dpid) -> bool:
        """Return whether this switch connects to the controller: all do, except those of units without
        OpenFlow.
        """
        return dpid == addresses.OXC_DPID or addresses.tor_unit(dpid) not in self.without_openflow

    @property
    def silent(self) -> frozenset[Dpid]:
        """The switches of units without OpenFlow."""
        return frozenset(dpid for dpid in self.topology.switches if not self.speaks_openflow(dpid))

    def check_switch(self, dpid: Dpid) -> None:
        """Raise RequestError if the switch is neither a unit's nor the core."""
        if dpid == addresses.CORE_DPID and self.has_core:
            return
        self.check_unit(addresses.tor_unit(dpid))
        if dpid not in self.topology.switches:
            raise RequestError(
                f"{addresses.tor_name(dpid)}: no such switch; there are "
                f"{', '.join(map(addresses.tor_name, self.topology.unit(addresses.tor_unit(dpid)).switches))}"
            )

    def check_unit(self, unit: Unit) -> None:
        """Raise RequestError if there is no such unit."""
        if unit not in self.ports:
            raise RequestError(
                f"{addresses.unit_name(unit)}: no such unit; there are u1 to u{max(self.ports)}"
            )


@dataclass(frozen=True, slots=True)
class Change:
    """A reconfiguration. Everything that takes long to compute is set before its begin is timed."""

    target: frozenset[Circuit]
    removed: frozenset[Circuit]
    added: frozenset[Circuit]
    ports: tuple[str, ...]
    tor_flows: TorFlows
    times: DarkTimes
    asked_ns: int
    planned_ns: int = 0
    began_ns: int = 0
    began_unix_s: float = 0.0
    is_made: bool = False  # made at the optical switch, and read back
    before: TorFlows | None = None  # the flows before the change, once it is made
    made_ns: int = 0
    routed_ns: int = 0  # when the fast path's routes were set
    are_tors_told: bool = False
    settled_ns: int = 0
    lit_ns: int | None = None
    resolution_ns: int = 0

    @property
    def due_ns(self) -> int:
        """The time from which the ports may carry light."""
        return self.began_ns + self.dark_ns

    @property
    def dark_ns(self) -> int:
        """The dark time of the port that is lit last."""
        return self.times.longest.total_ns


@dataclass(frozen=True, slots=True)
class Errand:
    """The controller's current task, from an event to its end.

    `out` has the tasks without an answer yet, `tries` the number of times that each switch was sent its
    flows. `rerouted` has the switches whose flows lead round links, until they are told.
    """

    target: frozenset[Circuit] | None = None
    asked_ns: int = 0
    change: Change | None = None
    out: frozenset[Dpid] = frozenset()
    tries: Mapping[Dpid, int] = field(default_factory=dict)
    failures: tuple[tuple[Dpid, Exception], ...] = ()
    rerouted: frozenset[Dpid] = frozenset()

    @property
    def takes_links(self) -> bool:
        """Return whether routes may be led round links meanwhile: every switch has been told, and the errand
        only waits for light, which may take seconds.
        """
        return self.out == {LIGHT} and (self.change is None or self.change.are_tors_told)


@dataclass(frozen=True, slots=True)
class State:
    """The decided circuits, the known contents of each switch, and the current errand.

    `circuits` is None until the optical switch has reported its circuits. `down` names the optical ports and
    core links whose links are down: routes lead round them. `held`: the flows last read back,
    of switches that were sent nothing since. `verified`: the switches that hold what they should, routes
    included, as read back; `failures` says why others do not. `past` is the history for the optical model.
    `failed_locks` counts the transceivers' failed attempts to lock in the whole history, by port.
    """

    premises: Premises
    circuits: frozenset[Circuit] | None
    tor_flows: TorFlows
    history: tuple[ChangeRecord, ...] = ()
    past: tuple[PastTurn, ...] = ()
    failed_locks: Mapping[str, int] = field(default_factory=dict)
    connected: frozenset[Dpid] = frozenset()
    held: Mapping[Dpid, frozenset[Flow]] = field(default_factory=dict)
    verified: frozenset[Dpid] = frozenset()
    failures: Mapping[Dpid, str] = field(default_factory=dict)
    errand: Errand | None = None
    down: frozenset[str] = frozenset()

    @property
    def current(self) -> frozenset[Circuit]:
        """The circuits. TestbedError before they are known."""
        if self.circuits is None:
            raise TestbedError("circuits: the optical switch has not connected yet")
        return self.circuits

    @property
    def dark(self) -> tuple[str, ...]:
        """The optical ports that a change keeps dark now."""
        change = self.errand.change if self.errand else None
        return change.ports if change and change.began_ns else ()

    @property
    def last_decided(self) -> frozenset[Circuit]:
        """The initial circuits, with all changes since. A circuit that was lost without a change is replaced
        by what a later change set at its ports.
        """
        topology = self.premises.topology
        circuits = checked(topology.ocs.circuits, topology.optical_ports)
        for record in self.history:
            removed, added = (
                frozenset(circuit(*pair) for pair in changed) for changed in (record.removed, record.added)
            )
            taken = set(ports_of(added))
            circuits = frozenset(c for c in circuits - removed if taken.isdisjoint(c.ports)) | added
        return circuits

    @property
    def needed(self) -> frozenset[Dpid]:
        """The switches that must hold what they should before everything is ready."""
        topology = self.premises.topology
        optical = {addresses.OXC_DPID} if topology.optical_ports else set()
        return frozenset({*topology.switches, *optical})

    @property
    def is_ready(self) -> bool:
        """Return whether every switch is connected, if it speaks OpenFlow, and holds what it should."""
        return self.needed <= self.verified

    @property
    def lacks(self) -> tuple[str, ...]:
        """A phrase for each switch for which `is_ready` waits."""
        return tuple(self._lack(dpid) for dpid in sorted(self.needed - self.verified))

    def _lack(self, dpid: Dpid) -> str:
        name = addresses.bridge_name(dpid)
        if self.premises.speaks_openflow(dpid) and dpid not in self.connected:
            return f"{name} is not connected"
        why = self.failures.get(dpid)
        return f"{name} is not read back" + (f" ({why})" if why else "")

    @property
    def unsettled(self) -> tuple[Dpid, ...]:
        """The switches that failed to be set or read, and can be retried now. None during an errand."""
        if self.errand is not None:
            return ()
        known = {addresses.OXC_DPID, *self.tor_flows} & self.needed
        return tuple(dpid for dpid in sorted(known - self.verified) if self.can_be_told(dpid))

    def can_be_told(self, dpid: Dpid) -> bool:
        """Return whether the routes of a unit's switch can be set now."""
        if self.premises.speaks_openflow(dpid):
            return dpid in self.connected
        return self.premises.has_plane

    def wanted(self, dpid: Dpid) -> frozenset[Flow]:
        """Return the flows that a switch should hold; for the optical switch, those that a change
        is to set.
        """
        if dpid != addresses.OXC_DPID:
            return self.tor_flows[dpid]
        change = self.errand.change if self.errand else None
        return oxc_flows(change.target if change else self.current)

    def with_circuits(self, circuits: frozenset[Circuit]) -> State:
        """Return the state with these circuits decided."""
        flows = tor_flows(self.premises.topology, circuits, self.down)
        return replace(self, circuits=circuits, tor_flows=flows)

    def with_links(self, down: frozenset[str]) -> State:
        """Return the state in which these links are down, and all others up."""
        state = replace(self, down=down)
        return state if self.circuits is None else state.with_circuits(self.circuits)

    def with_record(self, record: ChangeRecord) -> State:
        """Return the state with one more change in its history."""
        failed_locks = _failed_locks([record], self.failed_locks)
        history, past = (*self.history, record), (*self.past, _past(record))
        return replace(self, history=history, past=past, failed_locks=failed_locks)

    def without_trust(self, *dpids: Dpid) -> State:
        """Return the state in which these switches' contents are unknown."""
        held = {dpid: flows for dpid, flows in self.held.items() if dpid not in dpids}
        return replace(self, held=held, verified=self.verified - set(dpids))

    def turn(self, before: frozenset[Circuit], after: frozenset[Circuit]) -> CircuitTurn:
        """Return the next change, from `before` to `after`, for the optical model."""
        was, will_be = (frozenset(c.ports for c in circuits) for circuits in (before, after))
        return CircuitTurn(len(self.history) + 1, 0.0, was, will_be, self.past)

    def plan(self, demands: Iterable[UnitPair]) -> Plan:
        """Plan the circuits that would serve these pairs of units, and the changes to them."""
        premises = self.premises
        return plan_planes(
            self.current, demands, premises.ports, premises.planes, premises.has_core, self.down
        )

    def tree(
        self, root: Unit, members: Iterable[Unit], waits: bool = False
    ) -> dict[Unit, list[tuple[int, ...]]]:
        """Return by unit the optical ports by which a packet from `root` reaches the members: one port of
        each tuple; if it `waits` for slots of a timetable, the queued way to each.
        """
        members = list(members)
        for unit in (root, *members):
            self.premises.check_unit(unit)
        units, has_core = self.premises.ports, self.premises.has_core
        if waits:
            others = [unit for unit in members if unit != root]
            return {root: [(queued_way(unit),) for unit in others], **{unit: [] for unit in others}}
        return tree(self.current, units, root, members, has_core, self.down)

    def check_links(self, target: frozenset[Circuit]) -> None:
        """Raise RequestError if a circuit that is to be set up has a port whose link is down."""
        for new in sorted(target - self.current):
            if down := [port for port in new.ports if port in self.down]:
                names = " and ".join(down)
                raise RequestError(
                    f"circuit {new.a}-{new.b}: the link{'s' if len(down) > 1 else ''} of {names} "
                    f"{'are' if len(down) > 1 else 'is'} down; ports whose links are up are accepted"
                )

    def routes(self) -> dict[str, dict[str, str]]:
        """Return the device by which each unit's switches send to each address or network; parallel circuits'
        devices are joined by +.
        """
        return {
            addresses.tor_name(dpid): {
                f"{ip}/{prefix}": "+".join(devices)
                for (ip, prefix), (devices, _) in sorted(routes_of(dpid, flows).items())
            }
            for dpid, flows in self.tor_flows.items()
        }


def begin(topology: Topology, has_plane: bool, history: Iterable[ChangeRecord] = ()) -> State:
    """Return the state of a controller before any switch has connected. Without optical ports there are no
    circuits to wait for.
    """
    premises = Premises(
        topology,
        has_plane,
        topology.ports,
        frozenset(unit.index for unit in topology.units if not unit.data_plane.is_bridge),
    )
    records = tuple(history)
    state = State(
        premises,
        circuits=None,
        tor_flows=NO_TOR_FLOWS,
        history=records,
        past=tuple(map(_past, records)),
        failed_locks=_failed_locks(records),
    )
    return state if topology.optical_ports else state.with_circuits(frozenset())


def _past(record: ChangeRecord) -> PastTurn:
    """Convert a record for the optical model: the end of a timetable lit all circuits anew."""
    removed, added, relit = (
        tuple(_ends(*pair) for pair in changed)
        for changed in (record.removed, record.added, record.relit or ())
    )
    added = added or relit
    return PastTurn(record.id, record.time, removed, added)


def _ends(a: str, b: str) -> Ends:
    return circuit(a, b).ports


def _failed_locks(records: Iterable[ChangeRecord], before: Mapping[str, int] | None = None) -> dict[str, int]:
    """Count failed attempts to lock, by port, in the order of ports: those before, plus these records'."""
    counts = Counter(before)
    for record in records:
        counts.update(record.failed_locks or {})
    return dict(sorted(counts.items(), key=lambda count: addresses.parse_optical_port(count[0])))
