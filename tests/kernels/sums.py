"""A job without torch, which an emulated processor takes a minute to import: sum whole numbers by the
endpoint, and compare each element with its expected value.

Worker r contributes r + 1 times a vector. With `late` all contribute the same, so that the mean is known
whoever contributes, and the last worker comes to every sum but the first after the timeout of its blocks:
these sums must lack it.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from workloads.endpoint import Endpoint
from workloads.job_env import JobEnv

TURNS, LENGTH, TIMEOUT_S, LATE_S = 5, 20_011, 120.0, 1.0


def main() -> int:
    job = JobEnv.from_environ()
    assert job.endpoint is not None
    endpoint = Endpoint(job.endpoint, job.board, TIMEOUT_S)
    job.board.join()
    is_late, workers = sys.argv[1:] == ["late"], job.world_size
    lacking = off = 0
    for turn in range(TURNS):
        base = ((np.arange(LENGTH) * 7919 + turn) % 1009).astype(np.float32)
        vector = base.copy() if is_late else (job.rank + 1) * base
        if is_late and turn and job.rank == workers - 1:
            time.sleep(LATE_S)
        outcome = endpoint.allreduce(vector)
        wanted = base * (workers if is_late else workers * (workers + 1) // 2)
        lacking += bool(outcome.degraded)
        off += int(np.count_nonzero(vector != wanted))
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
