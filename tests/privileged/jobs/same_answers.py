"""Every collective of every type, small and large, contiguous and strided, with and without inference mode:
the results of `inc` equal those computed from the values of all workers, and gloo's where gloo supports the
call.

Prints `same: CASE: ok`, or the difference, on each worker. The arguments name the cases.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _set_pg_timeout

from workloads import sums
from workloads.crossovers import CARRIED

SMALL, LARGE = 7, 40_009  # elements
CARRIED_BYTES = 1 << 15  # here the network carries large ones of any type, and gloo small ones
# (elements, strided, inference mode)
WAYS = (
    *itertools.product((SMALL,), (False, True), (False, True)),
    *((LARGE, False, False), (LARGE, True, True)),
)
LIMIT = timedelta(seconds=2)
LATE_S = 5.0
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
NARROW = (torch.float8_e4m3fn, torch.float8_e5m2)
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32)
SUMMED = (*FLOATS, *NARROW, *SIGNED, *UNSIGNED)
MOVED = (*SUMMED, torch.uint64, torch.bool, torch.complex64)

SUM, AVG, MAX, MIN = (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.MIN)
Group = dist.ProcessGroup | None
CASES: dict[str, Callable[[], None]] = {}


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES[function.__name__] = function
    return function


def plain(rank: int, count: int, dtype: torch.dtype, salt: int = 0) -> torch.Tensor:
    """Return a worker's values: integers such that every type can represent all sums and all halves of
    sums.
    """
    values = (torch.arange(count) * (rank + 3) + salt + rank) % 5
    return (values if dtype in (*UNSIGNED, torch.uint64) else values - 3).to(dtype)


@dataclass(frozen=True)
class Kind:
    """The tensors of a call: their type and length, and whether they are strided (have gaps between
    elements).
    """

    dtype: torch.dtype
    count: int
    strided: bool

    def of(self, rank: int, salt: int = 0, times: int = 1) -> torch.Tensor:
        return self.laid(torch.cat([plain(rank, self.count, self.dtype, salt + at) for at in range(times)]))

    def room(self, times: int = 1) -> torch.Tensor:
        return self.laid(torch.zeros(times * self.count, dtype=self.dtype))

    def laid(self, values: torch.Tensor) -> torch.Tensor:
        if not self.strided:
            return values
        wide = torch.zeros(2 * values.numel(), dtype=self.dtype)
        wide[::2].copy_(values)
        return wide[::2]


# a call on a group, which returns this worker's results; also a function of the expected results
Call = Callable[[Group, Kind], list[torch.Tensor]]
WORKERS = int(os.environ["WORLD_SIZE"])
RANK = int(os.environ["RANK"])


def reduced(kind: Kind, operation: Any, salt: int = 0) -> torch.Tensor:
    """Return the exact reduction of all workers' values."""
    exact = torch.float64 if kind.dtype in FLOATS + NARROW else torch.int64
    whole = torch.stack([plain(rank, kind.count, kind.dtype, salt).to(exact) for rank in range(WORKERS)])
    if operation == MAX:
        return whole.amax(0).to(kind.dtype)
    if operation == MIN:
        return whole.amin(0).to(kind.dtype)
    total = whole.sum(0)
    if operation == AVG:
        total = total / WORKERS if exact is torch.float64 else total.div(WORKERS, rounding_mode="trunc")
    return total.to(kind.dtype)


def reductions() -> Iterator[tuple[str, Call, Call]]:
    for name, operation in (("sum", SUM), ("avg", AVG), ("max", MAX), ("min", MIN)):

        def all_reduce(group: Group, kind: Kind, by: Any = operation) -> list[torch.Tensor]:
            value = kind.of(RANK)
            dist.all_reduce(value, by, group=group)
            return [value]

        def coalesced(group: Group, kind: Kind, by: Any = operation) -> list[torch.Tensor]:
            values = [kind.of(RANK), kind.of(RANK)]
            with dist._coalescing_manager(group=group):
                for value in values:
                    dist.all_reduce(value, by, group=group)
            return values[1:]

        def reduce(group: Group, kind: Kind, by: Any = operation) -> list[torch.Tensor]:
            value = kind.of(RANK)
            dist.reduce(value, 1, by, group=group)
            return [value] if RANK == 1 else []

        def right(group: Group, kind: Kind, by: Any = operation) -> list[torch.Tensor]:
            return [reduced(kind, by)]

        yield f"all_reduce {name}", all_reduce, right
        yield f"coalesced {name}", coalesced, right
        yield f"reduce {name}", reduce, lambda *call, right=right: right(*call) if RANK == 1 else []
        if operation in (MAX, MIN):
            continue

        def scatter(group: Group, kind: Kind, by: Any = operation) -> list[torch.Tensor]:
            mine = kind.room()
            dist.reduce_scatter(mine, [kind.of(RANK, at) for at in range(WORKERS)], by, group=group)
            return [mine]

        def scatter_tensor(group: Group, kind: Kind, by: Any = operation) -> list[torch.Tensor]:
            mine = kind.room()
            dist.reduce_scatter_tensor(mine, kind.of(RANK, 0, WORKERS), by, group=group)
            return [mine]

        def part(group: Group, kind: Kind, by: Any = operation) -> list[torch.Tensor]:
            return [reduced(kind, by, RANK)]

        yield f"reduce_scatter {name}", scatter, part
        yield f"reduce_scatter_tensor {name}", scatter_tensor, part


def movements() -> Iterator[tuple[str, Call, Call]]:
    def broadcast(group: Group, kind: Kind) -> list[torch.Tensor]:
        value = kind.of(RANK)
        dist.broadcast(value, 1, group=group)
        return [value]

    def all_gather(group: Group, kind: Kind) -> list[torch.Tensor]:
        outputs = [kind.room() for _ in range(WORKERS)]
        dist.all_gather(outputs, kind.of(RANK), group=group)
        return outputs

    def all_gather_tensor(group: Group, kind: Kind) -> list[torch.Tensor]:
        output = kind.room(WORKERS)
        dist.all_gather_into_tensor(output, kind.of(RANK), group=group)
        return list(output.chunk(WORKERS))

    def gather(group: Group, kind: Kind) -> list[torch.Tensor]:
        outputs = [kind.room() for _ in range(WORKERS)] if RANK == 1 else None
        dist.gather(kind.of(RANK), outputs, 1, group=group)
        return outputs or []

    def scatter(group: Group, kind: Kind) -> list[torch.Tensor]:
        mine = kind.room()
        dist.scatter(mine, [kind.of(at) for at in range(WORKERS)] if RANK == 0 else None, 0, group=group)
        return [mine]

    def all_to_all(group: Group, kind: Kind) -> list[torch.Tensor]:
        outputs = [kind.room() for _ in range(WORKERS)]
        dist.all_to_all(outputs, [kind.of(RANK) for _ in range(WORKERS)], group=group)
        return outputs

    def all_to_all_single(group: Group, kind: Kind) -> list[torch.Tensor]:
        output = kind.room(WORKERS).contiguous()
        dist.all_to_all_single(output, kind.of(RANK).repeat(WORKERS), group=group)
        return list(output.chunk(WORKERS))

    def of_all(group: Group, kind: Kind) -> list[torch.Tensor]:
        return [plain(rank, kind.count, kind.dtype) for rank in range(WORKERS)]

    yield "broadcast", broadcast, lambda group, kind: [plain(1, kind.count, kind.dtype)]
    yield "all_gather", all_gather, of_all
    yield "all_gather_into_tensor", all_gather_tensor, of_all
    yield "gather", gather, lambda group, kind: of_all(group, kind) if RANK == 1 else []
    yield "scatter", scatter, lambda group, kind: [plain(RANK, kind.count, kind.dtype)]
    yield "all_to_all", all_to_all, of_all
    yield "all_to_all_single", all_to_all_single, of_all


def bits(tensors: list[torch.Tensor]) -> list[bytes]:
    return [tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors]


def compare(calls: Iterator[tuple[str, Call, Call]], types: tuple[torch.dtype, ...]) -> None:
    """Make each call with each type; AssertionError names the first with a different result."""
    gloo = dist.new_group(backend="gloo")
    answered = 0
    for (name, call, right), dtype in itertools.product(list(calls), types):
        for count, strided, inference in WAYS:
            kind = Kind(dtype, count, strided)
            with torch.inference_mode(inference):
                expected, got = right(None, kind), call(None, kind)
                words = f"{name} of {kind}, inference mode {inference}"
                assert bits(got) == bits(expected), words
            if count == SMALL and not (strided or inference):  # gloo itself misplaces strided results
                try:
                    theirs = call(gloo, kind)
                except RuntimeError:  # gloo refuses the call
                    continue
                assert bits(theirs) == bits(expected), f"gloo's {words}"
                answered += 1
    assert answered


@case
def reduces() -> None:
    compare(reductions(), SUMMED)


@case
def moves() -> None:
    compare(movements(), MOVED)


@case
def calls_of_nccl() -> None:
    """Make calls that gloo refuses for every type."""
    half = torch.full((5,), RANK + 1.0)
    for factor in (0.5, torch.tensor([0.5])):
        value = half.clone()
        dist.all_reduce(value, dist._make_nccl_premul_sum(factor))
        assert value.tolist() == [0.5 * sum(range(1, WORKERS + 1))] * 5
    for count in (2, LARGE):
        outputs = [torch.zeros(rank + count) for rank in range(WORKERS)]
        dist.all_gather(outputs, torch.full((RANK + count,), RANK + 1.0))
        assert all((output == rank + 1).all() for rank, output in enumerate(outputs))
        mine = torch.zeros(RANK + count, dtype=torch.int64)
        parts = [torch.full((rank + count,), -3 * RANK, dtype=torch.int64) for rank in range(WORKERS)]
        dist.reduce_scatter(mine, parts, AVG)
        assert (mine == -((3 * sum(range(WORKERS))) // WORKERS)).all()
        outputs = [torch.zeros(RANK + count) for _ in range(WORKERS)]
        dist.all_to_all(outputs, [torch.full((rank + count,), RANK + 1.0) for rank in range(WORKERS)])
        assert all((output == rank + 1).all() for rank, output in enumerate(outputs))
    flat, rows = torch.zeros(WORKERS * 6), torch.full((2, 3), RANK + 1.0)
    dist.all_gather_into_tensor(flat, rows)
    assert flat.view(WORKERS, 6)[1].tolist() == [2.0] * 6
    first, second = torch.ones(3), torch.full((4,), RANK, dtype=torch.int64)
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as together:
        dist.broadcast(second, 1)
        dist.reduce(first, 0)
    together.wait()
    assert second.tolist() == [1] * 4
    assert RANK or first.tolist() == [WORKERS] * 3
    yes = torch.tensor([RANK == 1])
    dist.all_reduce(yes)
    assert yes.tolist() == [True]
    assert yes.view(torch.uint8).tolist() == [1]
    work = dist.reduce_scatter_tensor(torch.zeros(2), torch.ones(2 * WORKERS), async_op=True)
    assert work is not None
    assert work.get_future().wait()[0].tolist() == [WORKERS] * 2


@case
def memory_is_the_scripts() -> None:
    """Resize and free tensors after collectives used them."""
    outputs = [torch.zeros(LARGE) for _ in range(WORKERS)]
    value, part = torch.ones(LARGE), torch.zeros(LARGE)
    dist.all_reduce(value)
    dist.all_gather(outputs, value)
    dist.broadcast(value, 0)
    dist.reduce_scatter(part, outputs)
    for tensor in (value, part, *outputs):
        tensor.resize_(2 * LARGE)
        tensor.untyped_storage().resize_(0)
    again = torch.full((LARGE,), 2.0).half()
    for _ in range(3):
        dist.all_reduce(again, AVG)
    assert (again == 2).all()


@case
def interrupts_stay() -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    assert backend.options._timeout == timedelta(seconds=30)
    dist.barrier()
    if RANK == 0:
        time.sleep(1.0)
        dist.all_reduce(torch.ones(SMALL))
    else:
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        try:
            dist.all_reduce(torch.ones(SMALL))
            time.sleep(1.0)
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("no KeyboardInterrupt")
    value = torch.ones(SMALL)
    dist.all_reduce(value)
    assert value.tolist() == [WORKERS] * SMALL


def fails(wait: Callable[[], Any]) -> None:
    start = time.monotonic()
    try:
        wait()
    except RuntimeError:
        took_s = time.monotonic() - start
        assert took_s < LATE_S - 1, f"an error after {took_s:.1f} s"
        return
    raise AssertionError(f"no error after {time.monotonic() - start:.1f} s")


@case
def barriers_end_after_sums() -> None:
    """A barrier ends only after all operations that its worker started before it, in the network or by
    gloo.
    """
    groups = {"inc": None, "beside": dist.new_group()}
    for turn in range(20):
        for name, group in groups.items():
            for is_later in (False, True):
                tensors = [torch.full((SMALL, 100), float(number)) for number in range(16)]
                works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
                barrier = dist.barrier(group=group, async_op=is_later)
                if barrier is not None:
                    barrier.wait()
                wrong = [
                    int(each.max()) for number, each in enumerate(tensors) if (each != number * WORKERS).any()
                ]
                assert not wrong, (turn, name, wrong)
                assert all(work is not None and work.is_completed() for work in works)


@case
def what_is_refused_here_is_no_call() -> None:
    """Calls that gloo refuses on one worker: the group continues, in step with the others."""
    wrong = [torch.zeros(4) for _ in range(WORKERS + 1)]
    for call in (
        lambda: dist.all_gather(wrong, torch.zeros(4)),
        lambda: dist.distributed_c10d._get_default_group().broadcast([]),
        lambda: dist.distributed_c10d._get_default_group().scatter([torch.zeros(4)], [wrong]),
    ):
        if RANK == 0:
            try:
                call()
            except (RuntimeError, ValueError):
                pass
            else:
                raise AssertionError("gloo refuses it")
        value = torch.ones(3, dtype=torch.int64)
        dist.all_reduce(value)
        assert value.tolist() == [WORKERS] * 3


@case
def a_future_of_lists_has_lists() -> None:
    """The future of a gather of one tensor and of two, strided or not, has the same form as gloo's."""
    group: Any = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    plain_group: Any = dist.new_group(backend="gloo")._get_backend(torch.device("cpu"))
    for has_gaps in (False, True):
        for count in (1, 2):
            shapes = []
            for each in (group, plain_group):
                part = [
                    torch.ones(2, 2)[:, 0] if has_gaps and each is group else torch.ones(2)
                    for _ in range(count)
                ]
                whole = [[torch.zeros_like(part[0]) for _ in range(count * WORKERS)] for _ in range(count)]
                future = each.allgather(whole, part).get_future()
                future.wait()
                shapes.append([len(row) for row in future.value()])
            assert shapes[0] == shapes[1], shapes


@case
def limits_are_kept() -> None:
    """A time limit ends a wait for worker 0: a group's, a changed one of a group, and a call's own."""
    meet = dist.new_group(backend="gloo")
    made, anew, called = dist.new_group(timeout=LIMIT), dist.new_group(), dist.new_group()
    _set_pg_timeout(LIMIT, anew)
    if RANK:
        works = [dist.all_reduce(torch.ones(SMALL), group=group, async_op=True) for group in (made, anew)]
        late = dist.all_reduce(torch.ones(SMALL), group=called, async_op=True)
        for work in works:
            assert work is not None
            fails(work.wait)
        assert late is not None
        fails(lambda: late.wait(LIMIT))
    dist.barrier(group=meet)


@case
def limits_of_a_group_made_again_are_kept() -> None:
    dist.destroy_process_group()
    address = f"tcp://{os.environ['MASTER_ADDR']}:21007"
    dist.init_process_group("inc", init_method=address, rank=RANK, world_size=WORKERS, timeout=LIMIT)
    if RANK:
        fails(lambda: dist.all_reduce(torch.ones(SMALL)))
    else:
        time.sleep(LATE_S)


def main() -> None:
    sums.carried = lambda workers, is_shaped: {name: [(CARRIED_BYTES, sys.maxsize)] for name in CARRIED}
    dist.init_process_group("inc", timeout=timedelta(seconds=30))
    for name in sys.argv[1:]:
        try:
            CASES[name]()
            outcome = "ok"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"same: {name}: {outcome}", flush=True)
    if any(name.startswith("limits") for name in sys.argv[1:]):
        os._exit(0)  # do not wait for collectives that failed on purpose
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
