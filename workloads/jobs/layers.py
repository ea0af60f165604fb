"""Train a model with the tensor sizes of a well-known one, but none of its arithmetic, by plain
DistributedDataParallel.

Each tensor has its real size divided by --scale. The computing time of a GPU is slept, as a profile declares
it, each layer its share: forward first, then backward. A layer's gradients are ready when its share of
backward is over, so that DDP sums buckets while later gradients are still to come. Links that are slower by
the same scale carry these gradients in the time that the real ones take at the declared rates. Where the
sleeps last as declared, this job's iteration times are those of the real job.

The gradients are known beforehand. At the end every worker compares its parameters, which hold the averages
of all iterations, with the expected values; a wrong sum ends it with exit code 1. With --degraded an average
may lack workers, and must lie between the smallest and the largest that some of the workers can make.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from workloads import models, stragglers

ROUNDING = 2.0**-24  # largest relative rounding error of binary32


class Gpu:
    """An emulated GPU: runs work in order, each piece for a declared time.

    If a worker fetches a result late, later work still ends at its own time; a delay that `--stragglers` asks
    for moves it.
    """

    def __init__(self) -> None:
        self._free_s = self._slept_s = 0.0  # when the GPU is idle again; deliberate delays so far
        self.late_s = 0.0  # the largest lateness of this iteration

    def start(self) -> None:
        self._free_s, self.late_s = time.monotonic(), 0.0
        self._slept_s = stragglers.slept_s()

    def compute(self, seconds: float) -> None:
        """Queue work of this many seconds, and sleep until it is done."""
        slept_s = stragglers.slept_s()
        self._free_s += seconds + slept_s - self._slept_s
        self._slept_s = slept_s
        left = self._free_s - time.monotonic()
        if left > 0:
            time.sleep(left)
        self.late_s = max(self.late_s, time.monotonic() - self._free_s)


class Step:
    """The state that all layers share in an iteration: the GPU, and this worker's factor of all gradients."""

    def __init__(self, rank: int) -> None:
        self.gpu = Gpu()
        self.rank = rank
        self.factor = 0.0

    def begin(self, turn: int) -> None:
        self.factor = factor(self.rank, turn)
        self.gpu.start()


def factor(rank: int, turn: int) -> float:
    """Return the small integer by which a worker multiplies its gradients in an iteration.

    It differs between neighbouring ranks and iterations, so that a sum that lacks or repeats one of them is
    wrong.
    """
    return float(1 + (5 * rank + 3 * turn) % 7)


class _Computed(torch.autograd.Function):
    """A layer's forward and backward pass: they sleep for the layer's times and return known gradients."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, layer: EmulatedLayer, *_weights: Tensor) -> Tensor:
        ctx.layer = layer
        layer.step.gpu.compute(layer.forward_s)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        layer: EmulatedLayer = ctx.layer
        layer.step.gpu.compute(layer.backward_s)
        return upstream[0], None, *(pattern * layer.step.factor for pattern in layer.patterns)


class EmulatedLayer(nn.Module):
    """A layer with parameters of these sizes, all zero at first."""

    def __init__(self, step: Step, tensors: Sequence[int], forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.step, self.forward_s, self.backward_s = step, forward_s, backward_s
        self.weights = nn.ParameterList(torch.zeros(size) for size in tensors)
        self.patterns = [torch.cos(torch.arange(size, dtype=torch.float64) * 0.7).float() for size in tensors]

    def forward(self, value: Tensor) -> Tensor:
        result: Tensor = _Computed.apply(value, self, *self.weights)  # type: ignore[no-untyped-call]
        return result


def emulated(model: str, profile: models.Profile, scale: int, step: Step) -> nn.Sequential:
    """Build the model. Each layer gets the share of the computing times that it has of all
    multiply-accumulates.
    """
    layers = models.layers(model)
    macs = math.fsum(layer.macs for layer in layers)
    return nn.Sequential(
        *(
            EmulatedLayer(
                step,
                layer.scaled(scale).tensors,
                profile.forward_ms / 1e3 * layer.macs / macs,
                profile.backward_ms / 1e3 * layer.macs / macs,
            )
            for layer in layers
        )
    )


def error_over_bound(net: nn.Sequential, workers: int, turns: int, *, degraded: bool = False) -> float:
    """Return the largest error of the parameters, divided by the allowed error. More than 1 means that a sum
    is wrong.

    The error is the distance from the sum of all averages or, where averages may be `degraded`, from the
    range that averages over some of the workers can reach.

    The allowed error adds up, for each iteration: the fixed point of a switch, W M 2^(log2 W - 30) with M the
    largest share of a worker; the roundings of each worker's share and of their sums; and the rounding of the
    step on the parameters.
    """
    shares = [[factor(rank, turn) / workers for rank in range(workers)] for turn in range(turns)]
    total = math.fsum(math.fsum(of_turn) for of_turn in shares)
    fixed = (
        math.fsum(max(of_turn) for of_turn in shares) * workers * 2.0 ** (math.ceil(math.log2(workers)) - 30)
    )
    bound = fixed + ((workers + 1) + turns) * ROUNDING * total
    least, most = (
        (math.fsum(end(of_turn) for of_turn in shares) * workers for end in (min, max))
        if degraded
        else (total, total)
    )
    worst = 0.0
    for layer in net:
        assert isinstance(layer, EmulatedLayer)
        for weight, pattern in zip(layer.weights, layer.patterns, strict=True):
            own, ends = -weight.detach().double(), (pattern.double() * least, pattern.double() * most)
            below, above = torch.minimum(*ends) - own, own - torch.maximum(*ends)
            error = torch.maximum(below, above).max().item()
            worst = max(worst, error / bound if math.isfinite(error) else math.inf)
    return worst


def of_each(value: float) -> list[float]:
    """Exchange one number per worker, and return them by rank."""
    values = torch.zeros(dist.get_world_size(), dtype=torch.float64)
    values[dist.get_rank()] = value
    dist.all_reduce(values)
    return [float(each) for each in values]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train with the gradient sizes and computing times of a known model."
    )
    parser.add_argument("--model", default="resnet50", metavar="|".join(models.MODELS))
    parser.add_argument(
        "--profile", default="gtx1080ti", help="computing times: " + " or ".join(models.PROFILES)
    )
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument(
        "--warm-up", type=int, default=2, help="of the iterations, left out of what is reported"
    )
    parser.add_argument("--batch", type=int, default=models.BATCH, help="images per worker and iteration")
    parser.add_argument(
        "--scale", type=int, default=200, help="gradients are divided by this, as links are (200)"
    )
    parser.add_argument("--backend", default="inc")
    parser.add_argument("--degraded", action="store_true", help="averages may lack workers that are late")
    parser.add_argument("--out", type=Path, help="rank 0 writes its results here, as JSON")
    parsed = parser.parse_args()
    if not 0 <= parsed.warm_up < parsed.iterations or parsed.batch < 1 or parsed.scale < 1:
        parser.error("--batch and --scale are at least 1, and --iterations more than --warm-up")
    try:
        parsed.times = models.profile(parsed.profile, parsed.model).for_batch(parsed.batch)
    except ValueError as problem:
        parser.error(str(problem))
    return parsed


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)  # the workers share the machine's cores
    dist.init_process_group(args.backend)
    rank, workers = dist.get_rank(), dist.get_world_size()
    step = Step(rank)
    net = emulated(args.model, args.times, args.scale, step)
    bucket: Any = models.BUCKET_MIB / args.scale  # DDP accepts a fraction, although its type says int
    model = DistributedDataParallel(net, bucket_cap_mb=bucket, gradient_as_bucket_view=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0, foreach=True)
    image = torch.zeros(1)

    dist.barrier()
    ready_s = time.monotonic()
    started_s: list[float] = []
    late_ms: list[float] = []
    for turn in range(args.iterations):
        started_s.append(time.monotonic())
        step.begin(turn)
        optimiser.zero_grad()
        model(image).sum().backward()
        optimiser.step()
        late_ms.append(step.gpu.late_s * 1e3)
    done_s = time.monotonic()
    mean_ms = of_each((done_s - started_s[args.warm_up]) * 1e3 / (args.iterations - args.warm_up))

    iteration_ms = [(b - a) * 1e3 for a, b in zip(started_s, [*started_s[1:], done_s], strict=True)]
    counted = iteration_ms[args.warm_up :]
    images_per_s = args.batch * workers * len(counted) / (math.fsum(counted) / 1e3)
    error = error_over_bound(net, workers, args.iterations, degraded=args.degraded)
    if rank == 0:
        print(
            f"{args.model} on {workers} workers: {images_per_s:.1f} images/s, "
            f"{statistics.median(counted):.1f} ms per iteration, "
            f"of it {args.times.total_ms:.1f} computing",
            flush=True,
        )
        if args.out is not None:
            results = {
                "model": args.model,
                "profile": args.profile,
                "scale": args.scale,
                "batch": args.batch,
                "workers": workers,
                "params": sum(parameter.numel() for parameter in net.parameters()),
                "compute_ms": args.times.total_ms,
                "iterations": args.iterations,
                "warm_up": args.warm_up,
                "images_per_s": images_per_s,
                "iteration_ms": statistics.median(counted),
                "iteration_ms_list": iteration_ms,
                "mean_ms_list": mean_ms,  # of an iteration, by worker
                "iteration_start_s": started_s,  # CLOCK_MONOTONIC, as the two below
                "ready_s": ready_s,
                "done_s": done_s,
                "late_ms_list": late_ms,  # the largest lateness of a layer's result, by iteration
                "error_over_bound": error,
            }
            args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    dist.destroy_process_group()
    if error > 1:
        sys.exit(f"rank {rank}: the sums are wrong by {error:.3g} times what is allowed")


if __name__ == "__main__":
    main()
