"""Sum whole numbers, which must come out exactly: vectors of prime lengths, by the backend's SUM and AVG.

With an argument, rank 1 is killed after some of them in the job's first start.
"""

from __future__ import annotations

import os
import signal
import sys

import torch
import torch.distributed as dist

from workloads import backend

LENGTHS = (1, 31, 101, 359, 361, 10_007, 100_003)


def main() -> None:
    rounds = int(sys.argv[1])
    dies = sys.argv[2:] == ["dies"] and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    dist.init_process_group("inc")
    rank, size = dist.get_rank(), dist.get_world_size()
    for turn in range(rounds):
        if dies and rank == 1 and turn == rounds // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        for length in LENGTHS:
            base = (torch.arange(length) * 7919 + turn) % 10_007
            value = ((rank + 1) * base).to(torch.float32)
            dist.all_reduce(value)
            wanted = (size * (size + 1) // 2 * base).to(torch.float32)
            assert torch.equal(value, wanted), (turn, rank, length, (value - wanted).abs().max())
    record = backend.record()
    assert (record.sums, record.degraded) == (rounds * len(LENGTHS), 0)
    if rank == 0:
        print(f"{record.sums} sums of {size} workers are exact", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
