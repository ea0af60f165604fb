"""Torch's own collectives, and a tensor's memory as NumPy's."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import numpy as np
import torch

from workloads.quantiser import Floats

c10d: Any = importlib.import_module("torch._C._distributed_c10d")  # torch's stubs lack what is used here


def sum_options(limit_s: float | None = None) -> Any:
    """Return gloo's options of a sum."""
    options = c10d.AllreduceOptions()
    options.reduceOp = c10d.ReduceOp.SUM
    if limit_s is not None:
        options.timeout = timedelta(seconds=limit_s)
    return options


def floats_of(vector: torch.Tensor) -> Floats:
    """Return the array of a binary32 vector in one piece. It keeps the vector, and not torch's word that
    NumPy has it: the script may let go of its memory after the sum, or make it longer.
    """
    return np.asarray(_Memory(vector))


class _Memory:
    """The memory of a binary32 tensor, for NumPy."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self.__array_interface__ = {
            "shape": (tensor.numel(),),
            "typestr": np.dtype(np.float32).str,
            "data": (tensor.data_ptr(), False),
            "version": 3,
        }
