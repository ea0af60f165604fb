"""The XDP programs, run on the packet vectors: frames go through BPF_PROG_TEST_RUN, one at a time, on the
observed programs.

A frame's verdict is the counter that the programs raise; the ports by which it leaves follow from their
requests to the kernel (tests/privileged/observed.py).
"""

from __future__ import annotations

import mmap
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Self
from unittest.mock import patch

import numpy as np

from testbed.aggregation.entries import Entry, Sender
from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.hosts import XdpHosts
from testbed.dataplanes.xdp.packet_room import lead_to_room
from testbed.dataplanes.xdp.places import XdpHostPlace, XdpSwitch
from testbed.dataplanes.xdp.plane import PINNED_MAPS, PINNED_PROGRAM, PinnedMaps, PinnedPlane, set_port
from testbed.dataplanes.xdp.program import verdict_counts
from testbed.dataplanes.xdp.syscall import XDP_DROP, XDP_PASS, XDP_REDIRECT, XDP_TX, map_lookup, u32
from testbed.emulation.netlink import RouteSocket, delete_device
from testbed.emulation.pairs import add_pair
from testbed.reference_model.aggregator import ETH0, LOOP_PORT
from testbed.reference_model.output_ports import Emission, Route, To
from testbed.reference_model.pull import Puller, Stored
from testbed.systems.luwu.reference import OwnedTree
from testbed.systems.luwu.xdp import OwnedRecords
from testbed.systems.trio.contract import MOST_SOURCES
from testbed.systems.trio.reference import JobRecord
from testbed.systems.trio.xdp.table import BlockTable
from testbed.topology import addresses
from testbed.topology.addresses import ROOM_DEVICES
from testbed.topology.places import Host
from testbed.wire.places import Port, Sum
from testbed.wire.spec import MAX_WORKERS
from tests.limits import CALL_S
from tests.privileged.observed import EXCLUDE_INGRESS, TO_GROUP, Observed, Run
from tests.vectors.build import FABRIC, HOST_PORTS, SLOTS
from tests.vectors.in_step import Held

UNIT = 1  # the unit of TOR_IP
HOST_UNIT, HOST = 3, 1  # the host of PS_IP
_STATES = {0: (False, False), 1: (False, False), 2: (True, False), 3: (True, True)}  # -> (complete, final)
_VERDICTS = layout.verdict_names()


@contextmanager
def devices() -> Iterator[dict[int, int]]:
    """Make a device for each port in the calling process's network namespace during the block, and yield port
    number -> ifindex. No frame goes over them.

    Port 0 is a host's, with the ifindex that a testbed gives to eth0 of host 1 in unit 3; LOOP_PORT is its
    loop's.
    """
    ports = [*HOST_PORTS, *FABRIC]
    names = {port: f"p{port}" for port in ports}
    pairs = zip(ports[::2], ports[1::2], strict=True)
    lines = [f"link add {names[a]} type veth peer name {names[b]}" for a, b in pairs]
    for name, ifindex in (
        ("p0", addresses.host_ifindex(HOST_UNIT, HOST)),
        ("loop", addresses.loop_place_ifindex(HOST_UNIT, HOST)),
    ):
        lines.append(f"link add {name} index {ifindex} type veth peer name {name}peer")
    lines.append("link add room0 type veth peer name room1")
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True, timeout=CALL_S)
    try:
        yield {
            port: socket.if_nametoindex(name) for port, name in {**names, 0: "p0", LOOP_PORT: "loop"}.items()
        }
    finally:
        ends = ("p0", "loop", "room0", *(names[port] for port in ports[::2]))
        gone = [f"link delete {name}" for name in ends]
        subprocess.run(["ip", "-batch", "-"], input="\n".join(gone), text=True, check=True, timeout=CALL_S)


class _Unemptied:
    """A place whose slots keep the contents of the job before: as in the model, only the generation
    distinguishes a job from that one.
    """

    def empty(self, base: int, size: int) -> None:
        pass


class _Switch(_Unemptied, XdpSwitch):
    pass


class _HostPlace(_Unemptied, XdpHostPlace):
    def _attach_loop(self) -> None:
        """Do nothing: no frame goes over the loop."""

    def _attach_copy(self, number: int) -> None:
        """Do nothing: no frame goes over these either, except the kernel's own."""


class _Pairs:
    """The devices of a host: the sending ends of its loop exist already; those for copies are made when
    needed.
    """

    def make(self, host: Host) -> None:
        pass

    def make_control(self, host: Host) -> None:
        pass

    def make_copy(self, host: Host, number: int) -> None:
        add_pair(addresses.copy_devices(number), 1500, addresses.copy_ifindices(number))

    def remove_copy(self, host: Host, number: int) -> None:
        with RouteSocket() as route:
            route.send([delete_device(addresses.copy_devices(number)[0])])

    def remove(self, host: Host) -> None:
        pass


class _Hosts(XdpHosts):
    def _made_place(self, host: tuple[int, int], changed: Callable[[], None]) -> XdpHostPlace:
        return _HostPlace(self._cells, host, None, _Pairs(), changed)


class _Ring:
    """A worker's ring and wake words, mapped as in its process."""

    def __init__(self, fd: int, wake_fd: int, puller: Puller, lanes: int) -> None:
        kind = layout.result(lanes)
        self._ring = mmap.mmap(
            fd, (kind.itemsize * layout.RING_SLOTS + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
        )
        self._wake = mmap.mmap(wake_fd, mmap.PAGESIZE)
        self.results = np.frombuffer(self._ring, kind, layout.RING_SLOTS)
        self.wake = np.frombuffer(self._wake, layout.WAKE, 1)[0:1]
        self.puller = puller


class XdpAggregator:
    """The ToR of a unit, or a host behind device 0, with slots of its own that start empty. A context
    manager.

    Several at once share `cells`; each needs a unit and ports (number -> ifindex) of its own.
    """

    def __init__(
        self, cells: Cells, observed: Observed, ports: dict[int, int], is_host: bool = False, unit: int = UNIT
    ) -> None:
        self._programs, self._observed, self._unit = cells.programs, observed, unit
        self._is_host = is_host
        names = (0, LOOP_PORT)
        self._ports = {port: ifindex for port, ifindex in ports.items() if (port in names) == is_host}
        if is_host:
            self._ports[ETH0] = self._ports.pop(0)
        self._numbers = {ifindex: port for port, ifindex in self._ports.items()}
        hosts = {port: ifindex for port, ifindex in self._ports.items() if addresses.is_host_port(port)}
        self._hosts = _Hosts(cells)
        self._place = self._hosts.place((HOST_UNIT, HOST)) if is_host else _Switch(cells, unit, hosts)
        self._ring: _Ring | None = None
        self._admitted: set[int] = set()
        self.noted: Counter[str] = Counter()  # all verdicts that the programs counted

    def __enter__(self) -> XdpAggregator:
        self.slots = self._place.slot_array()
        assert self._place.slots >= SLOTS
        if not self._is_host:
            for port, ifindex in self._ports.items():
                set_port(self._programs, ifindex, self._unit, port, Port.FABRIC)
            self.set_routes({})
        self._rooms = tuple(sorted(socket.if_nametoindex(name) for name in ROOM_DEVICES))
        lead_to_room(self._programs)
        return self

    def __exit__(self, *_: object) -> None:
        for number in list(self._admitted):
            self.release(number)
        self.detach()
        if self._is_host:
            self._place.bind(HOST, None)
        self._place.close()

    def verdicts(self) -> dict[str, int]:
        """Return the counters."""
        return verdict_counts(self._programs.map_fd("verdicts"))

    # ------------------------------------------------------------------ what a subject of the vectors does

    def bind(self, port: int, senders: Iterable[Sender]) -> None:
        self._place.bind(HOST if self._is_host else port, next(iter(senders), None))

    def set_group(
        self, number: int, tree: int, ports: Sequence[int], bundles: Sequence[Sequence[int]] = ()
    ) -> None:
        named, parallel = self._named(ports), [self._named(bundle) for bundle in bundles]
        self._place.set_group(number, tree, named, parallel)

    def set_copies(self, number: int, tree: int, members: Sequence[Host], own: bool) -> None:
        with patch.object(addresses, "LOOP_PLACE_DEVICE", "loop"):
            self._place.set_copies(number, tree, members, own)

    def _named(self, ports: Sequence[int]) -> tuple[str, ...]:
        return tuple(socket.if_indextoname(self._ports[port]) for port in ports)

    def set_routes(self, routes: Mapping[tuple[str, int], Route]) -> None:
        if self._is_host:
            return
        maps = PinnedMaps(*(self._programs.map_fd(name) for name in PINNED_MAPS))
        names = {key: self._named((route.port, *route.parallel)) for key, route in routes.items()}
        PinnedPlane(maps, self._programs.program_fd(PINNED_PROGRAM), {}).routes.set(
            self._unit, {key: (names[key], route.mac or "") for key, route in routes.items()}
        )

    def admit(self, number: int, entry: Entry) -> None:
        self._place.admit(number, entry)
        self._admitted.add(number)

    def release(self, number: int, tree: int | None = None) -> None:
        self._place.release(number, tree)

    def leave(self, number: int, tree: int, sources: int) -> None:
        self._table().leave(number, tree, sources)

    def _table(self) -> BlockTable:
        table = self._place.part("blocks")
        assert isinstance(table, BlockTable)
        return table

    def attach(self, puller: Puller) -> None:
        values = (puller.job, puller.generation, puller.bases, puller.size, puller.lanes)
        ring = self._hosts.attach((HOST_UNIT, HOST), *values, puller.first, puller.port)
        self._ring = _Ring(ring.fd, ring.wake_fd, puller, self._programs.lanes)

    def detach(self) -> None:
        if self._ring:
            self._hosts.detach((HOST_UNIT, HOST), self._ring.puller.first)
        self._ring = None

    def ask(self, wake_at: int) -> None:
        assert self._ring
        self._ring.wake["wake_at"] = wake_at

    def receive(self, data: bytes, port: int) -> tuple[str, list[Emission]]:
        if port == addresses.CONTROL_PORT:
            program, port = "control_port", min(self._ports)
        elif self._is_host:
            program = "loop_port" if port == LOOP_PORT else "host_port"
        else:
            program = "tor_port"
        run = self._observed.run(self._programs.program_fd(program), data, self._ports[port])
        if run.kind == TO_GROUP and run.devices == self._rooms:  # as the kernel does with its copy
            assert not run.verdicts
            run = self._observed.run(self._programs.program_fd("room_port"), run.data, self._rooms[0])
        names = [_VERDICTS[index] for index in run.verdicts]
        self.noted.update(names)
        copied = {device: socket.if_indextoname(device) for device in run.in_order}
        if run.kind == TO_GROUP and any(name.startswith("copy") for name in copied.values()):
            emissions = [self._copied(run, device, copied[device]) for device in run.in_order]
        else:
            emissions = departures(run, self._ports[port], self._numbers)
        return " and ".join(names) if names else "passed", emissions

    def job_difference(self, number: int, mine: JobRecord) -> str:
        """Say how the record of a job that is summed by blocks differs from the model's; "" if it does
        not.
        """
        held = self._table().job(number)
        floors = [int(floor) % 2**32 for floor in held.floor]
        out = sum(int(word) << 64 * number for number, word in enumerate(held.out))
        said = (int(held.active), int(held.made), floors, out)
        if said != (modelled := (mine.active, mine.made, mine.floor, mine.out)):
            return f"active, made, floor, out {said}, of the model {modelled}"
        for space, blocks in enumerate(mine.reached):
            for source, block in blocks.items():
                if (reached := held.reached[space * MOST_SOURCES + source]) != block:
                    return f"source {source} reached {reached}, of the model {block}"
        return ""

    def owned_difference(self, number: int, mine: OwnedTree) -> str:
        """Say how the record of an owned tree differs from the model's; "" if it does not."""
        records = self._place.part("owned")
        assert isinstance(records, OwnedRecords)
        held = records.record(number)
        heard = [member for member in range(MAX_WORKERS) if int(held["heard"]) >> member & 1]
        beats = {member: (int(held["acks"][member]), int(held["credits"][member])) for member in heard}
        said = beats, (int(held["sent_ack"]), int(held["sent_credit"]))
        return "" if said == (mine.beats, mine.sent) else f"{said}, of the model {mine.beats, mine.sent}"

    def _copied(self, run: Run, device: int, name: str) -> Emission:
        """Return the emission of a copy that is sent into a device."""
        if device in self._numbers:
            return Emission(To.COPIES, run.data, (self._numbers[device],))
        verdict, [copy] = self.out_of(run.data, socket.if_nametoindex(f"{name}in"))
        assert (verdict, copy.to) == ("forwarded", To.ROUTE), (verdict, copy)
        return Emission(To.COPIES, copy.data, copy.ports)

    def out_of(self, data: bytes, inner: int) -> tuple[str, list[Emission]]:
        """Run the program at the inner end of a pair for copies on a frame that comes out of it. Return the
        verdict and the frames that leave.
        """
        run = self._observed.run(self._programs.program_fd("copy_port"), data, inner)
        names = [_VERDICTS[index] for index in run.verdicts]
        self.noted.update(names)
        return " and ".join(names), departures(run, inner, self._numbers)

    # ------------------------------------------------------------------ what it holds

    def slots_held(self) -> list[Held | None]:
        """Return the content of each slot."""
        return [self.slot_held(at) for at in range(SLOTS)]

    def slot_held(self, at: int) -> Held | None:
        kind = layout.slot(self._programs.lanes)
        raw = map_lookup(self.slots, u32(at), kind.itemsize)
        assert raw is not None
        slot = np.frombuffer(raw, kind)[0]
        assert slot["lock"] == 0
        complete, final = _STATES[int(slot["state"])]
        # a word has two lanes, the first in its upper half
        lanes = slot["pairs"].astype(">u8").view(">u4").astype(np.uint32)
        generation, fragment, members = (int(slot[name]) for name in ("generation", "fragment", "bitmap"))
        degraded, age = bool(slot["flags"] & Sum.DEGRADED), int(slot["age"])
        values = (generation, fragment, members, complete, final, lanes)
        held = Held(*values, int(slot["contributors"]), degraded, age)
        return held if slot["state"] else None

    def words(self) -> tuple[int, int]:
        """Return the numbers of results stored and of notices handled, as the worker's process reads them."""
        assert self._ring
        return int(self._ring.wake["received"][0]), int(self._ring.wake["notices"][0])

    def stored(self, place: int) -> Stored | None:
        """Return an entry of the ring, as the worker's process reads it; None if it is empty."""
        assert self._ring
        row = self._ring.results[place]
        sequence = int(row["sequence"])
        if not sequence:
            return None
        lanes = row["lanes"].astype(np.uint32)
        return Stored(sequence - 1, int(row["contributors"]), int(row["flags"]), lanes)


class SpreadingXdp(XdpAggregator):
    """A ToR whose fabric ports are lit ports of an optical switch, with the same numbers there."""

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._stack.enter_context(
            patch.object(addresses, "oxc_number_of", lambda device: int(device.removeprefix("p")))
        )
        maps = PinnedMaps(*(self._programs.map_fd(name) for name in PINNED_MAPS))
        numbers = {port: socket.if_indextoname(self._ports[port]) for port in FABRIC}
        self._optics = PinnedPlane(maps, self._programs.program_fd(PINNED_PROGRAM), numbers)
        self._observed.set_clock(_NOW_NS)
        super().__enter__()
        return self

    def __exit__(self, *ended: object) -> None:
        super().__exit__(*ended)
        self._stack.close()

    def darken(self, ports: Iterable[int]) -> None:
        dark = set(ports)
        for ends, darkness in ((set(FABRIC) - dark, (0, 0)), (dark, (_NOW_NS - 1, _NOW_NS + 1))):
            self._optics.turn(dict.fromkeys(ends, FABRIC[0]), *darkness)


_NOW_NS = 10**9


def departures(run: Run, ifindex: int, numbers: Mapping[int, int]) -> list[Emission]:
    """Return the frames that left, by port number."""
    if run.action == XDP_DROP:
        return []
    if run.action == XDP_PASS:
        return [Emission(To.STACK, run.data, ())]
    if run.action == XDP_TX:
        return [Emission(To.BACK, run.data, (numbers[ifindex],))]
    assert run.action == XDP_REDIRECT, run.action
    if run.kind == TO_GROUP:  # the job's group, or the group of its workers
        to = To.OTHERS if run.flags & EXCLUDE_INGRESS else To.GROUP
    else:
        to = To.BACK if run.devices == (ifindex,) else To.ROUTE
    return [Emission(to, run.data, tuple(sorted(numbers.get(device, -1) for device in run.devices)))]
