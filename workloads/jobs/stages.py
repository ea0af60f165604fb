"""Train a small transformer by pipeline and data parallelism: two stages, each with two replicas.

Ranks 0 and 1 are the stages of the first replica, 3 and 2 of the second, so that a ring over the ranks joins
all pairs that send to each other. In each iteration the first stage
sends activations, the second sends their gradients back, and the replicas of each stage sum the gradients of
its parameters. Each computation lasts at least `--compute-ms`, as on a GPU whose time is slept. At the end
the replicas compare their parameters. Rank 0 prints the times of its iterations, in ms, as a JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

WORKERS, WORDS, LENGTH, WIDTH, CLASSES = 4, 256, 32, 64, 10
BATCH = 16


@contextmanager
def lasting(compute_ms: float) -> Iterator[None]:
    """Let the block last at least this long."""
    end = time.monotonic() + compute_ms / 1e3
    yield
    time.sleep(max(0.0, end - time.monotonic()))


def stage_of(is_first: bool, layers: int) -> nn.Module:
    """Make a stage: embedding and layers, or layers and a classifier of their mean."""
    body = [
        nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(layers)
    ]
    return nn.Sequential(*([nn.Embedding(WORDS, WIDTH), *body] if is_first else [*body, Classifier()]))


class Classifier(nn.Module):
    """Classify each sequence by the mean of its vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, CLASSES)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the logits of each sequence."""
        logits: Tensor = self.linear(vectors.mean(dim=1))
        return logits


def train(arguments: argparse.Namespace) -> list[float]:
    """Train, and return the time of each iteration in ms. Raises AssertionError if the replicas differ."""
    rank = dist.get_rank()
    assert dist.get_world_size() == WORKERS, f"{WORKERS} workers are needed"
    is_first, peer = rank in (0, 3), rank ^ 1
    pipelines = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    replicas = [dist.new_group([0, 3]), dist.new_group([1, 2])]
    pipeline, replica = pipelines[rank // 2], replicas[not is_first]
    torch.manual_seed(is_first)
    stage = stage_of(is_first, arguments.layers)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.05)
    drawing = torch.Generator().manual_seed(rank // 2)
    times_ms = []
    for _ in range(arguments.iterations):
        began = time.monotonic()
        optimizer.zero_grad()
        words = torch.randint(WORDS, (BATCH, LENGTH), generator=drawing)
        if is_first:
            with lasting(arguments.compute_ms):
                activations = stage(words)
            dist.send(activations.detach(), peer, group=pipeline)
            gradients = torch.empty_like(activations)
            dist.recv(gradients, peer, group=pipeline)
            with lasting(arguments.compute_ms):
                torch.autograd.backward(activations, gradients)
        else:
            received = torch.empty(BATCH, LENGTH, WIDTH)
            dist.recv(received, peer, group=pipeline)
            received.requires_grad_()
            with lasting(arguments.compute_ms):
                loss = nn.functional.cross_entropy(stage(received), words[:, 0] % CLASSES)
            with lasting(arguments.compute_ms):
                torch.autograd.backward(loss)
            assert received.grad is not None
            dist.send(received.grad, peer, group=pipeline)
        flat = torch.cat([each.grad.flatten() for each in stage.parameters() if each.grad is not None])
        dist.all_reduce(flat, group=replica)
        offset = 0
        for each in stage.parameters():
            if each.grad is not None:
                each.grad.copy_(flat[offset : offset + each.numel()].view_as(each) / 2)
                offset += each.numel()
        with lasting(arguments.compute_ms):
            optimizer.step()
        times_ms.append(1e3 * (time.monotonic() - began))
    mine = torch.cat([each.detach().flatten() for each in stage.parameters()])
    both = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(both, mine, group=replica)
    assert torch.equal(both[0], both[1]), "the replicas of a stage differ"
    return times_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--compute-ms", type=float, default=30.0, help="of each computation (30)")
    parser.add_argument("--layers", type=int, default=2, help="of each stage (2)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("inc")
    times_ms = train(arguments)
    if dist.get_rank() == 0:
        later = times_ms[2:] or times_ms  # the first two iterations learn what follows what
        print(json.dumps({"iteration_ms": times_ms, "median_ms": statistics.median(later)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
