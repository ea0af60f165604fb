"""Reduce a vector over all workers by the operation of the job's system, and print the first values."""

from __future__ import annotations

import torch
import torch.distributed as dist

torch.set_num_threads(1)  # the workers share the machine's cores
dist.init_process_group("inc")
rank = dist.get_rank()
vector = torch.arange(1000.0) % 3 if rank else torch.ones(1000)
mine = vector[:6].tolist()
print(f"worker {rank} has     {mine}", flush=True)
dist.all_reduce(vector)
if rank == 0:
    print(f"all of them get {vector[:6].tolist()}", flush=True)
dist.destroy_process_group()
