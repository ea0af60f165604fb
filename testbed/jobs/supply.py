"""Supply jobs with parts of the network: circuits, places that sum, rates of links. Thread-safe.

Jobs request circuits themselves, for all their demands together, unless a policy decides on circuits
(`left_to_policy`): then only the policy sets them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from testbed.aggregation.admission import Places
from testbed.aggregation.counts import ProgramCounts
from testbed.aggregation.forest import Forest, joined_by
from testbed.aggregation.grants import Admission, Group
from testbed.aggregation.packets import AS_USUAL, Packets
from testbed.aggregation.program import Clock, Findings
from testbed.aggregation.result_ports import ways
from testbed.aggregation.segments import NoRoomError
from testbed.aggregation.site import Site, joined_mbps
from testbed.aggregation.system import Layout, System
from testbed.errors import RequestError, TestbedError
from testbed.jobs.attempt import traffic_of
from testbed.jobs.claimed_circuits import ClaimedCircuits
from testbed.jobs.held_hosts import Holdings
from testbed.jobs.placement import check_packets, laid_out
from testbed.machine.interface import Links
from testbed.messages.coding import decode, plain
from testbed.messages.controller import CircuitTargets, KeptSchedule, LinksDown, LitCircuits, NetworkLight
from testbed.messages.timetable import MatchingStatus, TimetableStatus
from testbed.ocs.circuits import Circuit, carrying, circuit
from testbed.ocs.demanded import demanded
from testbed.ocs.plan import plan_planes, servable
from testbed.ocs.routes import next_hops
from testbed.ocs.routing import at_best
from testbed.ocs.timetable import Timetable, parse
from testbed.plugins.registry import find
from testbed.plugins.user_class import is_users
from testbed.telemetry.forecast import Forecast, Prospect, forecast
from testbed.telemetry.network import LitNetwork, network
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.places import Host, Place
from testbed.topology.units import UnitPair

BACK_WITHIN_S = 30.0  # how long to wait for a switch that ended and is restarted
_LOOK_S = 0.05

Controller = Callable[..., Any]  # (op, **arguments) -> result
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Start:
    """The terms of a job's start. Without a policy, the job requests circuits itself, and is laid out by
    another system if there is no room (System.instead). With a policy (`by_policy`), the circuits are lit,
    and a place without room is an error. `rate_mbps` is the rate of its workers' links; None: unchanged.
    `packets` says how its gradients are carried.
    """

    layout: Layout
    by_policy: bool = False
    rate_mbps: float | None = None
    packets: Packets = AS_USUAL


@dataclass(frozen=True, slots=True)
class Share:
    """A job's share of the network: its final layout, and its places, if it has any. `note` says why the
    layout differs from the requested one.
    """

    layout: Layout
    admission: Admission | None = None
    note: str | None = None


class Supply:
    """Gives a testbed's network to jobs."""

    def __init__(
        self,
        topology: Topology,
        links: Links,
        places: Places,
        controller: Controller,
        holdings: Holdings,
    ) -> None:
        self._links, self._places, self._mtu = links, places, topology.mtu
        self._engines = {unit.index: unit.engine for unit in topology.units}
        self._controller, self._holdings = controller, holdings
        self._topology = topology
        self._own_mbps = topology.emulated_host_mbps
        self._has_core = topology.core_link is not None
        self._ports, self._planes = topology.ports, topology.planes
        self._is_left = False
        self.claimed = ClaimedCircuits(topology, controller, holdings.layouts, lambda: self._is_left)
        self._optics = threading.Lock()  # one job at a time requests circuits; acquired before the holdings'

    # ------------------------------------------------------------------ shares

    def give(self, number: int, generation: int, start: Start) -> Share:
        """Give a job its circuits, places and rates. If it raises, the job has none of them."""
        share = (
            self._by_policy(number, generation, start)
            if start.by_policy
            else self._by_request(number, generation, start)
        )
        try:
            if start.rate_mbps is not None:
                self.set_rate(share.layout, start.rate_mbps)
        except TestbedError:
            self.take_back(number, start)
            raise
        return share

    def give_again(self, number: int, generation: int, start: Start, given_up: Callable[[], bool]) -> Share:
        """Call `give`; if a switch ended meanwhile, wait until it is back or `given_up`, and call it
        again.
        """
        return outliving_switches(lambda: self.give(number, generation, start), self._places, given_up)

    def take_back(self, number: int, start: Start) -> None:
        """Take back a job's places and its links' rates, each even if the other fails."""
        with contextlib.ExitStack() as after:
            if start.layout.forest is not None:
                after.callback(self._places.release, number)
            if start.rate_mbps is not None:
                rates = {host: self._rate_mbps(host) for host in start.layout.workers}
                self._set_rates({host: rate for host, rate in rates.items() if rate is not None})

    def give_group(self, number: int, layout: Layout, group: Group) -> Admission:
        """Give some of a job's workers their own trees, laid out by the job's system on the job's hosts only,
        over the present circuits. Raises NoRoomError if there is no room, TestbedError if it is impossible.
        """
        if is_users(layout.system):
            raise RequestError(f"{layout.system} is a user's own system, which lays out whole jobs")
        workers = [layout.workers[rank] for rank in group.ranks]
        with self._optics:  # so that a change of circuits meanwhile reroutes it too
            site = self.site(number, layout.server)
            group_layout = laid_out(find(layout.system), workers, site, self._engines)
            if group_layout.forest is None or not group_layout.hosts() <= layout.hosts():
                raise RequestError(f"{layout.system} needs more hosts for them than the job has")
            lit = decode(LitCircuits, self._controller("circuits"), "circuits")
            if lit.timetable and (why := hindrance(group_layout, lit.timetable, self._topology, lit.down)):
                raise RequestError(f"a timetable runs: {why}")
            way = ways(group_layout.forest, self._controller)
            generation = self._holdings.generation()
            return self._places.admit_group(number, generation, group_layout.forest, group, way)

    def take_group_back(self, group: Admission) -> None:
        """Take back the places of a group, if it still has them."""
        self._places.release_group(group)

    def set_rate(self, layout: Layout, rate_mbps: float) -> None:
        """Set the rate of the workers' links. Raises SettingError if it did not take effect."""
        self._set_rates(dict.fromkeys(layout.workers, rate_mbps))

    def slowest_by_hand(self, layout: Layout) -> float | None:
        """Return the rate of the slowest link of a job's hosts, if a user has set any of them by hand;
        otherwise None: the topology's rate holds.
        """
        if all(self._links.by_hand_mbps(addresses.host_name(*host)) is None for host in layout.hosts()):
            return None
        rates = [self._rate_mbps(host) for host in layout.hosts()]
        return min((rate for rate in rates if rate is not None), default=None)

    def _rate_mbps(self, host: Host) -> float | None:
        """Return the rate of a host's link without a policy: set by hand, or the topology's."""
        by_hand = self._links.by_hand_mbps(addresses.host_name(*host))
        return self._own_mbps(*host) if by_hand is None else by_hand

    def _set_rates(self, rates_mbps: Mapping[Host, float]) -> None:
        self._links.set_rates({addresses.host_name(*host): rate for host, rate in rates_mbps.items()})

    def _by_policy(self, number: int, generation: int, start: Start) -> Share:
        forest = start.layout.forest
        if forest is None:
            return Share(start.layout)
        with self._optics:  # so that a change of circuits meanwhile reroutes it too
            return Share(start.layout, self._admit(number, generation, start.layout, start.packets))

    def _by_request(self, number: int, generation: int, start: Start) -> Share:
        layout = start.layout
        with self._optics:
            self._ask_for_circuits(number, layout)
            if layout.forest is None:
                return Share(layout)
            try:
                return Share(layout, self._admit(number, generation, layout, start.packets))
            except NoRoomError as error:
                full = error
                layout = self._lay_out_instead(number, layout, start.packets, full)
                self._ask_for_circuits(number, layout)
            admission = None
            if layout.forest is not None:
                admission = self._admit(number, generation, layout, start.packets)
        server = f", whose server is on {addresses.host_name(*layout.server)}" if layout.server else ""
        return Share(layout, admission, note=f"no room ({full}): summed by {layout.system}{server}")

    def forecast(
        self, layout: Layout, packets: Packets, size_bytes: int, by_policy: bool = False
    ) -> Forecast:
        """Compute the bound of an all-reduce by a job with this layout, over the circuits that it would have:
        for a policy's job those that it demands, without other jobs, by turns where ports do not suffice for
        all at once. Holds nothing. Raises NoRoomError if places have no room for it now, RequestError if it
        cannot have circuits.
        """
        if layout.forest is not None:
            completed = replace(packets, usual=layout.usual_options)
            self._places.require_room(layout.forest, completed, layout.programs)
        circuits, light, down = frozenset[Circuit](), LitNetwork(), frozenset[str]()
        others = () if by_policy else tuple(self._holdings.layouts().values())
        if by_policy:
            circuits, light = self._by_turns(layout)
        elif layout.demands:
            present = self._present()
            circuits, light = self._would_be_lit(layout, present)
            down = frozenset(present.down)
        prospect = Prospect(
            self._rates_mbps(),
            tuple(unit.index for unit in self._topology.units),
            circuits,
            self._has_core,
            light,
            [traffic_of(other, self._mtu, None) for other in others],
            down,
        )
        return forecast(traffic_of(layout, self._mtu, packets.lanes), size_bytes, prospect)

    def _by_turns(self, layout: Layout) -> tuple[frozenset[Circuit], LitNetwork]:
        """Return the circuits that a policy can light for a job with this layout. If ports do not suffice for
        all at once, a policy that rotates circuits lights them in turn: then return the light of as few equal
        time slots as suffice. Raises RequestError if a demand fits in none.
        """
        ports, left = self._topology.scheduled_ports, list(layout.demands)
        planes = {port: plane for port, plane in self._planes.items() if plane == self._topology.first_plane}
        if self._has_core:
            left = servable(left, ports, planes)
        turns: list[frozenset[Circuit]] = []
        while left or not turns:
            served = servable(left, ports, planes) or left
            turns.append(plan_planes(frozenset(), served, ports, planes, self._has_core).target)
            left = [pair for pair in left if pair not in served]
        if len(turns) == 1:
            return turns[0], LitNetwork()
        matchings = tuple(
            MatchingStatus(number, tuple(each.ports for each in sorted(turn)))
            for number, turn in enumerate(turns)
        )
        return self._in_turn(TimetableStatus(len(turns), 0, matchings), frozenset())

    def _would_be_lit(self, layout: Layout, present: LitCircuits) -> tuple[frozenset[Circuit], LitNetwork]:
        """Return the circuits that a job with this layout would have, and the light of the timetable that
        runs, if one does: then the circuits are those of all its matchings.
        """
        timetable = present.timetable
        if timetable is None:
            demands = self._demanded(None, layout, present)
            return self._planned(layout, demands, present), LitNetwork()
        if why := hindrance(layout, timetable, self._topology, present.down):
            raise RequestError(f"a timetable runs: {why}")
        return self._in_turn(timetable, present.down)

    def _in_turn(
        self, timetable: TimetableStatus, down: Collection[str]
    ) -> tuple[frozenset[Circuit], LitNetwork]:
        """Return the circuits of all matchings of a timetable, and its light."""
        kept = KeptSchedule(timetable, 0, None)
        state = NetworkLight((), (kept,), {}, (), 0, (LinksDown(0, tuple(down)),))
        units = [unit.index for unit in self._topology.units]
        matchings = [frozenset(circuit(*pair) for pair in each.circuits) for each in timetable.matchings]
        light = network(units, self._has_core, state, state, (), 0.0, 0.0)
        return carrying(frozenset.intersection(*matchings), down), light

    def _rates_mbps(self) -> dict[str, float | None]:
        """Return the rate of each link without a policy, by name."""
        topology = self._topology
        hosts = {addresses.host_name(*host): self._own_mbps(*host) for host in topology.hosts}
        between = [*topology.optical_ports, *(link for unit in topology.units for link in unit.links)]
        rates = {link: topology.emulated_mbps(topology.declared_mbps(link)) for link in between} | hosts
        return {
            link: rate if (by_hand := self._links.by_hand_mbps(link)) is None else by_hand
            for link, rate in rates.items()
        }

    def _admit(self, number: int, generation: int, layout: Layout, packets: Packets) -> Admission:
        assert layout.forest is not None
        way = ways(layout.forest, self._controller)
        packets = replace(packets, usual=layout.usual_options)
        programs = layout.programs
        return self._places.admit(number, generation, layout.forest, way, packets=packets, programs=programs)

    # ------------------------------------------------------------------ layouts

    def site(self, beside: int | None = None, kept: Host | None = None) -> Site:
        """Return the testbed's state for a system to lay out on; hosts of the job `beside` count as free."""
        pairs = decode(LitCircuits, self._controller("circuits"), "circuits").carrying
        joined = frozenset(frozenset(addresses.parse_optical_port(end)[0] for end in pair) for pair in pairs)
        rates = joined_mbps(self._topology, pairs)
        return Site(self._holdings.racks, self._holdings.busy(beside), joined, kept, joined_mbps=rates)

    def lay_out(self, system: System, workers: Sequence[Host], site: Site, packets: Packets) -> Layout:
        """Lay these workers out by a system. Raises RequestError if it has no layout for them, no program for
        one of its switches, or none for its packets.
        """
        layout = laid_out(system, workers, site, self._engines)
        check_packets(layout, packets, self._engines, self._mtu)
        return layout

    def lay_out_again(self, number: int, layout: Layout, packets: Packets, spared: frozenset[Host]) -> Layout:
        """Lay a restarting job out by its own system, on the same workers and with the same server, so that
        the spared hosts sum for no other. Return the same layout if its system does not choose which hosts
        sum, or cannot do without them.
        """
        if not spared or is_users(layout.system) or not find(layout.system).chooses_heads:
            return layout
        site = replace(self.site(number, layout.server), spared=spared)
        try:
            other = self.lay_out(find(layout.system), layout.workers, site, packets)
        except RequestError:
            return layout
        return other if self._holdings.replace(number, other) else layout

    def _lay_out_instead(self, number: int, layout: Layout, packets: Packets, full: NoRoomError) -> Layout:
        """Lay the job out by its system's replacement (System.instead) after no place had room, on the same
        workers and with the same server, if any. Raises `full` if there is no replacement, RequestError if
        that finds no host or has no program. Packets have lanes only if a place sums them.
        """
        instead = None if is_users(layout.system) else find(layout.system).instead
        if instead is None:
            raise full
        while True:  # other jobs may acquire hosts while a system lays the job out
            site = self.site(number, layout.server)
            other = laid_out(find(instead), layout.workers, site, self._engines)
            if other.forest is not None:
                check_packets(other, packets, self._engines, self._mtu)
            if self._holdings.replace(number, other):
                return other

    def counts(self, number: int) -> ProgramCounts | None:
        """Read a job's counts from its program; None if it counts none. Raises TestbedError if the program
        raises.
        """
        return self._places.counts(number)

    def look(self, number: int, clock: Clock) -> Findings:
        """Run one check of a job's places."""
        return self._places.look(number, clock)

    def taken(self, place: Place) -> int:
        """Return how many jobs have segments at a place."""
        return self._places.occupancy().get(place, 0)

    # ------------------------------------------------------------------ circuits

    @contextlib.contextmanager
    def left_to_policy(self) -> Iterator[None]:
        """Let a policy decide on the circuits while the block runs. Raises RequestError if a job has circuits
        of its own.
        """
        # set before the search for jobs with circuits: a job reads this flag after it has joined them
        self._is_left = True
        try:
            joining = [number for number, layout in self._holdings.layouts().items() if layout.demands]
            if joining:
                raise RequestError(
                    f"job {joining[0]} of testbed run has circuits of its own; wait for its end, or end it"
                )
            yield
        finally:
            self._is_left = False

    @property
    def is_left_to_policy(self) -> bool:
        """Return whether a policy decides on the circuits now."""
        return self._is_left

    def across_units(self) -> dict[int, Layout]:
        """Return the jobs, by number, whose sums cross the optical switch."""
        layouts = self._holdings.layouts()
        return {number: each for number, each in layouts.items() if each.forest and each.demands}

    def follow_circuits(self, failed: Callable[[int, str], object] | None = None) -> None:
        """Route the results of running jobs over the present circuits, after any change of them.

        A job that the new circuits cut off waits, with its routes unchanged; a later change may reconnect it.
        If the kernel refuses a job's new route, calls `failed` with its number and the reason; without
        `failed`, raises OSError.
        """
        with self._optics:
            for number in self.across_units():
                try:
                    self._reroute(number)
                except TestbedError:
                    pass  # the job is cut off
                except OSError as error:
                    if failed is None:
                        raise
                    failed(number, f"send results by the circuits that there are: {error.strerror or error}")

    def _ask_for_circuits(self, number: int, layout: Layout) -> None:
        if not layout.demands:
            return
        lit = self._present()
        if lit.timetable is not None:
            if why := hindrance(layout, lit.timetable, self._topology, lit.down):
                raise RequestError(
                    f"a timetable runs: {why}; place the job within one unit, sum by ring or ps, or end the "
                    "timetable: circuits unschedule"
                )
            return
        if self._request(number, layout, lit):
            for other in self.across_units():
                if other != number:
                    self._reroute(other)

    def _request(self, number: int, layout: Layout, lit: LitCircuits) -> bool:
        """Request circuits for a job, and return whether any changed. Those that running jobs asked for stay,
        in place of these jobs' usual demands.
        """
        if self.claimed.by_job():
            return self.claimed.request(layout)
        demands = self._demanded(number, layout, lit)
        if lit.down:
            self._planned(layout, demands, lit)  # before anything changes
        return bool(demands) and self._controller("request", demands=demands) is not None

    def _present(self) -> LitCircuits:
        """Return the present circuits. Raises RequestError if a policy decides on them."""
        if self._is_left:
            raise RequestError(
                "the circuits are the scheduler's while jobs are queued (testbed status): place the job "
                "within one unit, or wait"
            )
        return decode(LitCircuits, self._controller("circuits"), "circuits")

    def _demanded(self, number: int | None, layout: Layout, lit: LitCircuits) -> list[list[str]]:
        """Return the pairs of units, by name, that a job requests beside those of the other jobs; `number` is
        its own, if it has one.
        """
        layouts = self._holdings.layouts().items()
        others = joined_by(pair for job, each in layouts if job != number for pair in each.demands)
        present = frozenset(circuit(*pair) for pair in lit.circuits)
        pairs = demanded(layout.demands, others, present, self._ports, self._planes, self._has_core, lit.down)
        return [[addresses.unit_name(a), addresses.unit_name(b)] for a, b in pairs]

    def _planned(self, layout: Layout, demands: list[list[str]], lit: LitCircuits) -> frozenset[Circuit]:
        """Return the circuits that carry light after a request. Raises RequestError if ports do not suffice
        for it, or if links that are down leave no way between two of the job's units.
        """
        answer = self._controller("plan", demands=demands) if demands else None
        target = decode(CircuitTargets, answer, "plan").target if answer else lit.circuits
        if lit.down:
            joined = joined_by_circuits(target, self._topology, lit.down)
            are = f"{', '.join(sorted(lit.down))} {'is' if len(lit.down) == 1 else 'are'} down"
            if why := _apart(layout.demands, joined, f"{are}: no way is left between"):
                raise RequestError(f"{why}; units with a way between them are accepted")
        return carrying((circuit(*pair) for pair in target), lit.down)

    def _reroute(self, number: int) -> None:
        layout = self._holdings.layouts().get(number)
        if layout is None or not layout.forest:
            return
        groups = [(group.first, group.forest) for group in self._places.groups(number)]
        failures = []
        # a group that is cut off must not stop the others
        for first, forest in ((0, layout.forest), *groups):
            try:
                self._places.reroute(number, ways(forest, self._controller), first)
            except TestbedError as error:
                failures.append(error)
        if failures:
            raise failures[0]


def hindrance(
    layout: Layout, timetable: TimetableStatus | Timetable, topology: Topology, down: Collection[str] = ()
) -> str | None:
    """Say why a job cannot be summed while this timetable runs; None if it can. Packets may wait for no slot;
    no matching may join two of its units, by ports that are not `down`; places in several units may sum it,
    whose results go by direct circuits alone, and not over a core.
    """
    if not layout.demands:
        return None
    if not topology.has_calendar:
        return "packets wait for no slot here (ocs.calendar_packets, mtu)"
    table = timetable if isinstance(timetable, Timetable) else parse(plain(timetable), None)
    units, has_core = [unit.index for unit in topology.units], topology.core_link is not None
    if layout.forest is not None and has_core:
        return "places in several units sum it, and over a core results wait for no slot"
    joined = at_best(units, table, has_core, down).reached()
    if layout.forest is None:
        return _apart(layout.demands, joined, "no matching joins")
    direct = at_best(units, replace(table, routing="direct", hops=()), has_core, down).reached()
    return _apart(layout.demands, joined, "no matching joins") or _apart(
        _of_results(layout.forest), direct, "no matching has a direct circuit, as results need it, between"
    )


def _of_results(forest: Forest) -> list[UnitPair]:
    """Return the pairs of units between which results go from a tree's top to workers by themselves."""
    workers = {unit for unit, _ in forest.workers}
    tops = {tree.top.place.unit for tree in forest.trees if not tree.relayed}
    return sorted((top, unit) for top in tops for unit in workers - {top})


def joined_by_circuits(
    circuits: Iterable[Sequence[str]], topology: Topology, down: Collection[str] = ()
) -> set[UnitPair]:
    """Return the pairs of units between which these circuits lead, over others too, or a core; links that are
    `down` lead nowhere.
    """
    units = [unit.index for unit in topology.units]
    has_core = topology.core_link is not None
    hops = next_hops(frozenset(circuit(*pair) for pair in circuits), units, has_core, down)
    return {(a, b) for a in units for b in hops[a]}


def stranded(
    layout: Layout, circuits: Iterable[Sequence[str]], topology: Topology, down: Collection[str] = ()
) -> str | None:
    """Say which units of a job have no way to each other once a timetable ends; None if all have."""
    joined = joined_by_circuits(circuits, topology, down)
    return _apart(layout.demands, joined, "the circuits of before do not join")


def _apart(pairs: Iterable[UnitPair], joined: Collection[UnitPair], what: str) -> str | None:
    for a, b in pairs:
        if (a, b) not in joined:
            names = f"{addresses.unit_name(a)} and {addresses.unit_name(b)}"
            return f"{what} {names}, between which the job sends"
    return None


def outliving_switches(
    attempt: Callable[[], T],
    places: Places,
    given_up: Callable[[], bool],
    within_s: float = BACK_WITHIN_S,
) -> T:
    """Call `attempt`, again each time that a switch ended meanwhile and is back, and return its result.
    Raises its error if that takes longer than `within_s` from the first failure, or is given up.
    """
    deadline: float | None = None
    while True:
        before = places.restarts()
        try:
            return attempt()
        except RequestError:
            raise
        except TestbedError:
            if before is not None and places.restarts() == before:
                raise  # no switch ended: the error has another cause
            deadline = deadline or time.monotonic() + within_s
            if time.monotonic() > deadline:
                raise
            while places.restarts() is None:
                if given_up() or time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_S)
