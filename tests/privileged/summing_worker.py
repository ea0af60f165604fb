"""A worker of a scenario: all-reduces arrays that every worker can make for itself, and says how far it was off."""

from __future__ import annotations

import json
import sys

import numpy as np

from testbed.wire import spec
from workloads.endpoint import Endpoint
from workloads.job_env import Missing

LENGTHS = (1, 359, 360, 361, 100_003)


class Alone:
    """A board on which nobody ever ends."""

    def __init__(self) -> None:
        self._word = np.zeros(1, np.uint64)

    def progress_address(self) -> int:
        return int(self._word.ctypes.data)

    def missing(self) -> list[Missing]:
        return []

    def progress(self) -> list[int]:
        return []


def main() -> None:
    settings = json.loads(sys.argv[1])
    worker, workers = settings["worker"], settings["workers"]
    endpoint = Endpoint(settings, Alone(), timeout_s=30)  # type: ignore[arg-type]
    exact = []
    for turn in range(3):
        lanes = [
            np.random.default_rng((turn, other)).integers(0, 2**32 // workers, (401, spec.LANES), dtype=np.uint32)
            for other in range(workers)
        ]
        exact.append(bool((endpoint.sum_lanes(lanes[worker]) == sum(lane.astype(np.uint64) for lane in lanes)).all()))
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
    told = {
        name: getattr(counters, name) for name in ("retransmitted", "pushed", "notices", "reductions", "window_min")
    }
    print(json.dumps({"exact": exact, "worst": worst, **told}))


if __name__ == "__main__":
    main()
