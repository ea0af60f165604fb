"""The time that an iteration of workloads/jobs/layers.py takes, from declared numbers alone: sizes, computing
times, a rate. Pure.

DDP sums a bucket when the last of its gradients is there; buckets follow each other over the worker's link at
its rate. An iteration ends when all is computed and the last bucket is summed: what communication the
computing hides, and what not, follows. In a job's first iteration all gradients are one bucket: DDP learns in
it in which order they come, and makes its buckets then (torch 2.13, without find_unused_parameters).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from testbed.scheduling.live import gigabits
from testbed.topology.model import Topology
from workloads import models

_TENSOR_BYTES = 4
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job: what it trains, for how many iterations. `batch` is the images of a worker in an
    iteration.
    """

    model: str
    iterations: int
    batch: int = models.BATCH
    profile: str = "gtx1080ti"

    def megabytes(self, scale: int) -> float:
        """Return the megabytes that a worker sends in an iteration, without headers."""
        return models.parameters(self.model, scale) * _TENSOR_BYTES / 1e6

    def volume_gigabits(self, topology: Topology) -> float:
        """Return the Gb of a worker and an iteration, with headers, as at the declared rates."""
        return gigabits(topology, self.megabytes(topology.scale), 1)

    @property
    def compute_s(self) -> float:
        return models.profile(self.profile, self.model).for_batch(self.batch).total_ms / 1e3


@functools.cache
def buckets(kind: JobKind) -> tuple[tuple[float, float], ...]:
    """(seconds from an iteration's begin until it is there, share of all bytes) of each bucket, in their
    order.

    Tensors are taken from the last layer to the first; a bucket is full with `models.BUCKET_MIB` or more.
    """
    times = models.profile(kind.profile, kind.model).for_batch(kind.batch)
    layers = models.layers(kind.model)
    macs = math.fsum(layer.macs for layer in layers)
    total = sum(layer.parameters for layer in layers)
    now_s, held, times_s = times.forward_ms / 1e3, 0, []
    for layer in reversed(layers):
        now_s += times.backward_ms / 1e3 * layer.macs / macs
        for size in reversed(layer.tensors):
            held += size
            if held * _TENSOR_BYTES >= models.BUCKET_MIB * _MIB:
                times_s.append((now_s, held / total))
                held = 0
    if held:
        times_s.append((now_s, held / total))
    return tuple(times_s)


def iteration_s(kind: JobKind, volume_gigabits: float, rate_gbps: float) -> float:
    """Return the seconds of an iteration with `volume_gigabits` of each worker, all at `rate_gbps`, up and
    down at once.
    """
    free_s = 0.0
    for there_s, share in buckets(kind):
        free_s = max(free_s, there_s) + share * volume_gigabits / rate_gbps
    return max(free_s, kind.compute_s)


def first_iteration_s(kind: JobKind, volume_gigabits: float, rate_gbps: float) -> float:
    """Return the seconds of a job's first iteration: nothing is hidden."""
    return kind.compute_s + volume_gigabits / rate_gbps


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of a job when all its workers have one rate: an iteration's volume shrinks evenly in an
    iteration's time.
    """

    kind: JobKind
    volume_gigabits: float

    def after(self, gigabits: float, seconds: float, rate_gbps: float) -> float:
        """Return how many gigabits a worker has sent, that has sent `gigabits`, so much later."""
        first, later = self._speeds(rate_gbps)
        left = max(0.0, self.volume_gigabits - gigabits)
        if seconds * first <= left:
            return gigabits + seconds * first
        return gigabits + left + (seconds - left / first) * later

    def until_s(self, gigabits: float, total_gigabits: float, rate_gbps: float) -> float:
        """Return the seconds from `gigabits` sent to the total."""
        first, later = self._speeds(rate_gbps)
        of_first = max(0.0, min(total_gigabits, self.volume_gigabits) - gigabits)
        return of_first / first + (total_gigabits - gigabits - of_first) / later

    def _speeds(self, rate_gbps: float) -> tuple[float, float]:
        """Gb/s in the first iteration and in the others."""
        volume = self.volume_gigabits
        first_s = first_iteration_s(self.kind, volume, rate_gbps)
        later_s = iteration_s(self.kind, volume, rate_gbps)
        return volume / first_s, volume / later_s
