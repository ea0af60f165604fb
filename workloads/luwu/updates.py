"""Update layers on disks, several at a time: one layer's states are read while another's are written.

Owns the threads that do so, and the buffers. Imports torch and, from the project, the node's parts.
"""

from __future__ import annotations

import contextlib
import mmap
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch

from workloads.luwu.disk import Purpose
from workloads.luwu.errors import LuwuError, NotFiniteError
from workloads.luwu.node import UPDATE, await_all, when_all
from workloads.luwu.pool import Pool
from workloads.luwu.rule import Norm, Rule, unscale, views
from workloads.luwu.store import GRADIENTS, PARAMETERS, STATES, Store


@dataclass(frozen=True, slots=True)
class Given:
    """Gradients in memory. `whole` completes when all have arrived; the update completes `used` when it no
    longer needs them.
    """

    whole: Future[None]
    gradients: memoryview
    used: Future[None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """Changes to gradients from disks before an update: multiplied by `factor`, then clipped to `norm`, if
    there is one, given their `total` norm.
    """

    factor: float
    norm: Norm | None
    total: torch.Tensor

    def change(self, gradients: Sequence[torch.Tensor]) -> None:
        unscale(gradients, self.factor)
        if self.norm is not None:
            self.norm.clip(gradients, self.total)


@dataclass(slots=True)
class _Update:
    number: int
    given: Given | None
    prepared: Prepared | None
    buffers: list[mmap.mmap] = field(default_factory=list)  # parameters, states, gradients from disks
    read: list[Future[None]] = field(default_factory=list)


class Updates:
    """Runs the updates of a store's next iteration.

    `begin` does not wait; `finish` waits for all. `ahead` is the number of layers that may have buffers at a
    time. After an error nothing more is updated: resume the store. An update that would make NaN or an
    infinity is not written, and `finish` raises NotFiniteError until `forget`.
    """

    def __init__(self, store: Store, rule: Rule, ahead: int) -> None:
        self._store, self._rule = store, rule
        self._dtype = getattr(torch, store.model.dtype)
        layers = store.model.layers
        self._pool = Pool(
            ahead * max(each.parameters_bytes + each.states_bytes + each.gradients_bytes for each in layers)
        )
        self._failure: BaseException | None = None
        self._refusal: NotFiniteError | None = None
        self._under_way = 0
        self._changed = threading.Condition()
        self._to_read: queue.SimpleQueue[_Update | None] = queue.SimpleQueue()
        self._to_update: queue.SimpleQueue[_Update | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, args=each, name=f"luwu {name}", daemon=True)
            for name, each in (
                ("states", (self._to_read, self._read)),
                ("updates", (self._to_update, self._update)),
            )
        ]
        for thread in self._threads:
            thread.start()

    def begin(self, number: int, given: Given | None = None, prepared: Prepared | None = None) -> None:
        """Begin the update of a layer, by `given` gradients or by its gradients on the disks. Raises
        LuwuError after an error.
        """
        with self._changed:
            if self._failure is not None:
                raise LuwuError(f"an update has failed: {self._failure}") from self._failure
            self._under_way += 1
        self._to_read.put(_Update(number, given, prepared))

    def finish(self) -> None:
        """Wait until all updates are written. Raises the first error."""
        with self._changed:
            self._changed.wait_for(lambda: self._under_way == 0 or self._failure is not None)
            if (problem := self._failure or self._refusal) is not None:
                raise problem

    def forget(self) -> None:
        """Forget a refused update, so that the iteration can begin again; call it after `finish`."""
        self._refusal = None

    def close(self) -> None:
        """Stop the threads, without waiting for updates under way."""
        self._fail(LuwuError("closed"))
        for waiting, thread in zip((self._to_read, self._to_update), self._threads, strict=True):
            waiting.put(None)  # the first thread ends before the second, and passes its updates on
            thread.join()

    def _read(self, update: _Update) -> None:
        layer = self._store.model.layers[update.number]
        sizes = [layer.parameters_bytes, layer.states_bytes]
        if update.given is None:
            sizes.append(layer.gradients_bytes)
        buffers = self._pool.take(sizes)
        if buffers is None:  # the pool was stopped
            raise self._failure or LuwuError("closed")
        update.buffers = buffers
        for kind, buffer in zip((STATES, GRADIENTS), buffers[1:], strict=False):
            purpose = Purpose(self._store.iteration + 1, UPDATE, update.number)
            update.read += self._store.read(kind, update.number, memoryview(buffer), purpose)
        self._to_update.put(update)

    def _update(self, update: _Update) -> None:
        layer, given, iteration = (
            self._store.model.layers[update.number],
            update.given,
            self._store.iteration + 1,
        )
        await_all(update.read)
        if given is not None:
            given.whole.result()
        gradients = views(
            layer, memoryview(update.buffers[2]) if given is None else given.gradients, torch.float32
        )
        states = memoryview(update.buffers[1])
        masters, firsts, seconds = (views(layer, states, torch.float32, part) for part in range(3))
        parameters = memoryview(update.buffers[0])
        with self._store.spans.span("update", iteration, UPDATE, update.number):
            if update.prepared is not None:
                update.prepared.change(gradients)
            rounded = views(layer, parameters, self._dtype)
            refusal: NotFiniteError | None = None
            try:
                self._rule.update(layer, iteration, rounded, masters, firsts, seconds, gradients)
            except NotFiniteError as problem:
                refusal = problem
        if given is not None:
            given.used.set_result(None)
        if refusal is not None:
            self._refusal = self._refusal or refusal
            self._end(update)
            return
        purpose = Purpose(iteration, UPDATE, update.number)
        written = [
            future
            for kind, buffer in ((STATES, states), (PARAMETERS, parameters))
            for future in self._store.write(kind, update.number, buffer, purpose)
        ]
        when_all(written, lambda: self._release(update, written))

    def _release(self, update: _Update, written: Sequence[Future[None]]) -> None:
        for future in written:
            if (problem := future.exception()) is not None:
                self._fail(problem)
                return
        self._end(update)

    def _end(self, update: _Update) -> None:
        buffers, update.buffers, update.read = update.buffers, [], []
        self._pool.give(buffers)
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def _serve(self, waiting: queue.SimpleQueue[_Update | None], step: Callable[[_Update], None]) -> None:
        while (update := waiting.get()) is not None:
            try:
                if self._failure is not None:
                    raise self._failure
                step(update)
            except BaseException as problem:
                self._fail(problem)
                if update.given is not None:
                    with contextlib.suppress(Exception):
                        update.given.used.set_exception(problem)

    def _fail(self, problem: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or problem
            self._changed.notify_all()
        self._pool.stop()
