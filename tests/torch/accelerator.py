"""The CPU as a stand-in for accelerators, for code that asks for GPUs but needs none: torch's own tests of
DDP, and the public examples. Tensors that such code puts on `cuda:N` stay on the CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

COUNT = 8
CPU = torch.device("cpu")


class Placed(TorchFunctionMode):
    """Makes on the CPU tensors that are asked for on an accelerator, and copies there those that are to be
    moved to one.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        words = {name: _placed(value) for name, value in (kwargs or {}).items()}
        if type(words.get("device")) is int:
            words["device"] = CPU
        if func is torch.Tensor.cuda:
            return args[0].clone()
        if func is torch.device and args and (type(args[0]) is int or _is_accelerator(args[0])):
            return CPU
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func is torch.Tensor.to and _names_accelerator(args[1:], kwargs or {}):
            first, *others = args
            if others and type(others[0]) is int:
                others[0] = CPU
            return first.to(*map(_placed, others), **{**words, "copy": True})
        return func(*map(_placed, args), **words)


def _is_accelerator(value: object) -> bool:
    if isinstance(value, str):
        return value.startswith(("cuda", "cpu:"))
    return isinstance(value, torch.device) and value.type != "meta" and str(value) != "cpu"


def _placed(value: Any) -> Any:
    return CPU if _is_accelerator(value) else value


def _names_accelerator(arguments: Any, words: Any) -> bool:
    values = (*arguments[:1], *words.values())
    return any(type(value) is int or _placed(value) is not value for value in values)


def _without_devices(make: Callable[..., None]) -> Callable[..., None]:
    """Wrap DDP's constructor so that DDP takes its devices from its module's parameters, as on a CPU."""

    @functools.wraps(make)
    def made(self: Any, module: Any, _ids: Any = None, _output: Any = None, *rest: Any, **words: Any) -> None:
        words = {name: value for name, value in words.items() if name not in ("device_ids", "output_device")}
        make(self, module, None, None, *rest, **words)

    return made


def _to_cpu(move: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Module.to` so that a module that is to be moved to an accelerator, even by number alone,
    stays.
    """

    @functools.wraps(move)
    def moved(self: Any, *arguments: Any, **words: Any) -> Any:
        if arguments and type(arguments[0]) is int:
            arguments = (CPU, *arguments[1:])
        return move(self, *map(_placed, arguments), **{name: _placed(word) for name, word in words.items()})

    return moved


def _zeroed(make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Module.to_empty` so that memory is zeroed, as a GPU's fresh memory is: the FSDP2 example trains
    layers that it does not initialise.
    """

    @functools.wraps(make)
    def made(self: Any, *arguments: Any, **words: Any) -> Any:
        module = make(self, *arguments, **words)
        with torch.no_grad():
            for each in (*module.parameters(), *module.buffers()):
                each.zero_()
        return module

    return made


# each a function of its own, since torch's compiler has a rule for each
_CUDA = {
    "device_count": lambda: COUNT,
    "current_device": lambda: 0,
    "set_device": lambda *_, **__: None,
    "synchronize": lambda *_, **__: None,
    "manual_seed": lambda *_, **__: None,
    "device": lambda *_: nullcontext(),
}
_ACCELERATOR = {
    "is_available": lambda: True,
    "device_count": lambda: COUNT,
    "current_accelerator": lambda *_, **__: CPU,
    "set_device_index": lambda *_, **__: None,
    "device_index": lambda *_: nullcontext(),
}


@contextmanager
def in_place(by_any_name: bool = False) -> Iterator[None]:
    """Stand in for `COUNT` GPUs during the block; with `by_any_name`, also for torch.accelerator, whose other
    users then find GPUs too.
    """
    make = _without_devices(DistributedDataParallel.__init__)
    with ExitStack() as stack:
        for name, function in _CUDA.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, function))
        for name, function in _ACCELERATOR.items() if by_any_name else ():
            stack.enter_context(mock.patch.object(torch.accelerator, name, function))
        stack.enter_context(mock.patch.object(torch.nn.Module, "to", _to_cpu(torch.nn.Module.to)))
        empty = _zeroed(torch.nn.Module.to_empty)
        stack.enter_context(mock.patch.object(torch.nn.Module, "to_empty", empty))
        stack.enter_context(mock.patch.object(DistributedDataParallel, "__init__", make))
        stack.enter_context(Placed())
        yield


def stand_in(tests: Any) -> None:
    """Make the decorators of torch.testing._internal.common_distributed that skip tests without GPUs skip
    none. Call it before the module of the tests is imported.
    """

    def all_there(test: Any) -> Any:
        return test

    tests.skip_if_no_gpu = all_there
    tests.skip_if_lt_x_gpu = lambda *_, **__: all_there
