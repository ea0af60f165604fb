"""A transport that logs when its requests and waits begin and end, to measure how much communication is
hidden by computing.

Imports torch and, from the project, the transport's interface and the node's parts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar, cast

import torch

from workloads.luwu.intervals import Log
from workloads.luwu.transport import Transport

T = TypeVar("T")


class _Timed(Future[T]):
    """A request's future that logs waits for it."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def result(self, timeout: float | None = None) -> T:
        if self.done():
            return super().result()
        begin_ns = time.monotonic_ns()
        try:
            return super().result(timeout)
        finally:
            self._log.waited(begin_ns)


class Watched:
    """A `Transport` that forwards to another one and logs. Pulls and pushes count as communication, the rest
    as the node's work.
    """

    def __init__(self, transport: Transport, log: Log) -> None:
        self._transport, self._log = transport, log

    @property
    def iteration(self) -> int:
        return self._transport.iteration

    def parameters(self, layer: int) -> torch.Tensor | None:
        return self._transport.parameters(layer)

    def forget(self, layer: int) -> None:
        self._transport.forget(layer)

    def gradients(self, elements: int) -> torch.Tensor:
        begin_ns = time.monotonic_ns()
        flat = self._transport.gradients(elements)
        self._log.waited(begin_ns)
        return flat

    def pull(self, layer: int, parameters: memoryview) -> Future[None]:
        return self._timed(lambda: self._transport.pull(layer, parameters))

    def push(self, layer: int, gradients: memoryview) -> Future[None]:
        return self._timed(lambda: self._transport.push(layer, gradients))

    def clear(self) -> Future[None]:
        return self._transport.clear()

    def not_finite(self) -> Future[str | None]:
        return self._transport.not_finite()

    def norm(self, factor: float = 1.0) -> Future[torch.Tensor]:
        return self._transport.norm(factor)

    def step(self, clip_norm: float | None, factor: float = 1.0) -> Future[int]:
        return self._transport.step(clip_norm, factor)

    def states(self, layer: int, states: memoryview) -> Future[bool]:
        return self._transport.states(layer, states)

    def record(self, file: Path) -> Future[int]:
        return self._transport.record(file)

    def close(self) -> None:
        self._transport.close()

    def _timed(self, ask: Callable[[], Future[None]]) -> Future[None]:
        begin_ns = time.monotonic_ns()
        timed: _Timed[None] = _Timed(self._log)

        def end(asked: Future[None]) -> None:
            self._log.communicated(begin_ns)
            problem = asked.exception()
            if problem is None:
                timed.set_result(None)
            else:
                timed.set_exception(problem)

        ask().add_done_callback(end)
        return cast(Future[None], timed)
