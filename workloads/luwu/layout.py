"""Lay a model out on disks: tensors in layers, the position of each tensor in its layer's buffers, and the
part of each layer that each disk stores.

Pure: imports nothing of the project but its errors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from workloads.luwu.errors import LuwuError

PAGE = 4096  # bytes: the alignment of direct I/O
PARAMETER_BYTES = 2  # bfloat16
DTYPES = ("bfloat16", "float16")  # formats of parameters; each has PARAMETER_BYTES
STATE_BYTES = 12  # master weight, first and second moment, in binary32
GRADIENT_BYTES = 4
_TENSOR_ELEMENTS = 64  # a tensor begins at a multiple: whole cache lines in either format
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
    """Tensors that are pulled, pushed and updated together.

    `starts` are the tensors' first elements in the layer's buffer. `elements` is the length of the buffer
    with padding, in whole pages of either format; `used` is the length without the padding at its end.
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
    """The part [start, end) in bytes of a layer's buffer, stored at `offset` in a disk's file."""

    disk: int
    start: int
    end: int
    offset: int


class Model:
    """Layers in the order of the forward pass, and torch's name of the parameters' format.

    Raises LuwuError for a layer or model without tensors, a tensor without elements, a name that occurs
    twice, and a format that is not in DTYPES.
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
        """Return the layers' names, with their tensors' names and shapes."""
        return tuple(
            (layer.name, tuple((tensor.name, tensor.shape) for tensor in layer.tensors))
            for layer in self.layers
        )

    def stripes(self, layer: int, element_bytes: int, disks: int) -> list[Stripe]:
        """Divide a layer's buffer over the disks.

        Every disk has room for an equal stripe of each layer. A small layer may not reach the last disks;
        these have no stripe of it.
        """
        pages = self.layers[layer].elements * element_bytes // PAGE
        height = -(-pages // disks)
        offset = sum(-(-(each.elements * element_bytes // PAGE) // disks) for each in self.layers[:layer])
        return [
            Stripe(disk, start * PAGE, min(start + height, pages) * PAGE, offset * PAGE)
            for disk, start in enumerate(range(0, pages, height))
        ]

    def file_bytes(self, element_bytes: int, disks: int) -> int:
        """Return the length of each disk's file."""
        return PAGE * sum(-(-(each.elements * element_bytes // PAGE) // disks) for each in self.layers)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
