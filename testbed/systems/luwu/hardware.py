"""The hardware of section 4.1, declared: links, disks, GPUs. Pure.

Values that the paper does not give are marked "Chosen".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

GPU_RATES = ((2048, 145e12), (12288, 183e12), (14336, 184e12))
"""Operations per second of a GPU that never waits, by hidden size: LuWu's highest throughputs (section 4.3,
figure 12). So where computing is the limit, LuWu's predicted throughput is the paper's own and proves
nothing.
"""
DISK_BYTES_S = 26e9 / 12
"""Rate of one disk, each way, when as much is read as written: 26 GB/s for the optimizer's twelve (section
4.1).
"""
WORKER_DISKS_BYTES_S = 26e9 / 8
"""Rate of a worker's disks in ZeRO-Infinity, each way: those of all workers together have the optimizer's
rate.
"""


@dataclass(frozen=True, slots=True)
class Hardware:
    """A cluster: workers with a GPU each, and the optimizer."""

    workers: int = 8
    link_bytes_s: float = 12.5e9
    """Rate of every link, each way: 100 Gb/s."""
    disks: int = 12
    """Disks of the optimizer."""
    disk_bytes_s: float = DISK_BYTES_S
    disk_bytes: float = 3.84e12
    worker_disks_bytes_s: float = WORKER_DISKS_BYTES_S
    gpu_memory_bytes: float = 40e9
    cpu_memory_bytes: float = 256e9
    """CPU memory of each worker."""
    adam_parameters_s: float = 3e9
    """Parameters that a node's CPUs update per second. Chosen: each reads and writes 28 bytes, which two
    sockets of six DDR4 channels move at 84 GB/s.
    """
    pool_bytes: float = 200e9
    """The optimizer's buffers. Chosen: most of 256 GB."""
    ahead: int = 2
    """Layers whose parameters a worker holds or has requested. Chosen: the one being computed, and
    the next.
    """

    @property
    def disks_bytes_s(self) -> float:
        """The optimizer's disk rate: for reading, and for writing at the same time."""
        return self.disks * self.disk_bytes_s


def gpu_rate(hidden: int) -> float:
    """Interpolate a GPU's operations per second with bf16 between GPU_RATES, by the logarithm of the hidden
    size.
    """
    for (less, low), (more, high) in pairwise(GPU_RATES):
        if hidden <= more:
            part = max(0.0, math.log(hidden / less) / math.log(more / less))
            return low + part * (high - low)
    return GPU_RATES[-1][1]
