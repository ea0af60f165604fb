"""A model as the disks see it: tensors in layers, where each lies in its layer's buffers, and which part of a
layer is whose disk's.

Pure: imports nothing of the project but its errors.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from workloads.luwu.errors import LuwuError

PAGE = 4096  # bytes: what direct I/O is aligned to
PARAMETER_BYTES = 2  # bfloat16
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
    """What is pulled, pushed and updated at once. `starts` are the tensors' first elements; `elements` is
    their number with padding, in whole pages of either format.
    """

    name: str
    tensors: tuple[Tensor, ...]
    starts: tuple[int, ...] = field(init=False)
    elements: int = field(init=False)

    def __post_init__(self) -> None:
        starts, end = [], 0
        for tensor in self.tensors:
            starts.append(end)
            end = _up(end + tensor.numel, _TENSOR_ELEMENTS)
        object.__setattr__(self, "starts", tuple(starts))
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


@dataclass(frozen=True, slots=True)
class Stripe:
    """The part [start, end) of a layer's buffer that lies at `offset` of a disk's file."""

    disk: int
    start: int
    end: int
    offset: int


class Model:
    """Layers in the order of the forward pass. Raises LuwuError for one without tensors or with a name
    twice.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = tuple(layers)
        names = [tensor.name for layer in self.layers for tensor in layer.tensors]
        for layer in self.layers:
            for tensor in layer.tensors:
                if tensor.numel == 0:
                    raise LuwuError(f"tensor {tensor.name}: shape {tensor.shape} has no elements")
        if not names or not all(layer.tensors for layer in self.layers):
            raise LuwuError("a model needs at least one layer, and a layer at least one tensor")
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise LuwuError(f"tensor {twice[0]} is in the model twice: shared weights belong to one layer")

    @property
    def numel(self) -> int:
        return sum(tensor.numel for layer in self.layers for tensor in layer.tensors)

    def description(self) -> list[list[object]]:
        """Names and shapes, as JSON has them."""
        return [
            [layer.name, [[tensor.name, list(tensor.shape)] for tensor in layer.tensors]]
            for layer in self.layers
        ]

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.description()).encode()).hexdigest()

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
