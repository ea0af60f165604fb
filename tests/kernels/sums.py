"""A job without torch, which an emulated processor takes a minute to read in: sums whole numbers by the
endpoint, and holds each element against the sum of those who are in it.

With `late`, the last worker comes to each sum but the first after the timeout of its blocks, and sums must
lack it.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from workloads.endpoint import Endpoint
from workloads.job_env import JobEnv

TURNS, LENGTH, TIMEOUT_S, LATE_S = 5, 20_011, 120.0, 1.0


def wrong(vector: np.ndarray, base: np.ndarray, contributors: np.ndarray, workers: int) -> int:
    """Count the elements that are not what these contributors make: worker r brings W - r times `base`, and
    the one that is missing is the last.
    """
    everybody = workers * (workers + 1) // 2 * base
    without_last = (everybody - base) * workers / (workers - 1)
    wanted = np.where(contributors == workers, everybody, without_last)
    is_known = contributors >= workers - 1
    return int(np.count_nonzero(~is_known | (np.abs(vector - wanted) > 1e-3 * np.abs(wanted))))


def main() -> int:
    job = JobEnv.from_environ()
    endpoint = Endpoint(job.endpoint, job.board, TIMEOUT_S)
    job.board.join()
    is_late, workers = sys.argv[1:] == ["late"], job.world_size
    lacking = off = 0
    for turn in range(TURNS):
        base = ((np.arange(LENGTH) * 7919 + turn) % 1009).astype(np.float32)
        vector = (workers - job.rank) * base
        if is_late and turn and job.rank == workers - 1:
            time.sleep(LATE_S)
        outcome = endpoint.allreduce(vector)
        lacking += bool(outcome.degraded)
        off += wrong(vector, base, outcome.by_element(LENGTH), workers)
    counters = endpoint.counters
    print(
        f"{TURNS} sums of {workers} workers, {off} elements wrong, {lacking} sums without somebody; "
        f"{counters.pushed} packets pushed, {counters.retransmitted} again",
        flush=True,
    )
    job.board.leave()
    endpoint.close()
    return int(bool(off) or bool(lacking) != is_late)


if __name__ == "__main__":
    sys.exit(main())
