"""A unit's switch as a `simple_switch` process that runs p4/: its process, the contents of its tables, and
its interface as a place.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple, Self

from testbed.aggregation.entries import Entry, Role, Sender, Tick
from testbed.aggregation.ticks import tick_frame
from testbed.dataplanes.bmv2 import routes as routing
from testbed.dataplanes.bmv2.compile import ENGINE
from testbed.dataplanes.bmv2.control_port import ControlPort
from testbed.dataplanes.bmv2.parts import SwitchAccess, SwitchEndedError, SwitchPart
from testbed.dataplanes.bmv2.process import BINARY, SwitchProcess, ended_words
from testbed.dataplanes.bmv2.program import lanes_of, programs_of, verdict_names
from testbed.dataplanes.bmv2.switch_client import Action, Key, NoAnswerError, SwitchClient
from testbed.emulation.offloads import FeatureControl, wire_features
from testbed.errors import RequestError, SettingError, TestbedError
from testbed.plugins.registry import made_part, part_class
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.wire import places as contract
from testbed.wire import spreading
from testbed.wire.places import JOB_SLOTS, P4_ENTRY

QUEUE_PACKETS = 1024  # for each port: two windows of a job's results (JOB_SLOTS / 2 each)
FLOOD_GROUP = 1
MAX_GROUPS = 4096  # the switch's own limit
BROADCAST = "ff:ff:ff:ff:ff:ff"
READY_S = 30.0
END_SEEN_S = 2.0  # a process with many ports ends long after its connections


class _Held(NamedTuple):
    """An entry in the switch: its handle, the entry, and the parameters that the program's part added."""

    handle: int
    entry: Entry
    named: Mapping[str, int]


class Bmv2Switch:
    """A context manager: entering it starts the switch, leaving it ends it. Thread-safe.

    A switch that does not answer, or reads back a wrong value, is ended, since its tables are then unknown;
    `ended` says why. Requests to a switch that ended fail at once, until it is restarted.
    """

    slots = JOB_SLOTS
    empties_records = True  # whether to clear records allocated to a tree

    def __init__(self, dpid: Dpid, ports: Mapping[str, int], program: Path, log: Path, verbose: bool) -> None:
        """Prepare the switch. `ports`: device -> port number, all except the control port, which the switch
        makes itself. `program` comes from `compiled`; `log` is a folder.
        """
        self._dpid, self._name, self._ports = dpid, addresses.tor_name(dpid), dict(ports)
        self._program, self._log, self._verbose = program, log, verbose
        self._control = ControlPort(dpid)
        self._all_ports = {**self._ports, self._control.device: addresses.CONTROL_PORT}
        self._client = SwitchClient(dpid)
        self._parts: dict[object, SwitchPart] = {}  # by class: programs that inherit one share it
        self._process: SwitchProcess | None = None
        self._verdicts = verdict_names()
        self._lock = threading.RLock()
        self._forget()

    def __enter__(self) -> Self:
        with self._lock:
            try:
                self._control.open()
                self._start()
            except BaseException:
                self._end()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        try:
            for part in self._parts.values():
                part.close()
            self.stop()
        finally:
            self._control.close()

    @property
    def pid(self) -> int | None:
        """The process id, unless the process was stopped."""
        return self._process.pid if self._process else None

    def ended(self) -> str | None:
        """Describe why the process ended without `stop`: "signal 9", "exit code 1: " and its last words, or
        "did not answer within 5 s (entry of jobs)" if it was ended for that. None while it runs.
        """
        return self._process.ended() if self._process else None

    def restart(self) -> None:
        """Replace the ended process by a new one. It knows its hosts, but no job, sender or route."""
        with self._lock:
            self.stop()
            try:
                self._start()
            except BaseException:
                if self._process:
                    self._process.stop()  # keep it, so that `ended` reports its end
                raise

    def stop(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._client.close()
            process, self._process = self._process, None
            if process:
                process.stop()

    # ------------------------------------------------------------------ the place's interface

    def set_group(
        self, number: int, tree: int, devices: Sequence[str], bundles: Sequence[Sequence[str]] = ()
    ) -> None:
        """Set the ports by which the results of a job's tree leave, before `admit`: all of `devices`, and one
        of each of `bundles`. There is one multicast group per way over parallel circuits. Each is replaced in
        one step; if their number changes, so is the tree's entry.
        """
        ways = [[self._port(device) for device in (*devices, *way)] for way in spreading.by_way(bundles)]
        key = (number, tree)
        with self._asking():
            before = self._groups.get(key, ())
            if len(before) == len(ways):
                for (group, node), ports in zip(before, ways, strict=True):
                    self._client.replace_group(group, node, ports)
                return
            made: list[tuple[int, int]] = []
            try:
                for group, ports in enumerate(ways, self._free_groups(number, len(ways))):
                    made.append((group, self._client.add_group(group, ports)))
            except TestbedError:
                for group, node in made:
                    self._client.delete_group(group, node)
                raise
            self._groups[key] = made
            if key in self._entries:
                held = self._entries[key]
                action = self._set_entry(key, held.entry, held.named)
                self._client.replace_entry("entries", held.handle, action)
            for group, node in before:
                self._client.delete_group(group, node)

    def _free_groups(self, number: int, count: int) -> int:
        """Return the first of `count` consecutive free group numbers."""
        used = {group for groups in self._groups.values() for group, _ in groups}
        for first in range(FLOOD_GROUP + 1, MAX_GROUPS - count + 1):
            if used.isdisjoint(range(first, first + count)):
                return first
        raise TestbedError(f"{self._name}: job {number}: no more multicast groups")

    def _set_entry(self, key: tuple[int, int], entry: Entry, named: Mapping[str, int]) -> Action:
        groups = self._groups[key]
        return Action("set_entry", entry_data(entry, groups[0][0], len(groups), named))

    def admit(self, number: int, entry: Entry) -> None:
        """Write the entry of a job's tree. For a new tree the slots of its segment are empty; otherwise the
        entry is replaced in one step.
        """
        key = (number, entry.tree)
        lanes = lanes_of(self._program)
        if entry.lanes != lanes:
            raise RequestError(
                f"{self._name}: job {number}: packets of {entry.lanes} lanes; its P4 program takes {lanes}"
            )
        if entry.program not in (has := programs_of(self._program)):
            raise RequestError(
                f"{self._name}: job {number}: program {entry.program}; its P4 has {', '.join(has)}"
            )
        with self._asking():
            if key not in self._groups:
                raise TestbedError(f"{self._name}: job {number}: admitted before its group was set")
            part = self._part_for(entry.program)
            named = part.admit(number, entry) if part else {}
            action = self._set_entry(key, entry, named)
            if key in self._entries:
                handle = self._entries[key].handle
                self._client.replace_entry("entries", handle, action)
            else:
                if part is None or part.has_slots:
                    self.empty(entry.base, entry.size)
                handle = self._client.add_entry("entries", Key(number << 8 | entry.tree, 24), action)
            self._entries[key] = _Held(handle, entry, named)

    def _part_for(self, program: str) -> SwitchPart | None:
        """Return a program's part, made at first use; None for a program without one."""
        make = part_class(program, ENGINE)
        if make is not None and make not in self._parts:
            access = SwitchAccess(
                dpid=self._dpid,
                client=self._client,
                asking=self._asking,
                send=self._control.send,
                lacks_ticks=self._lacks_ticks,
                empties=self.empties_records,
            )
            self._parts[make] = made_part(program, make, access)
        return self._parts.get(make)

    def part(self, program: str) -> SwitchPart | None:
        """Return a program's own part of this switch, or None."""
        return self._parts.get(part_class(program, ENGINE))

    def empty(self, base: int, size: int) -> None:
        """Empty slots, so that a job does not find another's sums there."""
        with self._asking():
            self._client.fill_register("slot_state", base, base + size, 0)

    def bind(self, host: int, sender: Sender | None) -> None:
        """Set the sender that may send gradients by this host's port; None: nobody, as after the switch has
        ended.
        """
        address = _ip(addresses.tor_ip(self._dpid))
        try:
            with self._asking():
                handle = self._senders[addresses.tor_port_number(host)]
                self._client.replace_entry("ports", handle, _from(sender, address))
        except SwitchEndedError:
            if sender:
                raise

    def release(self, number: int, tree: int | None = None) -> None:
        """Delete a job's entries and groups, or those of one tree; do nothing if it has none, or if they
        ended with the switch.

        A packet in the pipeline may still reach the job's slots; this does not disturb a later job, whose
        generation differs.
        """
        held = {*self._entries, *self._groups}
        mine = [key for key in held if key[0] == number and tree in (None, key[1])]
        try:
            with self._asking():
                for key in mine:
                    if key in self._entries:
                        self._client.delete_entry("entries", self._entries[key].handle)
                        del self._entries[key]
                    for part in self._parts.values():
                        part.release(*key)
                    if key in self._groups:
                        while self._groups[key]:
                            self._client.delete_group(*self._groups[key][-1])
                            self._groups[key].pop()
                        del self._groups[key]
        except SwitchEndedError:
            for key in mine:
                self._entries.pop(key, None)
                self._groups.pop(key, None)
                for part in self._parts.values():
                    part.forget(*key)

    def tick(self, tick: Tick) -> None:
        """Send a tick to the control port. It is processed after earlier frames, and waits if too many are
        queued. TestbedError if that takes too long.
        """
        with self._asking():
            if (tick.job, tick.tree) not in self._entries:
                raise TestbedError(f"tick job {tick.job}, tree {tick.tree}: it is not summed at {self._name}")
            frame = tick_frame(tick, self._entries[tick.job, tick.tree].entry)
        self._control.send(frame)  # may wait for earlier ticks: not under the lock that all queries take

    def verdicts(self) -> dict[str, int]:
        """Count packets by verdict since the process started."""
        with self._asking():
            counts = self._client.counters("verdicts", list(self._verdicts))
        return dict(zip(self._verdicts.values(), counts, strict=True))

    # ------------------------------------------------------------------ under the lock

    def _forget(self) -> None:
        for part in self._parts.values():
            part.restart()
        self._entries: dict[tuple[int, int], _Held] = {}  # by job and tree
        # (job, tree) -> by way: a group, and the handle of its node
        self._groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._senders: dict[int, int] = {}  # host's port -> handle of its entry

    def _start(self) -> None:
        self._forget()
        self._set_offloads()
        self._process = SwitchProcess(self._dpid, self._all_ports, self._program, self._log, self._verbose)
        self._wait_ready(self._process)
        with self._asking():
            self._settle()

    def _set_offloads(self) -> None:
        """Set the ports' offloads: libpcap's ring of 2 MiB holds 1,000 frames at an MTU of 1500, but only 32
        if the device may merge or segment frames.
        """
        with FeatureControl() as control:
            for device in self._all_ports:
                try:
                    control.set(device, wire_features(gro=False))
                except OSError as error:
                    raise TestbedError(f"{self._name}: port {device}: {error.strerror}") from error

    def _wait_ready(self, process: SwitchProcess) -> None:
        """Wait until the switch answers, with the given program and ports."""
        deadline = time.monotonic() + READY_S
        while True:
            if end := process.ended():
                raise TestbedError(f"start {self._name}'s {BINARY}: {end}")
            try:
                self._client.uptime_us()
                break
            except TestbedError as error:
                if time.monotonic() > deadline:
                    raise TestbedError(
                        f"start {self._name}'s {BINARY}: no answer within {READY_S:g} s: {error}"
                    ) from error
            time.sleep(0.01)
        digest = hashlib.md5(self._program.read_bytes(), usedforsecurity=False).digest()
        if self._client.program_digest() != digest:
            raise SettingError(f"{self._name}'s {BINARY} runs another program than {self._program}")
        if (ports := self._client.ports()) != self._all_ports:
            lacking = ", ".join(sorted({*self._all_ports} - {*ports})) or "others than were asked for"
            raise SettingError(
                f"{self._name}'s {BINARY} took {len(ports)} of {len(self._all_ports)} ports; not: {lacking}"
            )

    def _settle(self) -> None:
        """Set the tables that every switch has: its address, the kind of each port, the stations' ports, and
        the broadcast group.
        """
        client, address = self._client, _ip(addresses.tor_ip(self._dpid))
        unit, rack = addresses.tor_unit(self._dpid), addresses.tor_rack(self._dpid)
        hosts = [
            number for number in self._ports.values() if addresses.is_host_port(number)
        ]  # hosts' ports have the hosts' numbers
        for number in set(self._ports.values()).difference(hosts):
            client.add_entry("ports", Key(number, 9), Action("from_fabric", (address,)))
            client.add_entry("to_fabric", Key(number, 9), Action("leave_out"))
        client.add_entry("ports", Key(addresses.CONTROL_PORT, 9), Action("from_control", (address,)))
        back = routing.mac_number(addresses.control_mac(self._dpid))
        client.add_entry("stations", Key(back, 48), Action("switch_to", (addresses.CONTROL_PORT,)))
        client.set_queue_depth(QUEUE_PACKETS)
        client.add_group(FLOOD_GROUP, hosts)
        flood = Action("flood", (FLOOD_GROUP,))
        client.add_entry("stations", Key(routing.mac_number(BROADCAST), 48), flood)
        for host in hosts:
            self._senders[host] = client.add_entry("ports", Key(host, 9), _from(None, address))
            mac = routing.mac_number(addresses.host_mac(unit, addresses.in_rack(rack, host)))
            client.add_entry("stations", Key(mac, 48), Action("switch_to", (host,)))

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Hold the lock during queries. A switch whose state is unknown afterwards is ended; a refusal is
        raised as it is.
        """
        with self._lock:
            process = self._process
            if process is None:
                raise SwitchEndedError(f"{self._name}'s {BINARY} does not run")
            if how := process.ended():
                raise SwitchEndedError(ended_words(self._dpid, how))
            try:
                yield
            except NoAnswerError as error:
                how = None if error.timed_out else process.ended(END_SEEN_S)
                raise self._given_up(process, how or error.how) from error
            except SettingError as error:
                raise self._given_up(
                    process, str(error).removeprefix(f"{self._name}'s {BINARY}: ")
                ) from error

    def _given_up(self, process: SwitchProcess, why: str) -> SwitchEndedError:
        process.stop(why)
        return SwitchEndedError(ended_words(self._dpid, process.ended() or why))

    def _lacks_ticks(self, why: str) -> None:
        """End a switch whose ticks cannot be sent: its sums would wait forever."""
        with self._lock:
            if self._process and not self._process.ended():
                self._process.stop(why)

    def _port(self, device: str) -> int:
        if device not in self._ports:
            raise TestbedError(f"{self._name}: no port {device}; there are {', '.join(self._ports)}")
        return self._ports[device]


_ROLES = {
    Role.TOP: contract.Role.TOP,
    Role.INNER: contract.Role.INNER,
    Role.TRANSIT: contract.Role.TRANSIT,
}


def entry_data(entry: Entry, group: int, ways: int, named: Mapping[str, int]) -> tuple[int, ...]:
    """Return the arguments of the P4 program's `set_entry`, in its order; from `named`, those that the
    program's part added.
    """
    values = {
        **{
            name: getattr(entry, name)
            for name in (
                *("workers", "places", "generation", "base", "size", "number"),
                *("up_base", "result_base", "lanes"),
            )
        },
        "self_ip": _ip(entry.self_ip),
        "up_ip": _ip(entry.to_ip),
        "group_ip": _ip(entry.group_ip),
        "role": int(_ROLES[entry.role]),
        "program": int(contract.Program[entry.program.upper()]),
        "group": group,
        "ways": ways,
        "record": 0,
        **named,
    }
    return tuple(values[parameter.name] for parameter in P4_ENTRY)


def _from(sender: Sender | None, address: int) -> Action:
    """Return the action for packets from a host's port, at the switch with this address."""
    if sender is None:
        return Action("from_host", (address,))
    worker = (0, 0) if sender.worker is None else (1, sender.worker)
    roles = (int(sender.is_place), int(sender.is_owner))
    return Action("from_member", (address, sender.job, *worker, *roles))


def _ip(address: str) -> int:
    return int(IPv4Address(address))
