"""A DDP communication hook: gradients through the aggregator while the process group itself is any other.

model.register_comm_hook(state=None, hook=workloads.hook.inc_hook)
"""

from __future__ import annotations

import datetime
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

_group: Any = None


def inc_hook(state: dist.ProcessGroup | None, bucket: Any) -> Future[torch.Tensor]:
    """Averages a gradient bucket over the workers of the job. `state` is the group whose store is used, or None for the default group."""
    global _group
    if _group is None:
        from workloads.backend import c10d, create

        world = state or dist.group.WORLD
        assert world is not None
        store = c10d.PrefixStore("inc-hook", dist.distributed_c10d._get_default_store())
        _group = create(store, dist.get_rank(world), dist.get_world_size(world), datetime.timedelta(minutes=30))
    work = _group.allreduce([bucket.buffer()], dist.ReduceOp.AVG)
    averaged: Future[torch.Tensor] = work.get_future().then(lambda done: done.value()[0])
    return averaged
