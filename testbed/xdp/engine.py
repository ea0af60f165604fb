"""What sums by XDP programs, each told by testbed.inc.engine: the ToRs, the PS hosts, and the rings that
hosts pull results into.

All of them live in the same maps (bpf/maps.h); `Cells` knows which cells are free. Nothing here is safe for
several threads.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence

import numpy as np

from testbed.contract.places import Port
from testbed.errors import TestbedError
from testbed.inc.engine import Ring
from testbed.inc.job import Job, Sender
from testbed.inc.segments import NoRoomError
from testbed.topology import addresses
from testbed.xdp import layout
from testbed.xdp.plane import ip_number, set_port
from testbed.xdp.program import Programs
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

NO_ENTRY = layout.SIZES["MAX_JOBS"]  # of `jobs`: one past its end


class Cells:
    """The free cells of the maps that all places of `programs` share."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self._free = {name: set(range(layout.SIZES[size])) for name, (_, size) in _CELLS.items()}

    def take(self, kind: str) -> int:
        if not self._free[kind]:
            raise NoRoomError(f"no more {_CELLS[kind][0]}")
        return self._free[kind].pop()

    def free(self, kind: str, cell: int) -> None:
        self._free[kind].add(cell)


_CELLS = {
    "jobs": ("entries for jobs at switches", "MAX_JOBS"),
    "groups": ("groups of result ports", "MAX_GROUPS"),
    "slots": ("aggregators", "MAX_AGGREGATORS"),
    "rings": ("rings for results", "MAX_HOSTS"),
}


class _Place:
    """Jobs' entries and slots of the ToR of unit `owner`, or of the PS host whose eth0 has the ifindex
    `owner`.
    """

    slots = layout.SLOTS

    def __init__(self, cells: Cells, owner: int) -> None:
        self._cells, self._programs, self._owner = cells, cells.programs, owner
        self._slots: tuple[int, int] | None = None  # cell of the outer map, descriptor
        self._entries: dict[int, int] = {}  # job -> cell of `jobs`

    def close(self) -> None:
        """Drops the slots' descriptor."""
        if self._slots:
            os.close(self._slots[1])
            self._cells.free("slots", self._slots[0])
            self._slots = None

    def slot_array(self) -> int:
        """Descriptor of the array of its slots."""
        return self._made_slots()[1]

    def admit(self, number: int, job: Job) -> None:
        if number not in self._entries:
            if job.size:
                self.empty(job.base, job.size)
            self._entries[number] = self._cells.take("jobs")
        entry = np.zeros((), layout.JOB)
        for name in ("members", "generation", "base", "size", "total", "local", "up_base"):
            entry[name] = getattr(job, name)
        for name in ("self_ip", "up_ip", "group_ip"):
            entry[name] = ip_number(getattr(job, name))
        entry["id"], entry["role"], entry["unit"] = number, job.role, job.index
        entry["group"] = self._group(number)
        if job.size:
            entry["aggregator"] = self._made_slots()[0]
        cell = u32(self._entries[number])
        map_update(self._programs.map_fd("jobs"), cell, entry.tobytes())
        map_update(self._programs.map_fd("job_index"), self._key(number), cell)

    def _forget(self, number: int) -> bool:
        """Takes a job's entry away, if it has one. Programs may look at it still."""
        if number not in self._entries:
            return False
        cell = self._entries.pop(number)
        map_delete(self._programs.map_fd("job_index"), self._key(number))
        map_update(self._programs.map_fd("jobs"), u32(cell), bytes(layout.JOB.itemsize))
        self._cells.free("jobs", cell)
        return True

    def _group(self, _number: int) -> int:
        return 0

    def _key(self, number: int) -> bytes:
        return np.array((self._owner, number), layout.JOB_KEY).tobytes()

    def _made_slots(self) -> tuple[int, int]:
        if self._slots is None:
            cell = self._cells.take("slots")
            fd = -1
            try:
                item = layout.slot(self._programs.lanes).itemsize
                fd = map_create(MAP_TYPE_ARRAY, 4, item, layout.SLOTS, 0, "slots")
                map_update(self._programs.map_fd("slots"), u32(cell), u32(fd))
            except BaseException:
                if fd >= 0:
                    os.close(fd)
                self._cells.free("slots", cell)
                raise
            self._slots = (cell, fd)
        return self._slots

    def empty(self, base: int, size: int) -> None:
        """Forgets what slots hold, which no job may be using."""
        empty = bytes(layout.slot(self._programs.lanes).itemsize)
        for number in range(base, base + size):
            map_update(self.slot_array(), u32(number), empty)


class XdpPsHost(_Place):
    """A PS host, by the ifindex of its eth0."""

    def release(self, number: int) -> None:
        if self._forget(number):
            # An update of a map of maps returns when no program looks at what it looked at before (RCU).
            cell, fd = self._made_slots()
            map_update(self._programs.map_fd("slots"), u32(cell), u32(fd))


class XdpSwitch(_Place):
    """A unit's ToR. `ports` are the ifindices of its hosts' ports, by host."""

    def __init__(self, cells: Cells, unit: int, ports: Mapping[int, int]) -> None:
        super().__init__(cells, unit)
        self._ports = ports
        self._groups: dict[int, int] = {}  # job -> cell of `groups`
        self._senders: dict[int, Sender] = {}  # by host

    def set_group(self, number: int, devices: Sequence[str]) -> None:
        if number not in self._groups:
            self._groups[number] = self._cells.take("groups")
        ports = [socket.if_nametoindex(device) for device in devices]
        to_hosts = set(self._ports.values())
        self._put_group("groups", number, ports)
        self._put_group("worker_groups", number, [port for port in ports if port in to_hosts])

    def _put_group(self, name: str, number: int, ports: Sequence[int]) -> None:
        """A job's entry in one of the two maps of groups: `ports` are ifindices."""
        fd = map_create(MAP_TYPE_DEVMAP, 4, 4, max(1, len(ports)), 0, "group")
        try:
            for position, port in enumerate(ports):
                map_update(fd, u32(position), u32(port))
            map_update(self._programs.map_fd(name), u32(self._groups[number]), u32(fd))
        finally:
            os.close(fd)  # the outer map holds it

    def bind(self, host: int, sender: Sender | None) -> None:
        if sender is None:
            self._senders.pop(host, None)
        else:
            self._senders[host] = sender
        self._set_sender(host)

    def admit(self, number: int, job: Job) -> None:
        is_new = number not in self._entries
        super().admit(number, job)
        if is_new:
            self._set_senders_of(number)

    def release(self, number: int) -> None:
        if self._forget(number):
            self._set_senders_of(number)
        group = self._groups.pop(number, None)
        if group is not None:
            # A deletion in a map of maps returns when no program looks at what it held (RCU), nor at the
            # entry.
            for name in ("groups", "worker_groups"):
                map_delete(self._programs.map_fd(name), u32(group))
            self._cells.free("groups", group)

    def _group(self, number: int) -> int:
        return self._groups[number]

    def _set_senders_of(self, number: int) -> None:
        for host, sender in self._senders.items():
            if sender.job == number:
                self._set_sender(host)

    def _set_sender(self, host: int) -> None:
        """A port names its job's entry, so that a push takes one look-up less."""
        sender = self._senders.get(host)
        told: dict[str, int] = {}
        kind = Port.HOST
        if sender:
            kind = Port.PS if sender.worker is None else Port.WORKER
            entry = self._entries.get(sender.job, NO_ENTRY)
            told = {"job": sender.job, "worker": sender.worker or 0, "index": entry}
        set_port(self._programs, self._ports[host], self._owner, host, kind, **told)


class XdpHosts:
    """The rings at hosts, and their places as parameter servers."""

    def __init__(self, cells: Cells) -> None:
        self._cells, self._programs = cells, cells.programs
        self._rings: dict[
            int, tuple[int, Ring]
        ] = {}  # by ifindex: cell of `rings` and of `wakes`, descriptors
        self._ps_hosts: dict[int, XdpPsHost] = {}

    def close(self) -> None:
        """Drops the descriptors of the parameter servers' slots."""
        for place in self._ps_hosts.values():
            place.close()

    def parameter_server(self, unit: int, host: int) -> XdpPsHost:
        ifindex = addresses.host_ifindex(unit, host)
        return self._ps_hosts.setdefault(ifindex, XdpPsHost(self._cells, ifindex))

    def attach(self, unit: int, host: int, job: int, generation: int, base: int, size: int) -> Ring:
        ifindex = addresses.host_ifindex(unit, host)
        if map_lookup(self._programs.map_fd("pullers"), u32(ifindex), layout.PULLER.itemsize) is not None:
            raise TestbedError(f"admit job {job}: {addresses.host_name(unit, host)} is in another job")
        cell, ring = self._made_ring()
        self._rings[ifindex] = (cell, ring)
        puller = np.zeros((), layout.PULLER)
        puller["job"], puller["generation"], puller["ring"] = job, generation, cell
        puller["base"], puller["size"] = base, size
        puller["ip"] = ip_number(addresses.host_ip(unit, host))
        mac = addresses.host_mac(unit, host)
        puller["mac"] = np.frombuffer(bytes.fromhex(mac.replace(":", "")), np.uint8)
        try:
            map_update(self._programs.map_fd("rings"), u32(cell), u32(ring.fd))
            map_update(self._programs.map_fd("wakes"), u32(cell), u32(ring.wake_fd))
            map_update(self._programs.map_fd("pullers"), u32(ifindex), puller.tobytes())
        except BaseException:
            self.detach(unit, host)
            raise
        return ring

    def _made_ring(self) -> tuple[int, Ring]:
        cell = self._cells.take("rings")
        item = layout.result(self._programs.lanes).itemsize
        fd = -1
        try:
            fd = map_create(MAP_TYPE_ARRAY, 4, item, layout.SLOTS, F_MMAPABLE, "ring")
            wake = map_create(MAP_TYPE_ARRAY, 4, layout.WAKE.itemsize, 1, F_MMAPABLE, "wake")
        except BaseException:
            if fd >= 0:
                os.close(fd)
            self._cells.free("rings", cell)
            raise
        return cell, Ring(fd, layout.SLOTS, wake)

    def detach(self, unit: int, host: int) -> None:
        ifindex = addresses.host_ifindex(unit, host)
        cell, ring = self._rings.pop(ifindex)
        map_delete(self._programs.map_fd("pullers"), u32(ifindex))
        for name in ("rings", "wakes"):  # returns when no program writes there (RCU)
            map_delete(self._programs.map_fd(name), u32(cell))
        self._cells.free("rings", cell)
        for fd in (ring.fd, ring.wake_fd):
            os.close(fd)
