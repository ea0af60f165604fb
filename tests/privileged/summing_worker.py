"""A worker of a scenario: all-reduce arrays that every worker can compute by itself, and report the
difference.

Prints "first" after the first sum. It sums lanes three times, and continues until its input is closed, all
workers equally often: a worker that may end says so in the first lane.
"""

from __future__ import annotations

import itertools
import json
import select
import sys

import numpy as np

from testbed.wire import spec
from testbed.wire.settings import EndpointSettings, read
from workloads.endpoint import Endpoint
from workloads.job_env import Missing

TURNS = 3
LENGTHS = (1, 359, 360, 361, 100_003)


class Alone:
    """A board on which no worker ever ends."""

    def __init__(self, is_parallel: bool = False) -> None:
        # progress, a constant rate, and whether circuits are parallel
        self._word = np.array([0, 0, is_parallel], np.uint64)

    def progress_address(self) -> int:
        return int(self._word.ctypes.data)

    def rate_address(self) -> int:
        return int(self._word.ctypes.data) + 8

    def parallel_address(self) -> int:
        return int(self._word.ctypes.data) + 16

    def missing(self) -> list[Missing]:
        return []

    def progress(self) -> list[int]:
        return []

    def behind(self) -> list[int]:
        return []


def main() -> None:
    settings = read(EndpointSettings, sys.argv[1])
    worker, workers = settings.worker, settings.workers
    endpoint = Endpoint(settings, Alone(), timeout_s=90)  # type: ignore[arg-type]
    exact = []
    for turn in itertools.count(1):
        lanes = [
            np.random.default_rng((turn, other)).integers(
                0, 2**32 // workers, (401, spec.LANES), dtype=np.uint32
            )
            for other in range(workers)
        ]
        for lane in lanes:
            lane[0, 0] = 0
        total = np.sum(lanes, axis=0, dtype=np.uint64)
        lanes[worker][0, 0] = turn >= TURNS and bool(select.select([0], [], [], 0)[0])
        result = endpoint.sum_lanes(lanes[worker])
        votes, result[0, 0] = int(result[0, 0]), 0
        exact.append(bool((result == total).all()) and votes <= workers)
        if turn == 1:
            print("first", flush=True)
        if votes == workers:
            break
    worst = 0.0
    for length in LENGTHS:
        arrays = [
            np.random.default_rng((length, other)).standard_normal(length).astype(np.float32)
            for other in range(workers)
        ]
        mine = arrays[worker].copy()
        endpoint.allreduce(mine)
        worst = max(worst, float(np.abs(mine - np.sum([a.astype(np.float64) for a in arrays], axis=0)).max()))
    counters = endpoint.counters
    counts = {
        name: getattr(counters, name)
        for name in ("retransmitted", "pushed", "notices", "reductions", "window_min")
    }
    print(json.dumps({"exact": exact, "worst": worst, **counts}))


if __name__ == "__main__":
    main()
