"""Train two parts in one bucket whose losses differ by a factor R, beside a twin whose gradients gloo sums.
Rank 0 prints the small part's losses.

Each part has the step size that fits its loss, so that both learn alike if nothing of their gradients is
lost.
"""

from __future__ import annotations

import copy
import json
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

STEPS, RATE = 60, 0.5


class Parts(nn.Module):
    """Two separate classifiers of the same data."""

    def __init__(self) -> None:
        super().__init__()
        self.large, self.small = (
            nn.Sequential(nn.Linear(61, 397), nn.Tanh(), nn.Linear(397, 7)) for _ in range(2)
        )

    def forward(self, data: Tensor) -> tuple[Tensor, Tensor]:
        return self.large(data), self.small(data)


def optimiser(parts: Parts, apart: float) -> torch.optim.Optimizer:
    groups = [
        {"params": parts.large.parameters(), "lr": RATE},
        {"params": parts.small.parameters(), "lr": RATE * apart},
    ]
    return torch.optim.SGD(groups)


def main() -> None:
    apart = float(sys.argv[1])
    dist.init_process_group("inc")
    rank, world = dist.get_rank(), dist.get_world_size()
    plain = dist.new_group(list(range(world)))  # groups after the first use gloo
    torch.manual_seed(7)
    ours = Parts()
    twin = copy.deepcopy(ours)
    ddp = DistributedDataParallel(ours)
    steps = [optimiser(ours, apart), optimiser(twin, apart)]
    chance = torch.Generator().manual_seed(rank)
    data = torch.randn(128, 61, generator=chance)
    labels = (data[:, :7] + 0.3 * torch.randn(128, 7, generator=chance)).argmax(1)

    def of_both(scores: tuple[Tensor, Tensor]) -> list[Tensor]:
        return [nn.functional.cross_entropy(part, labels) for part in scores]

    first = of_both(twin(data))[1]
    for _ in range(STEPS):
        for model, step in zip((ddp, twin), steps, strict=True):
            step.zero_grad()
            large, small = of_both(model(data))
            (large + small / apart).backward()
            if model is twin:
                for parameter in twin.parameters():
                    assert parameter.grad is not None
                    dist.all_reduce(parameter.grad, group=plain)
                    parameter.grad /= world
            step.step()
    losses = [first.item(), *(of_both(model(data))[1].item() for model in (ours, twin))]
    if rank == 0:
        print("finding: " + json.dumps(dict(zip(("first", "inc", "gloo"), losses, strict=True))), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
