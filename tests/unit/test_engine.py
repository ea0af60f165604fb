"""Admission to the places that sum, with places in memory: all or nothing, what each is told and when, a
switch that restarts.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from testbed.errors import RequestError, TestbedError
from testbed.inc.engine import Aggregator, Engine, Member, Ring, Summing, group_ip
from testbed.inc.job import Job, Role, Sender
from testbed.inc.segments import NoRoomError
from testbed.topology import addresses
from testbed.topology.load import parse

Call = tuple[str, str, object]
WITHIN = [Member(0, 1, 1), Member(1, 1, 2)]
ACROSS = [Member(0, 1, 1), Member(1, 1, 2), Member(2, 2, 1)]
TREES = {1: ["u1-o1"], 2: ["u2-o1"], 3: ["u3-o1", "u3-o2"]}


class Tor:
    """A place in memory; all places write into one list what they are told."""

    slots = 1024

    def __init__(self, name: str, log: list[Call]) -> None:
        self._name, self._log = name, log
        self.jobs: dict[int, Job] = {}
        self.groups: dict[int, list[str]] = {}
        self.senders: dict[int, Sender] = {}
        self.broken: str | None = None

    def admit(self, number: int, job: Job) -> None:
        self._say("admit", number)
        self.jobs[number] = job

    def release(self, number: int) -> None:
        self._say("release", number)
        self.jobs.pop(number, None)
        self.groups.pop(number, None)

    def set_group(self, number: int, devices: Sequence[str]) -> None:
        self._say("set_group", number)
        self.groups[number] = list(devices)

    def bind(self, host: int, sender: Sender | None) -> None:
        self._say("bind" if sender else "unbind", host)
        self.senders.pop(host, None)
        if sender:
            self.senders[host] = sender

    def restart(self) -> None:
        self._say("restart", 0)
        for kept in (self.jobs, self.groups, self.senders):
            kept.clear()

    def _say(self, call: str, subject: int) -> None:
        self._log.append((self._name, call, subject))
        if self.broken == call:
            raise TestbedError(f"{self._name}: {call} failed")


class Hosts:
    """Rings with made-up descriptors."""

    def __init__(self, log: list[Call]) -> None:
        self._log = log
        self.places: dict[tuple[int, int], Tor] = {}
        self.rings: dict[tuple[int, int], tuple[int, int, int, int]] = {}

    def attach(self, unit: int, host: int, job: int, generation: int, base: int, size: int) -> Ring:
        self._log.append((f"u{unit}h{host}", "attach", job))
        if (unit, host) in self.rings:
            raise TestbedError(f"u{unit}h{host} has a ring")
        self.rings[unit, host] = (job, generation, base, size)
        return Ring(100 + 10 * unit + host, 1024, 200 + 10 * unit + host)

    def detach(self, unit: int, host: int) -> None:
        self._log.append((f"u{unit}h{host}", "detach", 0))
        del self.rings[unit, host]

    def parameter_server(self, unit: int, host: int) -> Summing:
        return self.places.setdefault((unit, host), Tor(f"u{unit}h{host}", self._log))


class World:
    def __init__(self, jobs: int = 2) -> None:
        units = [{"hosts": 3}, {"hosts": 3, "engine": "bmv2"}, {"hosts": 3}]
        topology = parse({"units": units, "inc": {"jobs": jobs}}, "test")
        self.log: list[Call] = []
        self.tors = {unit.index: Tor(unit.name, self.log) for unit in topology.units}
        self.hosts = Hosts(self.log)
        tors: dict[int, Aggregator] = dict(self.tors)
        self.engine = Engine(topology, tors, self.hosts, threading.Lock())

    def holds_nothing(self) -> bool:
        places = [*self.tors.values(), *self.hosts.places.values()]
        held = [kept for place in places for kept in (place.jobs, place.groups, place.senders)]
        return not any(held) and not self.hosts.rings and not self.engine.occupancy()


@pytest.fixture
def world() -> World:
    return World()


def test_a_job_in_one_unit_is_told_to_its_tor_and_its_workers(world: World) -> None:
    admission = world.engine.admit(7, 3, WITHIN)
    assert world.tors[1].jobs[7] == Job(
        members=0b11, generation=3, role=Role.FINAL, base=0, size=512, total=2, local=2, index=0,
        up_base=0, self_ip="10.0.1.254", up_ip="0.0.0.0", group_ip="239.192.0.7",
    )  # fmt: skip
    assert world.tors[1].groups[7] == ["u1-h1", "u1-h2"]
    assert world.tors[1].senders == {1: Sender(7, 0), 2: Sender(7, 1)}
    assert world.hosts.rings == {(1, 1): (7, 3, 0, 512), (1, 2): (7, 3, 0, 512)}
    env = admission.worker_env(1)
    assert (env["engine"], env["address"], env["slots"], env["ring_fd"], env["wake_fd"]) == (
        "xdp",
        "10.0.1.254",
        512,
        112,
        212,
    )
    assert admission.worker_fds(1) == [112, 212]
    world.engine.release(7)
    assert world.holds_nothing()


def test_a_job_across_units_sums_at_its_ps_and_passes_where_it_has_no_worker(world: World) -> None:
    world.engine.admit(1, 1, WITHIN)
    world.engine.release(1)
    world.engine.admit(2, 2, [Member(0, 2, 3)])  # so that segments begin elsewhere in u2
    admission = world.engine.admit(7, 3, ACROSS, (3, 2), TREES)
    first, second, transit = (world.tors[unit].jobs[7] for unit in (1, 2, 3))
    assert (first.role, first.index, first.members, first.base, first.up_base) == (
        Role.PARTIAL,
        0,
        0b011,
        0,
        0,
    )
    assert (second.role, second.index, second.members, second.base) == (Role.PARTIAL, 1, 0b100, 512)
    assert (transit.role, transit.members, transit.size) == (Role.TRANSIT, 0, 0)
    assert {first.up_ip, second.up_ip, transit.up_ip} == {"10.0.3.2"}
    assert world.hosts.places[3, 2].jobs[7].members == 0b11
    assert world.tors[1].groups[7] == ["u1-h1", "u1-h2", "u1-o1"]
    assert world.tors[3].groups[7] == ["u3-o1", "u3-o2"]
    assert world.tors[3].senders == {2: Sender(7, None)}
    assert [admission.worker_env(worker)["engine"] for worker in range(3)] == ["xdp", "xdp", "bmv2"]
    assert world.engine.occupancy() == {1: 1, 2: 2, addresses.host_ifindex(3, 2): 1}


def test_nobody_sends_before_all_is_told_or_after_something_went(world: World) -> None:
    world.engine.admit(7, 3, ACROSS, (3, 2), TREES)
    calls = [call for _, call, _ in world.log]
    assert calls.index("bind") > max(at for at, (name, call, _) in enumerate(world.log) if call == "admit")
    assert all(
        world.log.index((f"u{unit}", "set_group", 7)) < world.log.index((f"u{unit}", "admit", 7))
        for unit in (1, 2, 3)
    )
    world.log.clear()
    world.engine.release(7)
    order = [call for _, call, _ in world.log]
    assert order == ["unbind"] * 4 + ["detach"] * 3 + ["release"] * 4


def test_a_job_without_room_holds_nothing(world: World) -> None:
    for number in (1, 2):
        world.engine.admit(number, number, [Member(0, 2, number)])
    before = world.engine.occupancy()
    world.log.clear()
    with pytest.raises(NoRoomError, match="admit job 7: u2: it sums for 2 jobs at most"):
        world.engine.admit(7, 3, [Member(0, 1, 1), Member(1, 2, 3)], (3, 1), TREES)
    assert world.engine.occupancy() == before
    assert world.log == [], "segments come first"


@pytest.mark.parametrize("call", ["set_group", "admit", "bind"])
def test_a_place_that_fails_leaves_nothing_behind(world: World, call: str) -> None:
    world.tors[2].broken = call
    with pytest.raises(TestbedError, match=f"u2: {call} failed"):
        world.engine.admit(7, 3, ACROSS, (3, 2), TREES)
    assert world.holds_nothing()
    world.tors[2].broken = None
    world.engine.admit(7, 3, ACROSS, (3, 2), TREES)


def test_a_place_that_fails_to_release_keeps_nothing_elsewhere(world: World) -> None:
    world.engine.admit(7, 3, ACROSS, (3, 2), TREES)
    world.tors[1].broken = "release"
    with pytest.raises(TestbedError, match="u1: release failed"):
        world.engine.release(7)
    assert not world.tors[2].jobs
    assert not world.tors[3].jobs
    assert not world.hosts.rings
    assert world.engine.occupancy() == {}


def test_circuits_that_change_send_results_by_other_ports(world: World) -> None:
    world.engine.admit(7, 3, [Member(0, 1, 1), Member(1, 2, 1)], (1, 2), {1: ["u1-o1"], 2: []})
    world.engine.reroute(7, {1: ["u1-o2"], 3: ["u3-o2"], 2: []})
    assert world.tors[1].groups[7] == ["u1-h1", "u1-o2"]
    assert world.tors[3].jobs[7].role is Role.TRANSIT
    world.engine.reroute(7, {1: ["u1-o1"], 2: []})
    assert world.tors[3].groups[7] == [], "nothing goes on from there any more"
    world.engine.reroute(8, {1: []})
    world.engine.release(7)
    assert world.holds_nothing()


def test_circuits_that_change_are_told_to_all_units_though_one_fails(world: World) -> None:
    world.engine.admit(7, 3, [Member(0, 1, 1), Member(1, 3, 1)], (2, 2), TREES)
    for unit in (1, 2):
        world.tors[unit].broken = "set_group"
    with pytest.raises(TestbedError, match="u1: set_group failed"):
        world.engine.reroute(7, {1: ["u1-o2"], 2: ["u2-o2"], 3: ["u3-o1"]})
    assert world.tors[3].groups[7] == ["u3-h1", "u3-o1"]
    world.tors[2].broken = None
    world.engine.restart(2, world.tors[2].restart)
    assert world.tors[2].groups[7] == ["u2-o2"], "as of the change that it missed"


def test_the_end_releases_all_jobs_though_one_fails(world: World) -> None:
    world.engine.admit(1, 3, [Member(0, 1, 1)])
    world.engine.admit(2, 4, [Member(0, 2, 1)])
    world.tors[2].broken = "release"
    with pytest.raises(TestbedError, match="u2: release failed"):
        world.engine.close()
    assert not world.tors[1].jobs
    assert world.engine.occupancy() == {}


def test_a_switch_that_starts_again_has_the_jobs_that_only_pass_there_and_names_the_others(
    world: World,
) -> None:
    world.engine.admit(1, 4, [Member(0, 2, 3)])
    world.engine.admit(7, 3, [Member(0, 1, 1), Member(1, 3, 1)], (2, 2), TREES)
    before = world.tors[2].jobs[7], world.tors[2].groups[7]
    assert world.engine.restart(2, world.tors[2].restart) == {1: 4}
    assert (world.tors[2].jobs[7], world.tors[2].groups[7]) == before
    assert world.tors[2].senders == {2: Sender(7, None)}
    assert 1 not in world.tors[2].jobs
    world.engine.release(1)
    world.engine.release(7)
    assert world.holds_nothing()


def test_what_cannot_be_admitted_is_said_in_one_line(world: World) -> None:
    for members, size, said in (
        ([Member(0, 1, 1), Member(1, 2, 1)], None, "workers in 2 units need a parameter server host"),
        ([Member(number, 1, 1) for number in range(65)], None, "65 workers; an aggregator takes up to 64"),
        (WITHIN, 8, "a segment of 8 slots; 32 to 1024 are accepted"),
    ):
        with pytest.raises(RequestError, match=said):
            world.engine.admit(7, 3, members, size=size)
    world.engine.admit(7, 3, WITHIN)
    with pytest.raises(TestbedError, match="admit job 7: it is admitted already"):
        world.engine.admit(7, 3, WITHIN)


def test_groups_are_in_the_organization_local_scope() -> None:
    assert [group_ip(job) for job in (1, 256, 65535)] == ["239.192.0.1", "239.192.1.0", "239.192.255.255"]
