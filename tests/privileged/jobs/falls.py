"""A worker is killed or stopped between two sums; each other worker prints its error in a line.

Arguments: the signal's name, and the rank that sends it to itself.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

TIMEOUT_S = 10


def main() -> None:
    how, victim = signal.Signals[sys.argv[1]], int(sys.argv[2])
    dist.init_process_group("inc", timeout=timedelta(seconds=TIMEOUT_S))
    rank, value = dist.get_rank(), torch.ones(10_007)
    for turn in range(7):
        if (turn, rank) == (5, victim):
            os.kill(os.getpid(), how)
        try:
            value.fill_(1.0)
            dist.all_reduce(value)
        except Exception as error:  # any error that a training script would get
            first = str(error).splitlines()[0]
            print(f"told: {first[first.index('job ') :]}", flush=True)
            os._exit(7)
        assert (value == dist.get_world_size()).all()
    print("told nothing", flush=True)


if __name__ == "__main__":
    main()
