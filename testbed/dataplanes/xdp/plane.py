"""The data plane formed by the XDP programs: ports, routes, circuits and their dark time. Routes and circuits
are read back.

`XdpPlane` is the daemon's: it loads, attaches and pins. Another process, the controller, opens the pins as
`PinnedPlane`. Times are CLOCK_MONOTONIC nanoseconds, the clock that the programs read.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import astuple, dataclass, fields
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from testbed.aggregation.entries import NO_IP
from testbed.aggregation.program import ProgramSource
from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.program import Programs, in_namespace, possible_cpus, verdict_counts
from testbed.dataplanes.xdp.routes import PinnedRoutes, Routes, ip_number, of_matching, packed_routes
from testbed.dataplanes.xdp.syscall import (
    XDP_DROP,
    XDP_TX,
    Rows,
    map_keys,
    map_lookup,
    map_lookup_rows,
    map_update,
    map_update_rows,
    open_pin,
    pin,
    program_id,
    run,
    u32,
)
from testbed.dataplanes.xdp.timetable import KeptTimetable
from testbed.errors import HostError, RequestError, SettingError, TestbedError
from testbed.ocs.glimpses import Glimpses
from testbed.ocs.timetable import Kept, Timetable
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.units import Unit
from testbed.wire import spec
from testbed.wire.places import (
    MAX_ENTRIES,
    MAX_FLOWS,
    MAX_OPTICAL_PORTS,
    NOBODY,
    OPTICAL_STRIDE,
    Frames,
    Port,
)
from testbed.wire.records import Column, columns, filled

PINNED_PROGRAM = "oxc_port"
OPTICS = 0  # the owner of the optical switch's ports; a switch's ports are its number's
NO_ENTRY = MAX_ENTRIES  # an index into `entries` past its end
NOBODY_SENDS = {"job": NOBODY.value, "worker": NOBODY.value, "index": NO_ENTRY}
PROBES = 200  # probes of a first call, whose duration determines the number of the next
WATCH_BEFORE_NS, WATCH_AFTER_NS = 500_000, 100_000
AWAKE_BEFORE_NS = 4_000_000  # without preemption, the kernel wakes even the first in line milliseconds late
NEVER_NS = (1 << 64) - 1
PROBE_FRAME = bytes(12) + spec.PROBE_ETHERTYPE.to_bytes(2, "big") + bytes(46)


@dataclass(frozen=True, slots=True)
class PinnedMaps:
    """The descriptors of the maps that other processes open by their pins."""

    routes: int
    circuits: int
    glimpses: int
    verdicts: int
    timetables: int
    meetings: int
    crossings: int
    flows: int


PINNED_MAPS = tuple(each.name for each in fields(PinnedMaps))


@dataclass(frozen=True, slots=True, eq=False)
class CircuitColumns:
    """The members of ports' circuits (CIRCUIT)."""

    before: Column
    before_ifindex: Column
    dark_at_ns: Column
    lit_at_ns: Column
    peer: Column
    ifindex: Column


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """A port to attach to, of a unit's switch or of the optical switch (`dpid` None): its device and port
    number.
    """

    dpid: Dpid | None
    number: int
    device: str

    @property
    def program(self) -> str:
        """The program to attach there."""
        return "tor_port" if self.dpid else PINNED_PROGRAM


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host's eth0, in the network namespace at `namespace`."""

    unit: Unit
    host: int
    namespace: Path
    program = "host_port"  # attached there


def set_port(
    programs: Programs, ifindex: int, dpid: Dpid | None, number: int, kind: int, **sender: int
) -> None:
    """Set the kind of a switch port, of a unit's switch or of the optical switch (None), and the sender that
    may send gradients by it (`put_port`).
    """
    owner, ip = (dpid, addresses.tor_ip(dpid)) if dpid else (OPTICS, NO_IP)
    put_port(programs, ifindex, owner=owner, number=number, self_ip=ip_number(ip), kind=kind, **sender)


def put_port(programs: Programs, ifindex: int, **fields: int) -> None:
    """Replace a device's `struct port`. Only the sender that `job`, `worker` and `is_place` name may send by
    it; `index` is the entry of that job's first tree.
    """
    port = filled(layout.PORT, **{**NOBODY_SENDS, **fields})
    map_update(programs.map_fd("ports"), u32(ifindex), port.tobytes())


def _port_keys(ports: Sequence[int]) -> Rows:
    return np.array(ports, np.uint32).view(layout.DEVICE)


def _meeting_key(port: int, matching: int) -> bytes:
    return filled(layout.MEETING_KEY, port=port, matching=matching).tobytes()


def _meeting(peer: int, ifindex: int, stays: bool) -> bytes:
    return filled(layout.MEETING, peer=peer, ifindex=ifindex, stays=stays).tobytes()


def _staying_devices(table: Timetable, number: int) -> frozenset[str]:
    """Return the devices at units' switches of a matching's circuits that are in the one before as well."""
    ports = (addresses.parse_optical_port(port) for each in table.staying(number) for port in each.ports)
    return frozenset(addresses.optical_device(*port) for port in ports)


class PinnedPlane:
    """Circuits, dark time and routes through the pinned maps. Several threads may set routes of different
    ToRs at the same time, and another one circuits.
    """

    def __init__(self, maps: PinnedMaps, gate: int, devices: Mapping[int, str]) -> None:
        """Take the descriptors of the maps and of PINNED_PROGRAM, and the optical switch's devices by port
        number.
        """
        self.routes, self._maps, self._gate = PinnedRoutes(maps.routes), maps, gate
        self._kept = KeptTimetable(maps.timetables, maps.meetings, maps.routes)
        self._ifindex = {number: socket.if_nametoindex(device) for number, device in devices.items()}

    def turn(self, peers: Mapping[int, int | None], dark_at_ns: int, lit_at_ns: int) -> None:
        """Switch each of these ports to another peer (None: to none), dark from `dark_at_ns` to
        `lit_at_ns`.
        """
        self.darken(peers, dark_at_ns)
        self.light(peers, lit_at_ns)

    def darken(self, peers: Mapping[int, int | None], dark_at_ns: int) -> None:
        """Switch each of these ports to another peer (None: to none), dark from `dark_at_ns` until a later
        `light` ends that.

        Until it goes dark, a port keeps its present peer. The programs execute this by their own clock.
        """
        ports = list(peers)
        circuits = np.zeros(len(ports), layout.CIRCUIT)
        was, to = columns(CircuitColumns, self._circuits_of(ports)), columns(CircuitColumns, circuits)
        to.before[:], to.before_ifindex[:] = was.peer, was.ifindex
        to.dark_at_ns[:], to.lit_at_ns[:] = dark_at_ns, NEVER_NS
        to.peer[:] = [peer or 0 for peer in peers.values()]
        to.ifindex[:] = [0 if peer is None else self._device_of(peer) for peer in peers.values()]
        self._set_circuits(ports, circuits)

    def light(self, ports: Iterable[int], lit_at_ns: int | Sequence[int]) -> None:
        """Set the end of the dark time of darkened ports, one for all or one for each. If this returns before
        the dark time begins, nothing more needs to be done.
        """
        ports = list(ports)
        circuits = self._circuits_of(ports)
        columns(CircuitColumns, circuits).lit_at_ns[:] = lit_at_ns
        self._set_circuits(ports, circuits)

    def circuits(self) -> dict[int, int]:
        """Return the peer of each port that has a circuit, dark or not; 0 if the end of its dark time was
        never set, because the process that should have was killed or failed.
        """
        peers: dict[int, int] = {}
        of = columns(CircuitColumns, self._circuits_of(list(self._ifindex)))
        for port, lit_at_ns, peer in zip(self._ifindex, of.lit_at_ns.tolist(), of.peer.tolist(), strict=True):
            if lit_at_ns == NEVER_NS:
                peers[port] = 0
            elif peer:
                peers[port] = peer
        return peers

    def lit(self, port: int) -> bool:
        """Return whether a frame that arrives at this port now would cross, by running the program that
        carries the traffic.
        """
        return self._probed(port, 1) == XDP_TX

    def watch(self, port: int, dark_at_ns: int, lit_at_ns: int) -> Glimpses:
        """Watch the dark time of a port from before its begin until its planned end, and return the probes'
        times.

        Around both ends the kernel runs the program that carries the traffic repeatedly, by its own clock: no
        thread of this process and no interpreter delays one probe after another.
        """
        map_update(self._maps.glimpses, u32(port), bytes(layout.GLIMPSE.itemsize))
        for edge_ns in (dark_at_ns, lit_at_ns):
            _sleep_until(edge_ns - AWAKE_BEFORE_NS)
            while time.monotonic_ns() < edge_ns - WATCH_BEFORE_NS:
                pass
            probes, before_ns = PROBES, time.monotonic_ns()
            while before_ns <= edge_ns:
                self._probed(port, probes)
                now_ns = time.monotonic_ns()
                probe_ns = max(1, (now_ns - before_ns) // probes)
                probes, before_ns = max(1, (edge_ns - now_ns + WATCH_AFTER_NS) // probe_ns), now_ns
            self._probed(port, 1)
        value = map_lookup(self._maps.glimpses, u32(port), layout.GLIMPSE.itemsize)
        return Glimpses(*(int(ns) for ns in np.frombuffer(value or b"", layout.GLIMPSE)[0]))

    def _probed(self, port: int, times: int) -> int:
        action, _ = run(self._gate, PROBE_FRAME, self._device_of(port), times)
        if action not in (XDP_DROP, XDP_TX):
            raise TestbedError(f"probe optical port {port}: the gate answered {action}")
        return action

    def keep(
        self,
        table: Timetable,
        peers: Sequence[Mapping[int, int]],
        routes: Mapping[Frames, Sequence[Mapping[Dpid, Routes]]],
        start_ns: Callable[[], int],
    ) -> None:
        """Start a timetable, with the peers by port of each matching, and for each kind of frames the routes
        by switch of each matching; see `KeptTimetable.keep`.
        """
        meetings = {
            _meeting_key(port, number): _meeting(
                peer, self._device_of(peer), stays=peers[number - 1].get(port) == peer
            )
            for number, met in enumerate(peers)
            for port, peer in met.items()
        }
        staying = [_staying_devices(table, number) for number in range(len(peers))]
        entries = {
            key: value
            for frames, by_matching in routes.items()
            for number, by_switch in enumerate(by_matching)
            for key, value in packed_routes(
                by_switch.items(), of_matching(number, frames), staying[number]
            ).items()
        }
        self._kept.keep(table, meetings, entries, start_ns)

    def stop(self) -> None:
        """Stop the timetable; `leave` removes its entries."""
        self._kept.stop()

    def leave(self) -> None:
        """Stop any timetable and remove its entries: circuits are as they were last set."""
        self._kept.clear()

    def is_kept(self) -> bool:
        """Return whether a timetable runs now."""
        return self.kept_from_ns() != 0

    def kept(self) -> Kept | None:
        """Return the timetable that runs now, whichever process started it."""
        return self._kept.kept()

    def kept_from_ns(self) -> int:
        """Return when the running timetable began, or will begin; 0: none runs."""
        return self._kept.start_ns()

    def crossings(self) -> dict[int, tuple[int, int, int]]:
        """Count by port the frames that crossed, that were lost in the dark, and that found no circuit; port
        0 of a unit counts the frames to a unit to which no circuit led.
        """
        units = {number // OPTICAL_STRIDE for number in self._ifindex}
        counted = {}
        for number in sorted({*self._ifindex, *(unit * OPTICAL_STRIDE for unit in units)}):
            size = layout.CROSSINGS.itemsize * possible_cpus()
            by_cpu = np.frombuffer(
                map_lookup(self._maps.crossings, u32(number), size) or b"", layout.CROSSINGS
            )
            counts = (int(by_cpu[name].sum()) for name in ("lit", "dark", "unlit"))
            lit, dark, unlit = counts
            counted[number] = (lit, dark, unlit)
        return counted

    def flows(self) -> dict[tuple[str, str, int, int], int]:
        """Count the bytes of plain traffic that entered by hosts' ports, by addresses, protocol and port, for
        the latest MAX_FLOWS flows.
        """
        keys = {*islice(map_keys(self._maps.flows, layout.FLOW.itemsize), 2 * MAX_FLOWS)}
        counted = {}
        for key in keys:  # programs keep running, and may evict an entry
            value = map_lookup(self._maps.flows, key, 8)
            if value is not None:
                from_ip, to_ip, port, protocol = (int(each) for each in np.frombuffer(key, layout.FLOW)[0])
                source, goal = (socket.inet_ntoa(ip.to_bytes(4, "big")) for ip in (from_ip, to_ip))
                counted[source, goal, protocol, port] = int.from_bytes(value, "little")
        return counted

    def verdicts(self) -> dict[str, int]:
        """Count packets by verdict since the start (`contract.verdicts`)."""
        return verdict_counts(self._maps.verdicts)

    def close(self) -> None:
        """Close the descriptors."""
        for fd in (*astuple(self._maps), self._gate):
            os.close(fd)

    def _device_of(self, port: int) -> int:
        if port not in self._ifindex:
            raise TestbedError(f"optical port {port}: there is none; ports are {sorted(self._ifindex)}")
        return self._ifindex[port]

    def _circuits_of(self, ports: Sequence[int]) -> Rows:
        """Read these ports' circuits."""
        for port in ports:
            self._device_of(port)
        if ports and max(ports) >= MAX_OPTICAL_PORTS:
            raise TestbedError(f"optical port {max(ports)}: beyond the table")
        return map_lookup_rows(self._maps.circuits, _port_keys(ports), layout.CIRCUIT)

    def _set_circuits(self, ports: Sequence[int], circuits: Rows) -> None:
        map_update_rows(self._maps.circuits, _port_keys(ports), circuits)
        read = self._circuits_of(ports)
        if read.tobytes() != circuits.tobytes():
            port = ports[int(np.flatnonzero(read != circuits)[0])]
            raise SettingError(f"optical port {port}: the circuit read back differs from the one set")


def open_pinned(folder: Path, devices: Mapping[int, str]) -> PinnedPlane:
    """Open the plane pinned in `folder`; `devices` names the optical switch's ports by number."""
    maps = PinnedMaps(*(open_pin(folder / name) for name in PINNED_MAPS))
    return PinnedPlane(maps, open_pin(folder / PINNED_PROGRAM), devices)


class XdpPlane:
    """The loaded programs on every port, with pins for the controller. A context manager: entering starts
    compiling and loading on a thread; `attach` waits for that and sets `programs`.
    """

    def __init__(self, pin_dir: Path, mtu: int, systems: Sequence[ProgramSource]) -> None:
        self._pin_dir, self._mtu, self._systems = pin_dir, mtu, systems
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.callback(self._let_go)
        loader = self._stack.enter_context(ThreadPoolExecutor(1, "load"))
        self._loading = loader.submit(self._loaded)
        return self

    def _loaded(self) -> Programs:
        users = [system for system in self._systems if system.is_users]
        try:
            return self._loaded_with(users)
        except HostError as error:
            if not users:
                raise
            files = " ".join(str(each.path) for each in users)
            why = str(error).partition("; `testbed doctor`")[0]  # the host is not to blame
            raise RequestError(f"programs: {files}: {why}") from error

    def _loaded_with(self, users: Sequence[ProgramSource]) -> Programs:
        programs = Programs(self._systems, spec.lanes_for(self._mtu))
        # errors in a user's own program are reported before any job
        programs.load(*(system.name for system in users))
        return programs

    def _let_go(self) -> None:
        if not self._loading.exception():
            self._loading.result().close()

    def attach(self, switch_ports: Sequence[SwitchPort], host_ports: Sequence[HostPort]) -> None:
        """Attach to these ports, and pin. HostError if this host cannot load the programs."""
        self.programs = self._loading.result()
        for port in switch_ports:
            at_host = port.dpid and addresses.is_host_port(port.number)
            kind = Port.HOST if at_host else Port.FABRIC
            set_port(self.programs, socket.if_nametoindex(port.device), port.dpid, port.number, kind)
        for port in switch_ports:
            self.programs.attach(port.program, port.device)
        for host in host_ports:
            self.attach_at(host)
        self._pin_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in PINNED_MAPS:
            pin(self.programs.map_fd(name), self._pin_dir / name)
        pin(self.programs.program_fd(PINNED_PROGRAM), self._pin_dir / PINNED_PROGRAM)

    def attach_at(self, host: HostPort) -> None:
        """Attach to a host's eth0."""
        in_namespace(host.namespace, lambda: self.programs.attach(host.program, "eth0"))

    def number(self, program: str) -> int:
        """Return the kernel's id of a program, which devices report."""
        return program_id(self.programs.program_fd(program))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in (*PINNED_MAPS, PINNED_PROGRAM):
            (self._pin_dir / name).unlink(missing_ok=True)
        self._stack.__exit__(kind, error, trace)

    def verdicts(self) -> dict[str, int]:
        """Count packets by verdict since the start (`contract.verdicts`)."""
        return verdict_counts(self.programs.map_fd("verdicts"))


def _sleep_until(monotonic_ns: int) -> None:
    rest_ns = monotonic_ns - time.monotonic_ns()
    if rest_ns > 0:
        time.sleep(rest_ns / 1e9)
