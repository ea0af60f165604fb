"""A training script whose model and states lie on an optimizer node: `model, optimizer = initialize(...)`.

Owns the hooks that pull a layer's parameters before its forward and backward, and push its gradients after.
Imports torch, and of the project the transport and the node's parts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
from torch import nn

from workloads.luwu.errors import LuwuError
from workloads.luwu.job import connector
from workloads.luwu.layout import PARAMETER_BYTES, Layer, Model, Tensor
from workloads.luwu.rates import Rates
from workloads.luwu.rule import Rule, first_states, rule_name
from workloads.luwu.seen import Seen
from workloads.luwu.store import Store
from workloads.luwu.transport import AT_STEP, UPDATES, Local, Transport
from workloads.luwu.worker import Opening

T = TypeVar("T")
WHOLE = (nn.MultiheadAttention, nn.RNNBase)  # these use their children's parameters without calling them
_MOST_PUSHES = 2  # under way, each with its buffer


class Remote(nn.Parameter):
    """A parameter that is here only while its layer computes."""

    @property
    def grad(self) -> NoReturn:  # type: ignore[override]
        raise LuwuError(
            "gradients lie on the node: clip by model.clip_grad_norm_(max_norm), clear by zero_grad()"
        )


_gradient: Any = torch.Tensor.grad  # torch's own property, past Remote's


class Unit:
    """A layer: the modules whose calls need its parameters, and the storage that these have meanwhile."""

    def __init__(self, name: str, whole: bool) -> None:
        self.name = name
        self.whole = whole
        self.modules: list[nn.Module] = []
        self.parameters: dict[str, nn.Parameter] = {}


def cut(model: nn.Module, kinds: tuple[type[nn.Module], ...] = ()) -> list[Unit]:
    """Return the layers of a model, in the order of its parameters: each member of a ModuleList, each module
    of these kinds, and of what is left each module that has parameters of its own. Modules of the last kind
    that share weights are one layer. Raises LuwuError where others do.
    """
    units: list[Unit] = []
    owner: dict[int, Unit] = {}
    seen: set[int] = set()

    def add(name: str, module: nn.Module, whole: bool) -> None:
        own = {
            f"{name}.{key}" if name else key: value
            for key, value in module.named_parameters(recurse=whole)
            if value.requires_grad
        }
        if not own:
            return
        others = {id(unit): unit for value in own.values() if (unit := owner.get(id(value)))}
        if others and (len(others) > 1 or whole or any(each.whole for each in others.values())):
            first = next(key for key, value in own.items() if id(value) in owner)
            other = next(iter(others.values())).name
            raise LuwuError(
                f"parameter {first} is shared by layers {other} and {name}: name one around both in `layers`"
            )
        if others:
            unit = next(iter(others.values()))
        else:
            units.append(unit := Unit(name or "model", whole))
        unit.modules.append(module)
        for key, value in own.items():
            if id(value) not in owner:
                unit.parameters[key] = value
                owner[id(value)] = unit

    def walk(name: str, module: nn.Module, member: bool) -> None:
        if id(module) in seen:
            return
        seen.add(id(module))
        container = isinstance(module, nn.ModuleList | nn.ModuleDict)
        if (member and not container) or isinstance(module, (*WHOLE, *kinds)):
            add(name, module, True)
            return
        add(name, module, False)
        for key, child in module.named_children():
            walk(f"{name}.{key}" if name else key, child, isinstance(module, nn.ModuleList))

    walk("", model, False)
    if not units:
        raise LuwuError("the model has no parameters that are trained")
    return units


class Held:
    """A layer's parameters on the worker, and its gradients on their way."""

    def __init__(self, number: int, layer: Layer, unit: Unit, dtype: torch.dtype, worker: Worker) -> None:
        self.number = number
        self.unit = unit
        self._layer = layer
        self._worker = worker
        self._uses = 0  # calls of its modules under way
        self._backward = False  # between its outputs' gradients and its last parameter's
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
        """Ask for the parameters, unless they are here or asked for."""
        if self.here or self._coming is not None:
            return
        if not self._is_shared:
            self._flat.untyped_storage().resize_(self._flat.numel() * PARAMETER_BYTES)
        self._coming = self._worker.pull(self.number, _bytes(self._flat))

    def drop(self) -> None:
        """Wait for what was asked for and not used, and let it go: a step makes it old."""
        if self._coming is not None:
            self._worker.done(self._coming)
            self._coming = None
            self._free()

    def let_go(self) -> None:
        """Storage goes; what autograd saved of it finds it again where it was."""
        self.here = False
        self._free()
        self._point(self._absent)

    def missing(self) -> str | None:
        """Return a parameter that the last backward left without a gradient, where others have one."""
        if not self._arrived:
            return None
        names = list(self.unit.parameters)
        return next(name for index, name in enumerate(names) if index not in self._arrived)

    def forget(self) -> None:
        """Gradients that did not become a whole layer's."""
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
        """The memory goes, and its address stays."""
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
                self._gradients = self._worker.buffer(self._layer.used)
            gradient = _gradient.__get__(parameter)
            start = self._layer.starts[index]
            self._gradients[start:][: parameter.numel()].view(parameter.shape).copy_(gradient)
            _gradient.__set__(parameter, None)
            self._arrived.add(index)
            if len(self._arrived) == len(self._views):
                self._worker.push(self.number, self._gradients)
                self.forget()

        return arrive


class Worker:
    """The layers of a model, and the requests that are under way for them."""

    def __init__(self, units: Sequence[Unit], model: Model, transport: Transport, seen: Seen) -> None:
        self.transport, self._seen = transport, seen
        dtype = getattr(torch, model.dtype)
        self.layers = [
            Held(number, layer, unit, dtype, self)
            for number, (unit, layer) in enumerate(zip(units, model.layers, strict=True))
        ]
        self._pushes: list[tuple[Future[None], torch.Tensor]] = []
        self._order: list[int] = []  # of the layers that the last iteration took
        self._taken: list[int] = []  # by this one
        self.pushed = False
        self.waited_ns = 0  # by the process that trains

    def done(self, asked: Future[T]) -> T:
        """Wait for a request, and count the time."""
        began_ns = time.monotonic_ns()
        try:
            return self._seen.waited(asked)
        finally:
            self.waited_ns += time.monotonic_ns() - began_ns

    def pull(self, layer: int, parameters: memoryview) -> Future[None]:
        return self._seen.pull(layer, self.transport.pull(layer, parameters))

    def ask_ahead(self, layer: int) -> None:
        """A layer is taken: ask for the one that came next in the last iteration, as long as this one is as
        that was.
        """
        place = len(self._taken)
        self._taken.append(layer)
        if self._order[place : place + 1] == [layer] and place + 1 < len(self._order):
            self.layers[self._order[place + 1]].ask()

    def turn(self) -> None:
        """An iteration is over. What was asked for and not taken is let go."""
        if self._taken:
            for layer in self.layers:
                layer.drop()
            self._order, self._taken = self._taken, []

    def buffer(self, elements: int) -> torch.Tensor:
        """Return zeros for a layer's gradients, when few enough others are under way."""
        self._wait(_MOST_PUSHES - 1)
        return self.transport.gradients(elements)

    def push(self, layer: int, gradients: torch.Tensor) -> None:
        asked = self._seen.push(layer, self.transport.push(layer, _bytes(gradients)))
        self._pushes.append((asked, gradients))
        self.pushed = True

    def _wait(self, most: int) -> None:
        """Return when at most so many are under way. A buffer must live until its request is done."""
        while len(self._pushes) > most:
            self.done(self._pushes[0][0])
            del self._pushes[0]

    def wait(self) -> None:
        """Return when all gradients are on the node. Raises LuwuError where a layer's are not all there."""
        self._wait(0)
        for layer in self.layers:
            if (name := layer.missing()) is not None:
                raise LuwuError(f"parameter {name} got no gradient: freeze it, or use it in the loss")

    def check_here(self) -> None:
        if not all(layer.here for layer in self.layers):
            raise LuwuError("parameters are not here: take state_dict() within `with optimizer.gathered():`")

    def clear(self) -> None:
        self._wait(0)
        self.turn()
        for layer in self.layers:
            layer.forget()
        self.done(self._seen.clear(self.transport.clear()))
        self.pushed = False

    def norm(self) -> torch.Tensor:
        self.wait()
        return self.done(self._seen.norm(self.transport.norm()))

    def step(self, clip_norm: float | None) -> None:
        self.wait()
        self.turn()
        if self.pushed:
            self.done(self._seen.step(self.transport.step(clip_norm), clip_norm is not None))


class NodeOptimizer(torch.optim.Optimizer):
    """The optimizer that a training loop has. Its groups are those of the one that it stands for."""

    def __init__(self, optimizer: torch.optim.Optimizer, worker: Worker) -> None:
        self._worker = worker
        self._whole = False
        self._clip_norm: float | None = None
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._whole = True

    @property
    def iteration(self) -> int:
        """The steps that are whole on the disks."""
        return self._worker.transport.iteration

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update by the gradients since zero_grad; without any, nothing. Returns when it is on the disks."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._worker.step(self._clip_norm)
        self._clip_norm = None
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._worker.clear()
        self._clip_norm = None

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Have the next step scale gradients to this norm at most. Returns what their norm is."""
        if not max_norm > 0:
            raise LuwuError(f"clipping norm {max_norm}: accepted is a number above 0")
        norm = self._worker.norm()
        self._clip_norm = float(max_norm)
        return norm

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if self._whole:
            raise LuwuError("groups are those of the optimizer that initialize() was given")
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        raise LuwuError("states lie on the node's disks, whole after each step: initialize(..., resume=True)")

    def load_state_dict(self, state_dict: object) -> None:
        raise LuwuError("states are read by initialize(..., resume=True)")

    @property
    def waited_s(self) -> float:
        """The time that this process has waited for parameters, for room for gradients, and for steps."""
        return self._worker.waited_ns / 1e9

    def record(self, file: Path | str) -> int:
        """Have the node write when each step and each request of its disks began and ended, as JSON that
        `workloads.luwu.gantt` draws. All workers call it alike. Returns how many there are.
        """
        return self._worker.done(self._worker.transport.record(Path(os.path.abspath(file))))

    def close(self) -> None:
        """Let go of the disks. Parameters are then nowhere but there."""
        self._worker.transport.close()

    @contextlib.contextmanager
    def gathered(self) -> Iterator[None]:
        """All parameters are here within, to be read: a state_dict, to be saved."""
        layers: list[Held] = []
        try:
            for layer in self._worker.layers:
                layer.use()
                layers.append(layer)
            yield
        finally:
            for layer in layers:
                layer.unuse()


def initialize(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    folders: Sequence[Path | str] = (),
    *,
    layers: tuple[type[nn.Module], ...] = (),
    resume: bool = False,
    rates: Rates | None = None,
    values: Callable[[str], torch.Tensor] | None = None,
    connect: Callable[[Opening], Transport] | None = None,
    nic: str = "process",
    detect_ms: float | None = None,
    update: str = AT_STEP,
) -> tuple[nn.Module, NodeOptimizer]:
    """Put the states and parameters of a model on disks in these folders, and return the model with hooks
    and an optimizer for an unchanged loop. Raises LuwuError where the model cannot be cut.

    `layers` are module classes to cut at, besides ModuleLists' members. With `resume` the parameters are
    the folders'. A model on torch's device "meta" gets its first parameters from `values`, by name.
    `connect` makes another transport than that to a node in this process, or, in a worker of a job with an
    optimizer node, to that one, whose the folders and rates are then. `nic` says whether such a transport
    runs in a process of its own or in a thread of this one ("host"), `detect_ms` after how many milliseconds
    without an acknowledgement it sends again; None: as the link's rate asks for.

    With `update` "backward" the node updates a layer as soon as its gradients are there, and not in the
    step, so that its disks work while the workers do. That is for loops with one backward pass between
    `zero_grad()` and `step()`, which change no setting in between and do not clip: others are refused when
    they do so.
    """
    if update not in UPDATES:
        raise LuwuError(f"update {update!r}: accepted are {' and '.join(UPDATES)}")
    units = cut(model, layers)
    named = {name: value for unit in units for name, value in unit.parameters.items()}
    _check(model, named, resume or values is not None)
    dtype = str(next(iter(named.values())).dtype).removeprefix("torch.")
    shape = Model(
        [
            Layer(unit.name, tuple(Tensor(name, tuple(each.shape)) for name, each in unit.parameters.items()))
            for unit in units
        ],
        dtype,
    )
    rule = Rule(optimizer, shape, named)
    seen = Seen(shape, rates, len(folders), update == AT_STEP)
    connect = connect or connector(nic, detect_ms)
    if connect is not None:
        first = values or (lambda name: named[name].detach())
        paths = tuple(os.path.abspath(folder) for folder in folders)
        transport: Transport = connect(Opening(shape, rule, first, resume, paths, rates, update, seen))
    else:
        disks = [Path(folder) for folder in folders]
        if resume:
            store = Store.resume(disks, shape, rule_name(optimizer), rates)
        else:
            fill = first_states(values or (lambda name: named[name].detach()), getattr(torch, dtype))
            store = Store.create(disks, shape, rule_name(optimizer), fill, rates)
        try:
            transport = Local(store, rule, update)
        except BaseException:
            store.close()
            raise
    worker = Worker(units, shape, transport, seen)
    for layer in worker.layers:
        layer.attach()
    handle = NodeOptimizer(optimizer, worker)
    object.__setattr__(model, "zero_grad", handle.zero_grad)
    object.__setattr__(model, "clip_grad_norm_", handle.clip_grad_norm_)
    model.register_state_dict_pre_hook(lambda *_: worker.check_here())  # type: ignore[no-untyped-call]
    return model, handle


def _check(model: nn.Module, named: Mapping[str, nn.Parameter], filled: bool) -> None:
    first = next(iter(named))
    for name, value in named.items():
        if value.dtype not in (torch.bfloat16, torch.float16):
            kind = str(value.dtype).removeprefix("torch.")
            raise LuwuError(f"parameter {name} is in {kind}: model.bfloat16() before the optimizer is made")
        if value.dtype != named[first].dtype:
            raise LuwuError(f"parameter {name} is in another format than {first}: accepted is one for all")
        if value.device.type not in ("cpu", "meta") or (value.is_meta and not filled):
            raise LuwuError(
                f"parameter {name} is on device {value.device}: accepted is cpu, "
                "or meta with `values` or `resume`"
            )
        if _gradient.__get__(value) is not None:
            raise LuwuError(f"parameter {name} has a gradient: initialize before the first backward")
    trained = {id(value) for value in named.values()}
    rest: list[tuple[str, torch.Tensor]] = [*model.named_buffers()]
    rest += [(name, each) for name, each in model.named_parameters() if id(each) not in trained]
    for name, each in rest:
        if each.is_meta:
            raise LuwuError(f"{name} is on device meta and is not trained: it needs its values")


def _bytes(flat: torch.Tensor) -> memoryview:
    """Return the memory of a tensor, by its address: a storage that numpy has seen cannot be resized. The
    tensor must live on.
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
