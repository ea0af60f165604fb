"""The layers of a model, as its module tree has them. Imports torch, and of the project errors."""

from __future__ import annotations

from torch import nn

from workloads.luwu.errors import LuwuError

WHOLE = (nn.MultiheadAttention, nn.RNNBase)  # these use their children's parameters without calling them


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
