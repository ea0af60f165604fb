"""The training schemes that compared.py times, each with its model, its backward pass and its step.

Imports torch and, from the project, the node's parts.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from workloads.luwu import layout
from workloads.luwu.intervals import Log
from workloads.luwu.job import connector
from workloads.luwu.jobs.scattered import Scatter
from workloads.luwu.jobs.text import ByteModel
from workloads.luwu.rates import Rates
from workloads.luwu.rule import Rule, first_states, rule_name
from workloads.luwu.store import Store
from workloads.luwu.training import initialize
from workloads.luwu.transport import IN_BACKWARD, Local
from workloads.luwu.watched import Watched


class Scheme(Protocol):
    """A training scheme; the loop calls its `model`."""

    @property
    def model(self) -> nn.Module: ...

    def backward(self, loss: Tensor) -> None: ...

    def step(self) -> None:
        """Update, and clear the gradients."""

    def close(self) -> None: ...


def declared(args: argparse.Namespace) -> Rates | None:
    """Return a disk's declared rates; None where none is declared."""
    if args.disk_mb_s is None:
        return None
    return Rates(reads=args.disk_mb_s * 1e6, write_states=args.disk_mb_s * 1e6)


def adamw(model: nn.Module, args: argparse.Namespace) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)


class Luwu:
    """LuWu: parameters and states lie on the optimizer node's disks."""

    def __init__(self, model: ByteModel, args: argparse.Namespace, log: Log) -> None:
        connect = connector("process", None)
        assert connect is not None, "run by `testbed run --sync luwu`"
        model.bfloat16()
        self.model, self._optimizer = initialize(
            model,
            adamw(model, args),
            args.states,
            rates=declared(args),
            connect=lambda opening: Watched(connect(opening), log),
            update=IN_BACKWARD,
        )

    def backward(self, loss: Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad()

    def close(self) -> None:
        self._optimizer.close()


class Sharded:
    """torch's FSDP, fully sharded (as ZeRO-3).

    Parameters travel in bfloat16, gradients are summed in binary32, and each worker has a shard of binary32
    parameters and moments. While one block computes, the parameters of the next one are gathered.
    """

    def __init__(self, model: ByteModel, args: argparse.Namespace, log: Log) -> None:
        self.model, self._log = model, log
        _watch_collectives(log)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        blocks: list[Any] = list(model.blocks)
        for block in blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        for block, following in itertools.pairwise(blocks):
            block.set_modules_to_forward_prefetch([following])
        assert isinstance(model, FSDPModule)
        model._set_unshard_async_op(True)  # otherwise, on a CPU, each gather blocks at its call
        self._prepare(model, args)

    def _prepare(self, model: nn.Module, args: argparse.Namespace) -> None:
        self._optimizer = adamw(model, args)

    def backward(self, loss: Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad()

    def close(self) -> None:
        pass


class Tuned(Sharded):
    """Sharded, with gradients reduced in parallel with the backward pass, in bfloat16 and without an
    all-reduce.
    """

    def _prepare(self, model: nn.Module, args: argparse.Namespace) -> None:
        self._scatter = Scatter(self._log)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_custom_reduce_scatter(self._scatter)  # type: ignore[arg-type]
        super()._prepare(model, args)

    def step(self) -> None:
        self._scatter.finish()
        super().step()

    def close(self) -> None:
        self._scatter.close()


class OnDisks(Sharded):
    """Sharded, with each worker's shard of states on disks of its own (as ZeRO-Infinity).

    A layer's gradients are written to disk within the backward pass, as soon as they are reduced. In the
    step, states are read, updated and written, and parameters are read back.
    """

    def _prepare(self, model: nn.Module, args: argparse.Namespace) -> None:
        self._named = dict(model.named_parameters())
        shards = {name: nn.Parameter(_local(each)) for name, each in self._named.items()}
        grouped: dict[str, list[str]] = {}
        for name in shards:
            grouped.setdefault(".".join(name.split(".")[:2]), []).append(name)
        shape = layout.Model(
            [
                layout.Layer(layer, tuple(layout.Tensor(name, tuple(shards[name].shape)) for name in names))
                for layer, names in grouped.items()
            ],
            "bfloat16",
        )
        inner = torch.optim.AdamW(shards.values(), lr=args.lr, fused=True)
        fill = first_states(lambda name: shards[name].detach(), torch.bfloat16)
        folders = [Path(each) / f"worker{os.environ.get('RANK', 0)}" for each in args.states]
        for folder in folders:
            folder.mkdir()
        self._layers = shape.layers
        self._transport = Local(
            Store.create(folders, shape, rule_name(inner), fill, declared(args)),
            Rule(inner, shape, shards),
        )
        self._reduced: Counter[int] = Counter()  # reduced tensors in this backward pass, by layer
        self._held: dict[int, Tensor] = {}  # gradients that the transport is writing
        self._written: list[Future[None]] = []
        for number, layer in enumerate(self._layers):
            for tensor in layer.tensors:
                hook = partial(self._reduce, number)
                self._named[tensor.name].register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def _reduce(self, number: int, _: Tensor) -> None:
        """Count a reduced tensor; when it is its layer's last one, write the layer's gradients."""
        self._reduced[number] += 1
        layer = self._layers[number]
        if self._reduced[number] < len(layer.tensors):
            return
        gradients = self._held[number] = torch.zeros(layer.used)
        for start, tensor in zip(layer.starts, layer.tensors, strict=True):
            named = self._named[tensor.name]
            gradients[start:][: tensor.numel] = _local(named.grad).flatten()
            named.grad = None
        done = self._transport.push(number, _bytes(gradients))
        done.add_done_callback(lambda _: self._held.pop(number))
        self._written.append(done)

    def step(self) -> None:
        assert len(self._written) == len(self._layers), "each layer is in each backward pass"
        for done in self._written:
            done.result()
        self._written.clear()
        self._reduced.clear()
        self._transport.step(None).result()
        for number, layer in enumerate(self._layers):
            parameters = torch.empty(layer.used, dtype=torch.bfloat16)
            self._transport.pull(number, _bytes(parameters)).result()
            for start, tensor in zip(layer.starts, layer.tensors, strict=True):
                shard = _local(self._named[tensor.name])
                shard.copy_(parameters[start:][: tensor.numel].view(shard.shape))
        self._transport.clear().result()

    def close(self) -> None:
        self._transport.close()


class Replicated:
    """torch's DDP in binary32 (as SwitchML): each worker has all parameters and states."""

    def __init__(self, model: ByteModel, args: argparse.Namespace, log: Log) -> None:
        block = sum(each.numel() for each in model.blocks[0].parameters())
        self.model = DistributedDataParallel(model, bucket_cap_mb=4 * block / (1 << 20))
        self._log, self._last_ns = log, 0
        self.model.register_comm_hook(None, lambda _, bucket: self._sum(bucket))
        self._optimizer = adamw(model, args)

    def _sum(self, bucket: Any) -> torch.futures.Future[Tensor]:
        begin_ns = self._last_ns = time.monotonic_ns()
        gradients = bucket.buffer().div_(dist.get_world_size())
        future: torch.futures.Future[Any] = dist.all_reduce(gradients, async_op=True).get_future()

        def end(done: torch.futures.Future[Any]) -> Tensor:
            value: Tensor = done.value()[0]
            self._log.communicated(begin_ns)
            return value

        return future.then(end)

    def backward(self, loss: Tensor) -> None:
        """Run the backward pass. The time from the last bucket's start to the end of the pass counts as
        waiting.
        """
        loss.backward()  # type: ignore[no-untyped-call]
        self._log.waited(self._last_ns)

    def step(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad()

    def close(self) -> None:
        pass


SCHEMES: Mapping[str, Callable[[ByteModel, argparse.Namespace, Log], Scheme]] = {
    "luwu": Luwu,
    "fsdp": Sharded,
    "fsdp-tuned": Tuned,
    "fsdp-disks": OnDisks,
    "ddp": Replicated,
}


def _watch_collectives(log: Log) -> None:
    """Log the collectives that FSDP calls, under the names that this version of torch has: 2.13 has new
    ones.
    """
    names: Sequence[str] = ("all_gather_single", "all_gather_into_tensor")
    names = (*names, "reduce_scatter_single", "reduce_scatter_tensor")
    for name in names:
        if hasattr(dist, name):
            setattr(dist, name, _logged(getattr(dist, name), log))
    wait = dist.Work.wait

    def waited(work: dist.Work, *rest: Any, **named: Any) -> Any:
        begin_ns = time.monotonic_ns()
        try:
            return wait(work, *rest, **named)
        finally:
            log.waited(begin_ns)

    dist.Work.wait = waited  # type: ignore[assignment, method-assign]


def _logged(collective: Callable[..., Any], log: Log) -> Callable[..., Any]:
    def asked(*rest: Any, **named: Any) -> Any:
        if not named.get("async_op"):
            with log.blocking():
                return collective(*rest, **named)
        begin_ns = time.monotonic_ns()
        work = collective(*rest, **named)
        if work is not None:
            work.get_future().add_done_callback(lambda _: log.communicated(begin_ns))
        return work

    return asked


def _local(tensor: Any) -> Tensor:
    """Return this worker's shard of a tensor, detached from autograd."""
    local: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local.detach()


def _bytes(flat: Tensor) -> memoryview:
    """Return a tensor's memory; the caller must keep the tensor alive."""
    length = flat.numel() * flat.element_size()
    return memoryview((ctypes.c_char * length).from_address(flat.data_ptr())).cast("B")
