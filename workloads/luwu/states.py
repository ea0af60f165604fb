"""Convert the states of a model and its optimizer between torch's `state_dict`s and an optimizer node.

Imports torch and, from the project, only errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from workloads.luwu.errors import LuwuError

Dicts = tuple[dict[str, torch.Tensor], dict[str, Any]]
"""The `state_dict()` of a model and that of its Adam or AdamW, as plain torch has them."""
Moments = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class First:
    """The first values of a store, by tensor name, and the iteration that they belong to. Without `moments`,
    the moments are zero.
    """

    value: Callable[[str], torch.Tensor]
    moments: Callable[[str], Moments] | None = None
    iteration: int = 0


def imported(
    dicts: Dicts, model: nn.Module, optimizer: torch.optim.Optimizer, named: Mapping[str, nn.Parameter]
) -> First:
    """Return a store's first values from torch's `state_dict`s. Set the model's buffers and frozen
    parameters, and the settings of the optimizer's groups.

    `named` are the trained parameters. Raises LuwuError, before any change, where the dicts belong to another
    model or optimizer.
    """
    weights, states = dicts
    rest = _rest(weights, model, named)
    groups = _settings(states, optimizer)
    numbers = {id(each): number for number, each in enumerate(_parameters(optimizer))}
    moments: dict[str, Mapping[str, torch.Tensor]] = {
        name: states["state"][numbers[id(each)]]
        for name, each in named.items()
        if numbers.get(id(each)) in states["state"]
    }
    iteration = _iteration(moments, named)
    with torch.no_grad():
        for name, value in rest.items():
            value.copy_(weights[name])
    for group, settings in zip(optimizer.param_groups, groups, strict=True):
        group.update(settings)
    if not moments:
        return First(weights.__getitem__)
    return First(
        weights.__getitem__, lambda name: (moments[name]["exp_avg"], moments[name]["exp_avg_sq"]), iteration
    )


def exported(
    model: Mapping[str, Any],
    optimizer: torch.optim.Optimizer,
    parts: Mapping[int, Sequence[torch.Tensor]],
    iteration: int,
) -> Dicts:
    """Return the `state_dict`s that `imported` accepts.

    `model` has the parameters themselves (`keep_vars`); `parts` has the master weights and both moments of
    the trained ones, by id.
    """
    weights = {
        name: parts[id(value)][0]
        if id(value) in parts
        else value.detach()
        if isinstance(value, torch.Tensor)
        else value
        for name, value in model.items()
    }
    packed = torch.optim.Optimizer.state_dict(optimizer)
    if iteration > 0:  # before its first step, an optimizer has no states
        packed["state"] = {
            number: {
                "step": torch.tensor(float(iteration)),
                "exp_avg": parts[id(each)][1],
                "exp_avg_sq": parts[id(each)][2],
            }
            for number, each in enumerate(_parameters(optimizer))
            if id(each) in parts
        }
    return weights, packed


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Return an optimizer's parameters in the order in which torch numbers them."""
    return [each for group in optimizer.param_groups for each in group["params"]]


def _rest(
    weights: Mapping[str, torch.Tensor], model: nn.Module, named: Mapping[str, nn.Parameter]
) -> dict[str, torch.Tensor]:
    """Return the model's tensors that are not trained, by name. Raises LuwuError where the dict's names or
    shapes differ from the model's.
    """
    trained = {id(each) for each in named.values()}
    own = model.state_dict(keep_vars=True)
    for name in (*own, *weights):
        if name not in own or name not in weights:
            place = "the model" if name in weights else "the states"
            raise LuwuError(f"import of states: {name} is not in {place}")
        if not isinstance(own[name], torch.Tensor):
            raise LuwuError(f"import of states: {name} is no tensor; accepted are tensors alone")
        if own[name].shape != weights[name].shape:
            shapes = f"{tuple(weights[name].shape)}, the model's is {tuple(own[name].shape)}"
            raise LuwuError(f"import of states: tensor {name} has shape {shapes}")
    return {name: value for name, value in own.items() if id(value) not in trained}


def _settings(states: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the saved groups' settings. Raises LuwuError where the groups differ in size, or one is Adam's
    and the other AdamW's.
    """
    theirs, ours = states["param_groups"], optimizer.param_groups
    sizes = [[len(group["params"]) for group in groups] for groups in (theirs, ours)]
    if sizes[0] != sizes[1]:
        raise LuwuError(f"import of states: groups of {sizes[0]} parameters, the optimizer's have {sizes[1]}")
    decoupled = "decoupled_weight_decay"  # torch's mark of AdamW
    for saved, own in zip(theirs, ours, strict=True):
        if saved.get(decoupled, own.get(decoupled)) != own.get(decoupled):
            raise LuwuError(
                f"import of states: {decoupled} is {saved[decoupled]}, the optimizer's is {own[decoupled]}: "
                "Adam's states are not AdamW's"
            )
    return [{name: value for name, value in group.items() if name != "params"} for group in theirs]


def _iteration(moments: Mapping[str, Mapping[str, torch.Tensor]], named: Mapping[str, nn.Parameter]) -> int:
    """Return the step of all states, 0 if there are none. Raises LuwuError where only some tensors have
    states, their steps or shapes differ, or amsgrad was used.
    """
    if not moments:
        return 0
    first = next(iter(moments))
    for name in named:
        if name not in moments:
            raise LuwuError(
                f"import of states: tensor {name} has none, {first} has: accepted are all or none"
            )
        if "max_exp_avg_sq" in moments[name]:
            raise LuwuError(f"import of states: tensor {name} has amsgrad's: accepted is amsgrad=False")
        for moment in ("exp_avg", "exp_avg_sq"):
            if moments[name][moment].shape != named[name].shape:
                raise LuwuError(f"import of states: {moment} of tensor {name} has another shape than that")
        if float(moments[name]["step"]) != float(moments[first]["step"]):
            steps = f"{float(moments[name]['step']):g}, {first} of {float(moments[first]['step']):g}"
            raise LuwuError(f"import of states: tensor {name} is of step {steps}: accepted is one for all")
    return int(moments[first]["step"])
