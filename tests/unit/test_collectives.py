"""The collectives that the network carries, over compiled endpoints and the model switch: tensors of all
kinds come as they went.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from tests.unit.endpoint_wire import DONE, End, Rack, rack
from workloads.collectives import Broadcast, Gathered, Scattered, Vector
from workloads.sums import native

WORKERS, COUNT = 3, 1_003
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)


class Carrier:
    """One worker's endpoint in the rack, as a reducer has it."""

    def __init__(self, network: Rack, end: End) -> None:
        self._network, self._end = network, end

    def submit(self, array: np.ndarray, kept: slice | None = None) -> None:
        part = slice(4 * kept.start, 4 * kept.stop) if kept else None
        self._network.submit(self._end, array, kept=part)

    def submit_gathered(self, lanes: np.ndarray, own: slice) -> None:
        self._network.submit(self._end, lanes, own=own)


def carried(made: Callable[[int], Vector], loss: float = 0.02) -> None:
    """Have each worker make its vector, and take what came."""
    with rack(WORKERS, loss) as network:
        vectors = [made(rank) for rank in range(WORKERS)]
        for vector, end in zip(vectors, network.ends, strict=True):
            vector.submit(Carrier(network, end))  # type: ignore[arg-type]
        events = network.run([[]] * WORKERS, settled=1)
    assert network.wrong[:5] == []
    assert [event for ((event, _),) in events] == [DONE] * WORKERS
    for vector in vectors:
        vector.take()


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
def test_gathered(dtype: torch.dtype) -> None:
    whole = torch.cat([values(rank, dtype) for rank in range(WORKERS)])
    for outputs in shapes(dtype):
        carried(lambda rank, to=outputs: Gathered(to[rank], values(rank, dtype), rank, WORKERS))  # type: ignore[misc]
        for mine in outputs:
            assert torch.equal(torch.cat(mine), whole)


def test_gathered_in_place() -> None:
    outputs = [torch.zeros(WORKERS, COUNT) for _ in range(WORKERS)]
    for rank, output in enumerate(outputs):
        output[rank] = values(rank, torch.float32)
    carried(lambda rank: Gathered([outputs[rank]], outputs[rank][rank], rank, WORKERS))
    assert all(torch.equal(output, outputs[0]) for output in outputs)
    assert torch.equal(outputs[0][1], values(1, torch.float32))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("root", [0, 2])
def test_broadcast(root: int, dtype: torch.dtype) -> None:
    for cut in (slice(None), slice(1, None), slice(None, None, 3)):
        tensors = [values(rank, dtype)[cut] for rank in range(WORKERS)]
        carried(lambda rank, sent=tensors: Broadcast(sent[rank], rank, root))  # type: ignore[misc]
        assert all(torch.equal(tensor, values(root, dtype)[cut]) for tensor in tensors)


def test_a_conjugate_is_sent_as_what_it_is() -> None:
    tensors = [values(rank, torch.complex64).conj() for rank in range(WORKERS)]
    carried(lambda rank: Broadcast(tensors[rank], rank, 1))
    assert all(torch.equal(tensor, values(1, torch.complex64).conj()) for tensor in tensors)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_scattered(dtype: torch.dtype, average: bool, listed: bool) -> None:
    """Integers, which any scale has room for."""
    given = [torch.arange(WORKERS * COUNT).remainder(61 + rank).sub(30).to(dtype) for rank in range(WORKERS)]
    kept, outputs = [each.clone() for each in given], [torch.zeros(COUNT, dtype=dtype) for _ in given]
    carried(
        lambda rank: Scattered(
            outputs[rank],
            given[rank].chunk(WORKERS) if listed else [given[rank]],
            rank,
            WORKERS,
            average,
            native.Buffers(),
        )
    )
    summed = sum(each.to(torch.float32) for each in given)
    due = (summed / WORKERS if average else summed).to(dtype).chunk(WORKERS)  # type: ignore[union-attr]
    assert all(torch.equal(output, part) for output, part in zip(outputs, due, strict=True))
    assert all(torch.equal(after, before) for after, before in zip(given, kept, strict=True))
