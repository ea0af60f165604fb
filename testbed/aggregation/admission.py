"""Admit jobs to the places that sum for them: segments, members, senders, result groups, and the workers'
settings.

A job's forest names its places. The job has segments of one size at all of them, and holds everything or
nothing. Pure: the data plane carries out each change at a place (`SummingPlace`, `Hosts`), and the lock is an
argument.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from testbed.aggregation.counts import ProgramCounts
from testbed.aggregation.entries import NO_IP, Entry, Sender, Tick
from testbed.aggregation.forest import MAX_TREES, Forest, Node
from testbed.aggregation.grants import Admission, Group, group_ip
from testbed.aggregation.packets import AS_USUAL, Packets
from testbed.aggregation.place_interfaces import Hosts, SummingPlace, SummingSwitches
from testbed.aggregation.program import (
    SUM,
    Capacity,
    Clock,
    DataPlaneProgram,
    Findings,
    PlacePool,
    chosen,
)
from testbed.aggregation.segments import NoRoomError
from testbed.errors import RequestError, TestbedError
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.dataplanes import HOSTS
from testbed.topology.model import Topology
from testbed.topology.places import Host, Place, at_tor
from testbed.wire import spec
from testbed.wire.mapping import MIN_SLOTS
from testbed.wire.places import JOB_SLOTS
from testbed.wire.recovery import Recovery
from testbed.wire.rings import RESULT

_NO_JOB = 0  # jobs are numbered from 1
Key = tuple[int, int]  # a job's number, and its first tree's number, which is 0 unless it is a group's
# switch -> the devices that forward a tree's results: one of each tuple, which lists parallel circuits
Ways = Mapping[Dpid, Sequence[tuple[str, ...]]]
Mapped = Callable[[Callable[[Dpid], Exception | None], Iterable[Dpid]], Iterable[Exception | None]]


# limits of all groups together: the data planes' tables, less the room for the jobs that inc.jobs promises
_MOST_AT_A_SWITCH, _MOST_ENTRIES, _MOST_RINGS = 64, 1024, 1024
_MOST_RING_MIB = 1024  # of the kernel's memory, if each ring has as many slots as a job may have at a place


def _raised(method: str, error: Exception) -> str:
    """Describe in a line an error that a method of a job's grant raised."""
    first, *_ = str(error).splitlines() or [""]
    return f"its program's {method} raised {type(error).__name__}: {first}"


class Places:
    """All places of one testbed, and the jobs' holdings there. Thread-safe if `lock` is; the lock is held
    while places change, except for ticks.
    """

    def __init__(
        self,
        topology: Topology,
        switches: SummingSwitches,
        hosts: Hosts,
        lock: AbstractContextManager[Any],
        programs: Mapping[str, DataPlaneProgram],
        mapped: Mapped = map,
    ) -> None:
        """`programs` has all data-plane programs by name. `mapped` calls a function for each switch, like
        `map`, or in parallel, because each call may wait for its data plane.
        """
        self._switches, self._hosts, self._lock = switches.by_dpid, hosts, lock
        self._any_ended = switches.any_ended
        self._mapped = mapped
        self._restarts = 0
        self._programs = programs
        self._capacity = Capacity(topology, slots := min(place.slots for place in self._switches.values()))
        if not 1 <= topology.inc.jobs <= slots // MIN_SLOTS:
            raise RequestError(f"inc.jobs: {topology.inc.jobs}; 1 to {slots // MIN_SLOTS} are accepted")
        self._lanes = spec.lanes_for(topology.mtu)
        self._queue_packets = topology.host_link.buffer_packets
        self._engines = topology.engines
        self._pools: dict[Place, dict[str, PlacePool]] = {}  # by the resource that the pool allocates
        self._admitted: dict[Key, Admission] = {}

    def close(self) -> None:
        """Release all jobs."""
        with self._lock, ExitStack() as stack:  # each release runs, even if another raises
            for admission in self._admitted.values():  # in reverse order: a job's groups before itself
                stack.callback(self._release, admission)

    def admit(
        self,
        job: int,
        generation: int,
        forest: Forest,
        ways: Sequence[Ways] = (),
        size: int | None = None,
        packets: Packets = AS_USUAL,
        programs: Mapping[str, str] | None = None,
    ) -> Admission:
        """Give a job its share at all places of its forest, for its `packets`: as its program grants, with
        `size` slots if given.

        `ways` lists, tree by tree, the devices by which each switch forwards results to others; without it,
        results stay at their top. `programs` is System.programs: places with an engine that it does not name
        use the program `sum`. Raises NoRoomError if a place has no segment or accepts no more jobs; then
        nothing is held.
        """
        program = chosen(self._programs, forest, programs or {}, self._engines)
        grant = program.grant(job, forest, packets, self._capacity, size)
        lanes = self._lanes if packets.lanes is None else packets.lanes
        if not spec.MIN_LANES <= lanes <= self._lanes:
            raise RequestError(
                f"job {job}: packets of {lanes} lanes; {spec.MIN_LANES} to {self._lanes} are accepted"
            )
        with self._lock:
            if (job, 0) in self._admitted:
                raise TestbedError(f"admit job {job}: it is admitted already")
            admission = Admission(
                job,
                generation,
                forest,
                program,
                grant,
                lanes,
                packets.recovery,
                self._capacity.slowest_mbps(forest),
                self._queue_packets,
                self._engines,
                programs=programs or {},
                ways=[{} for _ in forest.trees],
            )
            self._hold(admission, ways)
            return admission

    def require_room(self, forest: Forest, packets: Packets, programs: Mapping[str, str]) -> None:
        """Raise NoRoomError if a place of this forest has no room for a job now. Holds nothing."""
        program = chosen(self._programs, forest, programs, self._engines)
        grant = program.grant(_NO_JOB, forest, packets, self._capacity, None)
        with self._lock, ExitStack() as stack:
            for number, tree in enumerate(forest.trees):
                for node in tree.top.nodes():
                    pool, key = self._pool(program, node.place), (_NO_JOB, number)
                    try:
                        pool.take(key, grant.size, grant.terms(tree, node.place), False)
                    except NoRoomError as full:
                        raise NoRoomError(f"{node.place}: {full}") from full
                    stack.callback(pool.free, key)

    def admit_group(
        self, job: int, generation: int, forest: Forest, group: Group, ways: Sequence[Ways] = ()
    ) -> Admission:
        """Give some of a job's workers their own trees beside the job's; no other worker may send in them.
        `forest` is over these workers alone, and `generation` is no other's.

        The group gets the share that the job's program grants to groups. Raises NoRoomError if a place has no
        room for that, if the groups' limits on entries or rings are reached, or if the job has no tree
        numbers left. Raises RequestError if the job sums at no place, or the forest has a host that is no
        place of the job's. Then nothing is held.
        """
        trees = len(forest.trees)
        with self._lock:
            base = self._admitted.get((job, 0))
            if base is None:
                raise RequestError(f"job {job} is summed at no place")
            if base.forest.owner:
                raise RequestError(f"job {job}: its sums go to their owner, and groups have none")
            self._check_within(base, forest, group)
            for grant in base.program.grants_of_groups(base.grant, trees):
                admission = Admission(
                    job,
                    generation,
                    forest,
                    base.program,
                    grant,
                    base.lanes,
                    base.recovery,
                    self._capacity.slowest_mbps(forest),
                    self._queue_packets,
                    self._engines,
                    programs=base.programs,
                    ways=[{} for _ in forest.trees],
                    first=self._free_trees(job, trees),
                    group=group,
                )
                try:
                    self._hold(admission, ways)
                except NoRoomError as error:
                    full = error
                else:
                    return admission
            raise full

    def release(self, job: int) -> None:
        """Take back all that a job and its groups hold. Does nothing if it is not admitted."""
        with self._lock, ExitStack() as stack:
            for key, admission in self._admitted.items():  # in reverse order
                if key[0] == job:
                    stack.callback(self._release, admission)

    def release_group(self, group: Admission) -> None:
        """Take back all that a group holds. Does nothing if its job was released meanwhile, and the group
        with it: its trees may be another group's by now.
        """
        with self._lock:
            if self._admitted.get((group.job, group.first)) is group:
                self._release(group)

    def groups(self, job: int) -> list[Admission]:
        """Return the admissions of a job's groups."""
        with self._lock:
            return [each for each in self._admitted.values() if each.job == job and each.group]

    def reroute(self, job: int, ways: Sequence[Ways], first: int = 0) -> None:
        """Set the devices by which the switches forward a job's results, or those of the group with the first
        tree `first`, after circuits changed. Includes switches that results newly pass through.

        Does nothing for a job that is not admitted: its admission is still to come, with its own ways, or is
        over. All switches are set even if one raises; a switch that ended is set when it is restarted.
        """
        with self._lock:
            admission = self._admitted.get((job, first))
            if admission is None:
                return
            for tree, going_on in enumerate(ways):
                dpids = {*admission.ways[tree], *going_on}
                admission.ways[tree] = {dpid: tuple(going_on.get(dpid, ())) for dpid in sorted(dpids)}
            try:
                self._enter_switches(admission)
            finally:
                if admission.on_parallel:
                    admission.on_parallel(admission.is_parallel)

    def tick(self, job: int, tree: int, place: Place, offset: int, fragment: int, age_ms: int) -> None:
        """Tick a place of a job's tree (`SummingPlace.tick`) for a fragment that has waited for `age_ms`;
        `offset` is the slot's offset in the segment. Raises TestbedError if the job has no such place.

        The place is ticked without the lock, so that ticks delay no admission, no restart, and no other tick.
        By then the job may be gone, or admitted again in other slots. That is sound: the tick names job,
        generation, slot and fragment, and the program checks all of them under the slot's lock. The caller
        must stop ticking before the places are closed.
        """
        with self._lock:
            admission = self._admitted.get((job, 0))
            if admission is None or (tree, place) not in admission.bases:
                raise TestbedError(f"tick job {job}, tree {tree}: it is not summed at {place}")
            slot, at = admission.bases[tree, place] + offset, self._at(place)
            tick = Tick(job, admission.generation, tree, slot, fragment, age_ms)
        at.tick(tick)

    def restart(self, dpid: Dpid, restart: Callable[[], None]) -> dict[int, int]:
        """Restart a switch by `restart`, after which it knows no job, while no job is admitted or released.

        Jobs with packets that only pass there get their entries back. The other jobs' sums are lost: returns
        their numbers and generations.
        """
        with self._lock:
            restart()
            self._restarts += 1
            passing = [
                admission
                for admission in self._admitted.values()
                if any(dpid in way for way in admission.ways)
            ]
            lost = {
                admission.job
                for admission in passing
                if dpid in admission.forest.switches or at_tor(dpid) in admission.forest.places
            }
            for admission in passing:
                if admission.job in lost:
                    continue
                for tree, way in enumerate(admission.ways):
                    if dpid in way:
                        self._enter_switch(admission, tree, dpid)
                for host in sorted(admission.bound):
                    if addresses.tor_of(*host) == dpid:
                        self._bind(admission, host)
            return {job: self._admitted[job, 0].generation for job in lost}

    def counts(self, job: int) -> ProgramCounts | None:
        """Return a job's counts from its program (Grant.counts), without checking their type. Does not
        acquire the lock, so that a status request waits for no switch. Raises TestbedError if the program
        raises.
        """
        admission = self._admitted.get((job, 0))
        try:
            return admission.grant.counts(job, admission.forest, self._at) if admission else None
        except TestbedError:
            raise
        except Exception as error:  # a user's own program may raise anything
            raise TestbedError(f"job {job}: {_raised('counts', error)}") from error

    def failures(self) -> dict[int, str]:
        """Return, by job, why a place does less for it than its program should, or why the program cannot
        say. Also without the lock.
        """
        failures = {}
        for admission in list(self._admitted.values()):
            try:
                why = admission.grant.failure(admission.forest, self._at)
            except Exception as error:  # a user's own program may raise anything; other jobs go on
                why = _raised("failure", error)
            if why:
                failures[admission.job] = why
        return failures

    def look(self, job: int, clock: Clock) -> Findings:
        """Check once which workers and places contribute to a job's sums, and return the program's findings
        (Grant.look); empty for a job that is not admitted.
        """
        with self._lock:
            admission = self._admitted.get((job, 0))
            if admission is None:
                return Findings()
            return admission.grant.look(job, admission.forest, self._at, clock)

    def restarts(self) -> int | None:
        """Return how many restarts of switches there were; None while a switch is down."""
        with self._lock:
            return None if self._any_ended() else self._restarts

    def occupancy(self) -> dict[Place, int]:
        """Count the jobs that have segments, by place, for places that have any.

        Does not acquire the lock, so that telemetry waits for no switch; copying a dict is atomic.
        """
        held = dict(self._pools).items()
        counts = {place: sum(pool.jobs() for pool in dict(pools).values()) for place, pools in held}
        return {place: count for place, count in counts.items() if count}

    # ---- called with the lock held ----

    def _hold(self, admission: Admission, ways: Sequence[Ways]) -> None:
        """Acquire everything for an admission, or nothing."""
        self._admitted[admission.job, admission.first] = admission
        try:
            self._take(admission, [*ways, *({} for _ in range(len(admission.ways) - len(ways)))])
        except BaseException:
            self._release(admission)
            raise

    def _free_trees(self, job: int, count: int) -> int:
        """Return the first of `count` consecutive numbers that no tree of the job has."""
        taken = sorted(
            (first, first + len(each.forest.trees))
            for (number, first), each in self._admitted.items()
            if number == job
        )
        start = 0
        for first, end in taken:
            if first - start >= count:
                break
            start = end
        if start + count > MAX_TREES:
            raise NoRoomError(f"job {job} has {MAX_TREES} trees, and takes no more")
        return start

    def _check_lent(self) -> None:
        """Raise NoRoomError if groups have more entries or rings, or larger rings, than their limits."""
        lent = [each for each in self._admitted.values() if each.group]
        at = Counter(dpid for each in lent for way in each.ways for dpid in way)
        rings = sum(len(each.forest.workers) for each in lent)
        ring_bytes = rings * JOB_SLOTS * RESULT.dtype(self._lanes).itemsize
        for count, most, what in (
            (max(at.values()), _MOST_AT_A_SWITCH, "trees at a switch"),
            (at.total(), _MOST_ENTRIES, "entries at switches"),
            (rings, _MOST_RINGS, "rings for results"),
            (math.ceil(ring_bytes / (1 << 20)), _MOST_RING_MIB, "MiB of rings for results"),
        ):
            if count > most:
                raise NoRoomError(f"groups have as many {what} as they may, {most}")

    @staticmethod
    def _check_within(base: Admission, forest: Forest, group: Group) -> None:
        """Raise RequestError if a group would need something that its job does not have: the job's admission
        settles which senders a host's port admits.
        """
        hosts = tuple(base.forest.workers[rank] for rank in group.ranks)
        if hosts != forest.workers or len(group.ports) != len(hosts):
            raise RequestError(f"job {base.job}: {group} are not those of the group's forest")
        for node in (node for tree in forest.trees for node in tree.top.nodes()):
            host = node.place.at
            pushes_here = any(forest.workers[worker] == host for worker in node.workers)
            if host and (host not in base.summing or (pushes_here and host not in base.looped)):
                raise RequestError(f"job {base.job}: {node.place} is no place that sums for it")

    def _take(self, admission: Admission, ways: Sequence[Ways]) -> None:
        forest = admission.forest
        for number, tree in enumerate(forest.trees):
            for node in tree.top.nodes():
                self._take_segment(admission, number, node.place)
        for number, going_on in enumerate(ways):
            dpids = {*self._switches_of(forest, number), *going_on}
            admission.ways[number] = {dpid: tuple(going_on.get(dpid, ())) for dpid in sorted(dpids)}
        if admission.group:
            self._check_lent()
        self._enter_switches(admission)
        for number in range(len(ways)):
            for node in forest.trees[number].top.nodes():
                if host := node.place.at:
                    self._enter_host(admission, number, node, host)
        if not admission.group:
            for host in sorted({place.at for place in forest.places if place.at} - {*forest.workers}):
                self._bind(admission, host)
        bases = [admission.result_base(tree) for tree in range(len(forest.trees))]
        for worker, host in enumerate(forest.workers):
            admission.rings[worker] = self._hosts.attach(
                host,
                admission.job,
                admission.generation,
                bases,
                admission.grant.size,
                admission.lanes,
                admission.first,
                admission.port(worker),
            )
            if not admission.group:  # a group's senders are settled by its job and by its trees' members
                self._bind(admission, host)
        if owner := forest.owner:
            admission.owners_ring = self._hosts.attach(
                owner, admission.job, admission.generation, bases, admission.grant.size, admission.lanes
            )
            self._bind(admission, owner)

    def _take_segment(self, admission: Admission, tree: int, place: Place) -> None:
        pool, key = self._pool(admission.program, place), (admission.job, admission.first + tree)
        terms = admission.grant.terms(admission.forest.trees[tree], place)
        is_lent = admission.group is not None
        try:
            admission.bases[tree, place] = pool.take(key, admission.grant.size, terms, is_lent)
        except NoRoomError as full:
            what = "" if is_lent else f"admit job {admission.job}: "
            raise NoRoomError(f"{what}{place}: {full}") from full

    def _pool(self, program: DataPlaneProgram, place: Place) -> PlacePool:
        pools = self._pools.setdefault(place, {})
        if program.shares not in pools:
            pools[program.shares] = program.pool(self._capacity, self._at(place).slots)
        return pools[program.shares]

    @staticmethod
    def _switches_of(forest: Forest, tree: int) -> set[Dpid]:
        """Return the switches that must know a tree whatever the ways between them are: they sum for it, or
        one of their hosts does, or receives results.
        """
        if forest.trees[tree].relayed:  # its packets are addressed to hosts, so that any switch routes them
            return set()
        places = {node.place.tor for node in forest.trees[tree].top.nodes()}
        return places | {addresses.tor_of(*host) for host in forest.workers}

    def _enter_switches(self, admission: Admission) -> None:
        """Set a job's trees at all switches that must know them; all are set even if one raises."""

        def entered(dpid: Dpid) -> Exception | None:
            try:
                for tree, ways in enumerate(admission.ways):
                    if dpid in ways:
                        self._enter_switch(admission, tree, dpid)
            except Exception as error:  # of any kind: the other switches must be set before a release
                return error
            return None

        dpids = sorted({dpid for ways in admission.ways for dpid in ways})
        for failure in [failure for failure in self._mapped(entered, dpids) if failure]:
            raise failure

    def _enter_switch(self, admission: Admission, tree: int, dpid: Dpid) -> None:
        """Set a tree's entry at a switch that sums, or that results only pass through."""
        forest, place, switch = admission.forest, at_tor(dpid), self._switches[dpid]
        nodes = {node.place: node for node in forest.trees[tree].top.nodes()}
        keeping = {at.at for at in nodes if at.at and at != forest.trees[tree].top.place}
        takers = {host for host in {*forest.workers, *keeping} if host}
        down = sorted(host for host in takers if addresses.tor_of(*host) == dpid)
        ports = [addresses.tor_port_device(*host) for host in down]
        number = admission.first + tree
        switch.set_group(admission.job, number, ports, admission.ways[tree].get(dpid, ()))
        switch.admit(admission.job, self._entry(admission, tree, place, nodes.get(place)))

    def _enter_host(self, admission: Admission, tree: int, node: Node, host: Host) -> None:
        """Set a tree's entry at a host that sums. Its packets leave by its one link; at the top, or if
        results are relayed, its own worker gets the result by the loop.
        """
        place = self._hosts.place(host)
        admission.summing.add(host)
        own_ranks = [rank for rank in node.workers if admission.forest.workers[rank] == host]
        if own_ranks and not admission.group and host not in admission.looped:
            admission.looped.add(host)
            place.bind(host[1], Sender(admission.job, own_ranks[0]))
        if admission.forest.trees[tree].relayed:
            members = [admission.forest.workers[rank] for rank in node.workers if rank not in own_ranks]
            members += [child.place.at for child in node.below if child.place.at]
            place.set_copies(admission.job, admission.first + tree, members, bool(own_ranks))
        else:
            devices = [addresses.HOST_DEVICE, *([addresses.LOOP_PLACE_DEVICE] if own_ranks else [])]
            place.set_group(admission.job, admission.first + tree, devices)
        place.admit(admission.job, self._entry(admission, tree, node.place, node))

    def _entry(self, admission: Admission, tree: int, place: Place, node: Node | None) -> Entry:
        way = admission.forest.trees[tree]
        above = way.top.above().get(place)
        engine = self._engines[place.unit] if place.is_switch else HOSTS
        return Entry(
            tree=admission.first + tree,
            generation=admission.generation,
            workers=sum(1 << admission.rank(worker) for worker in node.workers) if node else 0,
            places=sum(1 << admission.rank(child.number) for child in node.below) if node else 0,
            number=admission.rank(node.number) if node else 0,
            base=admission.bases[tree, place] if node else 0,
            size=admission.grant.size if node else 0,
            up_base=admission.bases[tree, above.place] if above else 0,
            result_base=admission.result_base(tree),
            self_ip=place.address,
            up_ip=above.place.address if above else NO_IP,
            group_ip=NO_IP if way.relayed else group_ip(admission.job),
            lanes=admission.lanes,
            # only a program that knows an owner's packets passes them on
            program=admission.programs.get(engine, SUM) if node or way.owner else SUM,
            terms=admission.grant.terms(way, place) if node else None,
            owner_ip=addresses.host_ip(*way.owner) if way.owner and place == way.top.place else NO_IP,
            asks=admission.recovery == Recovery.INTEGRITY,
        )

    def _at(self, place: Place) -> SummingPlace:
        return self._hosts.place(place.at) if place.at else self._switches[place.tor]

    def _bind(self, admission: Admission, host: Host) -> None:
        """Let a host send in the job's name: as a worker, as a place, or both."""
        forest = admission.forest
        worker = forest.workers.index(host) if host in forest.workers else None
        admission.bound.add(host)
        is_place = any(place.at == host for place in forest.places)
        relays = any(
            node.place.at == host for tree in forest.trees if tree.relayed for node in tree.top.nodes()
        )
        sender = Sender(admission.job, worker, is_place, relays, is_owner=host == forest.owner)
        self._switches[addresses.tor_of(*host)].bind(host[1], sender)

    def _release(self, admission: Admission) -> None:
        """Take back everything, in the reverse order of the calls below, even if some raise: all senders are
        stopped before anything is removed.
        """
        forest, job, first = admission.forest, admission.job, admission.first
        with ExitStack() as stack:
            stack.callback(self._admitted.pop, (job, first), None)
            for tree, place in admission.bases:
                stack.callback(self._pool(admission.program, place).free, (job, first + tree))
            for tree in range(len(forest.trees)):
                for dpid in sorted(admission.ways[tree]):
                    stack.callback(self._switches[dpid].release, job, first + tree)
                for host in sorted(admission.summing):
                    stack.callback(self._hosts.place(host).release, job, first + tree)
            for worker in admission.rings:
                stack.callback(self._hosts.detach, forest.workers[worker], first)
            if admission.owners_ring and forest.owner:
                stack.callback(self._hosts.detach, forest.owner, first)
            for host in admission.looped:
                stack.callback(self._hosts.place(host).bind, host[1], None)
            for host in admission.bound:
                stack.callback(self._switches[addresses.tor_of(*host)].bind, host[1], None)
