"""A hang of each kind that occurs in scripts: `hangs.py KIND`. Each worker prints when it begins, by the
clock that all processes share.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LONG_S = 300.0
ELEMENTS = 100_000


def values(count: int = ELEMENTS) -> torch.Tensor:
    return torch.ones(count)


def kind(rank: int) -> None:
    dist.broadcast(values(), 0) if rank else dist.all_reduce(values())


def length(rank: int) -> None:
    dist.all_reduce(values(ELEMENTS + rank))


def type_(rank: int) -> None:
    dist.all_reduce(values().to(torch.float64 if rank else torch.float32))


def operation(rank: int) -> None:
    dist.all_reduce(values(), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)


def root(rank: int) -> None:
    dist.broadcast(values(), rank)


def evaluates(rank: int) -> None:
    """Worker 0 alone evaluates through DDP, which broadcasts its buffers."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16)))
    for _ in range(5 if rank == 0 else 0):
        model(torch.randn(4, 8))
    dist.barrier()


def group(rank: int) -> None:
    """Worker 0 sums among all workers, worker 1 in a group that it made."""
    row = dist.new_group([0, 1])
    dist.all_reduce(values(), group=row if rank else None)


def late(rank: int) -> None:
    if rank:
        time.sleep(LONG_S)
    dist.all_reduce(values())


def receives(rank: int) -> None:
    """Both receive, and neither sends."""
    dist.recv(values(10), 1 - rank)


def before(rank: int) -> None:
    """Do nothing: the hang happened before there was a group."""


KINDS: Mapping[str, Callable[[int], None]] = {
    **{each.__name__.rstrip("_"): each for each in (kind, length, type_, operation, root, evaluates)},
    **{each.__name__: each for each in (group, late, receives)},
    **dict.fromkeys(("absent", "address", "rank"), before),
}


def main() -> None:
    name, rank = sys.argv[1], int(os.environ["RANK"])
    print(f"begins: {time.monotonic_ns()}", flush=True)
    if name == "absent" and rank:
        time.sleep(LONG_S)
    if name == "address":
        os.environ["MASTER_ADDR"] = "localhost"
    if name == "rank":
        os.environ["RANK"] = "0"
    dist.init_process_group("inc")
    dist.all_reduce(values())
    print(f"begins: {time.monotonic_ns()}", flush=True)
    KINDS[name](rank)
    print("no error", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
