"""Rank 1 is killed between two all-reduces; the others say what they are told and after how long."""

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
    except Exception as error:  # whatever a training script would see
        print(f"told after {time.monotonic() - start:.1f} s: {str(error).splitlines()[0]}", flush=True)
        board = JobEnv.from_environ().board
        while not board.missing():  # a closed connection may tell before the launcher has seen who ended
            time.sleep(0.01)
        os._exit(7)
    print("told nothing", flush=True)


if __name__ == "__main__":
    main()
