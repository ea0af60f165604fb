"""Runs a vector on an engine and says where it departs. An engine is whatever has `Engine`'s methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from testbed.inc.job import Job, Sender
from testbed.simulation.aggregator import Emission
from testbed.wire import frame
from testbed.wire.frame import Frame
from tests.vectors.build import Admit, Arrival, Leaves, Release, Vector


class Engine(Protocol):
    """One aggregator. The reference model's class is one."""

    def bind(self, port: int, senders: Iterable[Sender]) -> None: ...
    def admit(self, number: int, job: Job) -> None: ...
    def release(self, number: int) -> None: ...
    def receive(self, data: bytes, port: int) -> tuple[str, list[Emission]]: ...


def play(vector: Vector, engine: Engine, knows_where: bool = True) -> list[str]:
    """What was not as the vector says, a line each. With `knows_where` false, by which ports frames leave is not compared."""
    for port, senders in vector.senders.items():
        engine.bind(port, senders)
    wrong = []
    for number, step in enumerate(vector.steps):
        if isinstance(step, Admit):
            engine.admit(step.number, step.job)
        elif isinstance(step, Release):
            engine.release(step.number)
        else:
            verdict, emissions = engine.receive(step.data, step.port)
            if verdict != step.verdict:
                wrong.append(f"step {number}: verdict {verdict}, expected {step.verdict}")
            wrong += [f"step {number}: {line}" for line in departures(step, emissions, knows_where)]
    return wrong


def departures(step: Arrival, emissions: Sequence[Emission], knows_where: bool) -> list[str]:
    """How the frames that left differ from those that should have."""
    if len(emissions) != len(step.leaves):
        return [f"{len(emissions)} frames left, expected {len(step.leaves)}"]
    wrong = []
    for emission, leaves in zip(emissions, step.leaves, strict=True):
        if knows_where and emission.to is not leaves.to:
            wrong.append(f"left to {emission.to.value}, expected {leaves.to.value}")
        wrong += _difference(step.data, emission.data, leaves)
    return wrong


def _difference(came: bytes, data: bytes, leaves: Leaves) -> list[str]:
    if leaves.fields is None:
        # a switch that forwards may rewrite the MAC addresses
        return [] if data[12:] == came[12:] else ["the frame left changed"]
    try:
        left = Frame.parse(data).fields()
    except ValueError as error:
        return [f"what left is no gradient packet: {error}"]
    wrong = [] if frame.ipv4_checksum_holds(data) else ["its IPv4 checksum is wrong"]
    for name, expected in leaves.fields.items():
        if left[name] == expected:
            continue
        if name != "lanes":
            wrong.append(f"{name} {left[name]}, expected {expected}")
            continue
        off = [lane for lane, pair in enumerate(zip(left[name], expected, strict=False)) if pair[0] != pair[1]]
        wrong.append(
            f"{len(left[name])} lanes, expected {len(expected)}; different: {off[:5]} and more, {len(off)} in all"
        )
    return wrong
