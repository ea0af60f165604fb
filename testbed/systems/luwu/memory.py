"""Compute by system which micro-batches and models fit in memory. Pure.

A GPU recomputes a block's activations in the backward pass. So it holds the activations of one block; the
inputs of blocks are in the worker's CPU memory. `gpu_bytes` has what each system holds besides.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.systems.luwu.hardware import Hardware
from testbed.systems.luwu.shapes import PARAMETER_BYTES, SHAPES, STATE_BYTES, Shape

LUWU, INFINITY, ZERO3, SWITCHML, SHARP = "luwu", "zero-infinity", "zero-3", "switchml", "sharp"
MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
STORED_BYTES = 3 * (PARAMETER_BYTES + STATE_BYTES)
"""Bytes per parameter in the store of workloads/luwu: three copies."""
_STAGED = 8
"""Bytes of a worker's CPU memory per parameter of its shard in ZeRO-Infinity: gradients in fp32, and the fp32
data on its way to and from disks. Chosen so that 175B is the largest model that eight workers hold, as
measured in section 4.2; the paper only says that buffers in CPU memory limit it.
"""


def gpu_bytes(system: str, shape: Shape, workers: int, micro_batch: int) -> float:
    """Compute a GPU's peak memory. LuWu: one block's parameters and gradients. Sharded systems: one more
    block, prefetched; ZeRO-3 also a shard of everything. SwitchML: everything, in fp32.
    """
    block = shape.layer_parameters * PARAMETER_BYTES
    whole = (2 * PARAMETER_BYTES + STATE_BYTES) * shape.parameters
    held = {
        LUWU: 2.0 * block,
        INFINITY: 3.0 * block,
        SHARP: 3.0 * block,
        ZERO3: whole / workers + 3 * block,
        SWITCHML: 16.0 * shape.parameters,  # parameters, gradients and moments, 4 bytes each
    }[system]
    widths = 2 if system == SWITCHML else 1
    return held + widths * shape.activation_bytes(micro_batch)


def host_bytes(system: str, shape: Shape, workers: int, micro_batch: int) -> float:
    """Compute the CPU memory of a worker: the inputs of all blocks, and in ZeRO-Infinity the data on its way
    to and from disks.
    """
    inputs = PARAMETER_BYTES * micro_batch * 1024 * shape.hidden * shape.layers
    staged = _STAGED * shape.parameters / workers if system in (INFINITY, SHARP) else 0.0
    return inputs + staged


def disk_bytes(system: str, shape: Shape) -> float:
    """Compute the bytes on all disks: LuWu's store has three copies of everything, so that two are complete
    while the third is written.
    """
    kept = {LUWU: STORED_BYTES, INFINITY: STORED_BYTES / 3, SHARP: STORED_BYTES / 3}
    return float(kept.get(system, 0) * shape.parameters)


def most_parameters(hardware: Hardware) -> float:
    """Return how many parameters the optimizer's disks hold."""
    return hardware.disks * hardware.disk_bytes / STORED_BYTES


def fits(system: str, shape: Shape, hardware: Hardware, micro_batch: int = 1) -> bool:
    disks = hardware.disks if system == LUWU else 2 * hardware.workers
    return (
        gpu_bytes(system, shape, hardware.workers, micro_batch) <= hardware.gpu_memory_bytes
        and host_bytes(system, shape, hardware.workers, micro_batch) <= hardware.cpu_memory_bytes
        and disk_bytes(system, shape) <= disks * hardware.disk_bytes
    )


def largest_micro_batch(
    system: str, shape: Shape, hardware: Hardware, accepted: Sequence[int] = MICRO_BATCHES
) -> int | None:
    """Return the largest micro-batch that fits; None if none does."""
    return max((size for size in accepted if fits(system, shape, hardware, size)), default=None)


def largest_model(system: str, hardware: Hardware) -> Shape | None:
    """Return the largest model of table 2 that fits with a micro-batch of one."""
    return max(
        (shape for shape in SHAPES.values() if fits(system, shape, hardware)),
        key=lambda shape: shape.parameters,
        default=None,
    )
