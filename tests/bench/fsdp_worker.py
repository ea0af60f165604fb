"""A worker of tests/bench/fsdp.py: train a small transformer, sharded by FSDP2, by the job's group and by
gloo's in turn. Rank 0 prints the measurements in a line after MARK.

`fsdp_worker.py TURNS ITERATIONS`
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

MARK = "fsdp: "
WIDTH, LAYERS, TOKENS, BATCH = 128, 4, 32, 4
DEVICE = "eth0"


class Model(nn.Module):
    """Encoder layers and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            data = layer(data)
        answer: torch.Tensor = self.head(data)
        return answer


class Asked:
    """Counts the bytes, of all workers together, of the collectives that FSDP calls; it wraps them under the
    names that this torch has (2.13 has new ones).
    """

    def __init__(self) -> None:
        self.gathered = self.scattered = 0
        for name in ("all_gather_single", "all_gather_into_tensor"):
            if hasattr(dist, name):
                setattr(dist, name, self._gather(getattr(dist, name)))
        for name in ("reduce_scatter_single", "reduce_scatter_tensor"):
            if hasattr(dist, name):
                setattr(dist, name, self._scatter(getattr(dist, name)))

    def _gather(self, gather: Callable[..., Any]) -> Callable[..., Any]:
        def seen(output_tensor: torch.Tensor, *rest: Any, **named: Any) -> Any:
            self.gathered += output_tensor.nbytes
            return gather(output_tensor, *rest, **named)

        return seen

    def _scatter(self, scatter: Callable[..., Any]) -> Callable[..., Any]:
        def seen(output: torch.Tensor, input: torch.Tensor, *rest: Any, **named: Any) -> Any:
            self.scattered += input.nbytes
            return scatter(output, input, *rest, **named)

        return seen


def trainer(group: dist.ProcessGroup) -> Callable[[], float]:
    """Return a function that trains a model of its own, sharded over this group, for one iteration and
    returns the loss.
    """
    torch.manual_seed(3)
    model = Model()
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.randn(BATCH, TOKENS, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))

    def train() -> float:
        optimizer.zero_grad()
        loss = (model(data) - data.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return train


def link_bytes() -> tuple[int, int]:
    """Return the bytes that this host's link has carried so far: up, down."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == DEVICE:
            fields = numbers.split()
            return int(fields[8]), int(fields[0])
    raise SystemExit(f"{DEVICE}: there is no such device")


def main(turns: int, iterations: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("inc")
    gloo = dist.new_group(backend="gloo")
    assert dist.group.WORLD is not None
    asked = Asked()
    train = {"inc": trainer(dist.group.WORLD), "gloo": trainer(gloo)}
    rows: dict[str, list[dict[str, float]]] = {kind: [] for kind in train}
    for turn in range(turns + 1):
        for kind, step in train.items():
            dist.barrier(gloo)
            before, up, down = (asked.gathered, asked.scattered), *link_bytes()
            start = time.perf_counter()
            for _ in range(iterations):
                loss = step()
            spent_s = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
            dist.barrier(gloo)
            up_after, down_after = link_bytes()
            dist.all_reduce(spent_s, dist.ReduceOp.MAX, gloo)
            row = {
                "iteration_s": float(spent_s) / iterations,
                "up_bytes": (up_after - up) / iterations,
                "down_bytes": (down_after - down) / iterations,
                "gathered_bytes": (asked.gathered - before[0]) / iterations,
                "scattered_bytes": (asked.scattered - before[1]) / iterations,
                "loss": loss,
            }
            if turn:  # FSDP allocates its buffers in the first turn
                rows[kind].append(row)
    if dist.get_rank() == 0:
        print(MARK + json.dumps(rows), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
