"""Sum a vector over all workers several times, and check every value: the job of most examples here.

Each worker contributes its rank + 1 in every element, so that the sum over N workers is N * (N + 1) / 2
everywhere.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

values, turns = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)  # the workers share the machine's cores
dist.init_process_group("inc")
rank, workers = dist.get_rank(), dist.get_world_size()
for _ in range(turns):
    vector = torch.full((values,), rank + 1.0)
    dist.all_reduce(vector)
    assert (vector == workers * (workers + 1) / 2).all(), "a sum is wrong"
if rank == 0:
    print(f"{turns} sums of {values} values by {workers} workers, all exact", flush=True)
dist.destroy_process_group()
