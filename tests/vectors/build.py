"""The parts that packet vectors are written with: steps, jobs' entries, frames and expected frames. No
subject is used here: expected frames are stated, not computed by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.aggregation.entries import NO_IP, Entry, Sender
from testbed.reference_model.aggregator import ETH0, LOOP_PORT
from testbed.reference_model.output_ports import Route, To
from testbed.reference_model.pull import Puller, Stored
from testbed.topology import addresses
from testbed.topology.addresses import CONTROL_PORT
from testbed.topology.places import Host
from testbed.wire import frame, spec
from testbed.wire.codec import Header
from testbed.wire.frame import Frame

Lanes = npt.NDArray[np.uint32]

TOR_IP, PS_IP, OTHER_IP = "10.0.1.254", "10.0.3.1", "10.0.2.7"
UP_TOR_IP = "10.0.3.254"  # of the PS host's switch
HOST_PORTS = range(1, 65)
OPTICAL = (201, 202)  # ports to other switches, in the group of every job
FABRIC = (*OPTICAL, 203, 204)  # all ports to other switches
JOB, GENERATION, GROUP_IP, GROUP_MAC = 7, 3, "239.192.0.7", "01:00:5e:40:00:07"
BASE, SIZE, UP_BASE = 48, 16, 128
SLOTS = 512
HOST_MAC, TOR_MAC = "02:00:0a:00:01:01", "02:00:0a:00:01:fe"  # of every frame that comes in
MASK = 0xFFFFFFFF
PS_MAC = "02:00:0a:00:03:01"
ROUTES = {
    ("10.0.1.0", 24): Route(64),
    ("10.0.2.0", 24): Route(203),
    ("10.0.3.0", 24): Route(203),
    (PS_IP, 32): Route(204, PS_MAC),
    ("10.0.1.3", 32): Route(3, "02:00:0a:00:01:03"),
}


@dataclass(frozen=True, slots=True)
class Leaves:
    """A frame that must leave: with these `fields`, or (`fields` None) these bytes, or (`data` empty too) the
    bytes that came in.
    """

    to: To
    fields: Mapping[str, Any] | None
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A frame that comes in by a port, the verdict expected, and the frames that must leave."""

    data: bytes
    port: int
    verdict: str
    leaves: tuple[Leaves, ...] = ()


@dataclass(frozen=True, slots=True)
class Admit:
    number: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class Release:
    number: int
    tree: int | None = None


@dataclass(frozen=True, slots=True)
class Attach:
    """A worker starts at the host; None: it ends."""

    puller: Puller | None


@dataclass(frozen=True, slots=True)
class Ask:
    """The worker asks to be woken when `wake_at` results have been stored."""

    wake_at: int


@dataclass(frozen=True, slots=True)
class Holds:
    """What the worker must find: how many results were stored, how many notices came, and what the ring holds
    by place.
    """

    received: int
    notices: int
    ring: Mapping[int, Stored]


@dataclass(frozen=True, slots=True)
class Leave:
    """The control plane takes sources (a bitmap) out of a tree that is summed by blocks."""

    sources: int


Step = Arrival | Admit | Release | Leave | Attach | Ask | Holds


@dataclass(slots=True)
class Vector:
    """One scene at a switch or a host: the senders at its ports, and the steps in order."""

    name: str
    is_host: bool = False
    senders: dict[int, tuple[Sender, ...]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    copied_for: tuple[Host, ...] = ()  # members that get copies of results, if the host relays

    def group(self, number: int) -> tuple[int, ...]:
        """Return the ports by which a job's results leave: of a switch, those of the job's workers and
        OPTICAL; of a host, its eth0, and the loop if a worker pushes there.
        """
        if self.is_host:
            return (ETH0, LOOP_PORT) if LOOP_PORT in self.senders else (ETH0,)
        hosts = [
            port
            for port, senders in self.senders.items()
            if any(sender.job == number and sender.worker is not None for sender in senders)
        ]
        return (*sorted(hosts), *OPTICAL)

    @property
    def lanes(self) -> set[int]:
        """Return the numbers of lanes that packets of the vector's trees have."""
        return {step.entry.lanes for step in self.steps if isinstance(step, Admit)} or {spec.LANES}

    @property
    def ip(self) -> str:
        return PS_IP if self.is_host else TOR_IP

    def admit(self, entry: Entry, number: int = JOB) -> None:
        self.steps.append(Admit(number, entry))

    def release(self, number: int = JOB, tree: int | None = None) -> None:
        self.steps.append(Release(number, tree))

    def leave(self, *sources: int) -> None:
        """Take sources out of tree 0 of JOB."""
        self.steps.append(Leave(sum(1 << source for source in sources)))

    def sees(self, data: bytes, port: int, verdict: str, *leaves: Leaves) -> None:
        self.steps.append(Arrival(data, port, verdict, leaves))

    def push(
        self, worker: int, fragment: int, verdict: str, *leaves: Leaves, port: int = 0, **changes: Any
    ) -> None:
        """Add a push by a worker w, at port w + 1 unless `port` is given."""
        self.sees(push(worker, fragment, **changes), port or worker + 1, verdict, *leaves)

    def empty(
        self, worker: int, fragment: int, verdict: str, *leaves: Leaves, port: int = 0, **changes: Any
    ) -> None:
        """Add an empty push; ports as in `push`."""
        self.sees(empty(worker, fragment, **changes), port or worker + 1, verdict, *leaves)

    def tick(self, fragment: int, verdict: str, *leaves: Leaves, **changes: Any) -> None:
        """Add a tick of a fragment, by the control port."""
        self.sees(tick(fragment, **changes), CONTROL_PORT, verdict, *leaves)


def ipv4_checksum_holds(data: bytes) -> bool:
    """Return whether the IPv4 header's checksum is right."""
    return frame.checksum(data[frame.ETHERNET_BYTES :][: frame.IPV4_BYTES]) == 0


def _entry(**fields: Any) -> Entry:
    """Return the entry of a switch at the top of a tree, with `fields` changed."""
    fields = {
        "tree": 0,
        "generation": GENERATION,
        "workers": 0,
        "places": 0,
        "number": 0,
        "base": BASE,
        "size": SIZE,
        "up_base": 0,
        "self_ip": TOR_IP,
        "up_ip": NO_IP,
        "group_ip": GROUP_IP,
        "lanes": spec.LANES,
        **fields,
    }
    return Entry(**{"result_base": fields["base"], **fields})


def job_in_unit(count: int, **changes: Any) -> Entry:
    """Return the entry of a switch at which all `count` workers are."""
    return _entry(**{"workers": (1 << count) - 1, **changes})


def job_across(**changes: Any) -> Entry:
    """Return the entry of a switch with workers 1 and 3 of several; the place above is a host."""
    fields = {"workers": 0b01010, "number": 1, "up_base": UP_BASE, "result_base": UP_BASE, "up_ip": PS_IP}
    return _entry(**{**fields, **changes})


def job_passing(**changes: Any) -> Entry:
    """Return the entry of a switch that forwards the same job's packets and sums nothing."""
    return job_across(**{"workers": 0, "base": 0, "size": 0, "number": 0, **changes})


def job_at_ps(count: int = 3, **changes: Any) -> Entry:
    """Return the entry of the host at the job's top, to which the places 0, 1, ... send partial sums."""
    return _entry(**{"places": (1 << count) - 1, "base": UP_BASE, "self_ip": PS_IP, **changes})


def workers_at_ports(workers: Sequence[int], job: int = JOB) -> dict[int, tuple[Sender, ...]]:
    return {worker + 1: (Sender(job, worker),) for worker in workers}


def lanes(*seed: int) -> Lanes:
    """Return random lanes, small enough that a sum over 64 workers does not overflow a lane (spec.bias)."""
    return np.random.default_rng(seed).integers(0, 2**32 // spec.MAX_WORKERS, spec.LANES, dtype=np.uint32)


def total(*parts: Lanes) -> Lanes:
    return (sum(part.astype(np.uint64) for part in parts) % 2**32).astype(np.uint32)  # type: ignore[union-attr]


def worker_lanes(worker: int, fragment: int) -> Lanes:
    """Return the lanes that `push` sends by default."""
    return lanes(worker, fragment)


def sum_of(fragment: int, *workers: int) -> Lanes:
    return total(*(worker_lanes(worker, fragment) for worker in workers))


def packet(
    op: int, fragment: int, summed: Lanes, source_ip: str, destination_ip: str, **changes: Any
) -> Frame:
    """Return a frame of JOB; `changes` are header fields or the frame's own (`ttl`, `tos`, `source_port`, the
    MACs).
    """
    header: dict[str, Any] = {
        "op": op,
        "job": JOB,
        "worker": 0,
        "contributors": 1,
        "generation": GENERATION,
        "slot": BASE + fragment % SIZE,
        "fragment": fragment,
        "count": len(summed) or spec.LANES,
        "lanes": len(summed) or spec.LANES,
    }
    outside = {
        name: changes.pop(name)
        for name in ("ttl", "tos", "source_port", "source_mac", "destination_mac")
        if name in changes
    }
    return Frame(Header(**{**header, **changes}), summed, source_ip, destination_ip, **outside)


def push(worker: int, fragment: int, **changes: Any) -> bytes:
    """Return the bytes of a push to the switch; `data` are its lanes, `from_ip` and `to_ip` its addresses."""
    summed = changes.pop("data", None)
    summed = worker_lanes(worker, fragment) if summed is None else summed
    source, destination = changes.pop("from_ip", f"10.0.1.{worker + 1}"), changes.pop("to_ip", TOR_IP)
    op = changes.pop("op", spec.Op.PUSH)
    fields = {"worker": worker, "source_mac": HOST_MAC, "destination_mac": TOR_MAC, **changes}
    return packet(op, fragment, summed, source, destination, **fields).pack()


def empty(worker: int, fragment: int, **changes: Any) -> bytes:
    """Return the bytes of an empty push to the switch: a header alone, whose lanes count as zeros."""
    return push(worker, fragment, **{"op": spec.Op.EMPTY, "data": frame.NO_LANES, **changes})


def tick(fragment: int, **changes: Any) -> bytes:
    """Return a tick as the process that runs the place sends it: all its lanes, `lanes` many, are zero."""
    empty = np.zeros(changes.get("lanes", spec.LANES), np.uint32)
    source, destination = changes.pop("from_ip", TOR_IP), changes.pop("to_ip", TOR_IP)
    fields = {"contributors": 0, "count": 0, "source_mac": HOST_MAC, "destination_mac": TOR_MAC, **changes}
    return packet(spec.Op.TICK, fragment, empty, source, destination, **fields).pack()


def partial(unit: int, fragment: int, **changes: Any) -> bytes:
    """Return a partial sum over two workers from the place numbered `unit`, as it comes to the PS."""
    summed = changes.pop("data", None)
    summed = worker_lanes(unit, fragment) if summed is None else summed
    source, destination = changes.pop("from_ip", f"10.0.{unit + 1}.254"), changes.pop("to_ip", PS_IP)
    macs = {"source_mac": HOST_MAC, "destination_mac": TOR_MAC}
    fields = {"worker": unit, "slot": UP_BASE + fragment % SIZE, "contributors": 2, **macs, **changes}
    return packet(spec.Op.PARTIAL, fragment, summed, source, destination, **fields).pack()


def result_from_ps(fragment: int, summed: Lanes, **changes: Any) -> bytes:
    """Return a result as the PS sends it."""
    fields = {"slot": UP_BASE + fragment % SIZE, **changes}
    to_ip, contributors = fields.pop("to_ip", GROUP_IP), fields.pop("contributors", 5)
    return result_frame(fragment, summed, PS_IP, contributors, to_ip, **fields).pack()


def result_frame(
    fragment: int, summed: Lanes, source_ip: str, contributors: int, to_ip: str = GROUP_IP, **changes: Any
) -> Frame:
    fields = {
        "flags": int(spec.Flag.FINAL),
        "worker": 0xFFFF,
        "contributors": contributors,
        "destination_mac": GROUP_MAC,
        **changes,
    }
    return packet(spec.Op.RESULT, fragment, summed, source_ip, to_ip, **fields)


def result(
    fragment: int,
    summed: Lanes,
    contributors: int,
    to: To = To.GROUP,
    source_ip: str = TOR_IP,
    **changes: Any,
) -> Leaves:
    """Return the result expected to leave."""
    return Leaves(to, compared(result_frame(fragment, summed, source_ip, contributors, **changes)))


def partial_sum(fragment: int, summed: Lanes, **changes: Any) -> Leaves:
    """Return the partial sum expected to leave `job_across` for the PS."""
    fields = {"worker": 1, "contributors": 2, "slot": UP_BASE + fragment % SIZE, **changes}
    expected = compared(packet(spec.Op.PARTIAL, fragment, summed, TOR_IP, PS_IP, **fields))
    return Leaves(To.ROUTE, {name: value for name, value in expected.items() if name != "destination_mac"})


def notice(worker: int, fragment: int, to_ip: str, **changes: Any) -> Leaves:
    """Return the notice expected to go back to a sender."""
    source_ip = changes.pop("source_ip", TOR_IP)
    fields = {"worker": worker, "flags": int(spec.Flag.ECN), "count": 0, **changes}
    expected = compared(packet(spec.Op.NOTICE, fragment, frame.NO_LANES, source_ip, to_ip, **fields))
    return Leaves(To.BACK, {name: value for name, value in expected.items() if name != "destination_mac"})


def copies(vector: Vector, summed: Frame) -> tuple[Leaves, ...]:
    """Return the copies of a result expected to leave a relaying host: one addressed to each member, and one
    for the host's own worker with the result's addresses unchanged.
    """
    others = tuple(
        Leaves(
            To.COPIES,
            compared(
                replace(
                    summed,
                    source_ip=vector.ip,
                    destination_ip=addresses.host_ip(*member),
                    destination_mac=addresses.host_mac(*member),
                    ttl=frame.TTL,
                )
            ),
        )
        for member in vector.copied_for
    )
    return (*others, *([Leaves(To.COPIES, compared(summed))] if LOOP_PORT in vector.senders else []))


def unchanged(to: To) -> Leaves:
    return Leaves(to, None)


def checksum_of(data: bytes) -> int:
    """Return a frame's UDP checksum."""
    return int.from_bytes(data[40:42], "big")


def compared(sent: Frame) -> dict[str, Any]:
    """Return the fields in which all subjects must agree: all but the source MAC, which a subject may keep or
    rewrite.
    """
    return {name: value for name, value in sent.fields().items() if name != "source_mac"}


def altered(data: bytes, at: int, value: bytes) -> bytes:
    """Replace the bytes at an offset; no checksum or length is corrected."""
    return data[:at] + value + data[at + len(value) :]


Table = dict[str, Vector]


def vector(table: Table) -> Callable[[Callable[[Vector], None]], None]:
    """Return a decorator that builds a function's vector into the table, named after the function."""

    def put(write: Callable[[Vector], None]) -> None:
        made = Vector(write.__name__.replace("_", " "))
        write(made)
        assert made.name not in table, made.name
        table[made.name] = made

    return put
