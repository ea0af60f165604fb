"""A convolutional network on scikit-learn's digits images, trained by plain DistributedDataParallel.

An ordinary PyTorch script: it imports nothing of the testbed, and runs wherever torch's launcher variables
(RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) are set. On the testbed the backend "inc" sums the gradients in
the network; elsewhere `torchrun --nproc-per-node 4 digits.py --backend gloo` trains the same model on the
same data, in that order.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

TEST_IMAGES = 360  # of 1797: the same fifth in every run, independent of --seed
SPLIT_SEED = 1797


class DigitsNet(nn.Sequential):
    """Two convolutions and two dense layers: 217,546 parameters, so that one step exchanges 0.87 MB of
    gradients.
    """

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 192),
            nn.ReLU(),
            nn.Linear(192, 10),
        )


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Load the training and the test images: float32 (1, 8, 8) in [0, 1], each with its digit."""
    pixels, digit = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(digit, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def accuracy(model: nn.Module, dataset: TensorDataset) -> float:
    """Return the share of the images that the model classifies correctly."""
    images, labels = dataset.tensors
    model.eval()
    with torch.no_grad():
        right = int((model(images).argmax(dim=1) == labels).sum())
    model.train()
    return right / len(labels)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a digits classifier with DistributedDataParallel.")
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--batch", type=int, default=16, help="images per worker and iteration")
    parser.add_argument("--lr", type=float, default=6e-3, help="the peak of the one-cycle schedule")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", default="inc")
    parser.add_argument(
        "--scale",
        type=int,
        default=1,
        help="what its gradients are declared to be divided by, for reports (1)",
    )
    parser.add_argument("--out", type=Path, help="rank 0 writes its results here, as JSON")
    parser.add_argument("--report", action="store_true", help="rank 0 prints its main results as JSON, too")
    parsed = parser.parse_args()
    if parsed.epochs < 1 or parsed.batch < 1 or parsed.scale < 1:
        parser.error("--epochs, --batch and --scale are at least 1")
    return parsed


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)  # the workers share the machine's cores
    torch.manual_seed(args.seed)
    dist.init_process_group(args.backend)
    rank = dist.get_rank()

    train, test = digits()
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(train, seed=args.seed)
    loader = DataLoader(train, batch_size=args.batch, sampler=sampler)
    net = DigitsNet()
    model = DistributedDataParallel(net)
    optimiser = torch.optim.Adam(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, args.lr, total_steps=args.epochs * len(loader))
    loss_of = nn.CrossEntropyLoss()

    losses: list[float] = []
    started_s: list[float] = []
    iteration_ms: list[float] = []
    accuracies: list[float] = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            start_s = time.monotonic()
            optimiser.zero_grad()
            loss = loss_of(model(images), labels)
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
            started_s.append(start_s)
            iteration_ms.append((time.monotonic() - start_s) * 1e3)
        if rank == 0:
            recent = statistics.fmean(losses[-len(loader) :])
            accuracies.append(accuracy(net, test))
            print(
                f"epoch {epoch + 1}/{args.epochs}: loss {recent:.4f}, test accuracy "
                f"{accuracies[-1]:.2%}, "
                f"{statistics.median(iteration_ms[-len(loader) :]):.1f} ms per iteration",
                flush=True,
            )

    mean_loss = torch.tensor(losses)
    dist.all_reduce(mean_loss)
    mean_loss /= dist.get_world_size()
    if rank == 0:
        first = next(net.parameters())
        results = {
            "test_accuracy": accuracies[-1],
            "test_accuracy_list": accuracies,  # by epoch
            "loss": mean_loss.tolist(),
            "iterations": len(losses),
            "iteration_ms": statistics.median(iteration_ms),
            "iteration_ms_list": iteration_ms,
            "iteration_start_s": started_s,  # CLOCK_MONOTONIC
            "epochs": args.epochs,
            "batch": args.batch,
            "seed": args.seed,
            "scale": args.scale,
            "workers": dist.get_world_size(),
            "params": sum(parameter.numel() for parameter in net.parameters()),
            "dtype": str(first.dtype).removeprefix("torch."),
        }
        if args.out is not None:
            args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        if args.report:
            main_results = {name: results[name] for name in ("test_accuracy", "iterations", "iteration_ms")}
            print(json.dumps(main_results), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
