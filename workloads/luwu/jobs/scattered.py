"""Run FSDP's reduce-scatter on a thread during the backward pass: gradients travel in bfloat16, each worker's
shard straight to it. Imports torch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from workloads.luwu.intervals import Log


class Scatter:
    """A reduce-scatter for `set_custom_reduce_scatter`.

    FSDP only views the output as gradients, without reading it, because its reduce type is that of the
    gradients. So the output is filled later, and `finish` waits until all are.

    It uses a group of its own: on FSDP's group, collectives from a second thread would come in another order
    on each worker.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._group = dist.new_group(backend="gloo")
        self._thread = ThreadPoolExecutor(1)
        self._under_way: list[Future[None]] = []

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        """Start to fill the output with the mean of all workers' values for this worker's shard."""
        sent = input_tensor.bfloat16()
        self._under_way.append(self._thread.submit(self._reduce, output_tensor, sent))

    def _reduce(self, output: Tensor, sent: Tensor) -> None:
        begin_ns = time.monotonic_ns()
        came = torch.empty_like(sent)
        # as bytes, because gloo has no bfloat16 here
        dist.all_to_all_single(came.view(torch.uint8), sent.view(torch.uint8), group=self._group)
        workers = dist.get_world_size()
        output.copy_(came.view(workers, -1).float().mean(0))
        self._log.communicated(begin_ns)

    def finish(self) -> None:
        """Wait until all outputs are filled."""
        begin_ns = time.monotonic_ns()
        for each in self._under_way:
            each.result()
        self._under_way.clear()
        self._log.waited(begin_ns)

    def close(self) -> None:
        self._thread.shutdown()
