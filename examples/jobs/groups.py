"""Sum in two groups of workers, those of even and those of odd rank, and then in all of them."""

from __future__ import annotations

import torch
import torch.distributed as dist

torch.set_num_threads(1)  # the workers share the machine's cores
dist.init_process_group("inc")
rank, workers = dist.get_rank(), dist.get_world_size()
members = [[each for each in range(workers) if each % 2 == odd] for odd in (0, 1)]
groups = [dist.new_group(ranks) for ranks in members]
own = rank % 2
for _ in range(5):
    vector = torch.full((20_000,), float(rank))
    dist.all_reduce(vector, group=groups[own])
    assert (vector == sum(members[own])).all(), "a group's sum is wrong"
    dist.all_reduce(vector)
    assert (vector == sum(sum(members[each % 2]) for each in range(workers))).all(), "a sum of all is wrong"
print(f"worker {rank} summed with {members[own]} and with all", flush=True)
dist.destroy_process_group()
