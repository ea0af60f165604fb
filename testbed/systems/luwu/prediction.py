"""Predict an iteration of each system on declared hardware, for figures 10 to 15. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from testbed.systems.luwu import memory, pipeline, sharded
from testbed.systems.luwu.hardware import Hardware, gpu_rate
from testbed.systems.luwu.memory import INFINITY, LUWU, SHARP, SWITCHML, ZERO3
from testbed.systems.luwu.shapes import PARAMETER_BYTES, STATE_BYTES, Shape

BOUND = "zero-infinity-bound"
"""ZeRO-Infinity without disks and updates (section 4.6)."""
TITLES = {
    LUWU: "LuWu",
    INFINITY: "ZeRO-Infinity",
    ZERO3: "ZeRO-3",
    SWITCHML: "SwitchML",
    SHARP: "ZeRO-Infinity+SHARP",
    BOUND: "ZeRO-Infinity's bound",
}


@dataclass(frozen=True, slots=True)
class Prediction:
    """An iteration of a system: seconds, and 1e12 operations per GPU and second. `computing_s` is the time of
    a GPU that never waits; `update_s` follows the passes. `limit` names the resource that is busy the
    longest.
    """

    system: str
    model: str
    workers: int
    disks: int
    micro_batch: int
    iteration_s: float
    computing_s: float
    update_s: float
    limit: str
    tflops: float


def predict(system: str, shape: Shape, hardware: Hardware, micro_batch: int) -> Prediction:
    """Predict an iteration; the caller has checked by `memory.fits` that it fits."""
    computing = shape.iteration_flop(micro_batch) / gpu_rate(shape.hidden)
    if system == LUWU:
        outcome = luwu(shape, hardware, micro_batch)
        limit = max(RESOURCES, key=outcome.busy)
        phases = sharded.Phases(outcome.iteration_s, 0.0)
    elif system == SWITCHML:
        phases, limit = sharded.switchml(shape, hardware, micro_batch), "computing, then link"
    else:
        of = INFINITY if system == BOUND else system
        phases = sharded.run(of, shape, hardware, micro_batch, disks=system != BOUND)
        limit = "update" if phases.update_s > phases.passes_s else "passes"
    return Prediction(
        system,
        shape.name,
        hardware.workers,
        hardware.disks,
        micro_batch,
        phases.iteration_s,
        computing,
        phases.update_s,
        limit,
        shape.iteration_flop(micro_batch) / phases.iteration_s / 1e12,
    )


RESOURCES = ("gpu", "read", "write", "down", "up", "update")


def luwu(shape: Shape, hardware: Hardware, micro_batch: int) -> pipeline.Iterations:
    """Simulate LuWu's iterations. Gradients have as many bytes on links as parameters, as the paper's S."""
    forward_s = shape.forward_flop(micro_batch) / gpu_rate(shape.hidden)
    block = shape.layer_parameters
    layer = pipeline.Layer(
        parameter_bytes=block * PARAMETER_BYTES,
        gradient_bytes=block * PARAMETER_BYTES,
        state_bytes=block * STATE_BYTES,
        forward_s=forward_s,
        backward_s=3 * forward_s,
        update_s=block / hardware.adam_parameters_s,
    )
    node = pipeline.OptimizerNode(
        hardware.link_bytes_s, hardware.disks_bytes_s, hardware.pool_bytes, hardware.ahead
    )
    return pipeline.run([layer] * shape.layers, node)


def at_largest(system: str, shape: Shape, hardware: Hardware) -> Prediction | None:
    """Predict with the largest micro-batch that fits; None if none does."""
    micro_batch = memory.largest_micro_batch(_kept_by(system), shape, hardware)
    return None if micro_batch is None else predict(system, shape, hardware, micro_batch)


def by_micro_batch(system: str, shape: Shape, hardware: Hardware) -> list[Prediction]:
    """Predict with each micro-batch that fits."""
    return [
        predict(system, shape, hardware, size)
        for size in memory.MICRO_BATCHES
        if memory.fits(_kept_by(system), shape, hardware, size)
    ]


def with_workers(hardware: Hardware, workers: int) -> Hardware:
    return replace(hardware, workers=workers)


def _kept_by(system: str) -> str:
    return INFINITY if system == BOUND else system
