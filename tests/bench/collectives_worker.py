"""The job of tests/bench/collectives.py: each collective by `inc` and by a gloo group in turn, in the same
processes and over the same links.

Arguments: turns; the longest time of a row's turn, in seconds; then optionally one of MODES, and after
`carry` optionally the only collective to measure. Worker 0 prints its rows as JSON after MARK. A time is that
of a call and its wait, in seconds; with many in flight, the total divided by their number.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from workloads import sums
from workloads.crossovers import CARRIED

MARK = "bench collectives: "
CARRY, ITSELF = "carry", "itself"
MODES = {
    CARRY: "only what the network may carry or leave to gloo, of every size by the network",
    ITSELF: "a group of gloo's in the place of inc's: what chance alone does to the ratios",
}
IN_FLIGHT = 50
SIZES_BYTES = (4, 64, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
LARGEST_IN_FLIGHT_BYTES = 1 << 16
BUCKETS_BYTES = (1 << 10, 1 << 13, 1 << 16, 25 << 20)
SMALL_LAYERS = 48  # 1,088 bytes each
WARM_UP = 3
_MOST_CALLS, _LEAST_CALLS = 60, 3


@dataclass(frozen=True, slots=True)
class Call:
    """A collective: `begin` starts it on a group, on the tensors of that number of those in flight, and
    returns its work; `renew` fills its tensors again.
    """

    begin: Callable[[Any, int], Any]
    renew: Callable[[], Any] = lambda: None


def calls(size_bytes: int, workers: int) -> dict[str, Call]:
    """Return the collectives of `size_bytes` of all workers together, each in flight on tensors of its own.
    Summed tensors are filled again before each call, since sums of sums would soon overflow.
    """
    in_flight = IN_FLIGHT if size_bytes <= LARGEST_IN_FLIGHT_BYTES else 1
    count = max(1, size_bytes // 4)
    part = torch.ones(max(1, count // workers))
    whole = torch.ones(workers * part.numel())
    floats = torch.ones(in_flight, count)
    longs = torch.ones(max(1, size_bytes // 8), dtype=torch.int64)

    def gather(group: Any, _number: int) -> Any:
        return dist.all_gather_into_tensor(whole, part, group=group, async_op=True)

    def scatter(group: Any, _number: int) -> Any:
        return dist.reduce_scatter_tensor(part, whole, group=group, async_op=True)

    return {
        "all_reduce": Call(
            lambda group, number: dist.all_reduce(floats[number], group=group, async_op=True),
            lambda: floats.fill_(1),
        ),
        "all_reduce of int64": Call(
            lambda group, _number: dist.all_reduce(longs, group=group, async_op=True), lambda: longs.fill_(1)
        ),
        "all_gather": Call(gather),
        "reduce_scatter": Call(scatter),
        "broadcast": Call(lambda group, _number: dist.broadcast(floats[0], 0, group=group, async_op=True)),
    }


class Done:
    """A work that has already finished."""

    def wait(self) -> bool:
        return True


def iterations(groups: dict[str, Any]) -> dict[int, Call]:
    """Return an iteration of DDP with many small parameters, by the size of its buckets in bytes."""
    of_size: dict[int, Call] = {}
    for bucket_bytes in BUCKETS_BYTES:
        models = {}
        for name, group in groups.items():
            layers = [torch.nn.Linear(16, 16) for _ in range(SMALL_LAYERS)]
            models[name] = DistributedDataParallel(
                torch.nn.Sequential(*layers), process_group=group, bucket_cap_mb=bucket_bytes / (1 << 20)
            )
        by_group = {group: models[name] for name, group in groups.items()}

        def iterate(group: Any, _number: int, by_group: dict[Any, Any] = by_group) -> Done:
            by_group[group](torch.ones(4, 16)).sum().backward()
            return Done()

        of_size[bucket_bytes] = Call(iterate)
    return of_size


def taken_s(call: Call, group: Any, times: int, in_flight: int, common: Any) -> list[float]:
    """Return the time of each of `times` calls, made one after another with `in_flight` at once, by the
    slowest worker.
    """
    taken = torch.zeros(times, dtype=torch.float64)
    for turn in range(times):
        call.renew()
        dist.barrier(group=common)
        began = time.perf_counter()
        works = [call.begin(group, number) for number in range(in_flight)]
        for work in works:
            work.wait()
        taken[turn] = (time.perf_counter() - began) / in_flight
    dist.all_reduce(taken, dist.ReduceOp.MAX, group=common)
    each: list[float] = taken.tolist()
    return each


def compared(
    call: Call, groups: dict[str, Any], common: Any, turns: int, turn_s: float, in_flight: int
) -> dict[str, Any]:
    """Time a call by both groups in turn, and return the medians and the ratios. Workers synchronise through
    a third group.
    """
    once_s = max(taken_s(call, groups[name], 2, in_flight, common)[-1] for name in groups) * in_flight
    all_s = torch.tensor([once_s], dtype=torch.float64)
    dist.all_reduce(all_s, dist.ReduceOp.MAX, group=common)
    times = min(_MOST_CALLS, max(_LEAST_CALLS, int(turn_s / float(all_s))))
    rows: dict[str, list[float]] = {name: [] for name in groups}
    for turn in range(turns):
        for name in sorted(groups, reverse=bool(turn % 2)):
            rows[name].append(statistics.median(taken_s(call, groups[name], times, in_flight, common)))
    ratios = [inc / gloo for inc, gloo in zip(rows["inc"], rows["gloo"], strict=True)]
    medians = {name: statistics.median(values) for name, values in rows.items()}
    return {
        **medians,
        "ratio": statistics.median(ratios),
        "spread": [min(ratios), max(ratios)],
        "calls": times,
    }


def call_alone_s(group: Any) -> float:
    """Return the median time of an all_reduce call in the script's thread, before it waits."""
    value, taken = torch.ones(256), []
    for _ in range(300):
        value.fill_(1)
        began = time.perf_counter()
        work = dist.all_reduce(value, group=group, async_op=True)
        taken.append(time.perf_counter() - began)
        work.wait()
    return statistics.median(taken)


def main(argv: list[str]) -> None:
    turns, turn_s = int(argv[0]), float(argv[1])
    torch.set_num_threads(1)
    mode = next(iter(argv[2:]), None)
    if mode == CARRY:
        sums.carried = lambda workers, is_shaped: {name: [(0, sys.maxsize)] for name in CARRIED}
    dist.init_process_group("inc")
    group = dist.new_group(backend="gloo") if mode == ITSELF else dist.group.WORLD
    groups = {"inc": group, "gloo": dist.new_group(backend="gloo")}
    # a group of its own: it would keep the threads of either measured group awake
    common = dist.new_group(backend="gloo")
    workers, rows = dist.get_world_size(), []

    def row(name: str, size_bytes: int, call: Call, in_flight: int) -> None:
        figures = compared(call, groups, common, turns, turn_s, in_flight)
        rows.append({"collective": name, "bytes": size_bytes, "in_flight": in_flight, **figures})

    for _ in range(WARM_UP):  # keeps one-time costs of a process out of the rows
        for call in calls(SIZES_BYTES[3], workers).values():
            compared(call, groups, common, 1, turn_s, 1)
    if mode == CARRY:
        for size_bytes in SIZES_BYTES:
            for name in argv[3:] or CARRIED:
                row(name, size_bytes, calls(size_bytes, workers)[name], 1)
        return finish(workers, rows, {})
    row("barrier", 0, Call(lambda group, _number: dist.barrier(group=group, async_op=True)), 1)
    for size_bytes in SIZES_BYTES:
        for name, call in calls(size_bytes, workers).items():
            row(name, size_bytes, call, 1)
            if size_bytes <= LARGEST_IN_FLIGHT_BYTES and name == "all_reduce":
                row(name, size_bytes, call, IN_FLIGHT)
    for bucket_bytes, iteration in iterations(groups).items():
        row("DDP, buckets", bucket_bytes, iteration, 1)
    alone = {name: call_alone_s(group) for name, group in groups.items()}
    return finish(workers, rows, alone)


def finish(workers: int, rows: list[dict[str, Any]], alone_s: dict[str, float]) -> None:
    if dist.get_rank() == 0:
        print(MARK + json.dumps({"workers": workers, "rows": rows, "alone_s": alone_s}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
