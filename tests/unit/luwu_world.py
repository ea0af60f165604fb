"""A small model, its training in plain torch, and a network within the process, for LuWu's optimizer node."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch

from workloads.luwu.layout import Layer, Model, Tensor
from workloads.luwu.node import FORWARD, Node
from workloads.luwu.rates import Rates
from workloads.luwu.rule import Rule, first_states, placeholders, rule_name, views
from workloads.luwu.store import Store

Optimizer = Callable[[list[dict[str, object]]], torch.optim.Optimizer]
Schedule = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]

SHAPES = (
    ("embed", ((131, 17),)),
    ("block1", ((31, 67), (67,), (53, 29), (1,))),
    ("block2", ((31, 67), (67,), (53, 29), (1,))),
    ("head", ((17, 131), (131,))),
)


def small(kind: str = "bfloat16", shapes: Sequence[tuple[str, Sequence[tuple[int, ...]]]] = SHAPES) -> Model:
    return Model(
        [
            Layer(name, tuple(Tensor(f"{name}.{index}", tuple(shape)) for index, shape in enumerate(layer)))
            for name, layer in shapes
        ],
        kind,
    )


def dtype(model: Model) -> torch.dtype:
    kind = getattr(torch, model.dtype)
    assert isinstance(kind, torch.dtype)
    return kind


def first(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(int(hashlib.sha256(name.encode()).hexdigest()[:12], 16))
    return torch.randn(shape, generator=generator)


def gradient(iteration: int, name: str, parameter: torch.Tensor) -> torch.Tensor:
    """Return the workers' gradient of a parameter. It depends on each element, so that a stale element
    is noticed.
    """
    return first(f"{iteration} {name}", tuple(parameter.shape)) + parameter.float() * 0.125


def adamw(groups: list[dict[str, object]]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=0.01, fused=True)


def adam(groups: list[dict[str, object]]) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, lr=0.01, betas=(0.8, 0.95), weight_decay=0.1, fused=True)


def grouped(model: Model, parameters: dict[str, torch.nn.Parameter]) -> list[dict[str, object]]:
    """Return parameter groups: vectors without weight decay, as in training scripts; the embedding with a
    rate of its own.
    """
    plain: list[torch.nn.Parameter] = []
    vectors: list[torch.nn.Parameter] = []
    embedding: list[torch.nn.Parameter] = []
    for layer in model.layers:
        for tensor in layer.tensors:
            kind = embedding if layer.name == "embed" else vectors if len(tensor.shape) == 1 else plain
            kind.append(parameters[tensor.name])
    return [
        {"params": plain},
        {"params": vectors, "weight_decay": 0.0},
        {"params": embedding, "lr": 0.003},
    ]


class Network:
    """Workers within the process: they answer, late and in any order, with gradients of the pushed
    parameters.
    """

    def __init__(self, model: Model, delay_s: float = 0.0) -> None:
        self._model = model
        self._delay_s = delay_s
        self._pool = ThreadPoolExecutor(4)
        self._random = random.Random(7)
        self._parameters: dict[int, list[torch.Tensor]] = {}
        self.order: list[tuple[str, str, int]] = []
        self.overwritten: list[int] = []  # layers whose buffer changed while it was sent

    def push(self, iteration: int, phase: str, layer: int, parameters: memoryview) -> Future[None]:
        self.order.append(("push", phase, layer))
        seen = [each.clone() for each in views(self._model.layers[layer], parameters, dtype(self._model))]
        if phase == FORWARD:
            self._parameters[layer] = seen
        else:  # both passes get the parameters from before the update
            before = self._parameters[layer]
            assert all(torch.equal(a, b) for a, b in zip(before, seen, strict=True))
        return self._pool.submit(self._send, layer, parameters, seen)

    def pull(self, iteration: int, layer: int, gradients: memoryview) -> Future[None]:
        self.order.append(("pull", "", layer))
        return self._pool.submit(self._fill, iteration, layer, gradients)

    def close(self) -> None:
        self._pool.shutdown()

    def _send(self, number: int, parameters: memoryview, seen: list[torch.Tensor]) -> None:
        """Check that the buffer did not change: it belongs to the network until this ends."""
        self._rest()
        now = views(self._model.layers[number], parameters, dtype(self._model))
        if not all(torch.equal(a, b) for a, b in zip(now, seen, strict=True)):
            self.overwritten.append(number)

    def _rest(self) -> None:
        if self._delay_s:
            time.sleep(self._random.uniform(0, self._delay_s))

    def _fill(self, iteration: int, number: int, gradients: memoryview) -> None:
        self._rest()
        layer = self._model.layers[number]
        rows = zip(
            layer.tensors, self._parameters[number], views(layer, gradients, torch.float32), strict=True
        )
        for tensor, parameter, target in rows:
            target.copy_(gradient(iteration, tensor.name, parameter))


class Reference:
    """The same training by torch alone, with everything in memory."""

    def __init__(self, model: Model, make: Optimizer, schedule: Schedule | None, clip: float | None) -> None:
        tensors = [tensor for layer in model.layers for tensor in layer.tensors]
        self.masters = {each.name: torch.nn.Parameter(first(each.name, each.shape)) for each in tensors}
        self.optimizer = make(grouped(model, self.masters))
        self._scheduler = schedule(self.optimizer) if schedule else None
        self._clip = clip
        self._dtype = dtype(model)
        self._iteration = 0

    def iterate(self) -> None:
        self._iteration += 1
        for name, master in self.masters.items():
            master.grad = gradient(self._iteration, name, master.detach().to(self._dtype))
        if self._clip is not None:
            torch.nn.utils.clip_grad_norm_(list(self.masters.values()), self._clip)
        self.optimizer.step()
        if self._scheduler is not None:
            self._scheduler.step()

    def states(self) -> dict[str, list[torch.Tensor]]:
        """Return parameters, master weights and moments by name."""
        return {
            name: [
                master.detach().to(self._dtype),
                master.detach(),
                self.optimizer.state[master]["exp_avg"],
                self.optimizer.state[master]["exp_avg_sq"],
            ]
            for name, master in self.masters.items()
        }


class World:
    """An optimizer node over folders, new or resumed. A context manager."""

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        model: Model | None = None,
        make: Optimizer = adamw,
        schedule: Schedule | None = None,
        clip: float | None = None,
        memory_bytes: int = 1 << 20,
        rates: Rates | None = None,
        delay_s: float = 0.0,
        resume: bool = False,
    ) -> None:
        self.model = model or small()
        parameters = placeholders(self.model)
        optimizer = make(grouped(self.model, parameters))
        self.rule = rule = Rule(optimizer, self.model, parameters, schedule(optimizer) if schedule else None)
        if resume:
            self.store = Store.resume(folders, self.model, rule_name(optimizer), rates)
        else:
            shapes = {tensor.name: tensor.shape for layer in self.model.layers for tensor in layer.tensors}
            fill = first_states(lambda name: first(name, shapes[name]), dtype(self.model))
            self.store = Store.create(folders, self.model, rule_name(optimizer), fill, rates)
        self.network = Network(self.model, delay_s)
        try:
            self.node = Node(self.store, rule, self.network, memory_bytes, clip)
        except BaseException:
            self.store.close()
            raise

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.node.close()
        self.store.close()
        self.network.close()

    def states(self) -> dict[str, list[torch.Tensor]]:
        return states(self.store)


def states(store: Store) -> dict[str, list[torch.Tensor]]:
    """Return the contents of a store, in the form of `Reference.states`."""
    import mmap

    from workloads.luwu.disk import Purpose
    from workloads.luwu.store import PARAMETERS, STATES

    held: dict[str, list[torch.Tensor]] = {}
    for number, layer in enumerate(store.model.layers):
        buffers = {
            PARAMETERS: mmap.mmap(-1, layer.parameters_bytes),
            STATES: mmap.mmap(-1, layer.states_bytes),
        }
        for kind, buffer in buffers.items():
            for future in store.read(kind, number, memoryview(buffer), Purpose(0, "test", number)):
                future.result()
        columns = [views(layer, memoryview(buffers[PARAMETERS]), dtype(store.model))]
        columns += [views(layer, memoryview(buffers[STATES]), torch.float32, part) for part in range(3)]
        for tensor, *values in zip(layer.tensors, *columns, strict=True):
            held[tensor.name] = [value.clone() for value in values]
    return held


def flip(file: Path, byte: int, bit: int) -> None:
    """Flip a bit of a file."""
    with file.open("r+b") as opened:
        opened.seek(byte)
        (before,) = opened.read(1)
        opened.seek(byte)
        opened.write(bytes([before ^ 1 << bit]))


def same(held: dict[str, list[torch.Tensor]], other: dict[str, list[torch.Tensor]]) -> bool:
    """Return whether two sets of states are equal to the last bit."""
    return held.keys() == other.keys() and all(
        a.dtype == b.dtype
        and torch.equal(
            a.contiguous().view(torch.uint8) if a.dim() else a,
            b.contiguous().view(torch.uint8) if b.dim() else b,
        )
        for name in held
        for a, b in zip(held[name], other[name], strict=True)
    )
