"""The requests of a worker to the optimizer node, and who answers them within one process: `Local`.

Imports torch, and of the project the node's parts. Knows nothing of models as torch has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

import torch

from workloads.luwu.disk import Purpose
from workloads.luwu.errors import LuwuError
from workloads.luwu.node import UPDATE, await_all, packed, unpacked
from workloads.luwu.pool import Pool
from workloads.luwu.rule import Norm, Rule, views
from workloads.luwu.store import GRADIENTS, PARAMETERS, STATES, Store


class Transport(Protocol):
    """Asynchronous requests, carried out in the order in which they are asked for. A buffer is the
    transport's until its request's future is done, which raises what went wrong. Lengths are those of
    `Layer.used`: 2 bytes an element of parameters, 4 of gradients.
    """

    @property
    def iteration(self) -> int:
        """The last that is whole."""

    def parameters(self, layer: int) -> torch.Tensor | None:
        """Return memory that a pull of this layer fills without a copy, if the transport has any."""

    def forget(self, layer: int) -> None:
        """Give that memory back to the system; its address stays."""

    def gradients(self, elements: int) -> torch.Tensor:
        """Return zeros in binary32, for one push."""

    def pull(self, layer: int, parameters: memoryview) -> Future[None]:
        """Fill the buffer with the parameters as the last whole iteration left them."""

    def push(self, layer: int, gradients: memoryview) -> Future[None]:
        """Add the gradients, in binary32, to those that the layer has since `clear`."""

    def clear(self) -> Future[None]:
        """Forget all gradients."""

    def norm(self) -> Future[torch.Tensor]:
        """Return the global norm of all gradients."""

    def step(self, clip_norm: float | None) -> Future[int]:
        """Update all layers, their gradients scaled to at most this norm; its number when it is whole."""

    def record(self, file: Path) -> Future[int]:
        """Have the node write what it measured so far (`Spans.write`): of how many spans."""

    def close(self) -> None:
        """Requests under way end first."""


class Local:
    """The transport of one worker to a store in its own process. `rule` is over the
    worker's optimizer, whose groups are read at each step.
    """

    def __init__(self, store: Store, rule: Rule) -> None:
        self._store = store
        self._rule = rule
        self._dtype = getattr(torch, store.model.dtype)
        self._pool = Pool(
            max(
                each.parameters_bytes + each.states_bytes + each.gradients_bytes
                for each in store.model.layers
            )
        )
        store.reserve_gradients()
        if store.settings:
            rule.restore(unpacked(store.settings))
        self._pushed: set[int] = set()
        self._clipped = self._failed = False
        self._thread = ThreadPoolExecutor(1, "luwu local")

    @property
    def iteration(self) -> int:
        return self._store.iteration

    def parameters(self, layer: int) -> torch.Tensor | None:
        return None

    def forget(self, layer: int) -> None:
        """Do nothing: there is none."""

    def gradients(self, elements: int) -> torch.Tensor:
        return torch.zeros(elements)

    def pull(self, layer: int, parameters: memoryview) -> Future[None]:
        return self._thread.submit(self._pull, layer, parameters)

    def push(self, layer: int, gradients: memoryview) -> Future[None]:
        return self._thread.submit(self._push, layer, gradients)

    def clear(self) -> Future[None]:
        return self._thread.submit(self._clear)

    def norm(self) -> Future[torch.Tensor]:
        return self._thread.submit(self._norm)

    def step(self, clip_norm: float | None) -> Future[int]:
        return self._thread.submit(self._step, clip_norm)

    def record(self, file: Path) -> Future[int]:
        return self._thread.submit(self._store.spans.write, file)

    def close(self) -> None:
        self._thread.shutdown()
        self._store.close()

    def _pull(self, number: int, parameters: memoryview) -> None:
        def fill(buffers: Sequence[memoryview]) -> None:
            self._read(PARAMETERS, number, buffers[0])
            parameters[:] = buffers[0][: len(parameters)]

        self._with([self._store.model.layers[number].parameters_bytes], fill)

    def _push(self, number: int, gradients: memoryview) -> None:
        if self._clipped:
            raise LuwuError("gradients that were clipped are not added to: call zero_grad() after each step")
        layer = self._store.model.layers[number]

        def add(buffers: Sequence[memoryview]) -> None:
            if number in self._pushed:
                self._read(GRADIENTS, number, buffers[0])
                total = torch.frombuffer(buffers[0], dtype=torch.float32)[: layer.used]
                total += torch.frombuffer(gradients, dtype=torch.float32)
            else:
                buffers[0][: len(gradients)] = gradients
            await_all(self._store.write(GRADIENTS, number, buffers[0], self._purpose("push", number)))
            self._pushed.add(number)

        self._with([layer.gradients_bytes], add)

    def _clear(self) -> None:
        self._pushed.clear()
        self._clipped = False

    def _norm(self) -> torch.Tensor:
        norm = Norm(1.0)
        for number, layer in enumerate(self._store.model.layers):
            self._with([layer.gradients_bytes], partial(self._see, norm, number))
        return norm.total()

    def _see(self, norm: Norm, number: int, buffers: Sequence[memoryview]) -> None:
        self._read(GRADIENTS, number, buffers[0])
        norm.see(number, views(self._store.model.layers[number], buffers[0], torch.float32))

    def _step(self, clip_norm: float | None) -> int:
        if self._failed:
            raise LuwuError("a step has failed; resume its store")
        missing = set(range(len(self._store.model.layers))) - self._pushed
        if missing:
            layer = self._store.model.layers[min(missing)]
            raise LuwuError(f"layer {layer.name} has no gradients: freeze it, or use it in the loss")
        norm = None if clip_norm is None else Norm(clip_norm)
        total = None if clip_norm is None else self._norm()
        self._failed = True  # until it is whole
        for number in reversed(range(len(self._store.model.layers))):
            layer = self._store.model.layers[number]
            sizes = [layer.gradients_bytes, layer.states_bytes, layer.parameters_bytes]
            self._with(sizes, partial(self._update, number, norm, total))
        with self._store.spans.span("commit", self._store.iteration + 1, "commit", -1):
            self._store.commit(packed(self._rule))
        self._failed = False
        self._clipped = norm is not None
        return self._store.iteration

    def _update(
        self, number: int, norm: Norm | None, total: torch.Tensor | None, buffers: Sequence[memoryview]
    ) -> None:
        layer = self._store.model.layers[number]
        self._read(GRADIENTS, number, buffers[0])
        self._read(STATES, number, buffers[1])
        gradients = views(layer, buffers[0], torch.float32)
        masters, firsts, seconds = (views(layer, buffers[1], torch.float32, part) for part in range(3))
        if norm is not None and total is not None:
            norm.clip(gradients, total)
        iteration = self._store.iteration + 1
        with self._store.spans.span("update", iteration, UPDATE, number):
            self._rule.update(layer, iteration, masters, firsts, seconds, gradients)
            for parameter, master in zip(views(layer, buffers[2], self._dtype), masters, strict=True):
                parameter.copy_(master)
        for kind, buffer in ((STATES, buffers[1]), (PARAMETERS, buffers[2])):
            await_all(self._store.write(kind, number, buffer, self._purpose(UPDATE, number)))

    def _read(self, kind: str, number: int, buffer: memoryview) -> None:
        await_all(self._store.read(kind, number, buffer, self._purpose("read", number)))

    def _purpose(self, phase: str, number: int) -> Purpose:
        return Purpose(self._store.iteration + 1, phase, number)

    def _with(self, sizes: Sequence[int], function: Callable[[Sequence[memoryview]], None]) -> None:
        """Call it with buffers of the pool."""
        buffers = self._pool.take(sizes)
        assert buffers is not None
        try:
            function([memoryview(buffer) for buffer in buffers])
        finally:
            self._pool.give(buffers)
