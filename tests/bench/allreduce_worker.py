"""A worker of the goodput benchmark: times all-reduces through the aggregator or through gloo. Prints one JSON line."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def inc(settings: dict[str, Any]) -> Callable[[np.ndarray], None]:
    from workloads.endpoint import Endpoint

    class Alone:
        def __init__(self) -> None:
            self._word = np.zeros(1, np.uint64)

        def progress_address(self) -> int:
            return int(self._word.ctypes.data)

        def missing(self) -> list[Any]:
            return []

        def progress(self) -> list[int]:
            return []

    return Endpoint(settings, Alone(), 60.0).allreduce  # type: ignore[arg-type]


def gloo(settings: dict[str, Any]) -> Callable[[np.ndarray], None]:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    address = f"tcp://{settings['master']}:29500"
    dist.init_process_group("gloo", init_method=address, rank=settings["worker"], world_size=settings["workers"])

    def reduce(array: np.ndarray) -> None:
        dist.all_reduce(torch.from_numpy(array))

    return reduce


def main() -> None:
    settings = json.loads(sys.argv[1])
    reduce = {"inc": inc, "gloo": gloo}[settings["kind"]](settings)
    array = np.ones(settings["bytes"] // 4, np.float32)
    barrier = np.ones(1, np.float32)
    times = []
    for turn in range(settings["turns"] + 1):
        array[:] = 1.0
        reduce(barrier)
        barrier[:] = 1.0
        start = time.perf_counter()
        reduce(array)
        if turn:
            times.append(time.perf_counter() - start)
        assert (array == settings["workers"]).all()
    print(json.dumps({"seconds": statistics.median(times), "all": times}), flush=True)


if __name__ == "__main__":
    main()
