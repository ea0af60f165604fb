"""A switch of a unit that is a `simple_switch` running p4/: its process, what its tables hold, and the
aggregator that it is to the testbed.
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

QUEUE_PACKETS = 1024  # for each port: a whole window of a job's results (JOB_SLOTS / 2), twice
FLOOD_GROUP = 1
MAX_GROUPS = 4096  # the switch's own limit
BROADCAST = "ff:ff:ff:ff:ff:ff"
READY_S = 30.0
END_SEEN_S = 2.0  # a process with many ports takes its time between the end of its connections and its own


class _Held(NamedTuple):
    """An entry that the switch has: its handle, and the parameters that the program's part said of it."""

    handle: int
    entry: Entry
    named: Mapping[str, int]


class Bmv2Switch:
    """A context manager: entering it starts the switch, leaving it ends it. Thread-safe.

    One that does not answer, or reads back what was not set, is ended, for its tables are no longer known:
    `ended` says why. Whatever is asked of a switch that ended fails at once, until it is restarted.
    """

    slots = JOB_SLOTS
    empties_records = True  # those that a tree is given

    def __init__(self, dpid: Dpid, ports: Mapping[str, int], program: Path, log: Path, verbose: bool) -> None:
        """`ports`: device -> port number, all of its own but the control port, which the switch makes.
        `program` is one of `compiled`'s; `log` is a folder.
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
        """Return the process's number, while it was not stopped."""
        return self._process.pid if self._process else None

    def ended(self) -> str | None:
        """Say why the process is gone, though nobody called `stop`: "signal 9", "exit code 1: " and its last
        words, or "did not answer within 5 s (entry of jobs)" if it was ended for that. None while it runs.
        """
        return self._process.ended() if self._process else None

    def restart(self) -> None:
        """Start a new process in place of what is left of the old one. It knows its hosts, and no job, sender
        or route.
        """
        with self._lock:
            self.stop()
            try:
                self._start()
            except BaseException:
                if self._process:
                    self._process.stop()  # and kept: `ended` tells that it is gone
                raise

    def stop(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._client.close()
            process, self._process = self._process, None
            if process:
                process.stop()

    # ------------------------------------------------------------------ what the testbed tells it

    def set_group(
        self, number: int, tree: int, devices: Sequence[str], bundles: Sequence[Sequence[str]] = ()
    ) -> None:
        """Say by which ports the results of a job's tree leave, before `admit`: by all of `devices`, and by
        one of each of `bundles`, for which there is a group for each way over parallel circuits. Each is
        replaced in one step; where their number changes, so is the tree's entry.
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
        """Return the first of so many group numbers in a row that are free."""
        used = {group for groups in self._groups.values() for group, _ in groups}
        for first in range(FLOOD_GROUP + 1, MAX_GROUPS - count + 1):
            if used.isdisjoint(range(first, first + count)):
                return first
        raise TestbedError(f"{self._name}: job {number}: no more multicast groups")

    def _set_entry(self, key: tuple[int, int], entry: Entry, named: Mapping[str, int]) -> Action:
        groups = self._groups[key]
        return Action("set_entry", entry_data(entry, groups[0][0], len(groups), named))

    def admit(self, number: int, entry: Entry) -> None:
        """Put the entry of a job's tree. If it is new, its segment's slots are empty; else the entry is
        replaced in one step.
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
        """Return a program's part, which is made where it is not there; None for one that has none."""
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
        """Return a program's own part of this switch; None where it has none here."""
        return self._parts.get(part_class(program, ENGINE))

    def empty(self, base: int, size: int) -> None:
        """Empty slots: a job is not to find what another left there."""
        with self._asking():
            self._client.fill_register("slot_state", base, base + size, 0)

    def bind(self, host: int, sender: Sender | None) -> None:
        """Say who may send gradients by the port of this host; None: nobody, as a switch that ended lets."""
        address = _ip(addresses.tor_ip(self._dpid))
        try:
            with self._asking():
                handle = self._senders[addresses.tor_port_number(host)]
                self._client.replace_entry("ports", handle, _from(sender, address))
        except SwitchEndedError:
            if sender:
                raise

    def release(self, number: int, tree: int | None = None) -> None:
        """Takes a job's entries and groups, or those of one tree; nothing if it has none, or if the switch
        ended, and they with it.

        A packet that is being worked on may still find the job's slots; no later job minds, for its
        generation is another.
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
        """Send a tick to the control port. It is worked on behind what has arrived already; where too many
        wait for that, so does this. TestbedError if that takes too long.
        """
        with self._asking():
            if (tick.job, tick.tree) not in self._entries:
                raise TestbedError(f"tick job {tick.job}, tree {tick.tree}: it is not summed at {self._name}")
            frame = tick_frame(tick, self._entries[tick.job, tick.tree].entry)
        self._control.send(frame)  # may wait for others: nobody who asks the switch is to wait for that

    def verdicts(self) -> dict[str, int]:
        """Count what became of packets since the process started."""
        with self._asking():
            counts = self._client.counters("verdicts", list(self._verdicts))
        return dict(zip(self._verdicts.values(), counts, strict=True))

    # ------------------------------------------------------------------ under the lock

    def _forget(self) -> None:
        for part in self._parts.values():
            part.restart()
        self._entries: dict[tuple[int, int], _Held] = {}  # by job and tree
        # (job, tree) -> by way, a group and the handle of its node
        self._groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._senders: dict[int, int] = {}  # port of a host -> handle of its entry

    def _start(self) -> None:
        self._forget()
        self._set_offloads()
        self._process = SwitchProcess(self._dpid, self._all_ports, self._program, self._log, self._verbose)
        self._wait_ready(self._process)
        with self._asking():
            self._settle()

    def _set_offloads(self) -> None:
        """libpcap's ring of 2 MiB holds 1,000 frames of an MTU of 1500, but 32 where the device may merge or
        segment frames.
        """
        with FeatureControl() as control:
            for device in self._all_ports:
                try:
                    control.set(device, wire_features(gro=False))
                except OSError as error:
                    raise TestbedError(f"{self._name}: port {device}: {error.strerror}") from error

    def _wait_ready(self, process: SwitchProcess) -> None:
        """Wait until it answers, with the program and the ports that it was given."""
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
        """Set what every switch has: its address, who is behind each port, where stations are, whom a
        broadcast reaches.
        """
        client, address = self._client, _ip(addresses.tor_ip(self._dpid))
        unit, rack = addresses.tor_unit(self._dpid), addresses.tor_rack(self._dpid)
        hosts = [
            number for number in self._ports.values() if addresses.is_host_port(number)
        ]  # numbered as the hosts are
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
        """Alone. A switch that leaves unknown what it did is ended; a refusal is raised as it is."""
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
        """End a switch whose timers' ticks cannot be sent, which else would wait for ever."""
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
    """Return the parameters of the P4 program's `set_entry`, in their order; of `named` those that the
    entry's program says itself.
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
    """Return the action for packets of a host's port at the switch of this address."""
    if sender is None:
        return Action("from_host", (address,))
    worker = (0, 0) if sender.worker is None else (1, sender.worker)
    roles = (int(sender.is_place), int(sender.is_owner))
    return Action("from_member", (address, sender.job, *worker, *roles))


def _ip(address: str) -> int:
    return int(IPv4Address(address))
