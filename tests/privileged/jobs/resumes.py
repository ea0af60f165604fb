"""Rank 1 is killed in the job's first start; the second start continues where the first ended, and sums to
the end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    checkpoint = Path(sys.argv[1])
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group("inc")
    rank = dist.get_rank()
    done = len(checkpoint.read_text()) if checkpoint.exists() else 0
    for step in range(done, 7):
        value = torch.full((100_003,), float(step + rank))
        dist.all_reduce(value)
        assert (value == 2 * step + 1).all(), value.unique()
        if rank == 0:
            checkpoint.write_text("x" * (step + 1))
        if rank == 1 and attempt == 0 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
    print(f"attempt {attempt} began at {done}", flush=True)


if __name__ == "__main__":
    main()
