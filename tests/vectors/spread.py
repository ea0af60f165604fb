"""Scenes at a switch with parallel circuits to another switch: which circuit each packet takes, also while
some circuits are dark. The scenes are data; `play` runs them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from testbed.aggregation.entries import Entry, Sender
from testbed.reference_model.output_ports import Reaction, Route
from testbed.wire.frame import mac_bytes
from tests.vectors.build import (
    HOST_MAC,
    JOB,
    OTHER_IP,
    TOR_MAC,
    job_in_unit,
    job_passing,
    lanes,
    partial,
    push,
    result_from_ps,
)

PARALLEL = (201, 202, 203)  # the ports of the circuits
WORKER = 1  # the port of worker 0
FROM = 64  # the port of a host that sends other traffic
ROUTES = {("10.0.2.0", 24): Route(PARALLEL[0], None, PARALLEL[1:]), ("10.0.1.0", 24): Route(FROM)}
# the circuit by fragment, of three and of two circuits: by the upper bits of the fragment times 0x9e3779b1
OF_THREE = (0, 1, 0, 2, 1, 0, 2, 0, 2, 1, 0, 2)
OF_TWO = (0, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1)


class Spreader(Protocol):
    """A switch whose ports PARALLEL lead to parallel circuits."""

    def bind(self, port: int, senders: Iterable[Sender]) -> None: ...
    def set_group(
        self, number: int, tree: int, ports: Sequence[int], bundles: Sequence[Sequence[int]] = ()
    ) -> None: ...
    def set_routes(self, routes: Mapping[tuple[str, int], Route]) -> None: ...
    def admit(self, number: int, entry: Entry) -> None: ...
    def release(self, number: int, tree: int | None = None) -> None: ...
    def receive(self, data: bytes, port: int) -> Reaction: ...
    def darken(self, ports: Iterable[int]) -> None: ...


@dataclass(frozen=True, slots=True)
class Comes:
    """A frame that comes by a port, and the ports by which it must leave."""

    data: bytes
    port: int
    ports: tuple[int, ...]


@dataclass(slots=True)
class Scene:
    """Steps at the switch, in order. `in_dark`: some circuits are dark, which a P4 switch cannot see."""

    steps: list[Comes | Callable[[Spreader], None]] = field(default_factory=list)
    in_dark: bool = False

    def sees(self, data: bytes, port: int, *ports: int) -> None:
        self.steps.append(Comes(data, port, tuple(sorted(ports))))

    def group(self, bundles: Sequence[Sequence[int]], entry: Entry) -> None:
        def set_up(switch: Spreader) -> None:
            switch.set_group(JOB, 0, (WORKER,), bundles)
            switch.admit(JOB, entry)

        self.steps.append(set_up)

    def darken(self, *ports: int) -> None:
        self.in_dark = True
        self.steps.append(lambda switch: switch.darken(ports))


def play(scene: Scene, switch: Spreader) -> list[str]:
    """Run a scene at a switch; return a line for each departure from what it expects."""
    wrong = []
    switch.set_routes(ROUTES)
    switch.bind(WORKER, [Sender(JOB, 0)])
    switch.bind(FROM, [])
    switch.darken(())
    for number, step in enumerate(scene.steps):
        if not isinstance(step, Comes):
            step(switch)
            continue
        _, emissions = switch.receive(step.data, step.port)
        ports = tuple(port for emission in emissions for port in emission.ports or ())
        if ports != step.ports:
            wrong.append(f"step {number}: left by {ports}, expected {step.ports}")
    switch.release(JOB)
    return wrong


def datagram(
    protocol: int, source: str, destination: str, ports: tuple[int, int], fragment: int = 0
) -> bytes:
    """Return a frame of TCP or UDP, or a fragment of a datagram."""
    payload = struct.pack("!HH", *ports) + bytes(36)
    addresses = b"".join(bytes(map(int, ip.split("."))) for ip in (source, destination))
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 7, fragment, 64, protocol, 0) + addresses
    return mac_bytes(TOR_MAC) + mac_bytes(HOST_MAC) + b"\x08\0" + ip + payload


def _two(fragment: int) -> int:
    return (fragment * 0x9E3779B1 & 0xFFFFFFFF) >> 31


TABLE: dict[str, Scene] = {}


def entry(write: Callable[[Scene], None]) -> None:
    scene = Scene()
    write(scene)
    TABLE[write.__name__.replace("_", " ")] = scene


@entry
def gradients_that_pass_take_circuits_by_their_fragment(s: Scene) -> None:
    for fragment, circuit in enumerate(OF_THREE):
        s.sees(push(0, fragment, to_ip=OTHER_IP), WORKER, PARALLEL[circuit])
    for fragment, circuit in enumerate(OF_THREE):  # by any port, and whatever the other fields are
        s.sees(partial(5, fragment, to_ip="10.0.2.254", tree=3), 203, PARALLEL[circuit])


@entry
def a_connection_takes_one_circuit_both_ways_and_its_neighbour_another(s: Scene) -> None:
    ends = ("10.0.1.1", OTHER_IP)
    for protocol in (6, 17):
        for port, circuit in zip(range(40000, 40012), (1, 0, 2, 1, 0, 1, 0, 2, 1, 0, 2, 1), strict=True):
            s.sees(datagram(protocol, *ends, (port, 5001)), FROM, PARALLEL[circuit])
            s.sees(datagram(protocol, *ends, (5001, port)), FROM, PARALLEL[circuit])
        for port in (40000, 40001, 40002):  # all fragments take one circuit: only the first has the ports
            for more in (0x2000, 185):
                s.sees(datagram(protocol, *ends, (port, 5001), more), FROM, PARALLEL[1])
    s.sees(datagram(1, *ends, (40001, 5001)), FROM, PARALLEL[1])


@entry
def results_leave_by_one_of_the_parallel_circuits(s: Scene) -> None:
    s.group([PARALLEL], job_in_unit(1))
    for fragment, circuit in enumerate(OF_THREE):
        s.sees(push(0, fragment), WORKER, WORKER, PARALLEL[circuit])
    s.group([PARALLEL[:2], PARALLEL[2:]], job_in_unit(1))  # the bundles change
    for fragment in range(16, 28):
        s.sees(push(0, fragment), WORKER, WORKER, PARALLEL[_two(fragment)], PARALLEL[2])
        s.sees(push(0, fragment), WORKER, WORKER)  # a repetition: back to the sender only
    s.group([], job_in_unit(1))
    s.sees(push(0, 33), WORKER, WORKER)


@entry
def results_that_pass_leave_as_they_would_from_here(s: Scene) -> None:
    s.group([PARALLEL[:2]], job_passing())
    for fragment, circuit in enumerate(OF_TWO):
        s.sees(result_from_ps(fragment, lanes(1)), 203, WORKER, PARALLEL[circuit])


@entry
def what_a_dark_circuit_had_others_take_and_keep_what_they_had(s: Scene) -> None:
    s.group([PARALLEL], job_in_unit(1))
    s.darken(202)
    for fragment, circuit in enumerate(OF_THREE):
        port = PARALLEL[2] if circuit == 1 else PARALLEL[circuit]
        s.sees(push(0, fragment, to_ip=OTHER_IP), WORKER, port)
        s.sees(push(0, fragment), WORKER, WORKER, port)
    s.darken(202, 203)
    for fragment in range(12, 24):
        s.sees(push(0, fragment, to_ip=OTHER_IP), WORKER, PARALLEL[0])
        s.sees(push(0, fragment), WORKER, WORKER, PARALLEL[0])
    s.darken(*PARALLEL)
    for fragment, circuit in enumerate(OF_THREE):
        s.sees(push(0, fragment, to_ip=OTHER_IP), WORKER, PARALLEL[circuit])
