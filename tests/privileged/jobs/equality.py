"""DDP's averaged gradients compared with a plain all-reduce of the same gradients by gloo. Each rank prints
one line of JSON.
"""

from __future__ import annotations

import json

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from workloads import quantiser


def main() -> None:
    dist.init_process_group("inc")
    rank, world = dist.get_rank(), dist.get_world_size()
    plain = dist.new_group(list(range(world)))  # groups after the first use gloo
    findings = {"rank": rank}

    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(31, 257), nn.ReLU(), nn.Linear(257, 13))
    alone = nn.Sequential(nn.Linear(31, 257), nn.ReLU(), nn.Linear(257, 13))
    alone.load_state_dict(model.state_dict())
    ddp = DistributedDataParallel(model)
    worst = 0.0
    for turn in range(3):
        data = torch.randn(17, 31, generator=torch.Generator().manual_seed(100 * turn + rank))
        ddp.zero_grad()
        alone.zero_grad()
        ddp(data).square().mean().backward()
        alone(data).square().mean().backward()
        for ours, other in zip(model.parameters(), alone.parameters(), strict=True):
            assert ours.grad is not None
            assert other.grad is not None
            expected, magnitude = other.grad.double() / world, other.grad.double().abs() / world
            largest = (
                torch.stack([p.grad.abs().max() for p in alone.parameters() if p.grad is not None]).max()
                / world
            )
            dist.all_reduce(expected, group=plain)
            dist.all_reduce(magnitude, group=plain)
            dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=plain)
            scale = quantiser.scale_of(quantiser.largest_exponent(largest.reshape(1).numpy()), world)
            # DDP divides before it sums, so the bound adds a rounding of each worker's share, the quantiser's
            # bound, and a rounding of the result
            bound = quantiser.bound(scale, world) + (magnitude + expected.abs()) * 2**-24
            worst = max(worst, ((ours.grad.double() - expected).abs() / bound).max().item())
    findings["ddp_error_over_bound"] = worst

    for dtype, step in ((torch.float32, 2**-23), (torch.float16, 2**-10), (torch.bfloat16, 2**-7)):
        mine = torch.randn(1003, generator=torch.Generator().manual_seed(rank)).to(dtype)
        exact = mine.double()
        dist.all_reduce(exact, group=plain)
        for operation, factor in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, world)):
            value = mine.clone()
            dist.all_reduce(value, op=operation)
            error = (value.double() - exact / factor).abs()
            assert (error <= exact.abs() / factor * step + 2**-20).all(), (dtype, operation, error.max())

    # collectives other than sums of floats use gloo
    number = torch.tensor([rank + 1])
    dist.all_reduce(number, op=dist.ReduceOp.PRODUCT)
    gathered: list[object] = [None] * world
    dist.all_gather_object(gathered, rank)
    findings["gloo"] = [int(number), gathered]
    try:
        dist.all_reduce(torch.tensor([1.0, float("nan") if rank == 1 else 2.0]))
    except RuntimeError as error:
        findings["nan"] = str(error).splitlines()[0]
    print("finding: " + json.dumps(findings), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
