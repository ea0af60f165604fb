"""The collectives that the network carries besides all-reduce, compared bit for bit with gloo's: in the
shapes, types and calls that torch uses.

Prints `carried: CASE: ok`, or the difference, on each worker.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist

from workloads import sums
from workloads.crossovers import CARRIED

LARGE, ODD = 40_009, 8_009  # elements, primes: in any type more bytes than are left to gloo here
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)

Case = Callable[[dist.ProcessGroup | None], list[torch.Tensor]]


def _values(count: int, dtype: torch.dtype, salt: int = 0) -> torch.Tensor:
    """Return this worker's own values: random bits where any pattern is a value."""
    chance = torch.Generator().manual_seed(100 * salt + dist.get_rank())
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(count, dtype=dtype, generator=chance)
    return torch.randint(0, 2 if dtype is torch.bool else 251, (count,), generator=chance).to(dtype)


def _whole(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return integers as floats, which any scale can represent: all ways sum them to the same bits."""
    chance = torch.Generator().manual_seed(7 + dist.get_rank())
    return torch.randint(-64, 65, (count,), generator=chance).to(dtype)


def gathered(group: dist.ProcessGroup | None) -> list[torch.Tensor]:
    workers, tensors = dist.get_world_size(), []
    for dtype, count in itertools.product(TYPES, (ODD * 8, LARGE)):
        mine, listed = _values(count, dtype), [torch.zeros(count, dtype=dtype) for _ in range(workers)]
        dist.all_gather(listed, mine, group=group)
        whole = torch.zeros(workers * count, dtype=dtype)
        dist.all_gather_into_tensor(whole, mine, group=group)
        tensors += [*listed, whole]
    return tensors


def gathered_oddly(group: dist.ProcessGroup | None) -> list[torch.Tensor]:
    """Gather in place, strided tensors, at odd addresses, and empty tensors."""
    workers, rank = dist.get_world_size(), dist.get_rank()
    whole = torch.zeros(workers * LARGE)
    mine = whole[rank * LARGE : (rank + 1) * LARGE].copy_(_values(LARGE, torch.float32))
    dist.all_gather_into_tensor(whole, mine, group=group)
    strided = torch.zeros(workers, LARGE, 2)
    dist.all_gather([part[:, 1] for part in strided], _values(2 * LARGE, torch.float32)[::2], group=group)
    bytes_at_odd = torch.zeros(workers * LARGE * 4 + 1, dtype=torch.uint8)
    dist.all_gather_into_tensor(bytes_at_odd[1:], _values(4 * LARGE, torch.uint8), group=group)
    none = torch.zeros(0)
    dist.all_gather_into_tensor(none, torch.zeros(0), group=group)
    return [whole, strided, bytes_at_odd, none]


def broadcast(group: dist.ProcessGroup | None) -> list[torch.Tensor]:
    tensors = [_values(LARGE * 4 + more, dtype) for dtype in TYPES for more in range(3)]
    tensors += [_values(4 * LARGE, torch.float32).view(2, -1).t(), torch.zeros(0), torch.ones(3)]
    works = [
        dist.broadcast(tensor, at % dist.get_world_size(), group=group, async_op=True)
        for at, tensor in enumerate(tensors)
    ]
    for work in works:
        work.wait()
    return tensors


def scattered(group: dist.ProcessGroup | None) -> list[torch.Tensor]:
    workers, tensors = dist.get_world_size(), []
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64):
        given = _whole(workers * LARGE, dtype)
        kept = given.clone()
        listed, whole = torch.zeros(LARGE, dtype=dtype), torch.zeros(LARGE, dtype=dtype)
        dist.reduce_scatter(listed, list(given.chunk(workers)), group=group)
        dist.reduce_scatter_tensor(whole, given, group=group)
        assert torch.equal(given, kept)
        tensors += [listed, whole]
    return tensors


def among_sums(group: dist.ProcessGroup | None) -> list[torch.Tensor]:
    """Run many collectives of all kinds at once, in one order."""
    workers, works, tensors = dist.get_world_size(), [], []
    for turn in range(8):
        summed, whole = _whole(LARGE + turn, torch.float32), torch.zeros(workers * ODD * 3)
        part, sent = torch.zeros(LARGE), _values(LARGE, torch.float32, turn)
        works += [
            dist.all_reduce(summed, group=group, async_op=True),
            dist.all_gather_into_tensor(whole, _values(3 * ODD, torch.float32, turn), group, async_op=True),
            dist.reduce_scatter_tensor(
                part, _whole(workers * LARGE, torch.float32), group=group, async_op=True
            ),
            dist.broadcast(sent, turn % workers, group=group, async_op=True),
        ]
        tensors += [summed, whole, part, sent]
    for work in works:
        work.wait()
    return tensors


def coalesced(group: dist.ProcessGroup | None) -> list[torch.Tensor]:
    workers = dist.get_world_size()
    wholes = [torch.zeros(workers * count) for count in (LARGE, 7, ODD)]
    mine = [_values(whole.numel() // workers, torch.float32) for whole in wholes]
    with dist.distributed_c10d._coalescing_manager(group):
        for whole, part in zip(wholes, mine, strict=True):
            dist.all_gather_into_tensor(whole, part, group=group)
    parts = [torch.zeros(count) for count in (LARGE, 7, ODD)]
    given = [_whole(workers * part.numel(), torch.float32) for part in parts]
    with dist.distributed_c10d._coalescing_manager(group):
        for part, summed in zip(parts, given, strict=True):
            dist.reduce_scatter_tensor(part, summed, group=group)
    return [*wholes, *parts]


CASES: tuple[Case, ...] = (gathered, gathered_oddly, broadcast, scattered, among_sums, coalesced)


def main() -> None:
    sums.carried = lambda workers, is_shaped: {name: [(1 << 16, sys.maxsize)] for name in CARRIED}
    dist.init_process_group("inc")
    gloo = dist.new_group(backend="gloo")
    for case in CASES:
        outcome = "ok"
        for at, (mine, theirs) in enumerate(zip(case(None), case(gloo), strict=True)):
            if not torch.equal(mine.contiguous().view(torch.uint8), theirs.contiguous().view(torch.uint8)):
                outcome = f"tensor {at} of {mine.dtype} differs from gloo's"
        print(f"carried: {case.__name__}: {outcome}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
