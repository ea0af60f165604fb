"""A job's worker for tests/bench/recoveries.py: sum whole numbers, and report the time of the sums.
`recovery_worker.py SUMS`.
"""

from __future__ import annotations

import json
import sys
import time

import torch
import torch.distributed as dist

MARK = "sums: "
PACKETS = 500
LANES = 360
LENGTH = PACKETS * LANES
WARM = 3


def main() -> None:
    """Sum vectors of 500 packets, the first three untimed, and assert that each sum is exact."""
    torch.set_num_threads(1)
    sums = int(sys.argv[1])
    dist.init_process_group("inc")
    rank, size = dist.get_rank(), dist.get_world_size()
    begun_s = 0.0
    for turn in range(-WARM, sums):
        if turn == 0:
            dist.barrier()
            begun_s = time.monotonic()
        base = (torch.arange(LENGTH) * 7919 + turn) % 10_007
        value = ((rank + 1) * base).to(torch.float32)
        dist.all_reduce(value)
        assert torch.equal(value, (size * (size + 1) // 2 * base).to(torch.float32)), (turn, rank)
    if rank == 0:
        print(MARK + json.dumps({"seconds": time.monotonic() - begun_s}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
