"""A model as the disks see it: tensors in layers, where each lies in its layer's buffers, and which part of a
layer is whose disk's.

Pure: imports nothing of the project but its errors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from workloads.luwu.errors import LuwuError

PAGE = 4096  # bytes: what direct I/O is aligned to
PARAMETER_BYTES = 2  # bfloat16
DTYPES = ("bfloat16", "float16")  # of parameters; each has PARAMETER_BYTES
STATE_BYTES = 12  # master weight, first and second moment, in binary32
GRADIENT_BYTES = 4
_TENSOR_ELEMENTS = 64  # a tensor begins at a multiple: a cache line in either format
_LAYER_ELEMENTS = PAGE // PARAMETER_BYTES


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Layer:
    """The tensors that are pulled, pushed and updated at once. `starts` are their first elements; `elements`
    is the number with padding, in whole pages of either format; `used` without the padding at the end.
    """

    name: str
    tensors: tuple[Tensor, ...]
    starts: tuple[int, ...] = field(init=False)
    elements: int = field(init=False)
    used: int = field(init=False)

    def __post_init__(self) -> None:
        starts, end = [], 0
        for tensor in self.tensors:
            starts.append(end)
            end = _up(end + tensor.numel, _TENSOR_ELEMENTS)
        object.__setattr__(self, "starts", tuple(starts))
        object.__setattr__(self, "used", end)
        object.__setattr__(self, "elements", _up(end, _LAYER_ELEMENTS))

    @property
    def parameters_bytes(self) -> int:
        return self.elements * PARAMETER_BYTES

    @property
    def states_bytes(self) -> int:
        return self.elements * STATE_BYTES

    @property
    def gradients_bytes(self) -> int:
        return self.elements * GRADIENT_BYTES


Description = tuple[tuple[str, tuple[tuple[str, tuple[int, ...]], ...]], ...]
"""Layers by name, each with its tensors' names and shapes; JSON has lists for tuples."""


@dataclass(frozen=True, slots=True)
class Stripe:
    """The part [start, end) of a layer's buffer that lies at `offset` of a disk's file."""

    disk: int
    start: int
    end: int
    offset: int


class Model:
    """Layers in the order of the forward pass, and torch's name of the parameters' format. Raises LuwuError
    for a layer without tensors, a name that is there twice, and another format.
    """

    def __init__(self, layers: Sequence[Layer], dtype: str = "bfloat16") -> None:
        self.layers = tuple(layers)
        self.dtype = dtype
        if dtype not in DTYPES:
            raise LuwuError(f"parameters in {dtype}: accepted are {', '.join(DTYPES)}")
        names = [tensor.name for layer in self.layers for tensor in layer.tensors]
        for layer in self.layers:
            for tensor in layer.tensors:
                if tensor.numel == 0:
                    raise LuwuError(f"tensor {tensor.name}: shape {tensor.shape} has no elements")
        if not names or not all(layer.tensors for layer in self.layers):
            raise LuwuError("a model needs at least one layer, and a layer at least one tensor")
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise LuwuError(f"tensor {twice} is in the model twice: shared weights belong to one layer")

    @property
    def numel(self) -> int:
        return sum(tensor.numel for layer in self.layers for tensor in layer.tensors)

    def description(self) -> Description:
        """Return the names of the layers, and those of their tensors with the shapes."""
        return tuple(
            (layer.name, tuple((tensor.name, tensor.shape) for tensor in layer.tensors))
            for layer in self.layers
        )

    def stripes(self, layer: int, element_bytes: int, disks: int) -> list[Stripe]:
        """A layer's buffer over the disks. Every disk has room for an equal stripe of each layer; the last
        ones of a small layer may be empty, and are left out.
        """
        pages = self.layers[layer].elements * element_bytes // PAGE
        height = -(-pages // disks)
        offset = sum(-(-(each.elements * element_bytes // PAGE) // disks) for each in self.layers[:layer])
        return [
            Stripe(disk, start * PAGE, min(start + height, pages) * PAGE, offset * PAGE)
            for disk, start in enumerate(range(0, pages, height))
        ]

    def file_bytes(self, element_bytes: int, disks: int) -> int:
        """Return the length of a disk's file."""
        return PAGE * sum(-(-(each.elements * element_bytes // PAGE) // disks) for each in self.layers)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
