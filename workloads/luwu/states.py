"""The states of a model and its optimizer between torch's `state_dict`s and an optimizer node.

Imports torch, and of the project errors alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from workloads.luwu.errors import LuwuError

Dicts = tuple[Mapping[str, Any], Mapping[str, Any]]
"""`state_dict()`s as plain torch has them: the model's, and that of its Adam or AdamW."""
Moments = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class First:
    """The values that a store begins with, by the tensors' names, and the iteration that they are of. Without
    `moments` these are zeros.
    """

    value: Callable[[str], torch.Tensor]
    moments: Callable[[str], Moments] | None = None
    iteration: int = 0


def imported(
    dicts: Dicts, model: nn.Module, optimizer: torch.optim.Optimizer, named: Mapping[str, nn.Parameter]
) -> First:
    """Return a store's first values from torch's `state_dict`s, and give the model its buffers and frozen
    parameters and the optimizer's groups their settings. `named` are the parameters that are trained. Raises
    LuwuError, with nothing changed, where the dicts are of another model or optimizer.
    """
    weights, states = dicts
    rest = _rest(weights, model, named)
    groups = _settings(states, optimizer)
    numbers = {id(each): number for number, each in enumerate(_parameters(optimizer))}
    kept = {
        name: states["state"][numbers[id(each)]]
        for name, each in named.items()
        if numbers.get(id(each)) in states["state"]
    }
    iteration = _iteration(kept, named)
    with torch.no_grad():
        for name, value in rest.items():
            value.copy_(weights[name])
    for group, settings in zip(optimizer.param_groups, groups, strict=True):
        group.update(settings)
    if not kept:
        return First(weights.__getitem__)
    return First(
        weights.__getitem__, lambda name: (kept[name]["exp_avg"], kept[name]["exp_avg_sq"]), iteration
    )


def exported(
    model: Mapping[str, Any],
    optimizer: torch.optim.Optimizer,
    parts: Mapping[int, Sequence[torch.Tensor]],
    iteration: int,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the dicts that `imported` takes. `model` has the parameters themselves (`keep_vars`), `parts`
    the master weights and both moments of those that are trained, by id.
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
    """Return them in the order in which torch numbers them."""
    return [each for group in optimizer.param_groups for each in group["params"]]


def _rest(
    weights: Mapping[str, Any], model: nn.Module, named: Mapping[str, nn.Parameter]
) -> dict[str, torch.Tensor]:
    """Return the model's own tensors that are not trained, by name. Raises LuwuError."""
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
    """Return the groups' settings. Raises LuwuError where the groups are others."""
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


def _iteration(kept: Mapping[str, Mapping[str, Any]], named: Mapping[str, nn.Parameter]) -> int:
    """Return the step that all states are of. Raises LuwuError where they are not all of one."""
    if not kept:
        return 0
    first = next(iter(kept))
    for name in named:
        if name not in kept:
            raise LuwuError(
                f"import of states: tensor {name} has none, {first} has: accepted are all or none"
            )
        if "max_exp_avg_sq" in kept[name]:
            raise LuwuError(f"import of states: tensor {name} has amsgrad's: accepted is amsgrad=False")
        for moment in ("exp_avg", "exp_avg_sq"):
            if kept[name][moment].shape != named[name].shape:
                raise LuwuError(f"import of states: {moment} of tensor {name} has another shape than that")
        if float(kept[name]["step"]) != float(kept[first]["step"]):
            steps = f"{float(kept[name]['step']):g}, {first} of {float(kept[first]['step']):g}"
            raise LuwuError(f"import of states: tensor {name} is of step {steps}: accepted is one for all")
    return int(kept[first]["step"])
