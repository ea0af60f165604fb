"""The compiled backend's collectives beside all-reduce: what goes to the network, what to gloo, and that both
give the same.

Three workers are threads: each has a backend, gloo's within it over a common store, and sums over a compiled
endpoint of the model switch's.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from testbed.wire import mapping
from testbed.wire.frame import Frame
from tests.unit.endpoint_wire import LACKING, NOT_FINITE, QUIET, End, Rack, rack
from tests.unit.made_settings import endpoint
from tests.unit.test_line import SUBMIT
from workloads import backend, crossovers, sums
from workloads.collectives import c10d
from workloads.quantiser import NotFiniteError, PartMissingError
from workloads.reducers import InNetwork

WORKERS, LARGE, SMALL = 3, 8_003, 7
LIMIT = timedelta(seconds=30)


class Carrier(InNetwork):
    """A worker's endpoint in the rack, as its reducer."""

    def __init__(self, network: Rack, end: End) -> None:
        handle, submit, self._run, self._lanes = network.addresses(end)
        self._handle, self._library_submits = handle, SUBMIT(submit)
        self._submits = SUBMIT(self._submit)
        self.submitted = 0  # vectors
        self.set_check = lambda check: None  # type: ignore[method-assign]

    def _submit(self, *given: Any) -> int:
        self.submitted += 1
        return int(self._library_submits(*given))

    def endpoint(self) -> tuple[int, int, int, int]:  # type: ignore[override]
        return self._handle, ctypes.cast(self._submits, ctypes.c_void_p).value or 0, self._run, self._lanes

    def failure_of(self, vector: Any) -> Exception | None:  # type: ignore[override]
        if vector.event == NOT_FINITE:
            return NotFiniteError("some worker's")
        assert vector.event in (LACKING, QUIET)
        return PartMissingError("2 of 3") if vector.event == LACKING else None

    def is_broken(self) -> bool:  # type: ignore[override]
        return False

    def counters(self) -> dict[str, float]:
        return {}


class Worker:
    """A backend, and what its network was given."""

    def __init__(self, carrier: Carrier, rank: int, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        board = MagicMock()
        board.missing.return_value = []
        self.words = np.zeros(2, np.uint64)
        board.course_addresses.return_value = self.words.ctypes.data, self.words.ctypes.data + 8
        board.summed_address.return_value = 0
        job: Any = SimpleNamespace(
            board=board,
            transport="packets",
            world_size=WORKERS,
            rank=rank,
            strict_finite=False,
            write_stats=lambda stats: None,
            endpoint=endpoint(rate_mbps=100.0),
        )
        monkeypatch.setattr(sums, "reducer_for", lambda job, timeout_s: carrier)
        monkeypatch.setattr(sums, "InNetwork", Carrier)
        self.rank, self.carrier, self.sums = rank, carrier, sums.Sums(job, 30.0)
        self._store = store

    def gloo(self, name: str) -> Any:
        store = c10d.PrefixStore(name, self._store)
        return c10d.ProcessGroupGloo(store, self.rank, WORKERS, LIMIT)

    def begin(self) -> None:
        common = self.gloo("common")
        self.sums.begin(common, lambda: self.gloo("exact"))
        self.inc, self.plain = (
            sums.native.IncBackend(common, self.sums),
            self.gloo("plain"),
        )


@contextmanager
def workers(
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Frame], Frame] | None = None,
    loss: float = 0.0,
    carried_from: int = 1 << 16,
) -> Iterator[list[Worker]]:
    sizes = {name: [(carried_from, sys.maxsize)] for name in crossovers.CARRIED}
    monkeypatch.setattr(sums, "carried", lambda workers, is_shaped: sizes)
    store = torch.distributed.HashStore()
    with ExitStack() as stack:
        network = stack.enter_context(rack(WORKERS, loss, **({"change": change} if change else {})))
        all_of_them = [Worker(Carrier(network, end), end.number, store, monkeypatch) for end in network.ends]
        together(all_of_them, lambda worker: worker.begin())
        try:
            yield all_of_them
        finally:  # before the rack lets go of what their threads read
            together(all_of_them, lambda worker: worker.sums.shutdown())
        assert network.wrong[:5] == []


def together(all_of_them: list[Worker], work: Callable[[Worker], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(all_of_them)) as pool:
        return list(pool.map(work, all_of_them))


Call = Callable[[Any, int, int], list[torch.Tensor]]  # of a backend, rank and elements: what it has then


def floats(rank: int, count: int) -> torch.Tensor:
    """Return integers, which all ways sum to the same bits."""
    return torch.randint(-64, 65, (count,), generator=torch.Generator().manual_seed(rank)).float()


def gathered(group: Any, rank: int, count: int) -> list[torch.Tensor]:
    outputs = [torch.zeros(count) for _ in range(WORKERS)]
    group.allgather([outputs], [floats(rank, count)], c10d.AllgatherOptions()).wait(LIMIT)
    return outputs


def gathered_whole(group: Any, rank: int, count: int) -> list[torch.Tensor]:
    whole = torch.zeros(WORKERS * count)
    group._allgather_base(whole, floats(rank, count), c10d.AllgatherOptions()).wait(LIMIT)
    return [whole]


def broadcast(group: Any, rank: int, count: int) -> list[torch.Tensor]:
    options, tensor = c10d.BroadcastOptions(), floats(rank, WORKERS * count)
    options.rootRank = 2
    work = group.broadcast([tensor], options)
    work.wait(LIMIT)
    assert work.get_future().value()[0].data_ptr() == tensor.data_ptr()
    return [tensor]


def scattered(group: Any, rank: int, count: int) -> list[torch.Tensor]:
    part, given = torch.zeros(count), list(floats(rank, WORKERS * count).chunk(WORKERS))
    group.reduce_scatter([part], [given], c10d.ReduceScatterOptions()).wait(LIMIT)
    return [part]


def scattered_whole(group: Any, rank: int, count: int) -> list[torch.Tensor]:
    part = torch.zeros(count)
    group._reduce_scatter_base(part, floats(rank, WORKERS * count), c10d.ReduceScatterOptions()).wait(LIMIT)
    return [part]


def call_of(group: str, call: Call, count: int, worker: Worker) -> list[torch.Tensor]:
    return call(getattr(worker, group), worker.rank, count)


CALLS = (gathered, gathered_whole, broadcast, scattered, scattered_whole)


def test_large_ones_are_carried_and_small_ones_are_gloos(monkeypatch: pytest.MonkeyPatch) -> None:
    with workers(monkeypatch) as all_of_them:
        for call in CALLS:
            for count, vectors in ((LARGE, 1), (SMALL, 0)):
                before = [worker.carrier.submitted for worker in all_of_them]
                mine = together(all_of_them, partial(call_of, "inc", call, count))
                theirs = together(all_of_them, partial(call_of, "plain", call, count))
                given = [worker.carrier.submitted for worker in all_of_them]
                assert [now - then for now, then in zip(given, before, strict=True)] == [vectors] * WORKERS
                for ours, gloos in zip(mine, theirs, strict=True):
                    assert all(torch.equal(*pair) for pair in zip(ours, gloos, strict=True)), call.__name__
        size_bytes = LARGE * WORKERS * 4 * len(CALLS)
        assert {worker.sums.summed()["packets"] for worker in all_of_them} == {size_bytes}


def test_a_profile_has_each_collective_by_the_backend_s_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts look for `inc:broadcast`, whoever carries it; gloo's own event says that it did."""

    def profiled(worker: Worker) -> Counter[str]:
        def calls() -> None:
            for count in (LARGE, SMALL):
                broadcast(worker.inc, worker.rank, count)
                gathered(worker.inc, worker.rank, count)
            worker.inc.allreduce([torch.ones(LARGE, dtype=torch.int64)]).wait(LIMIT)
            worker.inc.barrier().wait(LIMIT)

        if worker.rank:
            calls()
            return Counter()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            calls()
        events = [each for each in profile.events() if each.name.startswith(("inc:", "gloo:"))]
        assert all(each.is_async for each in events)
        return Counter(each.name for each in events)

    with workers(monkeypatch) as all_of_them:
        names = together(all_of_them, profiled)[0]
    assert names == {
        **{"inc:broadcast": 2, "inc:all_gather": 2, "inc:all_reduce": 1, "inc:barrier": 1},
        **{"gloo:broadcast": 1, "gloo:all_gather": 1, "gloo:all_reduce": 1, "gloo:barrier": 1},
    }


TYPES = (torch.int64, torch.int32, torch.int8, torch.uint8)
FRACTIONS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
OPERATIONS = ("SUM", "PRODUCT", "MIN", "MAX")


def values(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return values from all of an integer type's range, whose sums and products wrap; or fractions."""
    generator = torch.Generator().manual_seed(rank)
    if dtype.is_floating_point:
        return torch.rand(count, generator=generator).to(dtype)
    most = torch.iinfo(dtype).max
    return torch.randint(-most if dtype.is_signed else 0, most, (count,), generator=generator).to(dtype)


def reduced(dtype: torch.dtype, operation: str, group: Any, rank: int, count: int) -> list[torch.Tensor]:
    options, tensor = c10d.AllreduceOptions(), values(rank, count, dtype)
    options.reduceOp = getattr(c10d.ReduceOp, operation)
    work = group.allreduce([tensor], options)
    work.wait(LIMIT)
    return [tensor]


def reduced_together(group: Any, rank: int, count: int) -> list[torch.Tensor]:
    options = c10d.AllreduceCoalescedOptions()
    tensors = [values(rank, count, torch.int64), values(rank + WORKERS, count, torch.int64)]
    group.allreduce_coalesced(tensors, options).wait(LIMIT)
    return tensors


REDUCTIONS: tuple[tuple[Call, int], ...] = (
    *((partial(reduced, dtype, operation), 1) for dtype in TYPES for operation in OPERATIONS),
    *((partial(reduced, torch.float64, operation), 0) for operation in OPERATIONS),
    *((partial(reduced, dtype, "PRODUCT"), 0) for dtype in FRACTIONS),
    *((partial(reduced, dtype, "MAX"), 0) for dtype in FRACTIONS),
    (reduced_together, 2),
)


def test_workers_reduce_what_they_gather_to_gloos_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    with workers(monkeypatch, carried_from=0) as all_of_them:
        for call, vectors in REDUCTIONS:
            for count in (1, 3, 1001):
                before = [worker.carrier.submitted for worker in all_of_them]
                mine = together(all_of_them, partial(call_of, "inc", call, count))
                given = [worker.carrier.submitted for worker in all_of_them]
                theirs = together(all_of_them, partial(call_of, "plain", call, count))
                assert [now - then for now, then in zip(given, before, strict=True)] == [vectors] * WORKERS
                for ours, gloos in zip(mine, theirs, strict=True):
                    assert all(torch.equal(*pair) for pair in zip(ours, gloos, strict=True)), (call, count)
        assert {tuple(worker.sums.summed()) for worker in all_of_them} == {("packets",)}


def test_a_reduction_counts_its_bytes_once_and_no_change_of_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    def reduce(worker: Worker) -> bool:
        tensor = values(worker.rank, 500, torch.int64)
        version = tensor._version
        options = c10d.AllreduceOptions()
        worker.inc.allreduce([tensor], options).wait(LIMIT)
        return tensor._version == version

    with workers(monkeypatch, carried_from=0) as all_of_them:
        assert all(together(all_of_them, reduce))
        assert [worker.sums.summed() for worker in all_of_them] == [{"packets": 500 * 8}] * WORKERS


def test_tensors_of_several_types_are_gloos_to_refuse_at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(worker: Worker) -> bool:
        for group in (worker.inc, worker.plain):
            mixed = [torch.ones(3, dtype=torch.int64), torch.ones(3, dtype=torch.int32)]
            with pytest.raises(RuntimeError, match="same type"):
                group.allreduce_coalesced(mixed, c10d.AllreduceCoalescedOptions()).wait(LIMIT)
        return True

    with workers(monkeypatch, carried_from=0) as all_of_them:
        assert all(together(all_of_them, refused))
        assert [worker.carrier.submitted for worker in all_of_them] == [0] * WORKERS


def test_a_reduction_that_gloo_refuses_is_refused_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(worker: Worker) -> bool:
        for group in (worker.inc, worker.plain):
            options = c10d.AllreduceOptions()
            options.reduceOp = c10d.ReduceOp.BAND
            with pytest.raises(RuntimeError, match="with non-integral dtype"):
                group.allreduce([torch.ones(5)], options).wait(LIMIT)
        return True

    with workers(monkeypatch, carried_from=0) as all_of_them:
        assert all(together(all_of_them, refused))
        assert [worker.carrier.submitted for worker in all_of_them] == [0] * WORKERS


def test_a_root_that_is_no_worker_has_gloos_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with workers(monkeypatch) as (first, *_):
        for group in (first.inc, first.plain):
            for root in (-1, WORKERS):
                options = c10d.BroadcastOptions()
                options.rootRank = root
                with pytest.raises(RuntimeError, match="invalid root rank"):
                    group.broadcast([torch.zeros(LARGE)], options)
        assert first.carrier.submitted == 0


def test_other_types_and_operations_are_gloos(monkeypatch: pytest.MonkeyPatch) -> None:
    def summed(worker: Worker) -> list[torch.Tensor]:
        part, given = torch.zeros(LARGE, dtype=torch.int64), torch.ones(WORKERS * LARGE, dtype=torch.int64)
        worker.inc._reduce_scatter_base(part, given, c10d.ReduceScatterOptions()).wait(LIMIT)
        least, options = torch.zeros(LARGE), c10d.ReduceScatterOptions()
        options.reduceOp = c10d.ReduceOp.MIN
        worker.inc._reduce_scatter_base(least, floats(worker.rank, WORKERS * LARGE), options).wait(LIMIT)
        return [part]

    with workers(monkeypatch) as all_of_them:
        assert all((part == WORKERS).all() for (part,) in together(all_of_them, summed))
        assert [worker.carrier.submitted for worker in all_of_them] == [0] * WORKERS


def test_sizes_that_do_not_fit_are_gloos_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(worker: Worker) -> bool:
        with pytest.raises(RuntimeError):
            worker.inc._allgather_base(torch.zeros(WORKERS * LARGE + 1), torch.zeros(LARGE)).wait(LIMIT)
        return True

    with workers(monkeypatch) as all_of_them:
        assert all(together(all_of_them, refused))
        assert [worker.carrier.submitted for worker in all_of_them] == [0] * WORKERS


def test_a_worker_whose_own_part_does_not_fit_fails_alone_and_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gloo does the same: before anything is sent; and no collective of the others is taken for its."""

    def gather(worker: Worker) -> bool:
        if worker.rank == 1:
            outputs = [torch.zeros(LARGE) for _ in range(WORKERS)]
            with pytest.raises(RuntimeError, match="invalid tensor size"):
                worker.inc.allgather([outputs], [torch.zeros(LARGE + 1)], c10d.AllgatherOptions())
            for call in (worker.inc._allgather_base, worker.plain._allgather_base):
                with pytest.raises(RuntimeError, match="invalid tensor size"):
                    call(torch.zeros(WORKERS * LARGE), torch.zeros(LARGE + 1))
        whole = torch.zeros(WORKERS * LARGE)
        worker.inc._allgather_base(whole, torch.full((LARGE,), float(worker.rank))).wait(LIMIT)
        small = torch.zeros(WORKERS)
        worker.inc._allgather_base(small, torch.full((1,), float(worker.rank))).wait(LIMIT)
        return torch.equal(whole.view(WORKERS, LARGE)[:, -1], small)

    with workers(monkeypatch) as all_of_them:
        assert together(all_of_them, gather) == [True] * WORKERS
        assert [worker.carrier.submitted for worker in all_of_them] == [1] * WORKERS


def lacking(packet: Frame) -> Frame:
    """A result as of a place that was ticked."""
    if packet.header.fragment >= mapping.FIRST_VOTE:
        return packet
    return replace(packet, header=replace(packet.header, contributors=WORKERS - 1))


@pytest.mark.parametrize(
    "call", [gathered, gathered_whole, broadcast, partial(reduced, torch.int64, "SUM"), reduced_together]
)
def test_what_lacks_a_worker_is_gathered_by_gloo_on_all_alike(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    with workers(monkeypatch, lacking, carried_from=1 << 10) as all_of_them:
        for _ in range(2):  # the group goes on
            mine = together(all_of_them, partial(call_of, "inc", call, LARGE))
            theirs = together(all_of_them, partial(call_of, "plain", call, LARGE))
            for ours, gloos in zip(mine, theirs, strict=True):
                assert all(torch.equal(*pair) for pair in zip(ours, gloos, strict=True))
        assert {tuple(worker.sums.summed()) for worker in all_of_them} == {("gloo",)}


def test_all_workers_take_the_same_group_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them has a first group still, the others have destroyed theirs."""
    with workers(monkeypatch) as all_of_them:
        for has_one in ((), (1,), (0, 1, 2)):
            agreed = together(
                all_of_them,
                lambda worker, has_one=has_one: backend._exchange_members(
                    worker.plain, worker.rank in has_one, 10 + worker.rank
                ),
            )
            assert len({each.word for each in agreed}) == 1
            assert [each.ranks for each in agreed] == [(10, 11, 12)] * WORKERS
            assert [each.any_is_up for each in agreed] == [bool(has_one)] * WORKERS


def test_values_that_are_not_finite_are_scattered_by_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    def scatter(worker: Worker) -> torch.Tensor:
        given, part = floats(worker.rank, WORKERS * LARGE), torch.zeros(LARGE)
        given[LARGE] = float("inf") if worker.rank == 0 else 1.0
        options = c10d.ReduceScatterOptions()
        options.reduceOp = c10d.ReduceOp.AVG
        worker.inc._reduce_scatter_base(part, given, options).wait(LIMIT)
        return part

    with workers(monkeypatch) as all_of_them:
        parts = together(all_of_them, scatter)
        ways = Counter(way for worker in all_of_them for way in worker.sums.summed())
    due = (sum(floats(rank, WORKERS * LARGE) for rank in range(WORKERS)) / WORKERS).chunk(WORKERS)  # type: ignore[union-attr]
    assert torch.equal(parts[0], due[0])
    assert parts[1][0] == float("inf")
    assert torch.equal(parts[1][1:], due[1][1:])
    assert ways == {"gloo": WORKERS}
