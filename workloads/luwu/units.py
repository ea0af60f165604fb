"""Cut a model's module tree into layers. Imports torch and, from the project, errors."""

from __future__ import annotations

from torch import nn

from workloads.luwu.errors import LuwuError

WHOLE = (nn.MultiheadAttention, nn.RNNBase)  # these use their children's parameters without calling them


class Unit:
    """A layer: its parameters, and the modules whose calls need them."""

    def __init__(self, name: str, whole: bool) -> None:
        self.name = name
        self.whole = whole
        self.modules: list[nn.Module] = []
        self.parameters: dict[str, nn.Parameter] = {}


def cut(model: nn.Module, kinds: tuple[type[nn.Module], ...] = ()) -> list[Unit]:
    """Cut a model into layers, in the order of its parameters, and return them.

    A layer is each member of a ModuleList, each module of `kinds` (or of WHOLE), and, of the rest, each
    module that has parameters of its own. Modules of the rest that share weights are one layer. Raises
    LuwuError if other layers share weights, or if no parameter is trained.
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
