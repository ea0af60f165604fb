"""Simulate iterations of the paper's baselines as discrete events: ZeRO-Infinity, ZeRO-3, ZeRO-Infinity with
SHARP; and SwitchML's in closed form. Pure.

A sharded worker fetches a block's parameters from all others before it computes with them, forward and
backward, and sends its gradients to their owners. Each of these transfers sends and receives (W - 1) / W of a
block per worker. For the share SERIALISED of that time, the GPU's cores cannot compute. ZeRO-Infinity reads
its shards from disks and writes its gradients there. It updates when all gradients are there: one shard's
states are read, updated and written after the other (section 2.1). With SHARP a switch sums and copies:
gradients go up while parameters come down, without the GPUs' help.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from testbed.systems.luwu.hardware import Hardware, gpu_rate
from testbed.systems.luwu.memory import INFINITY, SHARP, ZERO3
from testbed.systems.luwu.shapes import PARAMETER_BYTES, STATE_BYTES, Shape

SERIALISED = 0.3
"""The share of a collective's time in which the GPU cannot compute, at a micro-batch of 16 (section 2.1,
figure 3).
"""
WAITS_FOR_PCIE = 0.15
"""The share of ZeRO-Infinity's backward pass that waits for PCIe: 10 to 20 % (section 2.1)."""
FP32_OF_BF16 = 0.5
"""A GPU's rate with fp32 parameters, relative to bf16: tensor cores execute 156e12 operations per second in
TF32 and 312e12 in bf16.
"""

Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True, slots=True)
class Phases:
    """An iteration's seconds: forward and backward passes, as simulated, and the update after them."""

    passes_s: float
    update_s: float

    @property
    def iteration_s(self) -> float:
        return self.passes_s + self.update_s


def run(system: str, shape: Shape, hardware: Hardware, micro_batch: int, disks: bool = True) -> Phases:
    """Simulate an iteration of INFINITY, ZERO3 or SHARP. `disks=False` leaves out disks and updates, which
    gives section 4.6's upper bound of ZeRO-Infinity. ValueError for another system.
    """
    if system not in (INFINITY, ZERO3, SHARP):
        raise ValueError(f"system {system!r}: accepted are {INFINITY}, {ZERO3}, {SHARP}")
    on_disks = disks and system != ZERO3
    env = simpy.Environment()
    worker = _Worker(env, system, shape, hardware, micro_batch, on_disks)
    env.run(worker.start())
    parameters = shape.parameters / hardware.workers
    update = 0.0
    if on_disks:
        moved = parameters * (
            2 * (PARAMETER_BYTES + STATE_BYTES)
        )  # gradients in, parameters out; states both
        update = moved / hardware.worker_disks_bytes_s + parameters / hardware.adam_parameters_s
    return Phases(env.now, update)


def switchml(shape: Shape, hardware: Hardware, micro_batch: int) -> Phases:
    """Compute an iteration of SwitchML: in fp32, computing and then communication (section 2.2), at the
    link's rate.
    """
    computing = shape.iteration_flop(micro_batch) / (FP32_OF_BF16 * gpu_rate(shape.hidden))
    return Phases(computing + 4 * shape.parameters / hardware.link_bytes_s, 0.0)


class _Worker:
    """One worker that stands for all: its GPU, its link, which carries one collective at a time, and its
    disks.
    """

    def __init__(
        self,
        env: simpy.Environment,
        system: str,
        shape: Shape,
        hardware: Hardware,
        micro_batch: int,
        disks: bool,
    ) -> None:
        self.env, self.layers, self.disks = env, shape.layers, disks
        block = shape.layer_parameters * PARAMETER_BYTES
        in_switch = system == SHARP
        others = (hardware.workers - 1) / hardware.workers
        self.gather_s = others * block / hardware.link_bytes_s
        self.scatter_s = (1.0 if in_switch else others) * block / hardware.link_bytes_s
        self.serialised = 0.0 if in_switch else SERIALISED
        self.shard_s = block / hardware.workers / hardware.worker_disks_bytes_s
        self.forward_s = shape.forward_flop(micro_batch) / gpu_rate(shape.hidden)
        waits = WAITS_FOR_PCIE if disks else 0.0
        self.backward_s = 3 * self.forward_s / (1 - waits)
        self.gpu, self.down = simpy.PriorityResource(env), simpy.PriorityResource(env)
        self.up = simpy.PriorityResource(env) if in_switch else self.down
        self.read, self.written = simpy.Store(env, hardware.ahead), simpy.Store(env)
        self.gathered, self.to_scatter = simpy.Store(env), simpy.Store(env)
        self.room = simpy.Container(env, hardware.ahead, hardware.ahead)

    def start(self) -> simpy.Event:
        """Start the worker's processes; the event returned fires when the last gradients are stored."""
        passes = [False] * self.layers + [True] * self.layers
        queues = (self._read, self._gather, self._compute, self._scatter, self._write)
        return self.env.all_of([self.env.process(queue(passes)) for queue in queues])

    def _read(self, passes: list[bool]) -> Process:
        for _ in passes:
            if self.disks:
                yield self.env.timeout(self.shard_s)
            yield self.read.put(None)

    def _gather(self, passes: list[bool]) -> Process:
        for _ in passes:
            yield self.read.get()
            yield self.room.get(1)
            yield from self._collective(self.down, self.gather_s, 1)
            yield self.gathered.put(None)

    def _compute(self, passes: list[bool]) -> Process:
        for back in passes:
            yield self.gathered.get()
            with self.gpu.request(1) as turn:
                yield turn
                yield self.env.timeout(self.backward_s if back else self.forward_s)
            yield self.room.put(1)
            if back:
                yield self.to_scatter.put(None)

    def _scatter(self, passes: list[bool]) -> Process:
        for _ in range(self.layers):
            yield self.to_scatter.get()
            yield from self._collective(self.up, self.scatter_s, 0)
            yield self.written.put(None)

    def _write(self, passes: list[bool]) -> Process:
        for _ in range(self.layers):
            yield self.written.get()
            if self.disks:
                yield self.env.timeout(self.shard_s)

    def _collective(self, link: simpy.PriorityResource, seconds: float, priority: int) -> Process:
        """Run a collective on a link. Its part that needs the GPU's cores precedes the next kernel. Of two
        waiting collectives, the one with the smaller priority number goes first.
        """
        with link.request(priority) as turn:
            yield turn
            yield self.env.timeout((1 - self.serialised) * seconds)
            if self.serialised:
                with self.gpu.request(0) as cores:
                    yield cores
                    yield self.env.timeout(self.serialised * seconds)
