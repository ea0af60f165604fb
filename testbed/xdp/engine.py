"""Admits jobs to the XDP aggregators: segments, members, senders, result groups, and the memory that workers map.

An owner is a unit (of a ToR) or the ifindex of a PS host. A job has a segment of the same size on every owner that sums for it, and
holds all of it or nothing.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from testbed.errors import RequestError, TestbedError
from testbed.inc.segments import NoRoomError, Segments
from testbed.topology import addresses
from testbed.wire import spec
from testbed.wire.mapping import MIN_SLOTS
from testbed.xdp import layout
from testbed.xdp.plane import XdpPlane, ip_number
from testbed.xdp.syscall import (
    F_MMAPABLE,
    MAP_TYPE_ARRAY,
    MAP_TYPE_DEVMAP,
    map_create,
    map_delete,
    map_lookup,
    map_update,
    u32,
)


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
    bases: dict[int, int] = field(default_factory=dict)  # owner -> MemID
    entries: dict[int, int] = field(default_factory=dict)  # owner -> index into jobs
    groups: dict[int, int] = field(default_factory=dict)  # unit -> index into groups
    rings: dict[int, tuple[int, int, int]] = field(
        default_factory=dict
    )  # worker -> index, descriptors of ring and wake

    @property
    def units(self) -> list[int]:
        """Those with workers."""
        return sorted({member.unit for member in self.members})

    @property
    def result_base(self) -> int:
        """MemID where the results are made."""
        return self.bases[addresses.host_ifindex(*self.ps) if self.ps else self.units[0]]

    def worker_env(self, worker: int) -> dict[str, Any]:
        """What the endpoint of a worker must know; JSON-able."""
        member = next(member for member in self.members if member.worker == worker)
        _, ring, wake = self.rings[worker]
        return {
            "engine": "xdp",
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
            "ring_fd": ring,
            "ring_entries": layout.SLOTS,
            "wake_fd": wake,
        }

    def worker_fds(self, worker: int) -> list[int]:
        """The descriptors that `worker_env` names; to be inherited by the worker's process."""
        return list(self.rings[worker][1:])


class XdpEngine:
    """The aggregators of one testbed. Thread-safe."""

    def __init__(self, plane: XdpPlane, jobs_per_switch: int = 4, rate_mbps: float | None = None) -> None:
        if not 1 <= jobs_per_switch <= layout.SLOTS // MIN_SLOTS:
            raise RequestError(f"inc.jobs: {jobs_per_switch}; 1 to {layout.SLOTS // MIN_SLOTS} are accepted")
        self._plane, self._programs = plane, plane.programs
        self._lanes = plane.programs.lanes
        self._jobs_per_switch, self._rate_mbps = jobs_per_switch, rate_mbps
        self._segments: dict[int, Segments] = {}
        self._arrays: dict[int, tuple[int, int]] = {}  # owner -> index into slots, descriptor
        self._free_entries = set(range(layout.SIZES["MAX_JOBS"]))
        self._free_groups = set(range(layout.SIZES["MAX_GROUPS"]))
        self._free_rings = set(range(layout.SIZES["MAX_HOSTS"]))
        self._admitted: dict[int, Admission] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Releases all jobs and drops the descriptors of the slot arrays."""
        with self._lock:
            for admission in list(self._admitted.values()):
                self._release(admission)
            for _, fd in self._arrays.values():
                os.close(fd)
            self._arrays.clear()

    def admit(
        self,
        job: int,
        generation: int,
        members: Sequence[Member],
        ps: tuple[int, int] | None = None,
        trees: Mapping[int, Sequence[str]] | None = None,
        size: int | None = None,
    ) -> Admission:
        """Gives a job its place on every switch that it needs: a segment of `size` slots, or of an equal share.

        `ps` is the (unit, host) that sums the units' partial sums; None for a job within one unit. `trees` says by which devices results
        leave each unit towards other units. Raises NoRoomError when a switch has no segment or takes no more jobs; then nothing is held.
        """
        units = sorted({member.unit for member in members})
        size = Segments(layout.SLOTS, self._jobs_per_switch).default_size if size is None else size
        if len(members) > spec.MAX_WORKERS:
            raise RequestError(f"job {job}: {len(members)} workers; an aggregator takes up to {spec.MAX_WORKERS}")
        if not MIN_SLOTS <= size <= layout.SLOTS:
            raise RequestError(f"job {job}: a segment of {size} slots; {MIN_SLOTS} to {layout.SLOTS} are accepted")
        if len(units) > 1 and ps is None:
            raise RequestError(f"job {job}: workers in {len(units)} units need a parameter server host")
        with self._lock:
            if job in self._admitted:
                raise TestbedError(f"admit job {job}: it is admitted already")
            ps = ps if len(units) > 1 else None
            admission = Admission(job, generation, tuple(members), ps, size, self._lanes, self._rate_mbps)
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
        """Sets where a job's results leave the units, after circuits changed; units that results newly pass through included.

        Nothing for a job that is not admitted: it is about to be, by trees of its own, or was.
        """
        with self._lock:
            admission = self._admitted.get(job)
            if admission is None:
                return
            for unit in sorted({*admission.groups, *trees}):
                self._enter_unit(admission, unit, trees.get(unit, ()))

    def occupancy(self) -> dict[int, int]:
        """How many segments are taken, by unit (or by ifindex of a PS host)."""
        with self._lock:
            counts = {owner: len(segments.taken()) for owner, segments in self._segments.items()}
        return {owner: count for owner, count in counts.items() if count}

    # ---- under the lock ----

    def _place(self, admission: Admission, trees: Mapping[int, Sequence[str]]) -> None:
        up_owner = addresses.host_ifindex(*admission.ps) if admission.ps else 0
        for owner in (*admission.units, *((up_owner,) if up_owner else ())):
            self._take_segment(admission, owner)
        for unit in sorted({*admission.units, *trees}):
            self._enter_unit(admission, unit, trees.get(unit, ()))
        if admission.ps:
            entry = np.zeros((), layout.JOB)
            entry["members"] = (1 << len(admission.units)) - 1
            entry["role"] = layout.ROLE_FINAL
            entry["local"] = len(admission.units)
            entry["self_ip"] = ip_number(addresses.host_ip(*admission.ps))
            self._set_job(admission, up_owner, entry)
            self._plane.set_sender(*admission.ps, layout.PORT_PS, admission.job)
        for member in admission.members:
            self._make_ring(admission, member)
            entry_index = admission.entries[member.unit]
            self._plane.set_sender(
                member.unit, member.host, layout.PORT_WORKER, admission.job, member.worker, entry_index
            )

    def _enter_unit(self, admission: Admission, unit: int, downstream: Sequence[str]) -> None:
        """A job's entry at a ToR: where its workers are, or where its results only pass through."""
        if unit not in admission.groups:
            admission.groups[unit] = _taken_from(self._free_groups, "groups of result ports")
        self._fill_group(admission, unit, downstream)
        ps, units = admission.ps, admission.units
        local = [member.worker for member in admission.members if member.unit == unit]
        entry = np.zeros((), layout.JOB)
        entry["members"] = sum(1 << worker for worker in local)
        entry["role"] = layout.ROLE_FINAL if not ps else layout.ROLE_PARTIAL if local else layout.ROLE_TRANSIT
        entry["group"] = admission.groups[unit]
        entry["local"] = len(local)
        entry["unit"] = units.index(unit) if local else 0
        entry["self_ip"] = ip_number(addresses.tor_ip(unit))
        if ps:
            entry["up_base"] = admission.result_base
            entry["up_ip"] = ip_number(addresses.host_ip(*ps))
        self._set_job(admission, unit, entry)

    def _set_job(self, admission: Admission, owner: int, entry: np.ndarray) -> None:
        entry["id"], entry["generation"], entry["total"] = admission.job, admission.generation, len(admission.members)
        entry["group_ip"] = _group_ip(admission.job)
        if owner in admission.bases:
            entry["aggregator"] = self._arrays[owner][0]
            entry["base"], entry["size"] = admission.bases[owner], admission.size
        if owner not in admission.entries:
            admission.entries[owner] = _taken_from(self._free_entries, "entries for jobs at switches")
        index = u32(admission.entries[owner])
        map_update(self._programs.map_fd("jobs"), index, entry.tobytes())
        map_update(self._programs.map_fd("job_index"), _job_key(owner, admission.job), index)

    def _take_segment(self, admission: Admission, owner: int) -> None:
        segments = self._segments.setdefault(owner, Segments(layout.SLOTS, self._jobs_per_switch))
        try:
            admission.bases[owner] = segments.take(admission.job, admission.size)
        except NoRoomError as full:
            raise NoRoomError(f"admit job {admission.job}: {addresses.aggregator_name(owner)}: {full}") from full
        slot = layout.slot(self._lanes)
        if owner not in self._arrays:
            index = len(self._arrays)
            if index >= layout.SIZES["MAX_AGGREGATORS"]:
                raise TestbedError(f"admit job {admission.job}: {index} aggregators are in use, and there are no more")
            fd = map_create(MAP_TYPE_ARRAY, 4, slot.itemsize, layout.SLOTS, 0, "slots")
            try:
                map_update(self._programs.map_fd("slots"), u32(index), u32(fd))
            except BaseException:
                os.close(fd)
                raise
            self._arrays[owner] = (index, fd)
        empty = bytes(slot.itemsize)
        for number in range(admission.bases[owner], admission.bases[owner] + admission.size):
            map_update(self._arrays[owner][1], u32(number), empty)

    def _fill_group(self, admission: Admission, unit: int, downstream: Sequence[str]) -> None:
        devices = [addresses.tor_port_device(m.unit, m.host) for m in admission.members if m.unit == unit]
        devices += downstream
        fd = map_create(MAP_TYPE_DEVMAP, 4, 4, max(1, len(devices)), 0, "group")
        try:
            for position, device in enumerate(devices):
                map_update(fd, u32(position), u32(socket.if_nametoindex(device)))
            map_update(self._programs.map_fd("groups"), u32(admission.groups[unit]), u32(fd))
        finally:
            os.close(fd)  # the outer map holds it

    def _make_ring(self, admission: Admission, member: Member) -> None:
        key = u32(addresses.host_ifindex(member.unit, member.host))
        if map_lookup(self._programs.map_fd("pullers"), key, layout.PULLER.itemsize) is not None:
            raise TestbedError(f"admit job {admission.job}: u{member.unit}h{member.host} is in another job")
        result = layout.result(self._lanes)
        index = _taken_from(self._free_rings, "rings for results")
        ring = map_create(MAP_TYPE_ARRAY, 4, result.itemsize, layout.SLOTS, F_MMAPABLE, "ring")
        try:
            wake = map_create(MAP_TYPE_ARRAY, 4, layout.WAKE.itemsize, 1, F_MMAPABLE, "wake")
        except BaseException:
            os.close(ring)
            raise
        admission.rings[member.worker] = (index, ring, wake)
        map_update(self._programs.map_fd("rings"), u32(index), u32(ring))
        map_update(self._programs.map_fd("wakes"), u32(index), u32(wake))
        puller = np.zeros((), layout.PULLER)
        puller["job"], puller["generation"], puller["ring"] = admission.job, admission.generation, index
        puller["base"], puller["size"] = admission.result_base, admission.size
        puller["ip"] = ip_number(addresses.host_ip(member.unit, member.host))
        mac = addresses.host_mac(member.unit, member.host)
        puller["mac"] = np.frombuffer(bytes.fromhex(mac.replace(":", "")), np.uint8)
        map_update(self._programs.map_fd("pullers"), key, puller.tobytes())

    def _release(self, admission: Admission) -> None:
        # An update or deletion in a map of maps waits until no program looks at what it held (RCU): so what is deleted below may be given
        # to another job right away.
        for member in admission.members:
            if member.worker not in admission.rings:
                continue
            self._plane.set_sender(member.unit, member.host, layout.PORT_HOST)
            map_delete(self._programs.map_fd("pullers"), u32(addresses.host_ifindex(member.unit, member.host)))
            index, *fds = admission.rings.pop(member.worker)
            for name in ("rings", "wakes"):
                map_delete(self._programs.map_fd(name), u32(index))
            self._free_rings.add(index)
            for fd in fds:
                os.close(fd)
        if admission.ps and addresses.host_ifindex(*admission.ps) in admission.entries:
            self._plane.set_sender(*admission.ps, layout.PORT_HOST)
        for owner, index in admission.entries.items():
            map_delete(self._programs.map_fd("job_index"), _job_key(owner, admission.job))
            map_update(self._programs.map_fd("jobs"), u32(index), bytes(layout.JOB.itemsize))
            self._free_entries.add(index)
        for group in admission.groups.values():
            map_delete(self._programs.map_fd("groups"), u32(group))
            self._free_groups.add(group)
        for owner in admission.bases:
            self._segments[owner].free(admission.job)
        self._admitted.pop(admission.job, None)


def _taken_from(free: set[int], what: str) -> int:
    if not free:
        raise NoRoomError(f"no more {what}")
    return free.pop()


def _job_key(owner: int, job: int) -> bytes:
    return np.array((owner, job), layout.JOB_KEY).tobytes()


def _group_ip(job: int) -> int:
    """Where a job's results are addressed to: 239.192/14, the organization-local scope (RFC 2365), and the job."""
    return 0xEFC00000 | job
