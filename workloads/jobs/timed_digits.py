"""Train a small convolutional network on scikit-learn's digits images by plain DistributedDataParallel, with
a declared computing time, and time its iterations: `testbed run ... timed_digits.py`.

Each worker writes its results to FILE.RANK. Rank 0's have the accuracy after each iteration, which is
measured after training so that it does not lengthen an iteration.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from workloads.jobs.digits import accuracy, digits

RATE = 1e-2  # the peak of the one-cycle schedule


def network() -> nn.Sequential:
    """Return the model: 14,074 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 8, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 48),
        nn.ReLU(),
        nn.Linear(48, 10),
    )


def batches(
    train: TensorDataset, batch: int, iterations: int, rank: int, workers: int, seed: int
) -> list[tuple[Tensor, ...]]:
    """Return a worker's batches. Within an epoch no image occurs twice, over all workers."""
    generator = torch.Generator().manual_seed(seed)
    together, order = batch * workers, torch.empty(0, dtype=torch.int64)
    chosen = []
    for _ in range(iterations):
        if len(order) < together:
            order = torch.randperm(len(train), generator=generator)
        chosen.append(train[order[rank * batch : (rank + 1) * batch]])
        order = order[together:]
    return chosen


def digest(net: nn.Module) -> str:
    """Return the first 16 hex digits of a SHA-256 over a model's parameters, equal only for parameters that
    are equal to the bit.
    """
    content = b"".join(parameter.detach().numpy().tobytes() for parameter in net.parameters())
    return hashlib.sha256(content).hexdigest()[:16]


def result_of(out: Path, rank: int) -> Path:
    """Return the file of a worker's results."""
    return out.with_name(f"{out.name}.{rank}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a digits classifier, and time it.")
    parser.add_argument("--batch", type=int, required=True, metavar="N", help="images of a worker")
    parser.add_argument("--iterations", type=int, required=True, metavar="N")
    parser.add_argument("--seed", type=int, required=True, metavar="N")
    parser.add_argument(
        "--compute-ms", type=float, required=True, metavar="MS", help="computing of an iteration, waited for"
    )
    parser.add_argument("--backend", default="inc")
    parser.add_argument("--out", type=Path, required=True, help="results of each worker: FILE.RANK, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the workers share the machine's cores
    torch.manual_seed(options.seed)
    dist.init_process_group(options.backend)
    rank, workers = dist.get_rank(), dist.get_world_size()

    train, test = digits()
    net = network()
    model = DistributedDataParallel(net)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=options.iterations)
    loss_of = nn.CrossEntropyLoss()
    steps = batches(train, options.batch, options.iterations, rank, workers, options.seed)
    ended_s: list[float] = []
    states: list[nn.Sequential] = []
    dist.barrier()
    began_s = time.monotonic()
    for images, labels in steps:
        optimiser.zero_grad()
        loss = loss_of(model(images), labels)
        time.sleep(options.compute_ms / 1e3)
        loss.backward()
        optimiser.step()
        schedule.step()
        ended_s.append(time.monotonic() - began_s)
        if rank == 0:
            states.append(copy.deepcopy(net))

    results = {
        "ended_s": ended_s,
        "accuracy": [accuracy(state, test) for state in states],
        "digest": digest(net),
        "params": sum(parameter.numel() for parameter in net.parameters()),
    }
    result_of(options.out, rank).write_text(json.dumps(results) + "\n", encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
