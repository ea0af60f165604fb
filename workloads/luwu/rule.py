"""Update a layer by torch's own fused Adam or AdamW, with the settings of the user's optimizer.

Imports torch and, from the project, the layout and errors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from workloads.luwu.errors import NotFiniteError, RuleError
from workloads.luwu.layout import Layer, Model

RULES: dict[str, type[torch.optim.Adam]] = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}
SETTINGS = ("lr", "betas", "eps", "weight_decay", "maximize")  # of a group, used in the update of its tensors
UNKEPT = ("amsgrad", "capturable", "differentiable")
_MOST_STEPS = 1 << 24  # torch counts steps in binary32, which cannot count further

Views = Sequence[torch.Tensor]
Fill = Callable[[Layer, memoryview, memoryview], None]  # `store.Fill`


def placeholders(model: Model) -> dict[str, torch.nn.Parameter]:
    """Make an empty parameter for each tensor, by name, to build an optimizer and its groups from."""
    return {
        tensor.name: torch.nn.Parameter(torch.empty(0)) for layer in model.layers for tensor in layer.tensors
    }


def views(layer: Layer, buffer: memoryview, dtype: torch.dtype, part: int = 0) -> list[torch.Tensor]:
    """Return the tensors of a layer as views of a buffer of that format. Of states, `part` 0 is the master
    weights, 1 and 2 are the moments.
    """
    flat = torch.frombuffer(buffer, dtype=dtype)
    return [
        flat[part * layer.elements + start :][: tensor.numel].view(tensor.shape)
        for start, tensor in zip(layer.starts, layer.tensors, strict=True)
    ]


def check_finite(what: str, layer: Layer, values: Views) -> None:
    """Raise NotFiniteError, naming the tensor, if a tensor of a layer has NaN or an infinity."""
    for tensor, value in zip(layer.tensors, values, strict=True):
        if not all(math.isfinite(end) for end in torch.aminmax(value)):  # NaN if any element is; no copy
            raise NotFiniteError(f"{what} of tensor {tensor.name} have NaN or infinity")


def first_states(
    value: Callable[[str], torch.Tensor],
    dtype: torch.dtype,
    moments: Callable[[str], tuple[torch.Tensor, torch.Tensor]] | None = None,
) -> Fill:
    """Return a function that fills a new store: master weights from `value`, parameters rounded from them,
    and moments from `moments` or zero.
    """

    def fill(layer: Layer, parameters: memoryview, states: memoryview) -> None:
        rows = zip(
            layer.tensors, views(layer, parameters, dtype), views(layer, states, torch.float32), strict=True
        )
        for tensor, parameter, master in rows:
            given = value(tensor.name)
            if tuple(given.shape) != tensor.shape:
                raise RuleError(
                    f"tensor {tensor.name}: has shape {tuple(given.shape)}, the model's is {tensor.shape}"
                )
            master.copy_(given)
            parameter.copy_(master)
        check_finite("first values", layer, views(layer, parameters, dtype))
        if moments is not None:
            firsts, seconds = (views(layer, states, torch.float32, part) for part in (1, 2))
            for tensor, first, second in zip(layer.tensors, firsts, seconds, strict=True):
                for own, given in zip((first, second), moments(tensor.name), strict=True):
                    own.copy_(given)
            check_finite("first moments", layer, firsts)
            check_finite("first moments", layer, seconds)

    return fill


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """The `state_dict()`s of a torch optimizer and its scheduler, and the scheduler's class."""

    optimizer: dict[str, Any]
    schedule: str
    scheduler: dict[str, Any] | None


class Rule:
    """A user's optimizer, built over placeholders and applied to one layer at a time.

    Its groups are read at each update, so that torch's schedulers change them as usual. Raises RuleError for
    an optimizer, scheduler or setting that is not supported.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: Model,
        parameters: Mapping[str, torch.nn.Parameter],
        scheduler: LRScheduler | None = None,
    ) -> None:
        self.name = rule_name(optimizer)
        self.optimizer = optimizer
        self.scheduler = scheduler
        if isinstance(scheduler, ReduceLROnPlateau):
            raise RuleError(
                "ReduceLROnPlateau needs the loss, which only workers know: take another schedule"
            )
        groups = {
            id(parameter): number
            for number, group in enumerate(optimizer.param_groups)
            for parameter in group["params"]
        }
        self._groups: dict[str, int] = {}
        for layer in model.layers:
            for tensor in layer.tensors:
                if id(parameters[tensor.name]) not in groups:
                    raise RuleError(f"tensor {tensor.name} is in no group of the optimizer: all are trained")
                self._groups[tensor.name] = groups[id(parameters[tensor.name])]
        for group in optimizer.param_groups:
            for setting in UNKEPT:
                if group.get(setting):
                    raise RuleError(f"{self.name} with {setting}=True: accepted is False")
        if self.name == "Adam" and any(g.get("decoupled_weight_decay") for g in optimizer.param_groups):
            raise RuleError("Adam with decoupled_weight_decay=True: take AdamW")

    def update(
        self,
        layer: Layer,
        iteration: int,
        parameters: Views,
        masters: Views,
        firsts: Views,
        seconds: Views,
        gradients: Views,
    ) -> None:
        """Carry out the step of number `iteration`, from 1, in place; parameters are rounded from the master
        weights.

        Raises NotFiniteError. If gradients are not finite, nothing has changed then. If the results are not
        finite, the buffers have changed, and must not be written.
        """
        check_finite("gradients", layer, gradients)
        self._step(layer, iteration, masters, firsts, seconds, gradients)
        for parameter, master in zip(parameters, masters, strict=True):
            parameter.copy_(master)
        # a master weight that is not finite is not finite as a parameter, either
        for what, values in (("parameters", parameters), ("moments", firsts), ("moments", seconds)):
            check_finite(f"updated {what}", layer, values)

    def _step(
        self, layer: Layer, iteration: int, masters: Views, firsts: Views, seconds: Views, gradients: Views
    ) -> None:
        by_group: dict[int, list[int]] = {}
        for index, tensor in enumerate(layer.tensors):
            by_group.setdefault(self._groups[tensor.name], []).append(index)
        steps = float(min(iteration - 1, _MOST_STEPS))
        for number, indices in by_group.items():
            group = self.optimizer.param_groups[number]
            parameters = [torch.nn.Parameter(masters[index]) for index in indices]
            step = RULES[self.name](parameters, fused=True, **{name: group[name] for name in SETTINGS})
            for index, parameter in zip(indices, parameters, strict=True):
                parameter.grad = gradients[index]
                step.state[parameter] = {
                    "step": torch.tensor(steps),
                    "exp_avg": firsts[index],
                    "exp_avg_sq": seconds[index],
                }
            step.step()

    def names(self) -> tuple[tuple[str, ...], ...]:
        """Return the names of each group's tensors."""
        return tuple(
            tuple(name for name, own in self._groups.items() if own == number)
            for number in range(len(self.optimizer.param_groups))
        )

    def groups(self) -> str:
        """Return the groups' settings as JSON, with all of torch's own names."""
        return json.dumps(
            [
                {name: _plain(value) for name, value in group.items() if name != "params"}
                for group in self.optimizer.param_groups
            ]
        )

    def set_groups(self, groups: str) -> None:
        """Set the settings that `groups` returned. Raises RuleError for another number of groups."""
        ours, theirs = self.optimizer.param_groups, json.loads(groups)
        if len(theirs) != len(ours):
            raise RuleError(f"the states' optimizer has {len(theirs)} groups, this one has {len(ours)}")
        for group, settings in zip(ours, theirs, strict=True):
            group.update({name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()})

    def advance(self) -> None:
        """Advance the schedule at the end of an iteration, after a step of the optimizer that changes
        nothing.
        """
        self.optimizer.step()  # placeholders have no gradients; schedulers expect the call
        if self.scheduler is not None:
            self.scheduler.step()

    def settings(self) -> RuleSettings:
        """Return the optimizer's and the scheduler's state, for `restore`."""
        scheduler = self.scheduler
        return RuleSettings(
            optimizer=self.optimizer.state_dict(),
            schedule=type(scheduler).__name__,
            scheduler=None if scheduler is None else scheduler.state_dict(),
        )

    def restore(self, settings: RuleSettings) -> None:
        """Restore what `settings` returned. Raises RuleError for another schedule or other groups."""
        if settings.schedule != type(self.scheduler).__name__:
            theirs, ours = (
                name.replace("NoneType", "none")
                for name in (settings.schedule, type(self.scheduler).__name__)
            )
            raise RuleError(f"the states were trained with schedule {theirs}, this one is {ours}")
        try:
            self.optimizer.load_state_dict(settings.optimizer)
        except ValueError as problem:
            raise RuleError(f"the states' optimizer has other groups: {problem}") from problem
        if self.scheduler is not None and settings.scheduler is not None:
            self.scheduler.load_state_dict(settings.scheduler)


def _plain(value: object) -> object:
    return value.item() if isinstance(value, torch.Tensor) else value


def unscale(gradients: Views, factor: float) -> None:
    """Multiply gradients in place by the inverse of a scale, as torch's GradScaler does."""
    if factor != 1.0:
        for gradient in gradients:
            gradient.mul_(factor)


def rule_name(optimizer: torch.optim.Optimizer) -> str:
    """Return the optimizer's name in RULES. Raises RuleError for one that is not in it."""
    for name, kind in RULES.items():
        if type(optimizer) is kind:
            return name
    raise RuleError(f"optimizer {type(optimizer).__name__}: accepted are {', '.join(RULES)}")


class Norm:
    """The global norm of gradients that are added a layer at a time, equal to the norm that
    `torch.nn.utils.clip_grad_norm_` computes of all at once.
    """

    def __init__(self, most: float) -> None:
        if not most > 0:
            raise RuleError(f"clipping norm {most}: accepted is a number above 0")
        self.most = most
        self._norms: dict[int, list[torch.Tensor]] = {}

    def see(self, layer: int, gradients: Views) -> None:
        self._norms[layer] = [torch.linalg.vector_norm(gradient, 2.0) for gradient in gradients]

    def total(self) -> torch.Tensor:
        """Return the norm over all layers, in the order of the forward pass."""
        norms = [norm for layer in sorted(self._norms) for norm in self._norms[layer]]
        total: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms), 2.0)
        return total

    def clip(self, gradients: Views, total: torch.Tensor) -> None:
        """Scale a layer's gradients in place, given the total norm."""
        parameters = [torch.nn.Parameter(gradient, requires_grad=False) for gradient in gradients]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        torch.nn.utils.clip_grads_with_norm_(parameters, self.most, total)
