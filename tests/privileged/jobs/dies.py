"""Rank 1 is killed between two all-reduces; the others print their error and after how long it was raised."""

from __future__ import annotations

import os
import signal
import time

import torch
import torch.distributed as dist

from workloads.job_env import JobEnv


def main() -> None:
    dist.init_process_group("inc")
    value = torch.ones(100_003)
    dist.all_reduce(value)
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        dist.all_reduce(value)
    except Exception as error:  # any error that a training script would get
        print(f"told after {time.monotonic() - start:.1f} s: {str(error).splitlines()[0]}", flush=True)
        board = JobEnv.from_environ().board
        while not board.missing():  # a connection may close before the launcher knows which worker ended
            time.sleep(0.01)
        os._exit(7)
    print("told nothing", flush=True)


if __name__ == "__main__":
    main()
