"""A process group with one worker less than the job has: `smaller.py BACKEND`."""

from __future__ import annotations

import os
import sys

import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) - 1
if rank < world:
    dist.init_process_group(sys.argv[1], rank=rank, world_size=world)
    dist.barrier()
print("done", flush=True)
