"""Ways in which torch's own library and its users use a process group; the arguments name the cases.

Prints `habit: NAME: ok`, or the failure, on each worker; a case that hangs ends the worker with all its
stacks.
"""

from __future__ import annotations

import contextlib
import copy
import faulthandler
import os
import re
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

BACKEND = "inc"
LIMIT_S = 100.0
STEPS = 3
HABITS: dict[str, Callable[[], None]] = {}


def habit(case: Callable[[], None]) -> Callable[[], None]:
    HABITS[case.__name__] = case
    return case


def net() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(31, 67), nn.BatchNorm1d(67), nn.ReLU(), nn.Linear(67, 7))


def train(model: nn.Module, steps: int = STEPS) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        data = torch.randn(17, 31, generator=torch.Generator().manual_seed(100 * step + dist.get_rank()))
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()


def assert_alike(model: nn.Module) -> None:
    for parameter in model.parameters():
        ours = [torch.empty_like(parameter) for _ in range(dist.get_world_size())]
        dist.all_gather(ours, parameter.detach().contiguous())
        assert all(torch.equal(ours[0], other) for other in ours)


@habit
def hooks_of_the_library() -> None:
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook):
        model = DistributedDataParallel(net())
        model.register_comm_hook(None, hook)
        train(model)
        assert_alike(model)


@habit
def built_in_compression() -> None:
    model = DistributedDataParallel(net())
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    train(model)
    assert_alike(model)


@habit
def power_sgd() -> None:
    model = DistributedDataParallel(net())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(model, 2 * STEPS)
    assert_alike(model)


@habit
def join() -> None:
    for divide_by_all in (True, False):
        model = DistributedDataParallel(net())
        with model.join(divide_by_initial_world_size=divide_by_all):
            train(model, STEPS + 2 * dist.get_rank())
        assert_alike(model)


@habit
def sums_within_then() -> None:
    """Wait for a sum in each callback; the next sum is in that sum's callback."""

    def deeper(done: torch.futures.Future[list[torch.Tensor]], left: int) -> torch.Tensor:
        (value,) = done.value()
        dist.all_reduce(value)
        if not left:
            return value
        work = dist.all_reduce(value, async_op=True)
        assert work is not None
        return work.get_future().then(lambda done: deeper(done, left - 1)).wait()

    work = dist.all_reduce(torch.ones(1003), async_op=True)
    assert work is not None
    value = work.get_future().then(lambda done: deeper(done, 4)).wait()
    assert (value == dist.get_world_size() ** 10).all()


@habit
def works_that_nobody_keeps() -> None:
    futures = []
    for _ in range(50):
        work = dist.all_reduce(torch.ones(1003), async_op=True)
        assert work is not None
        futures.append(work.get_future())
        del work
    for future in futures:
        assert (future.wait()[0] == dist.get_world_size()).all()


@habit
def dtensor() -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(24.0).reshape(6, 4)
    for _ in range(10):
        parts = distribute_tensor(whole, mesh, [Shard(0)])
        assert torch.equal(parts.redistribute(mesh, [Replicate()]).to_local(), whole)
        assert parts.sum().full_tensor() == whole.sum()
        assert torch.equal(parts.redistribute(mesh, [Shard(1)]).full_tensor(), whole)


@habit
def tensor_parallel() -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    world = dist.get_world_size()
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(31, 12 * world), nn.ReLU(), nn.Linear(12 * world, 7))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(model, init_device_mesh("cpu", (world,)), plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.ones(5, 31)).square().mean().backward()
        optimizer.step()


@habit
def sharded_training_and_its_state() -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(31, 64), nn.ReLU(), nn.Linear(64, 7))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    for _ in range(3):
        train(model)
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    assert dist.get_rank() or len(state) == 4


@habit
def sharded_and_parallel() -> None:
    """Train on a mesh of two dimensions, whose groups have some of the workers each. All have the same data,
    so the model must train as it does whole and alone.
    """
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(31, 64), nn.ReLU(), nn.Linear(64, 7))
    alone = copy.deepcopy(model)
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    data, aim = torch.randn(5, 31), torch.randn(5, 7)
    losses: list[list[float]] = []
    for trained in (model, alone):
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1, foreach=False)
        losses.append([])
        for _ in range(40):
            optimizer.zero_grad()
            loss = (trained(data) - aim).square().mean()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    torch.testing.assert_close(*losses, rtol=1e-3, atol=1e-6)


@habit
def compiled_with_buffers() -> None:
    model = DistributedDataParallel(net())
    train(torch.compile(model, backend="aot_eager"))  # type: ignore[arg-type]
    assert_alike(model)


@habit
def compiled_broadcast() -> None:
    @torch.compile(backend="aot_eager")
    def doubled(value: torch.Tensor) -> torch.Tensor:
        dist.broadcast(value, 0)
        return 2 * value

    assert (doubled(torch.full((13,), float(dist.get_rank() + 1))) == 2).all()


@habit
def profiled() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(1003))
    names = {event.key for event in profile.key_averages()}
    assert {"c10d::allreduce_", "inc:all_reduce"} <= names, names


@habit
def groups_made_while_tensors_have_no_memory() -> None:
    for mode in (torch.device("meta"), FakeTensorMode(), contextlib.nullcontext()):
        with mode:
            group = dist.new_group()
        vector = torch.full((100_003,), 1.0 + dist.get_rank())
        dist.all_reduce(vector, group=group)
        assert vector[7] == sum(range(1, dist.get_world_size() + 1)), vector[7]
        dist.destroy_process_group(group)


@habit
def gradients_that_are_not_finite() -> None:
    """Expect infinities and NaNs where gloo has them, equally on every worker."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for size in (3, 10_007):  # carried in the vote, and in fragments
        for dtype in (torch.float32, torch.float16):
            value = torch.full((size,), 2.0, dtype=dtype)
            value[rank] = float("nan") if rank else float("inf")
            value[-1] = float("inf") if rank % 2 else -float("inf")
            expected = value.clone()
            dist.all_reduce(expected, group=plain)
            works = [dist.all_reduce(value, async_op=True), dist.all_reduce(torch.ones(7), async_op=True)]
            for work in works:
                work.wait()
            assert torch.equal(value.nan_to_num(7, 8, 9), expected.nan_to_num(7, 8, 9)), (value, expected)
            average = torch.full((size,), float("inf") if rank else 1.0, dtype=dtype)
            dist.all_reduce(average, op=dist.ReduceOp.AVG)
            assert torch.isinf(average).all()
    after = torch.full((1003,), 1.0)
    dist.all_reduce(after)
    assert (after == world).all()


@habit
def loss_scaling() -> None:
    """One worker's loss overflows: all reduce the scale, and continue."""
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=1000)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for step in range(4):
        optimizer.zero_grad()
        loss = model(torch.ones(5, 31)).square().mean()
        scaler.scale(loss * (float("inf") if step == 1 and dist.get_rank() == 0 else 1)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 2.0**15
    assert not all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    assert_alike(model)


@habit
def barrier_that_names_who_is_missing() -> None:
    """Call the group's own monitored_barrier: torch's function of this name accepts gloo alone."""
    assert dist.group.WORLD is not None
    dist.group.WORLD.monitored_barrier()


@habit
def mismatched_collectives() -> None:
    """Expect an error that names the mismatched collective; TORCH_DISTRIBUTED_DEBUG must be DETAIL."""
    number = mismatched()
    dist.all_reduce(torch.ones(3))
    assert mismatched() == number + 1


def mismatched() -> int:
    """Return the number of a sum on which the workers disagree."""
    said = ""
    try:
        dist.all_reduce(torch.ones(3 + dist.get_rank()))
    except RuntimeError as error:
        said = str(error)
    number = re.search(r"Detected mismatch.*SequenceNumber=(\d+), OpType=ALLREDUCE", said)
    assert number is not None, said
    return int(number[1])


@habit
def begun_again() -> None:
    """Use another store each time, as torch requires: an early worker would find the old one."""
    global plain
    rank, world, port = dist.get_rank(), dist.get_world_size(), int(os.environ["MASTER_PORT"])
    for turn in range(3):
        dist.all_reduce(torch.ones(1003))
        dist.destroy_process_group()
        store = f"tcp://{os.environ['MASTER_ADDR']}:{port + 2000 + turn}"
        dist.init_process_group(BACKEND, init_method=store, rank=rank, world_size=world)
        value = torch.full((1003,), float(turn))
        dist.all_reduce(value)
        assert (value == turn * dist.get_world_size()).all()
    plain = dist.new_group(backend="gloo")


def main() -> None:
    global plain
    dist.init_process_group(BACKEND)
    plain = dist.new_group(backend="gloo")
    failed = False
    for name in sys.argv[1:]:
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        try:
            HABITS[name]()
        except Exception as error:  # the other cases continue
            failed = True
            print(f"habit: {name}: {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        else:
            print(f"habit: {name}: ok", flush=True)
        dist.barrier()
    faulthandler.cancel_dump_traceback_later()
    dist.destroy_process_group()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
