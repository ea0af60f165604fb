"""The places formed by XDP programs, at ToRs and at hosts.

All share the same maps (bpf/maps.h); `Cells` allocates their cells. Nothing here is thread-safe.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from testbed.aggregation.entries import Entry, Role, Sender, Tick
from testbed.aggregation.ticks import tick_frame
from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.control import Injector, open_control
from testbed.dataplanes.xdp.parts import PlacePart
from testbed.dataplanes.xdp.plane import NO_ENTRY, put_port, set_port
from testbed.dataplanes.xdp.program import in_namespace
from testbed.dataplanes.xdp.routes import ip_number
from testbed.dataplanes.xdp.syscall import (
    MAP_TYPE_ARRAY,
    MAP_TYPE_DEVMAP,
    map_create,
    map_delete,
    map_update,
    u32,
)
from testbed.errors import TestbedError
from testbed.plugins.registry import made_part, part_class
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.dataplanes import HOSTS
from testbed.topology.places import Host
from testbed.topology.units import Unit
from testbed.wire import places, spreading
from testbed.wire.frame import mac_bytes
from testbed.wire.records import filled
from testbed.wire.recovery import QUESTIONS

_ROLES = {role: places.Role[role.name] for role in Role}
_SAME_NAMES = (
    "tree",
    "generation",
    "number",
    "base",
    "size",
    "up_base",
    "result_base",
    "lanes",
)

Key = tuple[int, int]  # a job's number, and one of its trees


class Loops(Protocol):
    """The maker of a host's device pairs: of the loop, by which a worker reaches its own host's place; of the
    pair for ticks, which stays; and of the pairs by which copies of results get their addresses.
    """

    def make(self, host: Host) -> None: ...
    def make_control(self, host: Host) -> None: ...
    def make_copy(self, host: Host, number: int) -> None: ...
    def remove_copy(self, host: Host, number: int) -> None: ...
    def remove(self, host: Host) -> None: ...


@dataclass(slots=True)
class _Group:
    """The ports by which a tree's results leave: the group's number, a cell of `groups` for each way over
    parallel circuits, the written rows of `group_ways`, and the ports of each cell and of workers.
    """

    number: int
    cells: list[int]
    rows: npt.NDArray[np.void] | None = None
    ports: dict[int, list[int]] = field(default_factory=dict)
    to_workers: list[int] | None = None


class _Place:
    """Entries, groups and slots of the switch number `owner`, or of the host whose eth0 has the ifindex
    `owner`.
    """

    slots = places.JOB_SLOTS

    def __init__(self, cells: Cells, owner: int) -> None:
        self._cells, self._programs, self._owner = cells, cells.programs, owner
        self._slots: tuple[int, int] | None = None  # cell of the outer map, and descriptor
        self._parts: dict[object, PlacePart] = {}  # by class: programs that inherit one share it
        self._entries: dict[Key, tuple[int, Entry]] = {}  # with the cell of `entries`
        self._groups: dict[Key, _Group] = {}
        self._queued: set[Key] = set()  # trees whose results wait for slots
        self._senders: dict[int, Sender] = {}  # by host
        self._injector: Injector | None = None
        self._opening, self._is_closed = threading.Lock(), False

    def close(self) -> None:
        """Close the descriptors of the slots and of the control port, and the programs' parts."""
        with self._opening:
            self._is_closed = True
            if self._injector:
                self._injector.close()
        if self._slots:
            os.close(self._slots[1])
            self._cells.free("slots", self._slots[0])
            self._slots = None
        while self._parts:
            self._parts.popitem()[1].close()

    def slot_array(self) -> int:
        """Return the descriptor of the array of slots."""
        return self._made_slots()[1]

    def set_group(
        self, number: int, tree: int, devices: Sequence[str], bundles: Sequence[Sequence[str]] = ()
    ) -> None:
        """Set the devices by which the results of a tree leave, before `admit`: all of `devices` and one of
        each of `bundles`. Each way is replaced in one step.
        """
        queued = [unit for bundle in bundles for each in bundle if (unit := addresses.queued_unit(each))]
        if queued:
            others = [bundle for bundle in bundles if not addresses.queued_unit(bundle[0])]
            bundles = [*others, (addresses.CALENDAR_DEVICES[0],)]
        self._set_queued((number, tree), queued)
        if (number, tree) not in self._groups:
            self._groups[number, tree] = _Group(self._cells.take("groups"), [])
        group, ways = self._groups[number, tree], spreading.by_way(bundles)
        while len(group.cells) < len(ways):
            group.cells.append(self._cells.take("cells"))
        self._inside(lambda: self._put_ports(group, devices, ways))
        self._put_ways(group, bundles, ways)
        for cell in group.cells[len(ways) :]:
            del group.ports[cell]
            self._drop_cell(cell)
        del group.cells[len(ways) :]

    def _set_queued(self, key: Key, units: Collection[Unit]) -> None:
        """Set the units for which a tree's results wait for slots."""
        fd = self._programs.map_fd("queued_trees")
        if units:
            words = [sum(1 << unit % 64 for unit in units if unit // 64 == word) for word in range(4)]
            map_update(fd, self._key(key), np.array(words, "=u8").tobytes())
            self._queued.add(key)
        elif key in self._queued:
            self._queued.remove(key)
            map_delete(fd, self._key(key))

    def admit(self, number: int, entry: Entry) -> None:
        """Write the entry of a tree of job `number`. For a new tree the slots of its segment are empty
        afterwards; otherwise the entry is replaced in one step.
        """
        self._programs.need(entry.program)
        if entry.asks:
            self._programs.need(QUESTIONS)
        key = (number, entry.tree)
        is_new, part = key not in self._entries, self._part_for(entry.program)
        has_slots = entry.size > 0 and (part is None or part.has_slots)
        if is_new:
            if has_slots:
                self.empty(entry.base, entry.size)
            self._entries[key] = (self._cells.take("entries"), entry)
        cell = self._entries[key][0]
        self._entries[key] = (cell, entry)
        members = {
            **{name: getattr(entry, name) for name in _SAME_NAMES},
            "workers": entry.workers & (1 << 64) - 1,  # a program's own record may hold more workers
            "places": entry.places & (1 << 64) - 1,
            "self_ip": ip_number(entry.self_ip),
            "up_ip": ip_number(entry.to_ip),
            "group_ip": ip_number(entry.group_ip),
            "id": number,
            "role": _ROLES[entry.role],
            "group": self._groups[key].number,
            "program": self._programs.numbers[entry.program],
            "aggregator": self._made_slots()[0] if has_slots else 0,
            **(part.admit(number, entry, is_new) if part else {}),
        }
        record = filled(layout.ENTRY, **members)
        map_update(self._programs.map_fd("entries"), u32(cell), record.tobytes())
        map_update(self._programs.map_fd("entry_index"), self._key(key), u32(cell))
        if is_new:
            self._entries_changed(number)

    def release(self, number: int, tree: int | None = None) -> None:
        """Remove the entry and the group of a tree, or of all trees of the job; do nothing if there are none.
        A packet being processed may still touch their slots: the slots' next user has another generation.
        """
        for key in [key for key in self._entries if key[0] == number and tree in (None, key[1])]:
            cell, _ = self._entries.pop(key)
            map_delete(self._programs.map_fd("entry_index"), self._key(key))
            map_update(self._programs.map_fd("entries"), u32(cell), bytes(layout.ENTRY.itemsize))
            self._entries_changed(number)
            self._cells.free("entries", cell)
            for part in self._parts.values():
                part.release(*key)
        for key in [key for key in self._groups if key[0] == number and tree in (None, key[1])]:
            self._set_queued(key, ())
            group = self._groups.pop(key)
            for cell in group.cells:
                self._drop_cell(cell)
            if group.to_workers is not None:
                map_delete(self._programs.map_fd("worker_groups"), u32(group.number))
            self._cells.free("groups", group.number)

    def part(self, program: str) -> PlacePart | None:
        """Return a program's own part of this place, or None."""
        return self._parts.get(part_class(program, HOSTS))

    def bind(self, host: int, sender: Sender | None) -> None:
        """Set the sender that may send gradients by the port of this host (at a host: by its loop); None:
        nobody.
        """
        if sender is None:
            self._senders.pop(host, None)
        else:
            self._senders[host] = sender
        self._set_sender(host)

    def tick(self, tick: Tick) -> None:
        """Send a tick to the control port; it is under way when this returns. Another thread may remove the
        entry meanwhile: it is looked up once here, then by the program.

        A test run of the program on a live frame would complete at once, but before Linux 6.3 all but the
        last of the copies that it broadcasts are garbled (`struct xdp_frame` is misplaced there).
        """
        held = self._entries.get((tick.job, tick.tree))
        if held is None:
            raise TestbedError(f"tick job {tick.job}, tree {tick.tree}: it is not summed at this place")
        data = tick_frame(tick, held[1])
        self._made_injector().send(data, self._device())

    def _made_injector(self) -> Injector:
        with self._opening:
            if self._is_closed:
                raise TestbedError("tick: the place has ended")
            if self._injector is None:
                self._inside(self._open_control)
            assert self._injector is not None
            return self._injector

    def _open_control(self) -> None:
        self._injector = Injector()

    def empty(self, base: int, size: int) -> None:
        """Empty slots, which no tree may be using."""
        empty = bytes(layout.slot(self._programs.lanes).itemsize)
        for number in range(base, base + size):
            map_update(self.slot_array(), u32(number), empty)

    # ---- differences between a ToR and a host ----

    def _inside(self, work: Callable[[], None]) -> None:
        """Do `work` in the network namespace of the place's devices."""
        work()

    def _ports_of_workers(self, ports: Sequence[int]) -> list[int] | None:
        """Return those of these ports by which notices leave, if others than a port's own worker receive
        them.
        """
        return None

    def _set_sender(self, host: int) -> None:
        raise NotImplementedError

    def _device(self) -> int:
        """Return the ifindex by which control_port identifies the place."""
        raise NotImplementedError

    def _entries_changed(self, number: int) -> None:
        """Update the senders after an entry of a job was added or removed."""
        for host, sender in self._senders.items():
            if sender.job == number:
                self._set_sender(host)

    # ----

    def _put_ports(self, group: _Group, devices: Sequence[str], ways: Sequence[Sequence[str]]) -> None:
        """Write the ports of each way of a group. Unchanged ones are not written: a change in a map of maps
        returns only when no program uses the old value, after 5 to 20 ms.
        """
        ports = [socket.if_nametoindex(device) for device in devices]
        for cell, way in zip(group.cells, ways, strict=False):
            by_way = [*ports, *(socket.if_nametoindex(device) for device in way)]
            if group.ports.get(cell) != by_way:
                self._put_group("groups", cell, by_way)
                group.ports[cell] = by_way
        to_workers = self._ports_of_workers(ports)
        if to_workers is not None and group.to_workers != to_workers:
            self._put_group("worker_groups", group.number, to_workers)
            group.to_workers = to_workers

    def _put_ways(
        self, group: _Group, bundles: Sequence[Sequence[str]], ways: Sequence[Sequence[str]]
    ) -> None:
        """Write the way of each bucket."""
        rows = np.zeros(spreading.BUCKETS, layout.GROUP_WAY)
        for bucket, row in enumerate(rows):
            way = spreading.circuit_of(bucket, len(ways))
            row["cell"] = group.cells[way]
            parallel = [
                addresses.oxc_number_of(device)
                for bundle, device in zip(bundles, ways[way], strict=True)
                if len(bundle) > 1
            ][: spreading.CHECKED]
            row["checked"][: len(parallel)] = parallel
        if group.rows is not None and (rows == group.rows).all():
            return
        first, fd = group.number * spreading.BUCKETS, self._programs.map_fd("group_ways")
        for bucket, row in enumerate(rows):
            map_update(fd, u32(first + bucket), row.tobytes())
        group.rows = rows

    def _drop_cell(self, cell: int) -> None:
        """Free a way's cell. A deletion in a map of maps returns when no program uses the old value (RCU),
        nor the entry.
        """
        map_delete(self._programs.map_fd("groups"), u32(cell))
        self._cells.free("cells", cell)

    def _put_group(self, name: str, cell: int, ports: Sequence[int]) -> None:
        """Write an entry of one of the two maps of groups: `ports` are ifindices."""
        fd = map_create(MAP_TYPE_DEVMAP, 4, 4, max(1, len(ports)), 0, "group")
        try:
            for position, port in enumerate(ports):
                map_update(fd, u32(position), u32(port))
            map_update(self._programs.map_fd(name), u32(cell), u32(fd))
        finally:
            os.close(fd)  # the outer map holds it

    def _sender(self, sender: Sender) -> dict[str, int]:
        """Return the fields of `struct port`. They refer to the entry of the job's first tree, so that a push
        needs one look-up less.
        """
        trees = [tree for number, tree in self._entries if number == sender.job]
        index = self._entries[sender.job, min(trees)][0] if trees else NO_ENTRY
        worker = places.NOBODY.value if sender.worker is None else sender.worker
        return {
            "job": sender.job,
            "worker": worker,
            "index": index,
            "is_place": int(sender.is_place),
            "relays": int(sender.relays),
            "is_owner": int(sender.is_owner),
        }

    def _key(self, key: Key) -> bytes:
        return np.array((self._owner, *key), layout.ENTRY_KEY).tobytes()

    def _part_for(self, program: str) -> PlacePart | None:
        """Return a program's part, made at first use; None for a program without one."""
        make = part_class(program, HOSTS)
        if make is not None and make not in self._parts:
            self._parts[make] = made_part(program, make, self._cells, self._device())
        return self._parts.get(make)

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


class XdpSwitch(_Place):
    """A switch of a unit. `ports` are the ifindices of its hosts' ports, by host; `any_port` is one for a
    switch without hosts.
    """

    def __init__(self, cells: Cells, dpid: Dpid, ports: Mapping[int, int], any_port: int = 0) -> None:
        super().__init__(cells, dpid)
        self._dpid, self._ports, self._any_port = dpid, ports, any_port

    def _ports_of_workers(self, ports: Sequence[int]) -> list[int]:
        to_hosts = set(self._ports.values())
        return [port for port in ports if port in to_hosts]

    def _set_sender(self, host: int) -> None:
        sender = self._senders.get(host)
        fields = self._sender(sender) if sender else {}
        set_port(self._programs, self._ports[host], self._dpid, host, places.Port.HOST, **fields)

    def _device(self) -> int:
        return next(iter(self._ports.values()), self._any_port)


class XdpHostPlace(_Place):
    """A host as a place. Its devices are in the network namespace at `namespace` (None: the caller's)."""

    def __init__(
        self,
        cells: Cells,
        host: Host,
        namespace: Path | None,
        loops: Loops | None,
        changed: Callable[[], None],
    ) -> None:
        """Make the place. With `loops` None, the loop is assumed to exist. `changed` is called after entries
        were added or removed.
        """
        super().__init__(cells, addresses.host_ifindex(*host))
        self._host, self._loop = host, addresses.loop_place_ifindex(*host)
        self._namespace, self._loops, self._changed = namespace, loops, changed
        self._has_control = False
        self._copies: dict[Host, int] = {}  # each member's pair of devices, by number
        self._members: dict[Key, tuple[Host, ...]] = {}  # of each tree with copied results

    def set_copies(self, number: int, tree: int, members: Sequence[Host], own: bool) -> None:
        """Set the receivers of copies of a tree's results, before `admit`: the hosts `members`, each by a
        device pair of its own, and with `own` the worker on this host.
        """
        self._members[number, tree] = tuple(members)
        for member in members:
            if member not in self._copies:
                self._add_copy(member)
        devices = [addresses.copy_devices(self._copies[member])[0] for member in members]
        self.set_group(number, tree, [*devices, *([addresses.LOOP_PLACE_DEVICE] if own else [])])

    def release(self, number: int, tree: int | None = None) -> None:
        """Release as any place does, and remove the device pairs that no results use any more."""
        super().release(number, tree)
        for key in [key for key in self._members if key[0] == number and tree in (None, key[1])]:
            del self._members[key]
        kept = {member for members in self._members.values() for member in members}
        for member in self._copies.keys() - kept:
            self._drop_copy(member)

    def _add_copy(self, member: Host) -> None:
        number = self._cells.take("copies")
        try:
            if self._loops:
                self._loops.make_copy(self._host, number)
            self._copies[member] = number
            record = filled(
                layout.COPY,
                ifindex=self._owner,
                from_ip=ip_number(addresses.host_ip(*self._host)),
                to_ip=ip_number(addresses.host_ip(*member)),
                mac=list(mac_bytes(addresses.host_mac(*member))),
            )
            _, ifindex = addresses.copy_ifindices(number)
            map_update(self._programs.map_fd("copies"), u32(ifindex), record.tobytes())
            if self._loops:
                self._inside(lambda: self._attach_copy(number))
        except BaseException:
            self._cells.free("copies", number)
            if self._copies.pop(member, None) is not None and self._loops:
                self._loops.remove_copy(self._host, number)
            raise

    def _drop_copy(self, member: Host) -> None:
        number = self._copies.pop(member)
        _, ifindex = addresses.copy_ifindices(number)
        map_delete(self._programs.map_fd("copies"), u32(ifindex))
        if self._loops:
            self._loops.remove_copy(self._host, number)
        self._cells.free("copies", number)

    def bind(self, host: int, sender: Sender | None) -> None:
        """Open the loop for a worker on this host, before a group refers to it; None: remove it."""
        if self._loops and sender and not self._senders:
            self._loops.make(self._host)
            try:
                self._inside(self._attach_loop)
            except BaseException:
                self._loops.remove(self._host)
                raise
        if self._loops and sender is None and self._senders:
            self._loops.remove(self._host)
        super().bind(host, sender)

    def _open_control(self) -> None:
        if self._loops and not self._has_control:
            self._loops.make_control(self._host)
            self._has_control = True
        open_control(self._programs)
        super()._open_control()

    def _attach_loop(self) -> None:
        self._programs.attach("loop_port", addresses.LOOP_PLACE_DEVICE)
        self._programs.attach("host_port", addresses.LOOP_WORKER_DEVICE)

    def _attach_copy(self, number: int) -> None:
        self._programs.attach("copy_port", addresses.copy_devices(number)[1])

    @property
    def has_entries(self) -> bool:
        return bool(self._entries)

    def _inside(self, work: Callable[[], None]) -> None:
        if self._namespace:
            in_namespace(self._namespace, work)
        else:
            work()

    def _set_sender(self, host: int) -> None:
        sender = self._senders.get(host)
        if sender is None:
            map_delete(self._programs.map_fd("ports"), u32(self._loop))
            return
        self_ip = ip_number(addresses.LOOP_PLACE_IP)
        put_port(
            self._programs,
            self._loop,
            owner=self._owner,
            number=host,
            self_ip=self_ip,
            kind=places.Port.LOOP,
            **self._sender(sender),
        )

    def _device(self) -> int:
        return self._owner

    def _entries_changed(self, number: int) -> None:
        super()._entries_changed(number)
        self._changed()
