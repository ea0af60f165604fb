"""Admits jobs to the XDP aggregators: segments, members, result groups, and the memory that workers map.

Segments: a switch has `layout.SLOTS` slots; each admitted job gets <MemID, Size> of equal size (P4INC-AOI, section VI-B) on every
switch that sums for it, and on its PS host. What a job holds is released as a whole.
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
from testbed.topology import addresses
from testbed.wire import spec
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
)


@dataclass(frozen=True, slots=True)
class Member:
    """A worker of a job and the host that it runs on."""

    worker: int
    unit: int
    host: int


@dataclass(slots=True)
class Admission:
    """What a job holds. `settings` and `descriptors` are for a worker's process."""

    job: int
    generation: int
    members: tuple[Member, ...]
    ps: tuple[int, int] | None  # (unit, host) that sums the units' partial sums; None within one unit
    size: int
    bases: dict[int, int] = field(default_factory=dict)  # owner -> MemID
    groups: dict[int, int] = field(default_factory=dict)  # unit -> index into groups
    group_fds: dict[int, int] = field(default_factory=dict)
    rings: dict[int, tuple[int, int]] = field(default_factory=dict)  # worker -> descriptors of ring and wake

    def worker_env(self, worker: int) -> dict[str, Any]:
        """What the endpoint of a worker must know; JSON-able."""
        member = self._member(worker)
        ring, wake = self.rings[worker]
        return {
            "engine": "xdp",
            "address": addresses.tor_ip(member.unit),
            "port": spec.UDP_PORT,
            "job": self.job,
            "generation": self.generation,
            "worker": worker,
            "workers": len(self.members),
            "slot_base": self.bases[member.unit],
            "slots": self.size,
            "ring_fd": ring,
            "ring_entries": layout.RING_ENTRIES,
            "wake_fd": wake,
        }

    def worker_fds(self, worker: int) -> list[int]:
        """The descriptors that `worker_env` names; to be inherited by the worker's process."""
        return list(self.rings[worker])

    def _member(self, worker: int) -> Member:
        return next(member for member in self.members if member.worker == worker)


class XdpEngine:
    """The aggregators of one testbed. Thread-safe."""

    def __init__(self, plane: XdpPlane, jobs_per_switch: int = 4) -> None:
        if not 1 <= jobs_per_switch <= layout.SLOTS:
            raise RequestError(f"inc.jobs: {jobs_per_switch}; 1 to {layout.SLOTS} are accepted")
        self._programs = plane.programs
        self._size = layout.SLOTS // jobs_per_switch
        self._jobs_per_switch = jobs_per_switch
        self._arrays: set[int] = set()
        self._taken: dict[int, dict[int, int]] = {}  # owner -> MemID -> job
        self._free_groups = set(range(layout.SIZES["MAX_GROUPS"]))
        self._admitted: dict[int, Admission] = {}
        self._lock = threading.Lock()

    def admit(
        self,
        job: int,
        generation: int,
        members: Sequence[Member],
        ps: tuple[int, int] | None = None,
        trees: Mapping[int, Sequence[str]] | None = None,
    ) -> Admission:
        """Gives a job its place on every switch that it needs.

        `ps` is the (unit, host) that sums the units' partial sums; None for a job within one unit. `trees` says by which devices results
        leave each unit towards other units. Raises TestbedError when a switch has no segment left; then nothing is held.
        """
        units = sorted({member.unit for member in members})
        trees = trees or {}
        if len(members) > spec.MAX_WORKERS:
            raise RequestError(f"job {job}: {len(members)} workers; an aggregator takes up to {spec.MAX_WORKERS}")
        if len(units) > 1 and ps is None:
            raise RequestError(f"job {job}: workers in {len(units)} units need a parameter server host")
        with self._lock:
            if job in self._admitted:
                raise TestbedError(f"admit job {job}: it is admitted already")
            admission = Admission(job, generation, tuple(members), ps if len(units) > 1 else None, self._size)
            self._admitted[job] = admission
            try:
                self._place(admission, units, trees)
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
        """Sets where a job's results leave the units, after circuits changed; units that results newly pass through included."""
        with self._lock:
            admission = self._admitted.get(job)
            if admission is None:
                raise TestbedError(f"reroute job {job}: it is not admitted")
            for unit in sorted({*admission.groups, *trees}):
                self._enter_unit(admission, unit, trees.get(unit, ()))

    def occupancy(self) -> dict[int, int]:
        """How many segments are taken, by unit (or by ifindex of a PS host)."""
        with self._lock:
            return {owner: len(taken) for owner, taken in self._taken.items() if taken}

    # ---- under the lock ----

    def _place(self, admission: Admission, units: list[int], trees: Mapping[int, Sequence[str]]) -> None:
        ps = admission.ps
        up_owner = addresses.host_ifindex(*ps) if ps else 0
        for owner in (*units, *((up_owner,) if ps else ())):
            self._take_segment(admission, owner)
        for unit in sorted({*units, *trees} if ps else units):
            self._enter_unit(admission, unit, trees.get(unit, ()))
        if ps:
            entry = np.zeros((), layout.JOB)
            entry["members"] = (1 << len(units)) - 1
            entry["role"] = layout.ROLE_FINAL
            entry["base"], entry["size"] = admission.bases[up_owner], admission.size
            entry["local"] = len(units)
            entry["self_ip"], entry["group_ip"] = ip_number(addresses.host_ip(*ps)), _group_ip(admission.job)
            self._set_job(admission, up_owner, entry)
        for member in admission.members:
            self._make_ring(admission, member)

    def _enter_unit(self, admission: Admission, unit: int, downstream: Sequence[str]) -> None:
        """A job's entry at a ToR: where its workers are, or where its results only pass through."""
        if unit not in admission.groups:
            admission.groups[unit] = self._free_groups.pop()
        self._fill_group(admission, unit, downstream)
        ps, units = admission.ps, sorted({member.unit for member in admission.members})
        local = [member.worker for member in admission.members if member.unit == unit]
        entry = np.zeros((), layout.JOB)
        entry["members"] = sum(1 << worker for worker in local)
        entry["role"] = layout.ROLE_FINAL if not ps else layout.ROLE_PARTIAL if local else layout.ROLE_TRANSIT
        entry["base"] = admission.bases.get(unit, 0)
        entry["size"] = admission.size if local else 0
        entry["group"] = admission.groups[unit]
        entry["local"] = len(local)
        entry["index"] = units.index(unit) if local else 0
        entry["up_base"] = admission.bases[addresses.host_ifindex(*ps)] if ps else 0
        entry["self_ip"] = ip_number(addresses.tor_ip(unit))
        entry["up_ip"] = ip_number(addresses.host_ip(*ps)) if ps else 0
        entry["group_ip"] = _group_ip(admission.job)
        self._set_job(admission, unit, entry)

    def _set_job(self, admission: Admission, owner: int, entry: np.ndarray) -> None:
        entry["generation"], entry["total"] = admission.generation, len(admission.members)
        map_update(self._programs.map_fd("jobs"), self._job_key(owner, admission.job), entry.tobytes())

    @staticmethod
    def _job_key(owner: int, job: int) -> bytes:
        return np.array((owner, job), layout.JOB_KEY).tobytes()

    def _take_segment(self, admission: Admission, owner: int) -> None:
        if owner not in self._arrays:
            fd = map_create(MAP_TYPE_ARRAY, 4, layout.SLOT.itemsize, layout.SIZES["SLOT_ENTRIES"], 0, "slots")
            map_update(self._programs.map_fd("slots"), owner.to_bytes(4, "little"), fd.to_bytes(4, "little"))
            os.close(fd)  # the outer map holds it
            self._arrays.add(owner)
        taken = self._taken.setdefault(owner, {})
        free = [base for base in range(0, self._size * self._jobs_per_switch, self._size) if base not in taken]
        if not free:
            where = f"unit u{owner}" if owner < 0x10000 else f"the PS host (ifindex {owner:#x})"
            raise TestbedError(
                f"admit job {admission.job}: {where} has no aggregator segment left; jobs {sorted(taken.values())} hold all {len(taken)}"
            )
        taken[free[0]] = admission.job
        admission.bases[owner] = free[0]

    def _fill_group(self, admission: Admission, unit: int, downstream: Sequence[str]) -> None:
        devices = [addresses.tor_port_device(m.unit, m.host) for m in admission.members if m.unit == unit]
        devices += downstream
        if len(devices) > layout.SIZES["MAX_GROUP_PORTS"]:
            raise RequestError(f"job {admission.job}: {len(devices)} result ports in unit u{unit} are too many")
        fd = map_create(MAP_TYPE_DEVMAP, 4, 4, layout.SIZES["MAX_GROUP_PORTS"], 0, "group")
        for position, device in enumerate(devices):
            index = socket.if_nametoindex(device)
            map_update(fd, position.to_bytes(4, "little"), index.to_bytes(4, "little"))
        group = admission.groups[unit].to_bytes(4, "little")
        map_update(self._programs.map_fd("groups"), group, fd.to_bytes(4, "little"))
        os.close(fd)

    def _make_ring(self, admission: Admission, member: Member) -> None:
        ifindex = addresses.host_ifindex(member.unit, member.host)
        key = ifindex.to_bytes(4, "little")
        if map_lookup(self._programs.map_fd("pullers"), key, layout.PULLER.itemsize) is not None:
            raise TestbedError(f"admit job {admission.job}: u{member.unit}h{member.host} is in another job")
        ring = map_create(MAP_TYPE_ARRAY, 4, layout.RESULT.itemsize, layout.RING_ENTRIES, F_MMAPABLE, "ring")
        wake = map_create(MAP_TYPE_ARRAY, 4, layout.WAKE.itemsize, 1, F_MMAPABLE, "wake")
        admission.rings[member.worker] = (ring, wake)
        map_update(self._programs.map_fd("rings"), key, ring.to_bytes(4, "little"))
        map_update(self._programs.map_fd("wakes"), key, wake.to_bytes(4, "little"))
        puller = np.zeros((), layout.PULLER)
        puller["job"], puller["generation"], puller["ring"] = admission.job, admission.generation, ifindex
        puller["ip"] = ip_number(addresses.host_ip(member.unit, member.host))
        mac = addresses.host_mac(member.unit, member.host)
        puller["mac"] = np.frombuffer(bytes.fromhex(mac.replace(":", "")), np.uint8)
        map_update(self._programs.map_fd("pullers"), key, puller.tobytes())

    def _release(self, admission: Admission) -> None:
        job_table = self._programs.map_fd("jobs")
        for owner in {*admission.groups, *admission.bases}:
            map_delete(job_table, self._job_key(owner, admission.job))
        for group in admission.groups.values():
            map_delete(self._programs.map_fd("groups"), group.to_bytes(4, "little"))
            self._free_groups.add(group)
        for owner, base in admission.bases.items():
            self._taken[owner].pop(base, None)
        for member in admission.members:
            if member.worker in admission.rings:
                key = addresses.host_ifindex(member.unit, member.host).to_bytes(4, "little")
                for name in ("pullers", "rings", "wakes"):
                    map_delete(self._programs.map_fd(name), key)
                for fd in admission.rings.pop(member.worker):
                    os.close(fd)
        self._admitted.pop(admission.job, None)


def _group_ip(job: int) -> int:
    """Where a job's results are addressed to: 239.192/14, the organization-local scope (RFC 2365), and the job."""
    return 0xEFC00000 | job
