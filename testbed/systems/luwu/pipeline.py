"""LuWu's iteration as discrete events: the optimizer's task queues, its disks and link, and a worker. Pure.

All workers behave alike, so one stands for all: parameters reach each at the same time, and a sum is complete
when the worker's gradients arrive. Layers are passed on whole, as in section 3.3. Disks serve them in pieces,
so a request of higher priority waits for one piece at most.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import simpy

READ_PARAMETERS, READ_STATES = 0, 1
"""Priorities of disk reads; the smaller number goes first (section 3.3)."""
PIECES = 8
"""Pieces into which a layer's transfer from or to disks is split."""

Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's part of an iteration: bytes, and seconds of computing. `backward_s` includes recomputing
    activations.
    """

    parameter_bytes: float
    gradient_bytes: float
    state_bytes: float
    forward_s: float
    backward_s: float
    update_s: float

    @property
    def parameter_room(self) -> int:
        """The optimizer's buffer for the layer in the forward pass, in whole bytes."""
        return _room(self.parameter_bytes)

    @property
    def whole_room(self) -> int:
        """The optimizer's buffers for the layer in the backward pass, in whole bytes."""
        return _room(self.parameter_bytes + self.gradient_bytes + self.state_bytes)


def _room(count: float) -> int:
    """Round up to whole bytes, so that shares add up exactly; at least one, since SimPy allows no empty
    request.
    """
    return max(1, math.ceil(count))


@dataclass(frozen=True, slots=True)
class OptimizerNode:
    """The optimizer and the link to its workers, in bytes per second each way. `ahead`: how many layers a
    worker has room for. `pool_bytes` bounds the optimizer's buffers.

    With `on_demand` it behaves as workloads/luwu in a job: it reads a layer when a worker has room for it,
    and its states when the worker has its gradients, for as many layers at a time as a worker holds; when all
    are written, it commits them in `commit_s`. A disk's rate makes up for idle time of up to `burst_s`, as
    declared rates do.
    """

    link_bytes_s: float
    disks_bytes_s: float
    pool_bytes: float
    ahead: int
    on_demand: bool = False
    commit_s: float = 0.0
    burst_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Span:
    """The time, in seconds, for which a resource works on a layer."""

    resource: str
    layer: int
    iteration: int
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Iterations:
    """Consecutive iterations: `iteration_s` is the duration of the last one, by which the process has become
    periodic.
    """

    iteration_s: float
    spans: Sequence[Span]

    def busy(self, resource: str) -> float:
        """Compute the share of the last iteration in which a resource works."""
        last = max(span.iteration for span in self.spans)
        its = (span for span in self.spans if span.resource == resource and span.iteration == last)
        return sum(span.end_s - span.begin_s for span in its) / self.iteration_s


@dataclass(frozen=True, slots=True)
class _Step:
    iteration: int
    layer: int
    back: bool


def run(layers: Sequence[Layer], node: OptimizerNode, iterations: int = 4) -> Iterations:
    """Simulate iterations. ValueError if a layer exceeds the optimizer's buffers, or for fewer than two
    iterations.
    """
    largest = max(layer.whole_room for layer in layers)
    if largest > node.pool_bytes:
        raise ValueError(f"pool_bytes {node.pool_bytes:g}: at least a layer's {largest} are accepted")
    if iterations < 2:
        raise ValueError(f"iterations {iterations}: at least 2 are accepted")
    return _Run(layers, node, iterations).outcome()


class _Run:
    """The task queues; each is a process that performs steps in order."""

    def __init__(self, layers: Sequence[Layer], node: OptimizerNode, iterations: int) -> None:
        self.layers, self.node, self.iterations = layers, node, iterations
        self.spans: list[Span] = []
        self.free_s = {"read": -math.inf, "write": -math.inf}
        """The time from which on the rate of the disks permits the next transfer, by direction."""
        self.env = env = simpy.Environment()
        self.reads = simpy.PriorityResource(env)
        self.pool = simpy.Container(env, self.node.pool_bytes, self.node.pool_bytes)
        self.room, self.updates = (simpy.Container(env, self.node.ahead, self.node.ahead) for _ in range(2))
        self.to_push, self.to_compute = simpy.Store(env), simpy.Store(env)
        self.to_accept = simpy.Store(env, self.node.ahead)
        self.to_fetch, self.to_update, self.to_write = (simpy.Store(env) for _ in range(3))
        indices = range(len(self.layers))
        self.steps = [
            _Step(iteration, layer, back)
            for iteration in range(self.iterations)
            for back in (False, True)
            for layer in (reversed(indices) if back else indices)
        ]
        self.backward = [step for step in self.steps if step.back]
        self.accepted, self.fetched, self.written = (
            {(step.iteration, step.layer): env.event() for step in self.backward} for _ in range(3)
        )

    def outcome(self) -> Iterations:
        for queue in (self._read, self._push, self._compute):
            self.env.process(queue(self.steps))
        for queue in (self._accept, self._fetch, self._update):
            self.env.process(queue(self.backward))
        self.env.run(self.env.process(self._write(self.backward)))
        ends = [self._end(iteration) for iteration in range(self.iterations)]
        return Iterations([after - before for before, after in pairwise(ends)][-1], self.spans)

    def _end(self, iteration: int) -> float:
        return max(span.end_s for span in self.spans if span.iteration == iteration)

    def _read(self, steps: Sequence[_Step]) -> Process:
        for step in steps:
            layer = self.layers[step.layer]
            if step.iteration and not step.back:
                yield self.written[step.iteration - 1, step.layer]
            if self.node.on_demand:
                yield self.room.get(1)
            yield self.pool.get(layer.whole_room if step.back else layer.parameter_room)
            yield from self._from_disks(step, layer.parameter_bytes, READ_PARAMETERS)
            yield self.to_push.put(step)
            if step.back and not self.node.on_demand:
                yield self.to_fetch.put(step)

    def _push(self, steps: Sequence[_Step]) -> Process:
        for _ in steps:
            step = yield self.to_push.get()
            layer = self.layers[step.layer]
            if not self.node.on_demand:
                yield self.room.get(1)
            yield from self._work("down", step, layer.parameter_bytes / self.node.link_bytes_s)
            if not step.back:
                yield self.pool.put(layer.parameter_room)
            yield self.to_compute.put(step)

    def _compute(self, steps: Sequence[_Step]) -> Process:
        for _ in steps:
            step = yield self.to_compute.get()
            layer = self.layers[step.layer]
            yield from self._work("gpu", step, layer.backward_s if step.back else layer.forward_s)
            yield self.room.put(1)
            if step.back:
                yield self.to_accept.put(step)
                if self.node.on_demand:
                    yield self.to_fetch.put(step)

    def _accept(self, steps: Sequence[_Step]) -> Process:
        for _ in steps:
            step = yield self.to_accept.get()
            yield from self._work("up", step, self.layers[step.layer].gradient_bytes / self.node.link_bytes_s)
            self.accepted[step.iteration, step.layer].succeed()

    def _fetch(self, steps: Sequence[_Step]) -> Process:
        for _ in steps:
            step = yield self.to_fetch.get()
            if self.node.on_demand:
                yield self.updates.get(1)
            yield from self._from_disks(step, self.layers[step.layer].state_bytes, READ_STATES)
            self.fetched[step.iteration, step.layer].succeed()

    def _update(self, steps: Sequence[_Step]) -> Process:
        for step in steps:
            key = step.iteration, step.layer
            yield self.env.all_of([self.accepted[key], self.fetched[key]])
            yield from self._work("update", step, self.layers[step.layer].update_s)
            yield self.to_write.put(step)

    def _write(self, steps: Sequence[_Step]) -> Process:
        for _ in steps:
            step = yield self.to_write.get()
            layer = self.layers[step.layer]
            yield from self._at_rate("write", step, layer.parameter_bytes + layer.state_bytes)
            if self.node.on_demand:
                yield self.updates.put(1)
                if (
                    step.layer == 0
                ):  # the last of the backward pass, and the first that the next iteration reads
                    yield from self._work("commit", step, self.node.commit_s)
            yield self.pool.put(layer.whole_room)
            self.written[step.iteration, step.layer].succeed()

    def _from_disks(self, step: _Step, count: float, priority: int) -> Process:
        for _ in range(PIECES):
            with self.reads.request(priority) as turn:
                yield turn
                yield from self._at_rate("read", step, count / PIECES)

    def _at_rate(self, resource: str, step: _Step, count: float) -> Process:
        """Occupy a resource for the transfer's time by the rate, less earlier idle time of up to
        `burst_s`.
        """
        begin_s = max(self.free_s[resource], self.env.now - self.node.burst_s)
        self.free_s[resource] = begin_s + count / self.node.disks_bytes_s
        yield from self._work(resource, step, max(0.0, self.free_s[resource] - self.env.now))

    def _work(self, resource: str, step: _Step, seconds: float) -> Process:
        begin = self.env.now
        yield self.env.timeout(seconds)
        self.spans.append(Span(resource, step.layer, step.iteration, begin, self.env.now))
