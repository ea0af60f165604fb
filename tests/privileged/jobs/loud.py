"""Train a small part beside one whose gradients are R times as large, in one fragment, and a twin whose
gradients gloo sums. For each R in the arguments, rank 0 prints the small part's losses.
"""

from __future__ import annotations

import copy
import json
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

STEPS, RATE = 200, 0.05


class Parts(nn.Module):
    """Two small networks of 121 parameters each, so that one packet holds both."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = (
            nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 1)) for _ in range(2)
        )

    def forward(self, data: Tensor) -> tuple[Tensor, Tensor]:
        return self.small(data), self.large(data)


def batch(rank: int, step: int) -> tuple[Tensor, Tensor]:
    data = torch.randn(16, 8, generator=torch.Generator().manual_seed(1000 * step + rank))
    return data, torch.sin(data.sum(1, keepdim=True))


def losses(model: nn.Module, rank: int, step: int) -> tuple[Tensor, Tensor]:
    data, target = batch(rank, step)
    small, large = model(data)
    return nn.functional.mse_loss(small, target), nn.functional.mse_loss(large, target.flip(0))


def trained(apart: float, rank: int, world: int, plain: dist.ProcessGroup | None) -> float:
    torch.manual_seed(3)
    parts = Parts()
    model: nn.Module = parts if plain else DistributedDataParallel(parts)
    optimiser = torch.optim.SGD(
        [
            {"params": parts.small.parameters(), "lr": RATE},
            {"params": parts.large.parameters(), "lr": RATE / apart},
        ],
        momentum=0.9,
    )
    for step in range(STEPS):
        optimiser.zero_grad()
        small, large = losses(model, rank, step)
        (small + apart * large).backward()
        for parameter in parts.parameters() if plain else ():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad, group=plain)
            parameter.grad /= world
        optimiser.step()
    with torch.no_grad():
        return float(torch.stack([losses(parts, 0, 10**6 + step)[0] for step in range(40)]).mean())


def main() -> None:
    dist.init_process_group("inc")
    rank, world = dist.get_rank(), dist.get_world_size()
    plain = dist.new_group(backend="gloo")
    for apart in map(float, sys.argv[1:]):
        losses_of = {"apart": apart, "inc": trained(apart, rank, world, None)}
        losses_of |= {
            "gloo": trained(apart, rank, world, plain),
            "first": losses(copy.deepcopy(Parts()), 0, 0)[0].item(),
        }
        if rank == 0:
            print("finding: " + json.dumps(losses_of), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
