"""Sum a vector over all workers again and again, and time each sum: a job that communicates and computes
nothing, like the micro-benchmarks by which papers compare ways to sum.

The vectors are known beforehand, and differ by worker and by turn. Every worker compares each sum with the
expected one; a wrong one ends it with exit code 1. All workers begin a sum together. A sum lasts until the
last worker has it, by the clock that all workers share.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from workloads.jobs.layers import factor

TOLERANCE = 1e-5
"""The allowed error of a value, relative to the vector's largest: ten times the fixed-point error of a switch
with 64 workers, and a thousandth of the error if one worker's share is missing or added twice.
"""


def pattern(size: int) -> Tensor:
    """Return the vector that workers multiply by their factors: float32, `size` values."""
    return torch.cos(torch.arange(size, dtype=torch.float64) * 0.7).float()


def error(summed: Tensor, base: Tensor, workers: int, turn: int) -> float:
    """Return the largest error of a sum, relative to the largest value of the expected sum."""
    total = sum(factor(rank, turn) for rank in range(workers))
    return float((summed.double() - base.double() * total).abs().max() / (base.double().abs().max() * total))


def timed(base: Tensor, turns: int) -> tuple[list[tuple[float, float]], float]:
    """Sum the vector `turns` times. Return when each sum began and ended on this worker (CLOCK_MONOTONIC,
    seconds), and the largest error.
    """
    rank, workers = dist.get_rank(), dist.get_world_size()
    times: list[tuple[float, float]] = []
    worst = 0.0
    vector = torch.empty_like(base)
    for turn in range(turns):
        torch.mul(base, factor(rank, turn), out=vector)
        dist.barrier()
        began_s = time.monotonic()
        dist.all_reduce(vector)
        times.append((began_s, time.monotonic()))
        worst = max(worst, error(vector, base, workers, turn))
    return times, worst


def of_all(times: list[tuple[float, float]]) -> list[float]:
    """Return, by turn, the seconds from the first worker's start to the last worker's end."""
    mine = torch.tensor(times, dtype=torch.float64)
    first, last = mine[:, 0].clone(), mine[:, 1].clone()
    dist.all_reduce(first, op=dist.ReduceOp.MIN)
    dist.all_reduce(last, op=dist.ReduceOp.MAX)
    return [float(each) for each in last - first]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Sum a vector of all workers, and time it.")
    parser.add_argument("--values", type=int, default=250_000, metavar="N", help="of float32 (250000)")
    parser.add_argument("--turns", type=int, default=12, metavar="N", help="sums (12)")
    parser.add_argument(
        "--warm-up", type=int, default=2, metavar="N", help="of the turns, left out of what is reported (2)"
    )
    parser.add_argument("--backend", default="inc")
    parser.add_argument("--out", type=Path, help="rank 0 writes its results here, as JSON")
    parsed = parser.parse_args()
    if parsed.values < 1 or not 0 <= parsed.warm_up < parsed.turns:
        parser.error("--values is at least 1, and --turns more than --warm-up, which is at least 0")
    return parsed


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)  # the workers share the machine's cores
    dist.init_process_group(args.backend)
    rank, workers = dist.get_rank(), dist.get_world_size()
    times, worst = timed(pattern(args.values), args.turns)
    lasted_s = of_all(times)
    if rank == 0:
        counted = lasted_s[args.warm_up :]
        print(
            f"{args.values} values of {workers} workers: {statistics.median(counted) * 1e3:.1f} ms a sum",
            flush=True,
        )
        if args.out is not None:
            results = {
                "values": args.values,
                "workers": workers,
                "turns": args.turns,
                "warm_up": args.warm_up,
                "sum_ms": statistics.median(counted) * 1e3,
                "sum_ms_list": [each * 1e3 for each in lasted_s],
                "error": worst,  # of the largest value
            }
            args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    dist.destroy_process_group()
    if worst > TOLERANCE:
        sys.exit(f"rank {rank}: a sum is wrong by {worst:.3g} of its largest value")


if __name__ == "__main__":
    main()
