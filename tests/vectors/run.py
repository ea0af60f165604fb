"""Run a vector on a subject and list where the subject departs from it. A subject is anything with the
methods of `Subject`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from testbed.aggregation.entries import Entry, Sender
from testbed.aggregation.program import REFERENCE
from testbed.plugins.registry import part_class, programs
from testbed.reference_model.aggregator import ETH0, LOOP_PORT, Aggregator
from testbed.reference_model.output_ports import Emission, Reaction, Route, To
from testbed.reference_model.pull import Puller, PullSide, Stored
from testbed.systems.luwu.reference import ReferenceOwned
from testbed.systems.trio.reference import ReferenceBlocks
from testbed.topology.places import Host
from testbed.wire.frame import Frame
from testbed.wire.spec import LANES
from tests.vectors.build import (
    HOST_PORTS,
    JOB,
    ROUTES,
    Admit,
    Arrival,
    Ask,
    Attach,
    Holds,
    Leave,
    Leaves,
    Release,
    Vector,
    ipv4_checksum_holds,
)


class Subject(Protocol):
    """A place under test: a switch or a host."""

    def bind(self, port: int, senders: Iterable[Sender]) -> None: ...
    def set_group(self, number: int, tree: int, ports: Sequence[int]) -> None: ...
    def set_copies(self, number: int, tree: int, members: Sequence[Host], own: bool) -> None: ...
    def set_routes(self, routes: Mapping[tuple[str, int], Route]) -> None: ...
    def admit(self, number: int, entry: Entry) -> None: ...
    def release(self, number: int, tree: int | None = None) -> None: ...
    def receive(self, data: bytes, port: int) -> Reaction: ...


class Blocks(Protocol):
    """A subject that sums by block records, and whose sources may leave."""

    def leave(self, number: int, tree: int, sources: int) -> None: ...


class Worker(Protocol):
    """A subject of vectors at hosts, with a worker's ring and its words (results stored, notices)."""

    def attach(self, puller: Puller) -> None: ...
    def detach(self) -> None: ...
    def ask(self, wake_at: int) -> None: ...
    def words(self) -> tuple[int, int]: ...
    def stored(self, place: int) -> Stored | None: ...


PARTS = {name: make for name in programs() if (make := part_class(name, REFERENCE))}


class Model(Aggregator):
    """The reference model as a subject, with the programs of all systems."""

    def __init__(
        self,
        ip: str,
        slots: int,
        lanes: int = LANES,
        is_host: bool = False,
        takes_empties: bool = True,
    ) -> None:
        super().__init__(ip, slots, lanes, is_host, takes_empties, PARTS)

    @property
    def blocks(self) -> ReferenceBlocks:
        """Return the model's block records."""
        part = self.part("blocks")
        assert isinstance(part, ReferenceBlocks)
        return part

    @property
    def owned(self) -> ReferenceOwned:
        """Return the model's owned trees."""
        part = self.part("owned")
        assert isinstance(part, ReferenceOwned)
        return part

    def leave(self, number: int, tree: int, sources: int) -> None:
        self.blocks.leave(number, tree, sources)

    def set_group(
        self, number: int, tree: int, ports: Sequence[int], bundles: Sequence[Sequence[int]] = ()
    ) -> None:
        self.ways.set_group(number, tree, ports, bundles)

    def set_copies(self, number: int, tree: int, members: Sequence[Host], own: bool) -> None:
        self.ways.set_copies(number, tree, members, own)

    def darken(self, ports: Iterable[int]) -> None:
        self.ways.dark = frozenset(ports)

    def set_routes(self, routes: Mapping[tuple[str, int], Route]) -> None:
        self.ways.set_routes(routes)

    def attach(self, puller: Puller) -> None:
        self.pull_side = PullSide(puller)

    def detach(self) -> None:
        self.pull_side = None

    def ask(self, wake_at: int) -> None:
        assert self.pull_side
        self.pull_side.wake_at = wake_at

    def words(self) -> tuple[int, int]:
        assert self.pull_side
        return self.pull_side.received, self.pull_side.notices

    def stored(self, place: int) -> Stored | None:
        assert self.pull_side
        return self.pull_side.ring[place]


def play(vector: Vector, subject: Subject) -> list[str]:
    """Run a vector; return a line for each departure. The ports by which frames leave are compared where the
    subject tells them.
    """
    for port, senders in vector.senders.items():
        subject.bind(port, senders)
    subject.set_routes(ROUTES)
    wrong = []
    for number, step in enumerate(vector.steps):
        if isinstance(step, Admit):
            if step.entry.is_relayed:
                own = LOOP_PORT in vector.senders
                subject.set_copies(step.number, step.entry.tree, vector.copied_for, own)
            else:
                subject.set_group(step.number, step.entry.tree, vector.group(step.number))
            subject.admit(step.number, step.entry)
        elif isinstance(step, Release):
            subject.release(step.number, step.tree)
        elif isinstance(step, Leave):
            subject.leave(JOB, 0, step.sources)  # type: ignore[attr-defined]
        elif isinstance(step, Arrival):
            verdict, emissions = subject.receive(step.data, step.port)
            if verdict != step.verdict:
                wrong.append(f"step {number}: verdict {verdict}, expected {step.verdict}")
            wrong += [f"step {number}: {line}" for line in departures(vector, step, emissions)]
        else:
            wrong += [f"step {number}: {line}" for line in _at_worker(step, subject)]  # type: ignore[arg-type]
    return wrong


def _at_worker(step: Attach | Ask | Holds, subject: Worker) -> list[str]:
    if isinstance(step, Attach):
        if step.puller:
            subject.attach(step.puller)
        else:
            subject.detach()
        return []
    if isinstance(step, Ask):
        subject.ask(step.wake_at)
        return []
    words, wrong = subject.words(), []
    if words != (step.received, step.notices):
        wrong.append(
            f"{words[0]} results and {words[1]} notices, expected {step.received} and {step.notices}"
        )
    for place, expected in step.ring.items():
        if not same_result(subject.stored(place), expected):
            wrong.append(f"place {place} of the ring: {subject.stored(place)}, expected {expected}")
    return wrong


def same_result(first: Stored | None, second: Stored | None) -> bool:
    """Return whether two places of rings hold the same result."""
    if first is None or second is None:
        return first is second
    words = [(held.fragment, held.contributors, held.flags) for held in (first, second)]
    some = min(first.lanes.size, second.lanes.size)  # a subject's places may have more lanes than the job
    return words[0] == words[1] and bool((first.lanes[:some] == second.lanes[:some]).all())


def expected_ports(vector: Vector, step: Arrival, leaves: Leaves) -> tuple[int, ...]:
    """Return the ports by which a frame must leave."""
    if leaves.to in (To.GROUP, To.OTHERS, To.WORKERS):
        group = vector.group(int.from_bytes(step.data[48:50], "big"))
        others = group if leaves.to is To.GROUP else tuple(port for port in group if port != step.port)
        return tuple(port for port in others if leaves.to is not To.WORKERS or port in HOST_PORTS)
    if leaves.to is To.BACK:
        return (step.port,)
    if leaves.to is To.STACK:
        return ()
    if leaves.to is To.COPIES:
        assert leaves.fields
        return (LOOP_PORT,) if leaves.fields["destination_ip"] == vector.ip else (ETH0,)
    if vector.is_host:
        return (ETH0,)
    ip = str(leaves.fields["destination_ip"]) if leaves.fields else ".".join(map(str, step.data[30:34]))
    route = ROUTES.get((ip, 32)) or ROUTES[ip.rpartition(".")[0] + ".0", 24]
    return (route.port,)


def departures(vector: Vector, step: Arrival, emissions: Sequence[Emission]) -> list[str]:
    """Describe how the frames that left differ from those expected."""
    if len(emissions) != len(step.leaves):
        return [f"{len(emissions)} frames left, expected {len(step.leaves)}"]
    wrong = []
    for emission, leaves in zip(emissions, step.leaves, strict=True):
        ports = expected_ports(vector, step, leaves)
        if emission.ports is None or To.STACK in (emission.to, leaves.to):
            if emission.to is not leaves.to:
                wrong.append(f"left to {emission.to.value}, expected {leaves.to.value}")
        elif emission.ports != ports:
            wrong.append(f"left by the ports {emission.ports}, expected {ports}")
        wrong += _difference(step.data, emission.data, leaves)
    return wrong


def _difference(came: bytes, data: bytes, leaves: Leaves) -> list[str]:
    if leaves.data:
        return [] if data == leaves.data else [f"{data[:90].hex()} left, expected {leaves.data[:90].hex()}"]
    if leaves.fields is None:
        # a switch may rewrite the MAC addresses of what it forwards
        return [] if data[12:] == came[12:] else ["the frame left changed"]
    try:
        left = Frame.parse(data).fields()
    except ValueError as error:
        return [f"what left is no gradient packet: {error}"]
    wrong = [] if ipv4_checksum_holds(data) else ["its IPv4 checksum is wrong"]
    for name, expected in leaves.fields.items():
        if left[name] == expected:
            continue
        if name != "gradients":
            wrong.append(f"{name} {left[name]}, expected {expected}")
            continue
        off = [
            lane for lane, pair in enumerate(zip(left[name], expected, strict=False)) if pair[0] != pair[1]
        ]
        wrong.append(
            f"{len(left[name])} lanes, expected {len(expected)}; different: {off[:5]} and more, {len(off)} "
            f"in all"
        )
    return wrong
