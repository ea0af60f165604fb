"""Train a model whose parameters and states lie on an optimizer node: `model, optimizer = initialize(...)`.

Imports torch and, from the project, the layers on a worker, the transport and the node's parts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from workloads.luwu.errors import LuwuError
from workloads.luwu.held_layers import Held, Worker, gradient_of
from workloads.luwu.job import connector
from workloads.luwu.layout import Layer, Model, Tensor
from workloads.luwu.rates import Rates
from workloads.luwu.rule import Rule, first_states, rule_name
from workloads.luwu.seen import Seen
from workloads.luwu.states import Dicts, First, exported, imported
from workloads.luwu.store import Store
from workloads.luwu.transport import AT_STEP, UPDATES, Local, Transport, say
from workloads.luwu.units import cut
from workloads.luwu.worker import Opening


class NodeOptimizer(torch.optim.Optimizer):
    """The optimizer that a training loop uses in place of the user's, with the same groups."""

    def __init__(self, optimizer: torch.optim.Optimizer, worker: Worker, model: nn.Module) -> None:
        self._worker, self._model = worker, model
        self._whole = False
        self._clip_norm: float | None = None
        self._factor = 1.0  # multiplies gradients before they are clipped and used
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._whole = True

    @property
    def iteration(self) -> int:
        """Return the number of steps that are complete on the disks."""
        return self._worker.transport.iteration

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update by the gradients since zero_grad, and wait until the result is on the disks; without
        gradients, do nothing.

        Raises LuwuError, with nothing committed, where gradients or results have NaN or an infinity.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._worker.step(self._clip_norm, self._factor)
        self._clip_norm, self._factor = None, 1.0
        return loss

    def skip(self) -> None:
        """End the iteration without a step: nothing is updated."""
        self._worker.skip()
        self._clip_norm, self._factor = None, 1.0

    def unscale_(self, scale: float) -> str | None:
        """Let the norm and the next step divide gradients by this number. Return whose gradients have NaN or
        an infinity, None if all are finite.
        """
        refusal = self._worker.not_finite()
        self._factor = float(torch.tensor(scale, dtype=torch.float64).reciprocal().float())
        return refusal

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._worker.clear()
        self._clip_norm, self._factor = None, 1.0

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Let the next step clip gradients to this norm. Return their present norm."""
        if not max_norm > 0:
            raise LuwuError(f"clipping norm {max_norm}: accepted is a number above 0")
        norm = self._worker.norm(self._factor)
        self._clip_norm = float(max_norm)
        return norm

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if self._whole:
            raise LuwuError("groups are those of the optimizer that initialize() was given")
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        raise LuwuError(
            "states lie on the node's disks, whole after each step: initialize(..., resume=True), or export()"
        )

    def load_state_dict(self, state_dict: object) -> None:
        raise LuwuError("states are read by initialize(..., resume=True), or states= with torch's")

    def export(self) -> Dicts:
        """Return the model's and the optimizer's `state_dict()` of the last complete iteration, as plain
        torch has them.

        Master weights and moments are in binary32; buffers and frozen parameters are this worker's. The dicts
        need 12 bytes for each parameter, and during the call the memory of one layer's states in addition. In
        a job all workers must call this together; the first one gets the dicts, the others two empty ones.
        """
        parts = {
            id(parameter): own
            for layer in range(len(self._worker.layers))
            for parameter, own in self._worker.states(layer)
        }
        if not parts:
            return {}, {}
        with self._worker.absent():
            weights = self._model.state_dict(keep_vars=True)
        return exported(weights, self, parts, self.iteration)

    @property
    def waited_s(self) -> float:
        """Return how many seconds this process has waited for parameters, for room for gradients, and for
        steps.
        """
        return self._worker.waited_ns / 1e9

    def record(self, file: Path | str) -> int:
        """Let the node write its spans as JSON, which `workloads.luwu.gantt` draws, and return their number.

        The spans say when each step and each request of the node's disks began and ended. All workers must
        call this together.
        """
        return self._worker.done(self._worker.transport.record(Path(os.path.abspath(file))))

    def close(self) -> None:
        """Close the transport to the node. The parameters are then only on the disks."""
        self._worker.transport.close()

    @contextlib.contextmanager
    def gathered(self) -> Iterator[None]:
        """Hold all parameters here inside the block, to read them: for a state_dict that is saved."""
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
    states: Dicts | None = None,
    connect: Callable[[Opening], Transport] | None = None,
    nic: str = "process",
    detect_ms: float | None = None,
    update: str = AT_STEP,
) -> tuple[nn.Module, NodeOptimizer]:
    """Put a model's states and parameters on disks in these folders. Return the model, with hooks, and an
    optimizer for an unchanged training loop. Raises LuwuError where the model cannot be cut into layers, or
    an argument is not accepted.

    `layers` are module classes to cut at, in addition to the members of ModuleLists. With `resume` the
    parameters are read from the folders. A model on torch's device "meta" gets its first parameters from
    `values`, by name. `states` are the model's and the optimizer's `state_dict()` of plain torch, or what
    `export` returned: training continues from these, at their step.

    `connect` makes another transport than the default. The default is a node in this process or, in a worker
    of a job with an optimizer node, that node, to which the folders and rates then apply. `nic` says whether
    such a transport runs in a process of its own ("process") or in a thread of this one ("host"). `detect_ms`
    is the time in milliseconds without an acknowledgement after which it sends again; None: chosen by the
    link's rate.

    With `update` "backward" the node updates a layer as soon as its gradients arrive, not in the step, so
    that its disks work while the workers do. This is for loops with one backward pass between `zero_grad()`
    and `step()`, which change no setting in between and do not clip; a loop that does otherwise gets an
    error.
    """
    if update not in UPDATES:
        raise LuwuError(f"update {update!r}: accepted are {' and '.join(UPDATES)}")
    units = cut(model, layers)
    named = {name: value for unit in units for name, value in unit.parameters.items()}
    _check(model, named, resume or values is not None or states is not None)
    if sum((resume, values is not None, states is not None)) > 1:
        raise LuwuError("resume, values and states each say where parameters come from: accepted is one")
    dtype = str(next(iter(named.values())).dtype).removeprefix("torch.")
    shape = Model(
        [
            Layer(unit.name, tuple(Tensor(name, tuple(each.shape)) for name, each in unit.parameters.items()))
            for unit in units
        ],
        dtype,
    )
    first = First(values or (lambda name: named[name].detach()))
    if states is not None:
        first = imported(states, model, optimizer, named)
    rule = Rule(optimizer, shape, named)
    seen = Seen(shape, rates, len(folders), update == AT_STEP)
    connect = connect or connector(nic, detect_ms)
    if connect is not None:
        paths = tuple(os.path.abspath(folder) for folder in folders)
        start, moments = first.iteration, first.moments
        transport: Transport = connect(
            Opening(shape, rule, first.value, resume, paths, rates, update, seen, moments, start)
        )
    else:
        disks = [Path(folder) for folder in folders]
        if resume:
            store = Store.resume(disks, shape, rule_name(optimizer), rates)
            say(store.notice)
        else:
            fill = first_states(first.value, getattr(torch, dtype), first.moments)
            store = Store.create(disks, shape, rule_name(optimizer), fill, rates, first.iteration)
        try:
            transport = Local(store, rule, update)
        except BaseException:
            store.close()
            raise
    worker = Worker(units, shape, transport, seen)
    for layer in worker.layers:
        layer.attach()
    handle = NodeOptimizer(optimizer, worker, model)
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
        if gradient_of.__get__(value) is not None:
            raise LuwuError(f"parameter {name} has a gradient: initialize before the first backward")
    trained = {id(value) for value in named.values()}
    rest: list[tuple[str, torch.Tensor]] = [*model.named_buffers()]
    rest += [(name, each) for name, each in model.named_parameters() if id(each) not in trained]
    for name, each in rest:
        if each.is_meta:
            raise LuwuError(f"{name} is on device meta and is not trained: it needs its values")
