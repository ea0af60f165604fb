"""The time of an iteration of workloads/jobs/layers.py, computed from declared numbers alone: sizes,
computing times, a rate. Pure.

DDP sums a bucket once the last of its gradients is ready; buckets follow each other over the worker's link at
its rate. An iteration ends when everything is computed and the last bucket is summed. From this follows how
much communication is hidden behind computing. In a job's first iteration all gradients are one bucket: DDP
records the order in which they become ready, and then makes its buckets (torch 2.13, without
find_unused_parameters).
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
    """A kind of job: its model and number of iterations. `batch` is the images of a worker in an
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
        """Return the Gb that a worker sends in an iteration, with headers, at the scale of declared rates."""
        return gigabits(topology, self.megabytes(topology.scale), 1)

    @property
    def compute_s(self) -> float:
        return models.profile(self.profile, self.model).for_batch(self.batch).total_ms / 1e3


@functools.cache
def buckets(kind: JobKind) -> tuple[tuple[float, float], ...]:
    """Return, for each bucket in order, the seconds from an iteration's start until it is ready, and its
    share of all bytes.

    Buckets are filled with tensors from the last layer to the first; one is full at `models.BUCKET_MIB` or
    more.
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
    """Return the seconds of an iteration in which each worker sends `volume_gigabits` at `rate_gbps` and
    receives as much at the same time.
    """
    free_s = 0.0
    for there_s, share in buckets(kind):
        free_s = max(free_s, there_s) + share * volume_gigabits / rate_gbps
    return max(free_s, kind.compute_s)


def first_iteration_s(kind: JobKind, volume_gigabits: float, rate_gbps: float) -> float:
    """Return the seconds of a job's first iteration, in which computing hides no communication."""
    return kind.compute_s + volume_gigabits / rate_gbps


@dataclass(frozen=True, slots=True)
class Pace:
    """The progress of a job whose workers all have one rate: within an iteration, its volume is sent evenly
    over the iteration's time.
    """

    kind: JobKind
    volume_gigabits: float

    def after(self, gigabits: float, seconds: float, rate_gbps: float) -> float:
        """Return how many gigabits a worker has sent `seconds` after it had sent `gigabits`."""
        first, later = self._speeds(rate_gbps)
        left = max(0.0, self.volume_gigabits - gigabits)
        if seconds * first <= left:
            return gigabits + seconds * first
        return gigabits + left + (seconds - left / first) * later

    def until_s(self, gigabits: float, total_gigabits: float, rate_gbps: float) -> float:
        """Return the seconds from `gigabits` sent until `total_gigabits` are sent."""
        first, later = self._speeds(rate_gbps)
        of_first = max(0.0, min(total_gigabits, self.volume_gigabits) - gigabits)
        return of_first / first + (total_gigabits - gigabits - of_first) / later

    def _speeds(self, rate_gbps: float) -> tuple[float, float]:
        """Return the Gb/s, averaged over an iteration, in the first iteration and in the others."""
        volume = self.volume_gigabits
        first_s = first_iteration_s(self.kind, volume, rate_gbps)
        later_s = iteration_s(self.kind, volume, rate_gbps)
        return volume / first_s, volume / later_s
