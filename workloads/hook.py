"""A DDP communication hook that sums gradients in the network while the script's process group is of another
backend.

For a script that must keep its group: `model.register_comm_hook(None, inc_hook)`. The sums are equal to the
bit to those of DDP over the backend `inc`. No `from __future__ import annotations` here: DDP compares a
hook's annotations with the types themselves.
"""

import importlib
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future

_c10d: Any = importlib.import_module("torch.distributed.distributed_c10d")
_sums: Any = None  # the `inc` backend that sums where the script's group is of another backend


def inc_hook(state: object, bucket: GradBucket) -> Future[torch.Tensor]:
    """Average a bucket of gradients over the workers that contribute to its sum.

    If `state` is a list, the bucket's Outcome is appended to it; no other state is needed, since a job has
    one set of aggregators. Raises NotInJobError outside a job. `backward` raises a sum's errors.
    """
    gradients = bucket.buffer().mul_(
        1 / dist.get_world_size()
    )  # not div_: DDP itself multiplies, which rounds differently
    work = _group_for_sums().allreduce([gradients])

    def averaged(done: Future[Any]) -> torch.Tensor:
        average: torch.Tensor = done.value()[0]
        if isinstance(state, list):
            state.extend(work.outcomes)
        return average

    average: Future[torch.Tensor] = work.get_future().then(averaged)
    return average


def _group_for_sums() -> Any:
    """Return the script's process group if it is `inc`, else an `inc` group that the first call makes; all
    workers make it together.
    """
    global _sums
    world: Any = dist.group.WORLD
    if world._get_backend(torch.device("cpu")).name() == "inc":  # its name may be "cpu:inc", or empty
        return world
    if _sums is None:
        from workloads import backend

        store = _c10d.PrefixStore("inc-hook", _c10d._get_default_store())
        timeout = _c10d.default_pg_timeout
        _sums = backend.create(store, dist.get_rank(), dist.get_world_size(), timeout)
        backend.stands_beside_another()
    return _sums
