"""Admits jobs to the places that sum for them: segments, members, senders, result groups, and what workers
are told.

A place is a ToR, named by its unit, or a PS host, named by its ifindex. A job has a segment of the same size
at every place that sums for it, and holds all of it or nothing. Pure: what a place does when it is told is
its engine's (`Aggregator`, `Hosts`), and the lock is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from testbed.contract import spec
from testbed.contract.mapping import MIN_SLOTS
from testbed.errors import RequestError, TestbedError
from testbed.inc.job import Job, Role, Sender
from testbed.inc.segments import NoRoomError, Segments
from testbed.topology import addresses
from testbed.topology.model import Topology

NO_IP = "0.0.0.0"


class Summing(Protocol):
    """A place that sums: a PS host, or a ToR, which is an `Aggregator` as well."""

    @property
    def slots(self) -> int: ...

    def admit(self, number: int, job: Job) -> None:
        """Puts the job's entry. If it is new here, its segment's slots are empty afterwards; else the entry
        is replaced in one step.
        """

    def release(self, number: int) -> None:
        """Takes the entry away; nothing if there is none. A packet already being worked on may still touch
        the job's slots: whoever has them next is of another generation, which it cannot add to.
        """


class Aggregator(Summing, Protocol):
    """A ToR. `release` takes the group too."""

    def set_group(self, number: int, devices: Sequence[str]) -> None:
        """By which of its ports a job's results leave; called before `admit`. Replaces in one step."""

    def bind(self, host: int, sender: Sender | None) -> None:
        """Who may send gradients by the port of this host; None: nobody."""


@dataclass(frozen=True, slots=True)
class Ring:
    """The memory that a worker's results are written into: descriptors, to be inherited by its process."""

    fd: int
    entries: int
    wake_fd: int


class Hosts(Protocol):
    """The hosts' end, the same whatever their ToR is."""

    def attach(self, unit: int, host: int, job: int, generation: int, base: int, size: int) -> Ring:
        """A ring for the results of a job, whose first slot is `base` in them. TestbedError if the host has
        one.
        """

    def detach(self, unit: int, host: int) -> None:
        """Takes the host's ring back."""

    def parameter_server(self, unit: int, host: int) -> Summing:
        """What sums at this host; the same object each time."""


@dataclass(frozen=True, slots=True)
class Member:
    """A worker of a job and the host that it runs on."""

    worker: int
    unit: int
    host: int


@dataclass(slots=True)
class Admission:
    """What a job holds. `worker_env` and `worker_fds` are for a worker's process."""

    job: int
    generation: int
    members: tuple[Member, ...]
    ps: tuple[int, int] | None  # (unit, host) that sums the units' partial sums; None within one unit
    size: int
    lanes: int
    rate_mbps: float | None  # of the workers' links
    queue_packets: int  # of each link
    engines: Mapping[int, str]  # unit -> what its ToR sums with
    bases: dict[int, int] = field(default_factory=dict)  # place -> MemID
    downstream: dict[int, tuple[str, ...]] = field(
        default_factory=dict
    )  # unit with an entry -> ports to other units
    bound: set[tuple[int, int]] = field(default_factory=set)  # (unit, host) that may send
    rings: dict[int, Ring] = field(default_factory=dict)  # by worker

    @property
    def units(self) -> list[int]:
        """Those with workers."""
        return sorted({member.unit for member in self.members})

    @property
    def ps_place(self) -> int | None:
        return addresses.host_ifindex(*self.ps) if self.ps else None

    @property
    def result_base(self) -> int:
        """MemID where the results are made."""
        return self.bases[self.ps_place or self.units[0]]

    def worker_env(self, worker: int) -> dict[str, Any]:
        """What the endpoint of a worker must know; JSON-able."""
        member = next(member for member in self.members if member.worker == worker)
        ring = self.rings[worker]
        return {
            "engine": self.engines[member.unit],
            "address": addresses.tor_ip(member.unit),
            "port": spec.UDP_PORT,
            "job": self.job,
            "generation": self.generation,
            "worker": worker,
            "workers": len(self.members),
            "lanes": self.lanes,
            "slot_base": self.bases[member.unit],
            "slots": self.size,
            "rate_mbps": self.rate_mbps,
            # a fragment of every unit with workers waits at the PS host's link
            "share": self.rate_mbps and max(1, self.queue_packets // len(self.units)),
            "ring_fd": ring.fd,
            "ring_entries": ring.entries,
            "wake_fd": ring.wake_fd,
        }

    def worker_fds(self, worker: int) -> list[int]:
        """The descriptors that `worker_env` names; to be inherited by the worker's process."""
        return [self.rings[worker].fd, self.rings[worker].wake_fd]


class Engine:
    """All places of one testbed. As safe for threads as `lock` makes it, which is held while places are
    told.
    """

    def __init__(
        self,
        topology: Topology,
        tors: Mapping[int, Aggregator],
        hosts: Hosts,
        lock: AbstractContextManager[Any],
        any_ended: Callable[[], bool] = lambda: False,
    ) -> None:
        """`any_ended`: whether a ToR ended that is to be started again."""
        self._tors, self._hosts, self._lock, self._any_ended = tors, hosts, lock, any_ended
        self._restarts = 0
        self._slots = min(tor.slots for tor in tors.values())
        self._jobs = topology.inc.jobs
        if not 1 <= self._jobs <= self._slots // MIN_SLOTS:
            raise RequestError(f"inc.jobs: {self._jobs}; 1 to {self._slots // MIN_SLOTS} are accepted")
        self._lanes = spec.lanes_for(topology.mtu)
        self._queue_packets = topology.host_link.buffer_packets
        self._rate_mbps = topology.host_link.emulated_mbps(topology.scale)
        self._engines = {unit.index: unit.engine for unit in topology.units}
        self._segments: dict[int, Segments] = {}
        self._admitted: dict[int, Admission] = {}

    def close(self) -> None:
        """Releases all jobs."""
        with self._lock, ExitStack() as stack:  # to the end, whatever one raises
            for admission in self._admitted.values():
                stack.callback(self._release, admission)

    def admit(
        self,
        job: int,
        generation: int,
        members: Sequence[Member],
        ps: tuple[int, int] | None = None,
        trees: Mapping[int, Sequence[str]] | None = None,
        size: int | None = None,
    ) -> Admission:
        """Gives a job its place on every switch that it needs: a segment of `size` slots, or of an equal
        share.

        `ps` is the (unit, host) that sums the units' partial sums; None for a job within one unit. `trees`
        says by which devices results leave each unit towards other units. Raises NoRoomError when a switch
        has no segment or takes no more jobs; then nothing is held.
        """
        units = sorted({member.unit for member in members})
        size = Segments(self._slots, self._jobs).default_size if size is None else size
        if len(members) > spec.MAX_WORKERS:
            raise RequestError(
                f"job {job}: {len(members)} workers; an aggregator takes up to {spec.MAX_WORKERS}"
            )
        if not MIN_SLOTS <= size <= self._slots:
            raise RequestError(
                f"job {job}: a segment of {size} slots; {MIN_SLOTS} to {self._slots} are accepted"
            )
        if len(units) > 1 and ps is None:
            raise RequestError(f"job {job}: workers in {len(units)} units need a parameter server host")
        with self._lock:
            if job in self._admitted:
                raise TestbedError(f"admit job {job}: it is admitted already")
            ps = ps if len(units) > 1 else None
            admission = Admission(
                job,
                generation,
                tuple(members),
                ps,
                size,
                self._lanes,
                self._rate_mbps,
                self._queue_packets,
                self._engines,
            )
            self._admitted[job] = admission
            try:
                self._place(admission, trees or {})
            except BaseException:
                self._release(admission)
                raise
            return admission

    def release(self, job: int) -> None:
        """Takes back what a job holds; nothing if it is not admitted."""
        with self._lock:
            admission = self._admitted.get(job)
            if admission:
                self._release(admission)

    def reroute(self, job: int, trees: Mapping[int, Sequence[str]]) -> None:
        """Sets where a job's results leave the units, after circuits changed; units that results newly pass
        through included.

        Nothing for a job that is not admitted: it is about to be, by trees of its own, or was. All units are
        told, whatever one raises; one that ended learns it when it is started again.
        """
        with self._lock:
            admission = self._admitted.get(job)
            if admission is None:
                return
            units = sorted({*admission.downstream, *trees})
            admission.downstream.update((unit, tuple(trees.get(unit, ()))) for unit in units)
            failures = []
            for unit in units:
                try:
                    self._enter_unit(admission, unit, admission.downstream[unit])
                except TestbedError as error:
                    failures.append(error)
            if failures:
                raise failures[0]

    def restart(self, unit: int, restart: Callable[[], None]) -> dict[int, int]:
        """Has a unit's switch started again by `restart`, after which it knows no job, while no job comes or
        goes.

        Jobs whose results only pass there get their entries back. The sums of the others are lost: returns
        their numbers, with their generations.
        """
        with self._lock:
            restart()
            self._restarts += 1
            there = [admission for admission in self._admitted.values() if unit in admission.downstream]
            for admission in there:
                if unit not in admission.units:
                    self._enter_unit(admission, unit, admission.downstream[unit])
                    if admission.ps and admission.ps[0] == unit:
                        self._bind(admission, *admission.ps, None)
            return {admission.job: admission.generation for admission in there if unit in admission.units}

    def restarts(self) -> int | None:
        """How often a switch was started again; None while one is gone."""
        with self._lock:
            return None if self._any_ended() else self._restarts

    def occupancy(self) -> dict[int, int]:
        """How many segments are taken, by unit (or by ifindex of a PS host).

        Without the lock: telemetry waits for no switch, and copying a dict is one step.
        """
        counts = {place: len(segments.taken()) for place, segments in dict(self._segments).items()}
        return {place: count for place, count in counts.items() if count}

    # ---- under the lock ----

    def _place(self, admission: Admission, trees: Mapping[int, Sequence[str]]) -> None:
        for unit in admission.units:
            self._take_segment(admission, unit, self._tors[unit])
        ps_host = self._hosts.parameter_server(*admission.ps) if admission.ps else None
        if ps_host and admission.ps_place:
            self._take_segment(admission, admission.ps_place, ps_host)
        for unit in sorted({*admission.units, *trees}):
            self._enter_unit(admission, unit, trees.get(unit, ()))
        if ps_host and admission.ps:
            ps_host.admit(admission.job, self._at_ps(admission, admission.ps))
            self._bind(admission, *admission.ps, None)
        for member in admission.members:
            admission.rings[member.worker] = self._hosts.attach(
                member.unit,
                member.host,
                admission.job,
                admission.generation,
                admission.result_base,
                admission.size,
            )
            self._bind(admission, member.unit, member.host, member.worker)

    def _take_segment(self, admission: Admission, place: int, summing: Summing) -> None:
        segments = self._segments.setdefault(place, Segments(summing.slots, self._jobs))
        try:
            admission.bases[place] = segments.take(admission.job, admission.size)
        except NoRoomError as full:
            raise NoRoomError(
                f"admit job {admission.job}: {addresses.aggregator_name(place)}: {full}"
            ) from full

    def _enter_unit(self, admission: Admission, unit: int, downstream: Sequence[str]) -> None:
        """A job's entry at a ToR: where its workers are, or where its results only pass through."""
        admission.downstream[unit] = tuple(downstream)
        local = [member for member in admission.members if member.unit == unit]
        devices = [addresses.tor_port_device(member.unit, member.host) for member in local]
        self._tors[unit].set_group(admission.job, [*devices, *downstream])
        self._tors[unit].admit(
            admission.job, self._at_tor(admission, unit, [member.worker for member in local])
        )

    def _at_tor(self, admission: Admission, unit: int, local: Sequence[int]) -> Job:
        ps = admission.ps
        return Job(
            members=sum(1 << worker for worker in local),
            generation=admission.generation,
            role=Role.FINAL if not ps else Role.PARTIAL if local else Role.TRANSIT,
            base=admission.bases.get(unit, 0),
            size=admission.size if unit in admission.bases else 0,
            total=len(admission.members),
            local=len(local),
            index=admission.units.index(unit) if local else 0,
            up_base=admission.result_base if ps else 0,
            self_ip=addresses.tor_ip(unit),
            up_ip=addresses.host_ip(*ps) if ps else NO_IP,
            group_ip=group_ip(admission.job),
        )

    @staticmethod
    def _at_ps(admission: Admission, ps: tuple[int, int]) -> Job:
        return Job(
            members=(1 << len(admission.units)) - 1,
            generation=admission.generation,
            role=Role.FINAL,
            base=admission.result_base,
            size=admission.size,
            total=len(admission.members),
            local=len(admission.units),
            index=0,
            up_base=0,
            self_ip=addresses.host_ip(*ps),
            up_ip=NO_IP,
            group_ip=group_ip(admission.job),
        )

    def _bind(self, admission: Admission, unit: int, host: int, worker: int | None) -> None:
        admission.bound.add((unit, host))
        self._tors[unit].bind(host, Sender(admission.job, worker))

    def _release(self, admission: Admission) -> None:
        """All of it, in the reverse order of what follows, whatever a part of it raises: nobody sends any
        more before anything goes.
        """
        with ExitStack() as stack:
            stack.callback(self._admitted.pop, admission.job, None)
            for place in admission.bases:
                stack.callback(self._segments[place].free, admission.job)
            for unit in admission.downstream:
                stack.callback(self._tors[unit].release, admission.job)
            if admission.ps and admission.ps_place in admission.bases:
                stack.callback(self._hosts.parameter_server(*admission.ps).release, admission.job)
            for member in admission.members:
                if member.worker in admission.rings:
                    stack.callback(self._hosts.detach, member.unit, member.host)
            for unit, host in admission.bound:
                stack.callback(self._tors[unit].bind, host, None)


def group_ip(job: int) -> str:
    """Where a job's results are addressed to: 239.192/14, the organization-local scope (RFC 2365), and the
    job.
    """
    return f"{spec.GROUP_BYTE}.{192 + (job >> 16)}.{job >> 8 & 0xFF}.{job & 0xFF}"
