"""Train a small model by DDP, with the backend `inc` or with gloo and the communication hook.

The first argument is `backend` or `hook`; rank 0 saves the parameters in the file given by the second.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from workloads.hook import inc_hook

STEPS = 7


def main() -> None:
    way, saved = sys.argv[1:]
    dist.init_process_group("inc" if way == "backend" else "gloo")
    rank = dist.get_rank()
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(31, 257), nn.ReLU(), nn.Linear(257, 13))
    ddp = DistributedDataParallel(model)
    if way == "hook":
        ddp.register_comm_hook(None, inc_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    for step in range(STEPS):
        data = torch.randn(17, 31, generator=torch.Generator().manual_seed(100 * step + rank))
        optimizer.zero_grad()
        ddp(data).square().mean().backward()
        optimizer.step()
    if rank == 0:
        torch.save(model.state_dict(), saved)
    if way == "hook":
        try:
            ddp(torch.full((1, 31), float("nan") if rank == 1 else 1.0)).sum().backward()
        except RuntimeError as error:
            print(f"not finite: {str(error).splitlines()[0]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
