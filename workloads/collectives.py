"""The collectives that the network carries beside all-reduce, as vectors of the job's reducer: gathered and
broadcast tensors as they are, and sums that are scattered.

A vector is a buffer: the tensor's own memory where that is in one piece and ends with a lane, else a copy. It
is submitted, and taken when its reducer has finished it.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import torch

from workloads.endpoint import Lanes
from workloads.outcome import Outcome
from workloads.quantiser import Floats

c10d: Any = importlib.import_module("torch._C._distributed_c10d")  # torch's stubs lack what is used here

LANE_BYTES = 4


class Carrier(Protocol):
    """A reducer that gathers as well."""

    def submit(self, array: Floats, kept: slice | None = None) -> None: ...

    def submit_gathered(self, lanes: Lanes, own: slice) -> None: ...

    def finish(self) -> Outcome: ...


class Vector(Protocol):
    """A part of a collective: one vector of the reducer's."""

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all workers' side."""

    @property
    def floats(self) -> torch.Tensor | None:
        """Return the buffer where it is summed."""

    def submit(self, carrier: Carrier) -> None:
        """Give it to the reducer."""

    def by_gloo(self, gloo: Any) -> Any:
        """Have gloo's backend put into the buffer what the network could not; return its work."""

    def take(self) -> None:
        """Put what came where it belongs."""


class Gathered:
    """All workers' `mine`, one behind the other in `outputs`: a tensor of each worker, or one of all."""

    floats = None

    def __init__(self, outputs: Sequence[torch.Tensor], mine: torch.Tensor, rank: int, workers: int) -> None:
        part_bytes = _size_bytes(mine)
        self.size_bytes = workers * part_bytes
        self._outputs, self._is_direct = outputs, len(outputs) == 1 and _is_lanes(outputs[0])
        self._buffer = outputs[0] if self._is_direct else _bytes(self.size_bytes)
        self._own = slice(rank * part_bytes, (rank + 1) * part_bytes)
        _copy(self._buffer.data_ptr() + self._own.start, plain(mine))

    def submit(self, carrier: Carrier) -> None:
        carrier.submit_gathered(_lanes(self._buffer, self.size_bytes), self._own)

    def by_gloo(self, gloo: Any) -> Any:
        whole = _as_bytes(self._buffer, self.size_bytes)
        parts = list(whole.chunk(self.size_bytes // (self._own.stop - self._own.start)))
        return gloo.allgather([parts], [whole[self._own].clone()])

    def take(self) -> None:
        if self._is_direct:
            return
        at = self._buffer.data_ptr()
        for output in self._outputs:
            _fill(output, at)
            at += _size_bytes(output)


class Broadcast:
    """A tensor of the worker `root`."""

    floats = None

    def __init__(self, tensor: torch.Tensor, rank: int, root: int) -> None:
        self.size_bytes = _size_bytes(tensor)
        self._root = root
        self._tensor, self._is_mine, self._is_direct = tensor, rank == root, _is_lanes(tensor)
        self._buffer = tensor if self._is_direct else _bytes(self.size_bytes)
        if self._is_mine and not self._is_direct:
            _copy(self._buffer.data_ptr(), plain(tensor))

    def submit(self, carrier: Carrier) -> None:
        own = slice(0, self.size_bytes if self._is_mine else 0)
        carrier.submit_gathered(_lanes(self._buffer, self.size_bytes), own)

    def by_gloo(self, gloo: Any) -> Any:
        options = c10d.BroadcastOptions()
        options.rootRank = self._root
        return gloo.broadcast([_as_bytes(self._buffer, self.size_bytes)], options)

    def take(self) -> None:
        if not self._is_direct and not self._is_mine:
            _fill(self._tensor, self._buffer.data_ptr())


class Scattered:
    """This worker's part of the workers' sum of `inputs`: a tensor for each worker, or one for all."""

    def __init__(
        self,
        output: torch.Tensor,
        inputs: Sequence[torch.Tensor],
        rank: int,
        workers: int,
        average: bool,
        buffers: Any,
    ) -> None:
        part = output.numel()
        self._buffers = buffers
        self.floats: torch.Tensor = buffers.take(workers * part)
        for piece, given in zip(self.floats.tensor_split(len(inputs)), inputs, strict=True):
            piece.copy_(given.reshape(-1))
        self.size_bytes = LANE_BYTES * self.floats.numel()
        self._output, self._workers, self._average = output, workers, average
        self._own = slice(rank * part, (rank + 1) * part)

    def submit(self, carrier: Carrier) -> None:
        carrier.submit(floats_of(self.floats), self._own)

    def by_gloo(self, gloo: Any) -> Any:
        return gloo.allreduce([self.floats], sum_options())

    def take(self) -> None:
        part = self.floats[self._own]
        if self._average:
            part.div_(self._workers)
        self._output.copy_(part.view(self._output.shape))
        self._buffers.give(self.floats)


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
    return np.asarray(_Memory(vector, np.dtype(np.float32)))


class _Memory:
    """The memory of a tensor, for NumPy."""

    def __init__(self, tensor: torch.Tensor, kind: np.dtype[Any], size_bytes: int | None = None) -> None:
        self._tensor = tensor
        size_bytes = _size_bytes(tensor) if size_bytes is None else size_bytes
        self.__array_interface__ = {
            "shape": (-(-size_bytes // kind.itemsize),),
            "typestr": kind.str,
            "data": (tensor.data_ptr(), False),
            "version": 3,
        }


def _size_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _is_lanes(tensor: torch.Tensor) -> bool:
    """Return whether its memory is its values in order, and a whole number of lanes."""
    is_whole = tensor.data_ptr() % LANE_BYTES == 0 and _size_bytes(tensor) % LANE_BYTES == 0
    return is_whole and plain(tensor) is tensor


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in one piece, itself where it is."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def _bytes(count: int) -> torch.Tensor:
    """Return room for so many, whole lanes of it."""
    return torch.empty(-(-count // LANE_BYTES) * LANE_BYTES, dtype=torch.uint8)


def _lanes(buffer: torch.Tensor, size_bytes: int) -> Lanes:
    """Return the lanes in a buffer, whatever its type: numpy lacks some of torch's."""
    return np.asarray(_Memory(buffer, np.dtype(np.uint32), size_bytes))


def _as_bytes(buffer: torch.Tensor, size_bytes: int) -> torch.Tensor:
    """Return the bytes in a buffer, whatever its type."""
    return buffer.view(-1).view(torch.uint8)[:size_bytes]


def _copy(address: int, tensor: torch.Tensor) -> None:
    if tensor.data_ptr() != address:
        ctypes.memmove(address, tensor.data_ptr(), _size_bytes(tensor))


def _fill(tensor: torch.Tensor, address: int) -> None:
    """Copy what is at the address into a tensor, in one piece or not."""
    whole = tensor if plain(tensor) is tensor else torch.empty(tensor.shape, dtype=tensor.dtype)
    ctypes.memmove(whole.data_ptr(), address, _size_bytes(tensor))
    if whole is not tensor:
        tensor.copy_(whole)
