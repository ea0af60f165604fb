"""A `simple_switch` that runs the packet vectors: frames are sent over veth pairs, one at a time, and frames
that leave are received at every port.

Marks tell when a frame has been handled, without waiting. The switch handles each port's incoming frames in
order, and sends to each port in order. So once a mark sent after the frame has come out of a port, so have
all frames that it caused there. Marks go to the ports by which a frame should leave. Whether one left by
another port is checked at the end of a vector (`strays`), since marks cost the most time here.
"""

from __future__ import annotations

import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.aggregation.entries import Entry, Sender
from testbed.dataplanes.bmv2.routes import mac_number, set_routes
from testbed.dataplanes.bmv2.switch import Bmv2Switch
from testbed.dataplanes.bmv2.switch_client import Action, Key, SwitchClient
from testbed.reference_model.output_ports import Emission, Route, To
from testbed.systems.luwu.bmv2 import SwitchOwnedRecords
from testbed.systems.luwu.reference import OwnedTree
from testbed.systems.trio.contract import P4_RECORDS
from testbed.topology import addresses
from testbed.wire.places import SLOTS as PLACES
from testbed.wire.places import SlotState, Sum
from testbed.wire.spec import MAX_WORKERS
from tests.limits import CALL_S
from tests.vectors.build import OPTICAL, SLOTS
from tests.vectors.in_step import Held
from tests.vectors.world import way_to

ROUTED, PLAIN, MARKED = 250, 251, 252  # ports: towards all IPv4 addresses; towards all else; for marks
GROUP = (
    1,
    *OPTICAL,
)  # a job's ports; a frame's own port is added to them, so that `to others` differs from `to all`
MARK = b"\x88\xb6"  # ethertype for local experiments (IEEE 802)
MARK_NEAR, MARK_ALL = "02:ff:00:00:ff:fe", "02:ff:00:00:ff:ff"
NEAR_GROUP, ALL_GROUP = 4094, 4095
NEAR = (*GROUP, ROUTED, PLAIN, MARKED)
LATE_S = 60.0
_ALL = 3  # ETH_P_ALL
_MTU = 9000  # fuzzed frames may be longer than the fabric's


def _device(unit: int, port: int) -> str:
    return f"s{unit}p{port}"


class Wires:
    """A veth pair for each port; a context manager. The switch has the ends `s1p1`, the test has the other
    ends, as sockets.
    """

    def __init__(self, unit: int, ports: Sequence[int], mtu: int = _MTU) -> None:
        self._mtu = mtu
        self.names = {port: _device(unit, port) for port in ports}
        self.adopted: dict[int, str] = {}
        self.sockets: dict[int, socket.socket] = {}

    def __enter__(self) -> Wires:
        lines = []
        for name in self.names.values():
            lines.append(f"link add {name} mtu {self._mtu} type veth peer name t{name} mtu {self._mtu}")
        _ip([*lines])
        for end in (end for name in self.names.values() for end in (name, f"t{name}")):
            Path(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6").write_text("1")
        _ip([f"link set {end} up" for name in self.names.values() for end in (name, f"t{name}")])
        for port, name in self.names.items():
            self._listen(port, f"t{name}")
        return self

    def adopt(self, port: int, device: str, far: str) -> None:
        """Add a link that the caller makes and removes."""
        self.adopted[port] = device
        self._listen(port, far)

    def _listen(self, port: int, device: str) -> None:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
        opened.bind((device, _ALL))
        opened.setblocking(False)
        self.sockets[port] = opened

    @property
    def devices(self) -> dict[int, str]:
        """Return the switch's ends, by port."""
        return {**self.names, **self.adopted}

    def __exit__(self, *_: object) -> None:
        for opened in self.sockets.values():
            opened.close()
        _ip([f"link delete {name}" for name in self.names.values()])


def _ip(lines: Sequence[str]) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True, timeout=CALL_S)


class _Unemptied(Bmv2Switch):
    """A switch whose slots keep the contents of the job before: as in the model, only the generation
    distinguishes a job from that one.
    """

    empties_records = False

    def empty(self, base: int, size: int) -> None:
        pass

    def _port(self, device: str) -> int:
        return self._all_ports[device]  # here the control port may be in groups, like every port


class Bmv2Aggregator:
    """One switch and its wires, used by one vector after another; `fresh` empties it."""

    def __init__(self, switch: Bmv2Switch, wires: Wires, client: SwitchClient) -> None:
        self.switch, self._wires, self.client = switch, wires, client
        self._ports_of = {opened.fileno(): port for port, opened in wires.sockets.items()}
        self._admitted: set[tuple[int, int]] = set()  # (job, tree)
        self._group: tuple[int, ...] = GROUP
        self._number = 0
        self._verdicts: dict[str, int] = {}  # the counters after the last frame
        self._held: list[Held | None] | None = None  # the slots after the last frame, if read
        self._poll = select.epoll()
        for opened in wires.sockets.values():
            self._poll.register(opened, select.EPOLLIN)
        self._set_up()

    def _set_up(self) -> None:
        client = self.client
        client.add_entry("routes", Key(0, 32, 0), Action("route", (ROUTED,)))
        client.set_default("stations", Action("switch_to", (PLAIN,)))
        for mark, group, ports in ((MARK_NEAR, NEAR_GROUP, NEAR), (MARK_ALL, ALL_GROUP, self._wires.devices)):
            client.add_group(group, ports)
            client.add_entry("stations", Key(mac_number(mark), 48), Action("flood", (group,)))
        for port in self._wires.devices:
            client.add_entry("stations", Key(mac_number(_mark_mac(port)), 48), Action("switch_to", (port,)))

    def fresh(self) -> None:
        """Remove all jobs and senders, and mark every slot unused."""
        for number, _ in list(self._admitted):
            self.release(number)
        for entry in self.client.entries("ports"):
            is_control = entry.value == addresses.CONTROL_PORT
            action = Action("from_control" if is_control else "from_fabric", entry.action.data[:1])
            self.client.replace_entry("ports", entry.handle, action)
        self.client.fill_register("slot_state", 0, PLACES + P4_RECORDS, 0)

    # ------------------------------------------------------------------ what a subject of the vectors does

    def bind(self, port: int, senders: Iterable[Sender]) -> None:
        self.switch.bind(port, next(iter(senders), None))

    def set_group(self, number: int, tree: int, ports: Sequence[int]) -> None:
        """Do nothing: every job's group is GROUP and the port of the frame, since marks at more ports take
        more time.
        """

    def set_routes(self, routes: Mapping[tuple[str, int], Route]) -> None:
        """Do nothing: all addresses are routed to ROUTED."""

    def admit(self, number: int, entry: Entry) -> None:
        self._admitted.add((number, entry.tree))
        self._set_group(number, entry.tree)
        self.switch.admit(number, entry)

    def release(self, number: int, tree: int | None = None) -> None:
        self.switch.release(number, tree)
        self._admitted = {key for key in self._admitted if key[0] != number or tree not in (None, key[1])}

    def _set_group(self, number: int, tree: int) -> None:
        self.switch.set_group(number, tree, [self._wires.devices[port] for port in self._group])

    def receive(self, data: bytes, port: int) -> tuple[str, list[Emission]]:
        waited = tuple(sorted({*GROUP, port}))
        if (
            self._group != waited
        ):  # else a frame that leaves by another port would be received late, with the next frame's
            self._group = waited
            for key in self._admitted:
                self._set_group(*key)
        self._held = None
        before = self._verdicts or self.switch.verdicts()
        caught = self._through(data, port, MARK_NEAR, NEAR)
        after = self._verdicts = self.switch.verdicts()
        risen = [
            name
            for name, count in after.items()
            for _ in range(count - before[name] - (_MARKS if name == "switched" else 0))
        ]
        verdict = " and ".join(risen)
        frames = {frame for _, frame in caught}
        assert len(frames) <= 1, f"{verdict}: copies differ: {[frame[:90].hex() for frame in frames]}"
        if not caught:
            return verdict, []
        left = tuple(sorted(at for at, _ in caught))
        if verdict == "switched" and port == addresses.CONTROL_PORT:  # marks must pass there
            return "malformed", []
        if verdict == "switched":  # other switches pass such frames to Open vSwitch
            return "to_ovs", [Emission(To.STACK, frames.pop())]
        return verdict, [Emission(self._where(left, port), frames.pop())]

    def _where(self, left: tuple[int, ...], port: int) -> To:
        others = tuple(each for each in self._group if each != port)
        workers = tuple(each for each in others if addresses.is_host_port(each))
        known = {
            self._group: To.GROUP,
            others: To.OTHERS,
            workers: To.WORKERS,
            (port,): To.BACK,
            (ROUTED,): To.ROUTE,
        }
        assert left in known, f"left by the ports {left}, having come by {port}"
        return known[left]

    def slots_held(self) -> list[Held | None]:
        """Return the content of each slot, without its lanes: Thrift returns no more than 64 bits of a
        register.
        """
        names = ("slot_state", "slot_generation", "slot_fragment", "slot_bitmap")
        names += ("slot_contributors", "slot_flags", "slot_age")
        cells = zip(*(self.client.register(name)[:SLOTS] for name in names), strict=True)
        return [
            Held(
                generation,
                fragment,
                members % 2**64,
                state >= SlotState.PARTIAL,
                state == SlotState.FINAL,
                None,
                contributors,
                bool(flags & Sum.DEGRADED),
                age,
            )
            if state
            else None
            for state, generation, fragment, members, contributors, flags, age in cells
        ]

    def slot_held(self, at: int) -> Held | None:
        """Return the content of one slot. All slots are read at once, at most once after each frame."""
        if self._held is None:
            self._held = self.slots_held()
        return self._held[at]

    def owned_difference(self, number: int, mine: OwnedTree) -> str:
        """Say how the record of an owned tree differs from the model's; "" if it does not."""
        records = self.switch.part("owned")
        assert isinstance(records, SwitchOwnedRecords)
        record = records.record(number)
        heard = self.client.register("owned_heard")[record] % 2**64
        sent = tuple(self.client.register(f"owned_sent_{name}")[record] for name in ("ack", "credit"))
        at = record * MAX_WORKERS
        acks, credits = (self.client.register(f"owned_{name}")[at:] for name in ("acks", "credits"))
        beats = {each: (acks[each], credits[each]) for each in range(MAX_WORKERS) if heard >> each & 1}
        said = beats, sent
        return "" if said == (mine.beats, mine.sent) else f"{said}, of the model {mine.beats, mine.sent}"

    # ------------------------------------------------------------------ a frame's way

    @property
    def devices(self) -> dict[int, str]:
        return self._wires.devices

    def through(self, data: bytes, port: int) -> list[tuple[int, bytes]]:
        """Send a frame, and return the frames that left for it by any port."""
        return self._through(data, port, MARK_ALL, self._wires.devices)

    def strays(self) -> list[str]:
        """Return a line for each frame that left by a port at which `receive` does not wait."""
        caught = self._through(None, PLAIN, MARK_ALL, self._wires.devices)
        self._verdicts = {}
        return [f"left by port {port}: {frame[:90].hex()}" for port, frame in caught]

    def _through(
        self, data: bytes | None, port: int, marked: str, ports: Iterable[int]
    ) -> list[tuple[int, bytes]]:
        """Send a frame (None: only marks). Return the frames that left for it by `ports` or its own port,
        with their ports.
        """
        self._number += 1
        number = struct.pack("!I", self._number)
        mark = mac_number(marked).to_bytes(6, "big") + bytes(6) + MARK + number + bytes(42)
        back = mac_number(_mark_mac(port)).to_bytes(6, "big") + bytes(6) + MARK + number + bytes(42)
        sender = self._wires.sockets[port]
        if data is not None:
            sender.send(data)
        sender.send(mark)
        caught: list[tuple[int, bytes]] = []
        waited = {*ports, port}
        deadline = time.monotonic() + LATE_S
        while waited:
            for descriptor, _ in self._poll.poll(max(0.0, deadline - time.monotonic())):
                at = self._ports_of[descriptor]
                for frame in _received(self._wires.sockets[at]):
                    if frame[12:14] != MARK or frame[14:18] != number:
                        caught.append((at, frame))
                        continue
                    waited.discard(at)
                    if at == MARKED:  # so the switch has handled all frames sent before
                        self._wires.sockets[MARKED].send(back)
            assert time.monotonic() < deadline, f"no mark at ports {sorted(waited)} after {LATE_S:g} s"
        return caught


class Spreading:
    """The same switch for the scenes of parallel circuits, which set its routes and groups."""

    def __init__(self, aggregator: Bmv2Aggregator) -> None:
        self._aggregator, self._devices = aggregator, aggregator.devices
        self._client, self.bind = aggregator.client, aggregator.bind
        self.admit, self.release = aggregator.switch.admit, aggregator.switch.release

    def set_group(
        self, number: int, tree: int, ports: Sequence[int], bundles: Sequence[Sequence[int]] = ()
    ) -> None:
        named = [[self._devices[port] for port in bundle] for bundle in (ports, *bundles)]
        self._aggregator.switch.set_group(number, tree, named[0], named[1:])

    def set_routes(self, routes: Mapping[tuple[str, int], Route]) -> None:
        named = {
            key: (tuple(self._devices[port] for port in (route.port, *route.parallel)), route.mac or "")
            for key, route in routes.items()
        }
        set_routes(self._client, {device: port for port, device in self._devices.items()}, named)

    def darken(self, ports: Iterable[int]) -> None:
        """Do nothing: P4 does not see light."""

    def receive(self, data: bytes, port: int) -> tuple[str, list[Emission]]:
        caught = self._aggregator.through(data, port)
        return "", [Emission(To.ROUTE, data, tuple(sorted(at for at, _ in caught)))] if caught else []


_MARKS = 2  # marks that the switch counts as "switched" for each frame of the test


def _mark_mac(port: int) -> str:
    return f"02:ff:00:00:00:{port:02x}"


def _received(opened: socket.socket) -> Iterator[bytes]:
    while True:
        try:
            yield opened.recv(1 << 16)
        except BlockingIOError:
            return


@contextmanager
def aggregator(program: Path, log: Path, hosts: Iterable[int], unit: int = 1) -> Iterator[Bmv2Aggregator]:
    """Start a switch of a unit, with ports for these hosts, in the calling process's network namespace."""
    ports = [*hosts, *OPTICAL, way_to(2), ROUTED, PLAIN, MARKED]
    with ExitStack() as stack:
        wires = stack.enter_context(Wires(unit, ports))
        numbers = {name: port for port, name in wires.names.items()}
        switch = stack.enter_context(_Unemptied(unit, numbers, program, log, False))
        control = addresses.CONTROL_PORT
        wires.adopt(control, addresses.control_device(unit), addresses.control_far_device(unit))
        client = SwitchClient(unit)
        stack.callback(client.close)
        assert all(addresses.is_host_port(port) == (port < OPTICAL[0]) for port in ports)
        yield Bmv2Aggregator(switch, wires, client)
