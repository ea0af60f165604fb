"""Access torch's own collectives, and a tensor's memory as a NumPy array."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import numpy as np
import torch

from workloads.quantiser import Floats

c10d: Any = importlib.import_module("torch._C._distributed_c10d")  # torch's stubs lack what is used here


def sum_options(limit_s: float | None = None) -> Any:
    """Return gloo's options for a sum, with a time limit in seconds where one is given."""
    options = c10d.AllreduceOptions()
    options.reduceOp = c10d.ReduceOp.SUM
    if limit_s is not None:
        options.timeout = timedelta(seconds=limit_s)
    return options


def floats_of(vector: torch.Tensor) -> Floats:
    """Return a contiguous binary32 vector as a NumPy array over the same memory.

    The array keeps the tensor alive, but torch does not mark the tensor's storage as shared with NumPy: the
    script may free or resize it after the sum.
    """
    return np.asarray(_Memory(vector))


class _Memory:
    """Exposes the memory of a binary32 tensor through NumPy's array interface."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self.__array_interface__ = {
            "shape": (tensor.numel(),),
            "typestr": np.dtype(np.float32).str,
            "data": (tensor.data_ptr(), False),
            "version": 3,
        }
