"""Keep layers' parameters on a worker only while needed: hooks pull a layer's parameters before its forward
and backward pass, and push its gradients after.

Imports torch and, from the project, the units, the transport's interface and the record of its requests.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn, TypeVar

import torch
from torch import nn

from workloads.luwu.errors import LuwuError
from workloads.luwu.layout import PARAMETER_BYTES, Layer, Model
from workloads.luwu.seen import Seen
from workloads.luwu.transport import Transport
from workloads.luwu.units import Unit

T = TypeVar("T")
_MOST_PUSHES = 2  # pushes under way, each with its buffer


class Remote(nn.Parameter):
    """A parameter that has values only while its layer computes."""

    @property
    def grad(self) -> NoReturn:  # type: ignore[override]
        raise LuwuError(
            "gradients lie on the node: clip by model.clip_grad_norm_(max_norm), clear by zero_grad(), "
            "scale by workloads.luwu.scaler.GradScaler"
        )


gradient_of: Any = torch.Tensor.grad  # torch's own property, which Remote's hides


class Held:
    """A layer on the worker: its parameters while they are here, and its gradients until they are pushed."""

    def __init__(self, number: int, layer: Layer, unit: Unit, dtype: torch.dtype, worker: Worker) -> None:
        self.number = number
        self.unit = unit
        self.layer = layer
        self._worker = worker
        self._uses = 0  # calls of the layer's modules that are under way
        self._backward = False  # between the gradients of the layer's output and of its last parameter
        self.here = False
        self._coming: Future[None] | None = None
        shared = worker.transport.parameters(number)
        self._is_shared = shared is not None
        self._flat = torch.empty(layer.used, dtype=dtype) if shared is None else shared
        self._views = [
            self._flat[start:][: tensor.numel].view(tensor.shape)
            for start, tensor in zip(layer.starts, layer.tensors, strict=True)
        ]
        self._absent = [
            torch.full((), float("nan"), dtype=dtype).expand(tensor.shape) for tensor in layer.tensors
        ]
        self._free()
        self._gradients: torch.Tensor | None = None
        self._arrived: set[int] = set()

    def attach(self) -> None:
        for index, (name, parameter) in enumerate(self.unit.parameters.items()):
            if parameter.is_meta:
                torch.utils.swap_tensors(parameter, nn.Parameter(self._absent[index]))  # type: ignore[no-untyped-call]
            parameter.__class__ = Remote
            parameter.register_post_accumulate_grad_hook(self._arrival(index, name))  # type: ignore[no-untyped-call]
        for module in self.unit.modules:
            module.register_forward_pre_hook(lambda *_: self.use())
            module.register_forward_hook(self._after_forward, always_call=True)
        self.let_go()

    def use(self) -> None:
        self._uses += 1
        self._fetch()

    def unuse(self) -> None:
        self._uses -= 1
        self._settle()

    def ask(self) -> None:
        """Request the parameters, unless they are here or requested."""
        if self.here or self._coming is not None:
            return
        if not self._is_shared:
            self._flat.untyped_storage().resize_(self._flat.numel() * PARAMETER_BYTES)
        self._coming = self._worker.pull(self.number, _bytes(self._flat))

    def drop(self) -> None:
        """Wait for parameters that were requested and not used, and free them: a step makes them outdated."""
        if self._coming is not None:
            self._worker.done(self._coming)
            self._coming = None
            self._free()

    def let_go(self) -> None:
        """Free the parameters' memory. Tensors that autograd saved refer to the same address, and are valid
        again after the next pull.
        """
        self.here = False
        self._free()
        self._point(self._absent)

    def missing(self) -> str | None:
        """Return the name of a parameter that got no gradient in the last backward pass, if others of the
        layer did; else None.
        """
        if not self._arrived:
            return None
        names = list(self.unit.parameters)
        return next(name for index, name in enumerate(names) if index not in self._arrived)

    def forget(self) -> None:
        """Discard the gradients collected so far."""
        self._gradients, self._backward = None, False
        self._arrived.clear()
        self._settle()

    def _fetch(self) -> None:
        if self.here:
            return
        self.ask()
        self._worker.ask_ahead(self.number)
        assert self._coming is not None
        self._worker.done(self._coming)
        self._coming = None
        self._point(self._views)
        self.here = True

    def _free(self) -> None:
        """Free the memory; its address stays valid."""
        if self._is_shared:
            self._worker.transport.forget(self.number)
        else:
            self._flat.untyped_storage().resize_(0)

    def _settle(self) -> None:
        if self.here and self._uses == 0 and not self._backward:
            self.let_go()

    def _point(self, values: Sequence[torch.Tensor]) -> None:
        for parameter, value in zip(self.unit.parameters.values(), values, strict=True):
            parameter.data = value

    def _after_forward(self, module: nn.Module, arguments: object, output: object) -> None:
        tensors = list(_tensors(output))
        for tensor in tensors:
            if tensor.requires_grad:
                tensor.register_hook(self._before_backward)  # type: ignore[no-untyped-call]
        self.unuse()
        if not tensors and output is not None:
            raise LuwuError(
                f"layer {self.unit.name}: its forward returns {type(output).__name__} without tensors"
            )

    def _before_backward(self, _: torch.Tensor) -> None:
        self._backward = True
        self._fetch()

    def _arrival(self, index: int, name: str) -> Callable[[torch.Tensor], None]:
        def arrive(parameter: torch.Tensor) -> None:
            if not self.here:
                raise LuwuError(f"parameter {name} was used outside of a call of layer {self.unit.name}")
            if self._gradients is None:
                self._gradients = self._worker.buffer(self.layer.used)
            gradient = gradient_of.__get__(parameter)
            start = self.layer.starts[index]
            self._gradients[start:][: parameter.numel()].view(parameter.shape).copy_(gradient)
            gradient_of.__set__(parameter, None)
            self._arrived.add(index)
            if len(self._arrived) == len(self._views):
                self._worker.push(self.number, self._gradients)
                self.forget()

        return arrive


class Worker:
    """The layers of a model on this worker, and the requests that are under way for them."""

    def __init__(self, units: Sequence[Unit], model: Model, transport: Transport, seen: Seen) -> None:
        self.transport, self._seen = transport, seen
        dtype = getattr(torch, model.dtype)
        self.layers = [
            Held(number, layer, unit, dtype, self)
            for number, (unit, layer) in enumerate(zip(units, model.layers, strict=True))
        ]
        self._pushes: list[tuple[Future[None], torch.Tensor]] = []
        self._order: list[int] = []  # the layers that the last iteration fetched, in order
        self._taken: list[int] = []  # the layers that this iteration has fetched
        self.pushed = self._is_absent_fine = False
        self.waited_ns = 0  # by the training thread

    def done(self, asked: Future[T]) -> T:
        """Wait for a request, add the time to `waited_ns`, and return the result."""
        began_ns = time.monotonic_ns()
        try:
            return self._seen.waited(asked)
        finally:
            self.waited_ns += time.monotonic_ns() - began_ns

    def pull(self, layer: int, parameters: memoryview) -> Future[None]:
        return self._seen.pull(layer, self.transport.pull(layer, parameters))

    def ask_ahead(self, layer: int) -> None:
        """Record that a layer is fetched, and request the next one: the layer that followed it in the last
        iteration, if the order was the same up to here.
        """
        place = len(self._taken)
        self._taken.append(layer)
        if self._order[place : place + 1] == [layer] and place + 1 < len(self._order):
            self.layers[self._order[place + 1]].ask()

    def turn(self) -> None:
        """End an iteration: free layers that were requested and not used, and store the order of the
        layers.
        """
        if self._taken:
            for layer in self.layers:
                layer.drop()
            self._order, self._taken = self._taken, []

    def buffer(self, elements: int) -> torch.Tensor:
        """Return zeros for a layer's gradients, once fewer than _MOST_PUSHES pushes are under way."""
        self._wait(_MOST_PUSHES - 1)
        return self.transport.gradients(elements)

    def push(self, layer: int, gradients: torch.Tensor) -> None:
        asked = self._seen.push(layer, self.transport.push(layer, _bytes(gradients)))
        self._pushes.append((asked, gradients))
        self.pushed = True

    def _wait(self, most: int) -> None:
        """Wait until at most `most` pushes are under way. Each push's buffer lives until its request is
        done.
        """
        while len(self._pushes) > most:
            asked, gradients = self._pushes.pop(0)
            self.done(asked)
            del gradients

    def wait(self) -> None:
        """Wait until all gradients are on the node. Raises LuwuError where some of a layer's gradients are
        missing.
        """
        self._wait(0)
        for layer in self.layers:
            if (name := layer.missing()) is not None:
                raise LuwuError(f"parameter {name} got no gradient: freeze it, or use it in the loss")

    def states(self, layer: int) -> Iterator[tuple[nn.Parameter, list[torch.Tensor]]]:
        """Yield the parameters of a layer, each with its master weight and both moments; yield nothing if
        this is not the first worker.
        """
        held = self.layers[layer]
        used = held.layer.used
        flat = torch.empty(3 * used)
        if not self.done(self._seen.states(layer, self.transport.states(layer, _bytes(flat)))):
            return
        rows = zip(held.layer.starts, held.layer.tensors, held.unit.parameters.values(), strict=True)
        for start, tensor, parameter in rows:
            parts = [flat[part * used + start :][: tensor.numel] for part in range(3)]
            yield parameter, [each.view(tensor.shape).clone() for each in parts]

    @contextlib.contextmanager
    def absent(self) -> Iterator[None]:
        """Allow `state_dict` of the model inside the block, although the parameters' values are not here."""
        self._is_absent_fine = True
        try:
            yield
        finally:
            self._is_absent_fine = False

    def check_here(self) -> None:
        if not self._is_absent_fine and not all(layer.here for layer in self.layers):
            raise LuwuError("parameters are not here: take state_dict() within `with optimizer.gathered():`")

    def clear(self) -> None:
        """Discard all gradients and their errors."""
        while self._pushes:
            with contextlib.suppress(LuwuError):
                self._wait(0)
        self.turn()
        for layer in self.layers:
            layer.forget()
        self.done(self._seen.clear(self.transport.clear()))
        self.pushed = False

    def not_finite(self) -> str | None:
        """Return whose gradients have NaN or an infinity; None if all are finite."""
        self.wait()
        return self.done(self._seen.check(self.transport.not_finite()))

    def norm(self, factor: float) -> torch.Tensor:
        self.wait()
        return self.done(self._seen.norm(self.transport.norm(factor)))

    def step(self, clip_norm: float | None, factor: float) -> None:
        self.wait()
        self.turn()
        if self.pushed:
            asked = self.transport.step(clip_norm, factor)
            self.done(self._seen.step(asked, clip_norm is not None))

    def skip(self) -> None:
        """End an iteration without a step."""
        self.wait()
        self.turn()


def _bytes(flat: torch.Tensor) -> memoryview:
    """Return the memory of a tensor by its address, because a storage that numpy has referenced cannot be
    resized. The caller must keep the tensor alive.
    """
    length = flat.numel() * flat.element_size()
    return memoryview((ctypes.c_char * length).from_address(flat.data_ptr())).cast("B")


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
