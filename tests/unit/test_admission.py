"""Admission to the places that sum, with places in memory: all or nothing, what each is told and when, a
switch that restarts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from testbed.aggregation.admission import Places
from testbed.aggregation.counts import ProgramCounts
from testbed.aggregation.entries import Entry, Role, Sender, Tick
from testbed.aggregation.forest import Forest, Node, Tree
from testbed.aggregation.grants import group_ip
from testbed.aggregation.packets import Packets
from testbed.aggregation.place_interfaces import HostPlace, Ring, SummingPlace
from testbed.aggregation.program import At, Capacity, DataPlaneProgram, Grant
from testbed.aggregation.segments import NoRoomError
from testbed.aggregation.slots import SlotProgram
from testbed.errors import RequestError, TestbedError
from testbed.plugins import registry
from testbed.topology.load import parse
from testbed.topology.places import Host, Place, at_host
from testbed.wire import spec
from testbed.wire.recovery import Recovery
from tests.forests import p4inc

Call = tuple[str, str, object]
WITHIN = p4inc([(1, 1), (1, 2)])
ACROSS = p4inc([(1, 1), (1, 2), (2, 1)], (3, 2))
WAYS = [{1: [("u1-o1",)], 2: [("u2-o1",)], 3: [("u3-o1",), ("u3-o2",)]}]


class Tor:
    """A place in memory; all places write into one list what they are told."""

    slots = 1024

    def __init__(self, name: str, log: list[Call]) -> None:
        self._name, self._log = name, log
        self.entries: dict[tuple[int, int], Entry] = {}
        self.groups: dict[tuple[int, int], list[str]] = {}
        self.senders: dict[int, Sender] = {}
        self.ticks: list[Tick] = []
        self.before_tick: Callable[[], object] = lambda: None
        self.broken: str | None = None

    def admit(self, number: int, entry: Entry) -> None:
        self._say("admit", number)
        self.entries[number, entry.tree] = entry

    def release(self, number: int, tree: int | None = None) -> None:
        self._say("release", number)
        for kept in (self.entries, self.groups):
            for key in [key for key in kept if key[0] == number and tree in (None, key[1])]:
                del kept[key]  # type: ignore[attr-defined]

    def set_group(
        self, number: int, tree: int, devices: Sequence[str], bundles: Sequence[Sequence[str]] = ()
    ) -> None:
        self._say("set_group", number)
        self.groups[number, tree] = [*devices, *("|".join(bundle) for bundle in bundles)]

    def set_copies(self, number: int, tree: int, members: Sequence[Host], own: bool) -> None:
        self._say("set_copies", number)
        self.groups[number, tree] = [*map(str, members), *(["own"] if own else [])]

    def bind(self, host: int, sender: Sender | None) -> None:
        self._say("bind" if sender else "unbind", host)
        self.senders.pop(host, None)
        if sender:
            self.senders[host] = sender

    def tick(self, tick: Tick) -> None:
        self.before_tick()
        self._say("tick", tick.job)
        self.ticks.append(tick)

    def part(self, _program: str) -> object | None:
        return None

    def restart(self) -> None:
        self._say("restart", 0)
        for kept in (self.entries, self.groups, self.senders):
            kept.clear()

    def _say(self, call: str, subject: int) -> None:
        self._log.append((self._name, call, subject))
        if self.broken == call:
            raise TestbedError(f"{self._name}: {call} failed")


class Hosts:
    """Rings with made-up descriptors."""

    def __init__(self, log: list[Call]) -> None:
        self._log = log
        self.places: dict[Host, Tor] = {}
        self.rings: dict[Host, tuple[int, int, list[int], int]] = {}
        self.groups: dict[tuple[Host, int], tuple[int, list[int], int, int]] = {}  # by host and first tree

    def attach(
        self,
        host: Host,
        job: int,
        generation: int,
        bases: Sequence[int],
        size: int,
        lanes: int,
        first: int = 0,
        port: int = spec.UDP_PORT,
    ) -> Ring:
        self._log.append((str(Place(*host)), "attach", job))
        if first:
            assert (host, first) not in self.groups
            self.groups[host, first] = (generation, list(bases), size, port)
            return Ring(500 + first, 1024, 600 + first, spec.LANES)
        if host in self.rings:
            raise TestbedError(f"{Place(*host)} has a ring")
        self.rings[host] = (job, generation, list(bases), size)
        return Ring(100 + 10 * host[0] + host[1], 1024, 200 + 10 * host[0] + host[1], spec.LANES)

    def detach(self, host: Host, first: int = 0) -> None:
        self._log.append((str(Place(*host)), "detach", first))
        if first:
            del self.groups[host, first]
        else:
            del self.rings[host]

    def place(self, host: Host) -> HostPlace:
        return self.places.setdefault(host, Tor(str(Place(*host)), self._log))


@dataclass
class Switches:
    """Switches in memory, of which none ends."""

    by_dpid: dict[int, SummingPlace]

    def any_ended(self) -> bool:
        return False


UNITS: list[dict[str, object]] = [{"hosts": 3}, {"hosts": 3, "engine": "bmv2"}, {"hosts": 3}]


class World:
    def __init__(
        self,
        jobs: int = 2,
        units: Sequence[dict[str, object]] = UNITS,
        mtu: int = 1500,
        programs: Mapping[str, DataPlaneProgram] | None = None,
    ) -> None:
        units = list(units)
        topology = parse({"units": units, "inc": {"jobs": jobs}, "mtu": mtu}, "test")
        self.log: list[Call] = []
        self.tors = {unit.index: Tor(unit.name, self.log) for unit in topology.units}
        self.hosts = Hosts(self.log)
        switches = Switches(dict(self.tors))
        self.all = Places(topology, switches, self.hosts, threading.Lock(), programs or registry.programs())

    def holds_nothing(self) -> bool:
        places = [*self.tors.values(), *self.hosts.places.values()]
        held = [kept for place in places for kept in (place.entries, place.groups, place.senders)]
        rings = {**self.hosts.rings, **self.hosts.groups}
        return not any(held) and not rings and not self.all.occupancy()


@pytest.fixture
def world() -> World:
    return World()


def test_a_job_in_one_unit_is_told_to_its_tor_and_its_workers(world: World) -> None:
    admission = world.all.admit(7, 3, WITHIN)
    assert world.tors[1].entries[7, 0] == Entry(
        tree=0, generation=3, workers=0b11, places=0, number=0, base=0, size=512, up_base=0,
        result_base=0, self_ip="10.0.1.254", up_ip="0.0.0.0", group_ip="239.192.0.7", lanes=spec.LANES,
    )  # fmt: skip
    assert world.tors[1].entries[7, 0].role is Role.TOP
    assert world.tors[1].groups[7, 0] == ["u1-h1", "u1-h2"]
    assert world.tors[1].senders == {1: Sender(7, 0), 2: Sender(7, 1)}
    assert world.hosts.rings == {(1, 1): (7, 3, [0], 512), (1, 2): (7, 3, [0], 512)}
    env = admission.worker_env(1)
    assert (env.engine, env.trees[0].address, env.slots, env.ring_fd, env.wake_fd) == (
        "xdp",
        "10.0.1.254",
        512,
        112,
        212,
    )
    assert admission.worker_fds(1) == [112, 212]
    world.all.release(7)
    assert world.holds_nothing()


def test_a_workers_window_knows_the_slowest_link_of_its_job() -> None:
    """Sums come no sooner than that one's contributions; a job all of whose links are unshaped has none."""
    hosts = [{"rate_mbps": 20_000}, {"rate_mbps": "unshaped"}, {"rate_mbps": "unshaped"}]
    world = World(units=[{"hosts": hosts}, {"hosts": 3}, {"hosts": [{"rate_mbps": 10_000}] * 3}])
    rates = {}
    for job, forest in enumerate((WITHIN, p4inc([(1, 2), (1, 3)]), ACROSS), 1):
        admission = world.all.admit(job, job, forest, WAYS if forest is ACROSS else ())
        rates[job] = [admission.worker_env(worker).rate_mbps for worker in range(2)]
        world.all.release(job)
    assert rates == {1: [100, 100], 2: [None, None], 3: [50, 50]}


def test_a_job_across_units_sums_at_its_ps_and_passes_where_it_has_no_worker(world: World) -> None:
    world.all.admit(1, 1, WITHIN)
    world.all.release(1)
    world.all.admit(2, 2, p4inc([(2, 3)]))  # so that segments begin elsewhere in u2
    admission = world.all.admit(7, 3, ACROSS, WAYS)
    first, second, transit = (world.tors[unit].entries[7, 0] for unit in (1, 2, 3))
    assert (first.role, first.number, first.workers, first.base, first.up_base) == (
        Role.INNER,
        0,
        0b011,
        0,
        0,
    )
    assert (second.role, second.number, second.workers, second.base) == (Role.INNER, 2, 0b100, 512)
    assert (transit.role, transit.members, transit.size) == (Role.TRANSIT, 0, 0)
    assert {first.up_ip, second.up_ip} == {"10.0.3.2"}
    top = world.hosts.places[3, 2].entries[7, 0]
    assert (top.role, top.workers, top.places) == (Role.TOP, 0, 0b101)
    assert world.hosts.places[3, 2].groups[7, 0] == ["eth0"]
    assert world.tors[1].groups[7, 0] == ["u1-h1", "u1-h2", "u1-o1"]
    assert world.tors[3].groups[7, 0] == ["u3-o1", "u3-o2"]
    assert world.tors[3].senders == {2: Sender(7, None, is_place=True)}
    assert [admission.worker_env(worker).engine for worker in range(3)] == ["xdp", "xdp", "bmv2"]
    assert world.all.occupancy() == {Place(1): 1, Place(2): 2, Place(3, 2): 1}


def test_nobody_sends_before_all_is_told_or_after_something_went(world: World) -> None:
    world.all.admit(7, 3, ACROSS, WAYS)
    calls = [call for _, call, _ in world.log]
    assert calls.index("bind") > max(at for at, (name, call, _) in enumerate(world.log) if call == "admit")
    assert all(
        world.log.index((f"u{unit}", "set_group", 7)) < world.log.index((f"u{unit}", "admit", 7))
        for unit in (1, 2, 3)
    )
    world.log.clear()
    world.all.release(7)
    order = [call for _, call, _ in world.log]
    assert order == ["unbind"] * 4 + ["detach"] * 3 + ["release"] * 4


def test_a_job_without_room_holds_nothing(world: World) -> None:
    for number in (1, 2):
        world.all.admit(number, number, p4inc([(2, number)]))
    before = world.all.occupancy()
    world.log.clear()
    with pytest.raises(NoRoomError, match="admit job 7: u2: it sums for 2 jobs at most"):
        world.all.admit(7, 3, p4inc([(1, 1), (2, 3)], (3, 1)), WAYS)
    assert world.all.occupancy() == before
    assert world.log == [], "segments come first"


@pytest.mark.parametrize("call", ["set_group", "admit", "bind"])
def test_a_place_that_fails_leaves_nothing_behind(world: World, call: str) -> None:
    world.tors[2].broken = call
    with pytest.raises(TestbedError, match=f"u2: {call} failed"):
        world.all.admit(7, 3, ACROSS, WAYS)
    assert world.holds_nothing()
    world.tors[2].broken = None
    world.all.admit(7, 3, ACROSS, WAYS)


def test_a_place_that_fails_to_release_keeps_nothing_elsewhere(world: World) -> None:
    world.all.admit(7, 3, ACROSS, WAYS)
    world.tors[1].broken = "release"
    with pytest.raises(TestbedError, match="u1: release failed"):
        world.all.release(7)
    assert not world.tors[2].entries
    assert not world.tors[3].entries
    assert not world.hosts.rings
    assert world.all.occupancy() == {}


def test_circuits_that_change_send_results_by_other_ports(world: World) -> None:
    world.all.admit(7, 3, p4inc([(1, 1), (2, 1)], (1, 2)), [{1: [("u1-o1",)], 2: []}])
    world.all.reroute(7, [{1: [("u1-o2",)], 3: [("u3-o2",)], 2: []}])
    assert world.tors[1].groups[7, 0] == ["u1-h1", "u1-o2"]
    assert world.tors[3].entries[7, 0].role is Role.TRANSIT
    world.all.reroute(7, [{1: [("u1-o1",)], 2: []}])
    assert world.tors[3].groups[7, 0] == [], "nothing goes on from there any more"
    world.all.reroute(8, [{1: []}])
    world.all.release(7)
    assert world.holds_nothing()


def test_circuits_that_change_are_told_to_all_units_though_one_fails(world: World) -> None:
    world.all.admit(7, 3, p4inc([(1, 1), (3, 1)], (2, 2)), WAYS)
    for unit in (1, 2):
        world.tors[unit].broken = "set_group"
    with pytest.raises(TestbedError, match="u1: set_group failed"):
        world.all.reroute(7, [{1: [("u1-o2",)], 2: [("u2-o2",)], 3: [("u3-o1",)]}])
    assert world.tors[3].groups[7, 0] == ["u3-h1", "u3-o1"]
    world.tors[2].broken = None
    world.all.restart(2, world.tors[2].restart)
    assert world.tors[2].groups[7, 0] == ["u2-o2"], "as of the change that it missed"


def test_the_end_releases_all_jobs_though_one_fails(world: World) -> None:
    world.all.admit(1, 3, p4inc([(1, 1)]))
    world.all.admit(2, 4, p4inc([(2, 1)]))
    world.tors[2].broken = "release"
    with pytest.raises(TestbedError, match="u2: release failed"):
        world.all.close()
    assert not world.tors[1].entries
    assert world.all.occupancy() == {}


def test_a_switch_that_starts_again_has_the_jobs_that_only_pass_there_and_names_the_others(
    world: World,
) -> None:
    world.all.admit(1, 4, p4inc([(2, 3)]))
    world.all.admit(7, 3, p4inc([(1, 1), (3, 1)], (2, 2)), WAYS)
    before = world.tors[2].entries[7, 0], world.tors[2].groups[7, 0]
    assert world.all.restart(2, world.tors[2].restart) == {1: 4}
    assert (world.tors[2].entries[7, 0], world.tors[2].groups[7, 0]) == before
    assert world.tors[2].senders == {2: Sender(7, None, is_place=True)}
    assert (1, 0) not in world.tors[2].entries
    world.all.release(1)
    world.all.release(7)
    assert world.holds_nothing()


def test_what_cannot_be_admitted_is_said_in_one_line(world: World) -> None:
    two = Forest(((1, 1), (1, 2)), (Tree(Node(Place(1), (0, 1))),) * 2)
    for forest, size, message in (
        (WITHIN, 8, "a segment of 8 slots; 32 to 1024 are accepted"),
        (two, 600, "a segment of 600 slots for each of 2 trees; 32 to 512 are accepted"),
    ):
        with pytest.raises(RequestError, match=message):
            world.all.admit(7, 3, forest, size=size)
    assert world.holds_nothing()
    world.all.admit(7, 3, WITHIN)
    with pytest.raises(TestbedError, match="admit job 7: it is admitted already"):
        world.all.admit(7, 3, WITHIN)


CHAIN = Forest(
    ((1, 1), (1, 2), (2, 1)),
    (Tree(Node(Place(1, 1), (0,), (Node(Place(1, 2), (1,), (Node(Place(2, 1), (2,)),)),))),),
)


def test_hosts_in_a_chain_sum_for_their_own_workers_and_hear_from_above(world: World) -> None:
    admission = world.all.admit(7, 3, CHAIN, [{1: [("u1-o1",)], 2: []}])
    first, second, last = (world.hosts.places[host].entries[7, 0] for host in CHAIN.workers)
    assert [entry.role for entry in (first, second, last)] == [Role.TOP, Role.INNER, Role.INNER]
    assert [(entry.workers, entry.places) for entry in (first, second, last)] == [(1, 2), (2, 4), (4, 0)]
    assert (second.up_ip, last.up_ip) == ("10.0.1.1", "10.0.1.2")
    assert {world.tors[unit].entries[7, 0].role for unit in (1, 2)} == {Role.TRANSIT}
    assert world.tors[1].groups[7, 0] == ["u1-h1", "u1-h2", "u1-o1"]
    assert world.hosts.places[1, 1].groups[7, 0] == ["eth0", "sum1"]
    assert world.hosts.places[1, 1].senders == {1: Sender(7, 0)}  # by its loop
    assert world.tors[1].senders == {1: Sender(7, 0, is_place=True), 2: Sender(7, 1, is_place=True)}
    assert {admission.worker_env(rank).trees[0].address for rank in range(3)} == {"169.254.78.1"}
    world.all.release(7)
    assert world.holds_nothing()


def test_a_switch_on_top_sums_its_own_workers_and_the_other_switches(world: World) -> None:
    forest = Forest(((1, 1), (1, 2), (2, 1)), (Tree(Node(Place(1), (0, 1), (Node(Place(2), (2,)),))),))
    world.all.admit(7, 3, forest, [{1: [("u1-o1",)], 2: []}])
    top, below = (world.tors[unit].entries[7, 0] for unit in (1, 2))
    assert (top.role, top.workers, top.places) == (Role.TOP, 0b011, 0b100)
    assert (below.role, below.number, below.up_ip) == (Role.INNER, 2, "10.0.1.254")
    assert world.tors[1].groups[7, 0] == ["u1-h1", "u1-h2", "u1-o1"]
    assert forest.demands() == ((2, 1),)
    lost = world.all.restart(1, world.tors[1].restart)
    assert lost == {7: 3}


@pytest.mark.parametrize("lanes", [64, 101])
def test_a_job_s_packets_have_the_lanes_that_it_asks_for(world: World, lanes: int) -> None:
    admission = world.all.admit(7, 3, WITHIN, packets=Packets(lanes))
    assert world.tors[1].entries[7, 0].lanes == lanes
    endpoint = admission.worker_env(0)
    assert (endpoint.lanes, endpoint.ring_lanes) == (lanes, spec.LANES)


def test_a_job_s_workers_and_those_of_its_next_group_recover_as_it_asks(world: World) -> None:
    assert world.all.admit(6, 3, p4inc([(2, 1)])).worker_env(0).recovery == "window"
    admission = world.all.admit(7, 3, WITHIN, packets=Packets(recovery=Recovery.INTEGRITY))
    assert admission.worker_env(1).recovery == "integrity"


@pytest.mark.parametrize("lanes", [63, 361])
def test_lanes_that_do_not_fit_hold_nothing(world: World, lanes: int) -> None:
    with pytest.raises(RequestError, match=f"packets of {lanes} lanes; 64 to 360 are accepted"):
        world.all.admit(7, 3, WITHIN, packets=Packets(lanes))
    assert world.holds_nothing()


def test_two_trees_have_segments_and_groups_of_their_own(world: World) -> None:
    trees = (Tree(Node(Place(1), (0, 1)), weight=3), Tree(Node(Place(2, 3), (0, 1)), weight=1))
    admission = world.all.admit(7, 3, Forest(((1, 1), (1, 2)), trees), [{}, {1: [], 2: [("u2-o1",)]}])
    assert [admission.worker_env(0).trees[tree].fraction for tree in (0, 1)] == [0.75, 0.25]
    assert admission.grant.size == 256
    assert world.hosts.rings[1, 1] == (7, 3, [0, 0], 256)
    assert world.tors[1].groups == {(7, 0): ["u1-h1", "u1-h2"], (7, 1): ["u1-h1", "u1-h2"]}
    assert world.tors[2].groups == {(7, 1): ["u2-o1"]}
    assert world.all.occupancy() == {Place(1): 1, Place(2, 3): 1}
    world.all.release(7)
    assert world.holds_nothing()


def test_groups_are_in_the_organization_local_scope() -> None:
    assert [group_ip(job) for job in (1, 256, 65535)] == ["239.192.0.1", "239.192.1.0", "239.192.255.255"]


def test_places_run_the_program_that_the_system_names_for_their_engine() -> None:
    world = World(programs={**registry.programs(), "mine": SlotProgram(), "other": SlotProgram()})
    world.all.admit(7, 3, ACROSS, WAYS, programs={"bmv2": "mine"})
    assert (world.tors[1].entries[7, 0].program, world.tors[2].entries[7, 0].program) == ("sum", "mine")
    assert world.hosts.places[3, 2].entries[7, 0].program == "sum"
    world.all.admit(8, 3, p4inc([(1, 3), (3, 1)], (3, 3)), programs={"xdp": "other"})
    assert world.tors[1].entries[8, 0].program == "other"
    assert world.hosts.places[3, 3].entries[8, 0].program == "other", "a host is the fast path's"


def test_a_tick_is_told_to_its_place_as_that_counts_slots(world: World) -> None:
    world.all.admit(6, 1, p4inc([(1, 3)]))
    world.all.admit(7, 3, ACROSS, WAYS)
    base = world.tors[1].entries[7, 0].base
    assert base > 0, "another job is before it"
    world.all.tick(7, 0, Place(1), 5, 517, 40)
    world.all.tick(7, 0, Place(3, 2), 5, 517, 41)
    assert world.tors[1].ticks == [Tick(7, 3, 0, base + 5, 517, age_ms=40)]
    above = world.hosts.places[3, 2]
    assert above.ticks == [Tick(7, 3, 0, above.entries[7, 0].base + 5, 517, age_ms=41)]
    for job, tree, place in ((8, 0, Place(1)), (7, 1, Place(1)), (7, 0, Place(3))):
        with pytest.raises(TestbedError, match=f"^tick job {job}, tree {tree}: it is not summed at {place}$"):
            world.all.tick(job, tree, place, 5, 517, 40)
    world.all.release(7)
    with pytest.raises(TestbedError, match=r"^tick job 7, tree 0: it is not summed at u1$"):
        world.all.tick(7, 0, Place(1), 5, 517, 40)


def test_a_tick_holds_up_nobody_and_what_becomes_of_its_job_meanwhile_is_the_programs_to_see(
    world: World,
) -> None:
    """While a tick is under way its job ends, another comes into its slots, and it is back in others."""
    world.all.admit(7, 3, ACROSS, WAYS)
    base, tor = world.tors[1].entries[7, 0].base, world.tors[1]

    def meanwhile() -> None:
        world.all.release(7)
        world.all.admit(8, 4, WITHIN)
        world.all.admit(7, 5, p4inc([(1, 3)]))

    tor.before_tick = lambda: run_within(meanwhile)
    world.all.tick(7, 0, Place(1), 5, 517, 40)
    assert tor.ticks == [Tick(7, 3, 0, base + 5, 517, age_ms=40)], "in the generation that waited"
    assert (tor.entries[8, 0].base, tor.entries[7, 0].generation) == (base, 5)


def run_within(work: Callable[[], None], within_s: float = 60.0) -> None:
    """Do work on a thread of its own, which must be done within this time."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(within_s)
    assert not thread.is_alive(), "it waits for the tick"


def test_heads_are_told_whom_to_copy_results_for_and_switches_nothing_of_the_tree(world: World) -> None:
    """Worker 0 heads worker 2; the server at u3h2 sums it and worker 1."""
    workers = ((1, 1), (1, 2), (3, 1))
    top = Node(at_host((3, 2)), (1,), (Node(at_host((1, 1)), (0, 2)),))
    admission = world.all.admit(7, 3, Forest(workers, (Tree(top, relayed=True),)))
    assert not any(tor.entries for tor in world.tors.values())
    assert world.tors[1].senders == {1: Sender(7, 0, True, True), 2: Sender(7, 1)}
    assert world.tors[3].senders == {1: Sender(7, 2), 2: Sender(7, None, True, True)}
    head, server = world.hosts.places[1, 1], world.hosts.places[3, 2]
    assert head.groups == {(7, 0): ["(3, 1)", "own"]}
    assert server.groups == {(7, 0): ["(1, 2)", "(1, 1)"]}
    assert (head.entries[7, 0].up_ip, head.entries[7, 0].is_relayed) == ("10.0.3.2", True)
    assert (server.entries[7, 0].role, server.entries[7, 0].is_relayed) == (Role.TOP, True)
    assert admission.worker_env(1).trees[0].address == "10.0.3.2"
    assert world.log.index(("u1h1", "set_copies", 7)) < world.log.index(("u1h1", "admit", 7))
    world.all.release(7)
    assert world.holds_nothing()


@dataclass(frozen=True, slots=True)
class TwoCounts(ProgramCounts):
    """Counts of a program of the test's."""

    slots: int
    places: int

    def lines(self) -> list[str]:
        return [str(self)]

    def notes(self) -> list[str]:
        return []

    def absent(self) -> int:
        return 0


class Counted(Grant):
    """A grant of a program of the test's: slots that are counted."""

    def counts(self, job: int, forest: Forest, at: At) -> TwoCounts:
        return TwoCounts(self.size, len(forest.places))

    def failure(self, forest: Forest, at: At) -> str | None:
        return "it has no more" if len(forest.workers) > 2 else None


class Raising(Counted):
    """One whose program has faults."""

    def counts(self, job: int, forest: Forest, at: At) -> TwoCounts:
        raise KeyError("made")

    def failure(self, forest: Forest, at: At) -> str | None:
        raise ValueError("two\nlines")


class Halves(SlotProgram):
    """A program of the test's: a job has half of what it would have of the core's."""

    name = "halves"

    def grant(
        self, job: int, forest: Forest, packets: Packets, capacity: Capacity, size: int | None
    ) -> Grant:
        return Counted(super().grant(job, forest, packets, capacity, size).size // 2)


def test_a_program_that_raises_where_it_is_asked_is_a_line_about_its_job() -> None:
    class Faulty(Halves):
        def grant(self, *arguments: Any) -> Grant:
            return Raising(super().grant(*arguments).size)

    world = World(programs={**registry.programs(), "halves": Halves(), "faulty": Faulty()})
    world.all.admit(1, 1, WITHIN, programs={"xdp": "faulty", "bmv2": "faulty"})
    world.all.admit(2, 2, p4inc([(3, 1), (3, 2), (3, 3)]), programs={"xdp": "halves", "bmv2": "halves"})
    assert world.all.failures() == {
        1: "its program's failure raised ValueError: two",
        2: "it has no more",
    }
    with pytest.raises(TestbedError, match=r"^job 1: its program's counts raised KeyError: 'made'$"):
        world.all.counts(1)


def test_a_program_that_admission_does_not_know_says_what_a_job_has() -> None:
    world = World(programs={**registry.programs(), "halves": Halves()})
    halves = {"xdp": "halves", "bmv2": "halves"}
    world.all.admit(1, 1, WITHIN, programs=halves)
    assert [(entry.program, entry.size) for entry in world.tors[1].entries.values()] == [("halves", 256)]
    world.all.admit(2, 2, p4inc([(3, 1), (3, 2), (3, 3)]), programs=halves)
    assert world.all.counts(1) == TwoCounts(256, 1)
    assert world.all.failures() == {2: "it has no more"}
    assert world.all.counts(3) is None
    for programs, why in (
        ({"bmv2": "thirds"}, r"^no program 'thirds'; accepted are sum, .*, halves$"),
        ({"bmv2": "blocks"}, r"^programs blocks and sum sum in block records and slots: no tree has both$"),
    ):
        with pytest.raises(RequestError, match=why):
            world.all.admit(3, 1, ACROSS, WAYS, programs=programs)
    world.all.release(1)
    world.all.release(2)
    world.all.admit(1, 3, WITHIN, programs={"bmv2": "halves"})  # no place of its has that engine
    assert world.tors[1].entries[1, 0].size == 512
    world.all.release(1)
    assert world.holds_nothing()


def test_programs_that_share_out_slots_do_so_from_one_pool() -> None:
    world = World(2, [{"hosts": 4}], programs={**registry.programs(), "halves": Halves()})
    owned = Forest(((1, 1), (1, 2)), (Tree(Node(Place(1), (0, 1)), owner=(1, 4)),))
    world.all.admit(1, 1, p4inc([(1, 3)]))
    admission = world.all.admit(2, 2, owned, [{}], programs={"xdp": "owned"})
    assert (world.tors[1].entries[1, 0].base, admission.bases[0, Place(1)]) == (0, 512)
    with pytest.raises(NoRoomError, match=r"^admit job 3: u1: it sums for 2 jobs at most"):
        world.all.admit(3, 3, p4inc([(1, 1)]), programs={"xdp": "halves"})


def test_a_place_at_a_host_has_the_terms_of_the_program_that_it_runs() -> None:
    world = World()
    forest = Forest(((1, 1), (1, 2)), (Tree(Node(at_host((1, 3)), (0, 1))),))
    world.all.admit(1, 1, forest, programs={"xdp": "blocks"})
    (entry,) = world.hosts.places[1, 3].entries.values()
    assert (entry.program, entry.terms is None) == ("blocks", False)
