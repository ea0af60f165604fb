"""Time what a training script waits for: sums of several sizes, and iterations of DDP.

A job's worker for tests/bench/before.py. From the project it imports only the demonstration's model, which
other commits have too.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from workloads.jobs.digits import DigitsNet

MARK = "torch-times: "
SIZES_BYTES = {"1 KB": 1_000, "100 KB": 100_000, "10 MB": 10_000_000}
TURNS = {"1 KB": 400, "100 KB": 150, "10 MB": 12}
ITERATIONS = 60
BATCH = 16
WARM_SHARE = 5  # a fifth as many turns are run first, and not counted


def median_ms(turn: Callable[[], object], turns: int) -> float:
    """Return the median milliseconds of a turn, which all workers begin together."""
    times_s = []
    for number in range(-(turns // WARM_SHARE), turns):
        dist.barrier()
        begun_s = time.perf_counter()
        turn()
        if number >= 0:
            times_s.append(time.perf_counter() - begun_s)
    return 1e3 * statistics.median(times_s)


def iteration() -> Callable[[], object]:
    """Return a function that makes one training step, always on the same data."""
    torch.manual_seed(1)
    model = DistributedDataParallel(DigitsNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images, digits = torch.rand(BATCH, 1, 8, 8), torch.randint(10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), digits).backward()
        optimizer.step()

    return step


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "inc")
    times_ms = {}
    for name, size_bytes in SIZES_BYTES.items():
        vector = torch.zeros(size_bytes // 4)
        times_ms[f"all-reduce of {name}"] = median_ms(lambda of=vector: dist.all_reduce(of), TURNS[name])  # type: ignore[misc]
    times_ms["DDP iteration of the demonstration's model"] = median_ms(iteration(), ITERATIONS)
    if dist.get_rank() == 0:
        print(MARK + json.dumps(times_ms), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
