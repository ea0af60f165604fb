"""Predict the live runs by the model that predicts the paper's figures, with measured computing times and
declared network and disks. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.systems.luwu import pipeline
from testbed.systems.luwu.shapes import PARAMETER_BYTES, STATE_BYTES

GRADIENT_BYTES = 4
"""Sums travel as 32-bit integers, and FSDP's gradients as 32-bit floats."""
PACKET_BYTES, PAYLOAD_BYTES = 1514, 1440
"""Frame and payload bytes of a full fragment; TCP's segments have about as many."""
AHEAD = 2
"""Layers that a worker holds or has requested: the one being computed, and the next."""
BURST_S = 0.02
"""Idle time that a declared rate makes up for, as in workloads/luwu/rates.py; a test compares the two."""
FASTEST_BYTES_S = 1e12
"""Disk rate where none is declared: the measured commit then includes the disks' time."""


@dataclass(frozen=True, slots=True)
class Emulated:
    """A live run: link and disks as declared, and measured seconds: of computing in both passes, and of
    LuWu's step if no disks are declared.
    """

    link_bytes_s: float
    forward_s: float
    backward_s: float
    step_s: float
    disks_bytes_s: float | None = None

    @property
    def payload_bytes_s(self) -> float:
        return self.link_bytes_s * PAYLOAD_BYTES / PACKET_BYTES


def elements(layers: int, width: int, length: int, words: int = 256) -> list[tuple[int, bool]]:
    """Return the layers of the model of workloads/luwu/jobs/text.py in order: the number of elements, and
    whether the layer is a block.
    """
    block = 12 * width**2 + 13 * width
    around = [(words * width, False), (length * width, False)]
    return [*around, *[(block, True)] * layers, (2 * width, False), (words * width + words, False)]


def luwu(model: Sequence[tuple[int, bool]], run: Emulated) -> float:
    """Predict the seconds of a LuWu iteration; the computing time is divided equally among the blocks."""
    blocks = sum(is_block for _, is_block in model)
    layers = [
        pipeline.Layer(
            parameter_bytes=size * PARAMETER_BYTES,
            gradient_bytes=size * GRADIENT_BYTES,
            state_bytes=size * STATE_BYTES,
            forward_s=is_block * run.forward_s / blocks,
            backward_s=is_block * run.backward_s / blocks,
            update_s=0.0,
        )
        for size, is_block in model
    ]
    node = pipeline.OptimizerNode(
        link_bytes_s=run.payload_bytes_s,
        disks_bytes_s=run.disks_bytes_s or FASTEST_BYTES_S,
        pool_bytes=sum(layer.whole_room + layer.parameter_room for layer in layers),
        ahead=AHEAD,
        on_demand=True,
        commit_s=run.step_s,
        burst_s=BURST_S,
    )
    return pipeline.run(layers, node).iteration_s


def fsdp(model: Sequence[tuple[int, bool]], run: Emulated, workers: int) -> float:
    """Predict the seconds of an iteration of torch's FSDP over gloo: a block's parameters arrive while the
    block before it computes; its gradients are summed by an all-reduce that the worker waits for.
    """
    blocks = [size for size, is_block in model if is_block]
    around = sum(size for size, is_block in model if not is_block)
    others = (workers - 1) / workers

    def gather_s(size: int) -> float:
        return others * size * PARAMETER_BYTES / run.payload_bytes_s

    def reduce_s(size: int) -> float:
        return 2 * others * size * GRADIENT_BYTES / run.payload_bytes_s

    forward_s, backward_s = run.forward_s / len(blocks), run.backward_s / len(blocks)
    hidden = len(blocks) - 1
    total = gather_s(around) + gather_s(blocks[0]) + hidden * max(gather_s(blocks[0]), forward_s) + forward_s
    total += gather_s(blocks[0]) + hidden * max(gather_s(blocks[0]), backward_s) + backward_s
    return total + sum(map(reduce_s, blocks)) + reduce_s(around) + run.step_s


def fsdp_tuned(model: Sequence[tuple[int, bool]], run: Emulated, workers: int) -> float:
    """Predict the seconds of an iteration of an FSDP that reduces gradients during the backward pass, each
    shard in 16 bits straight to its owner: for each block, the link carries its parameters and the gradients
    of the block computed before; the last block's are waited for.
    """
    blocks = [size for size, is_block in model if is_block]
    around = sum(size for size, is_block in model if not is_block)
    others = (workers - 1) / workers

    def sent_s(size: int) -> float:
        return others * size * PARAMETER_BYTES / run.payload_bytes_s

    forward_s, backward_s = run.forward_s / len(blocks), run.backward_s / len(blocks)
    hidden, block_s = len(blocks) - 1, sent_s(blocks[0])
    total = sent_s(around) + block_s + hidden * max(block_s, forward_s) + forward_s
    total += block_s + hidden * max(2 * block_s, backward_s) + backward_s
    return total + block_s + sent_s(around) + run.step_s
