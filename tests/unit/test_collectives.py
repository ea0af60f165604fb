"""The collectives that the network carries, over compiled endpoints and the model switch: tensors of all
kinds come as they went.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.unit.test_backend_carried import LIMIT, WORKERS, Worker, together, workers
from workloads.collectives import c10d

COUNT = 1_003
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)


Asked = Callable[[Any, int], Any]  # of a backend and rank: the work that it begins


@pytest.fixture(scope="module")
def all_of_them() -> Iterator[list[Worker]]:
    with pytest.MonkeyPatch.context() as patch, workers(patch, loss=0.02, carried_from=0) as made:
        yield made


def carried(all_of_them: list[Worker], asked: Asked) -> None:
    """Have each worker ask for a collective, which the network carries, and wait for it."""
    before = [worker.carrier.submitted for worker in all_of_them]
    together(all_of_them, lambda worker: asked(worker.inc, worker.rank).wait(LIMIT))
    assert [worker.carrier.submitted for worker in all_of_them] == [count + 1 for count in before]


def values(rank: int, dtype: torch.dtype, count: int = COUNT) -> torch.Tensor:
    chance = torch.Generator().manual_seed(rank)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(count, dtype=dtype, generator=chance)
    return torch.randint(0, 2 if dtype is torch.bool else 251, (count,), generator=chance).to(dtype)


def shapes(dtype: torch.dtype) -> Iterator[list[list[torch.Tensor]]]:
    """Outputs of an all-gather, by worker: a tensor of each, one of all, strided ones, one at an odd
    address.
    """
    yield [[torch.zeros(COUNT, dtype=dtype) for _ in range(WORKERS)] for _ in range(WORKERS)]
    yield [[torch.zeros(WORKERS * COUNT, dtype=dtype)] for _ in range(WORKERS)]
    yield [[part[::2] for part in torch.zeros(WORKERS, 2 * COUNT, dtype=dtype)] for _ in range(WORKERS)]
    yield [[torch.zeros(WORKERS * COUNT + 1, dtype=dtype)[1:]] for _ in range(WORKERS)]


@pytest.mark.parametrize("dtype", TYPES)
def test_gathered(all_of_them: list[Worker], dtype: torch.dtype) -> None:
    whole = torch.cat([values(rank, dtype) for rank in range(WORKERS)])
    for outputs in shapes(dtype):

        def asked(group: Any, rank: int, to: list[list[torch.Tensor]] = outputs) -> Any:
            if len(to[rank]) == 1:
                return group._allgather_base(to[rank][0], values(rank, dtype), c10d.AllgatherOptions())
            return group.allgather([to[rank]], [values(rank, dtype)], c10d.AllgatherOptions())

        carried(all_of_them, asked)
        for mine in outputs:
            assert torch.equal(torch.cat(mine), whole)


def test_gathered_in_place(all_of_them: list[Worker]) -> None:
    outputs = [torch.zeros(WORKERS, COUNT) for _ in range(WORKERS)]
    for rank, output in enumerate(outputs):
        output[rank] = values(rank, torch.float32)
    carried(
        all_of_them,
        lambda group, rank: group._allgather_base(
            outputs[rank], outputs[rank][rank : rank + 1], c10d.AllgatherOptions()
        ),
    )
    assert all(torch.equal(output, outputs[0]) for output in outputs)
    assert torch.equal(outputs[0][1], values(1, torch.float32))


def sent(tensors: list[torch.Tensor], root: int) -> Asked:
    options = c10d.BroadcastOptions()
    options.rootRank = root
    return lambda group, rank: group.broadcast([tensors[rank]], options)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("root", [0, 2])
def test_broadcast(all_of_them: list[Worker], root: int, dtype: torch.dtype) -> None:
    for cut in (slice(None), slice(1, None), slice(None, None, 3)):
        tensors = [values(rank, dtype)[cut] for rank in range(WORKERS)]
        carried(all_of_them, sent(tensors, root))
        assert all(torch.equal(tensor, values(root, dtype)[cut]) for tensor in tensors)


def test_a_conjugate_is_sent_as_what_it_is(all_of_them: list[Worker]) -> None:
    tensors = [values(rank, torch.complex64).conj() for rank in range(WORKERS)]
    carried(all_of_them, sent(tensors, 1))
    assert all(torch.equal(tensor, values(1, torch.complex64).conj()) for tensor in tensors)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_scattered(all_of_them: list[Worker], dtype: torch.dtype, average: bool, listed: bool) -> None:
    """Integers, which any scale has room for."""
    given = [torch.arange(WORKERS * COUNT).remainder(61 + rank).sub(30).to(dtype) for rank in range(WORKERS)]
    kept, outputs = [each.clone() for each in given], [torch.zeros(COUNT, dtype=dtype) for _ in given]
    options = c10d.ReduceScatterOptions()
    options.reduceOp = c10d.ReduceOp.AVG if average else c10d.ReduceOp.SUM

    def asked(group: Any, rank: int) -> Any:
        if listed:
            parts = list(given[rank].chunk(WORKERS))
            return group.reduce_scatter([outputs[rank]], [parts], options)
        return group._reduce_scatter_base(outputs[rank], given[rank], options)

    carried(all_of_them, asked)
    summed = sum(each.to(torch.float32) for each in given)
    due = (summed / WORKERS if average else summed).to(dtype).chunk(WORKERS)  # type: ignore[union-attr]
    assert all(torch.equal(output, part) for output, part in zip(outputs, due, strict=True))
    assert all(torch.equal(after, before) for after, before in zip(given, kept, strict=True))
