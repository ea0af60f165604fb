"""A DDP communication hook: gradients are summed in the network while the process group is any other.

For a script that must keep the group it has: `model.register_comm_hook(None, inc_hook)`. What is summed, and
to which bit, is what DDP over the backend `inc` sums. No `from __future__ import annotations` here: DDP
compares a hook's annotations with the types themselves.
"""

import importlib
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future

_c10d: Any = importlib.import_module("torch.distributed.distributed_c10d")
_sums: Any = None  # what sums where the script's group is another's


def inc_hook(state: object, bucket: GradBucket) -> Future[torch.Tensor]:
    """Average a bucket of gradients over the workers that contribute to its sum. To a `state` that is a list
    the bucket's Outcome is appended; a job has one set of aggregators, so that nothing else is kept there.

    Raises NotInJobError outside a job. What goes wrong with a sum is raised by `backward`.
    """
    gradients = bucket.buffer().mul_(
        1 / dist.get_world_size()
    )  # not div_: DDP itself multiplies, which rounds otherwise
    work = _group_for_sums().allreduce([gradients])

    def averaged(done: Future[Any]) -> torch.Tensor:
        average: torch.Tensor = done.value()[0]
        if isinstance(state, list):
            state.extend(work.outcomes)
        return average

    average: Future[torch.Tensor] = work.get_future().then(averaged)
    return average


def _group_for_sums() -> Any:
    """The process group itself where it is `inc`, else one beside it, made at the first call, which all
    workers make together.
    """
    global _sums
    world: Any = dist.group.WORLD
    if world._get_backend(torch.device("cpu")).name() == "inc":  # its own word may be cpu:inc, or none
        return world
    if _sums is None:
        from workloads import backend

        store = _c10d.PrefixStore("inc-hook", _c10d._get_default_store())
        timeout = _c10d.default_pg_timeout
        _sums = backend.create(store, dist.get_rank(), dist.get_world_size(), timeout)
        backend.stands_beside_another()
    return _sums
