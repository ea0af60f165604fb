"""The requests of a worker to the optimizer node, and who answers them within one process: `Local`.

Imports torch, and of the project the node's parts. Knows nothing of models as torch has them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import torch

from workloads.luwu.disk import Purpose
from workloads.luwu.errors import LuwuError
from workloads.luwu.node import await_all, packed, unpacked
from workloads.luwu.pool import Pool
from workloads.luwu.rule import Norm, Rule, views
from workloads.luwu.store import GRADIENTS, PARAMETERS, Store
from workloads.luwu.updates import Clipped, Given, Updates

AT_STEP, IN_BACKWARD = "step", "backward"
UPDATES: Final = (AT_STEP, IN_BACKWARD)
"""When a layer is updated: in the step, by all its gradients since `clear`, or as soon as they have come."""


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
    """The transport of one worker to a store in its own process. `rule` is over the worker's optimizer, whose
    groups are read at each step, or where `update` is IN_BACKWARD with the first push after one.
    """

    def __init__(self, store: Store, rule: Rule, update: str = AT_STEP, ahead: int = 1) -> None:
        """`ahead` is how many layers have buffers for their update at a time."""
        self._store, self._rule, self._update = store, rule, update
        self._pool = Pool(
            max(max(each.parameters_bytes, each.gradients_bytes) for each in store.model.layers)
        )
        if update == AT_STEP:
            store.reserve_gradients()
        if store.settings:
            rule.restore(unpacked(store.settings))
        self._pushed: set[int] = set()
        self._groups: list[dict[str, Any]] = []  # by which layers were updated within the backward pass
        self._spent = self._failed = False  # gradients, and this transport
        self._updates = Updates(store, rule, ahead)
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

    def push(self, layer: int, gradients: memoryview, whole: Future[None] | None = None) -> Future[None]:
        """Add or use the gradients when `whole` is done: those that are still on their way. A layer's states
        are read meanwhile where it is updated within the backward pass.
        """
        future: Future[None] = Future()
        if whole is None:
            whole = Future()
            whole.set_result(None)
        if self._update == IN_BACKWARD:
            begun = self._thread.submit(self._begin, layer, Given(whole, gradients, future))
            begun.add_done_callback(lambda done: _pass_on(done, future) if done.exception() else None)
        else:
            whole.add_done_callback(lambda done: self._add(done, layer, gradients, future))
        return future

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
        self._updates.close()
        self._store.close()

    def _pull(self, number: int, parameters: memoryview) -> None:
        def fill(buffers: Sequence[memoryview]) -> None:
            self._read(PARAMETERS, number, buffers[0])
            parameters[:] = buffers[0][: len(parameters)]

        self._with([self._store.model.layers[number].parameters_bytes], fill)

    def _begin(self, number: int, given: Given) -> None:
        self._check_whole()
        self._check_unspent("gradients that a step has used are not added to")
        if number in self._pushed:
            name = self._store.model.layers[number].name
            raise LuwuError(
                f"layer {name} is updated already: gradients are only added with update={AT_STEP!r}"
            )
        if not self._pushed:
            self._groups = self._rule.groups()
        self._pushed.add(number)
        self._updates.begin(number, given)

    def _add(self, whole: Future[None], number: int, gradients: memoryview, future: Future[None]) -> None:
        if whole.exception() is not None:
            _pass_on(whole, future)
            return
        try:
            added = self._thread.submit(self._push, number, gradients)
        except RuntimeError as problem:  # it is closed
            future.set_exception(LuwuError(f"push: {problem}"))
            return
        added.add_done_callback(lambda done: _pass_on(done, future))

    def _push(self, number: int, gradients: memoryview) -> None:
        self._check_unspent("gradients that were clipped are not added to")
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
        if not self._failed:
            self._updates.finish()
        self._pushed.clear()
        self._spent = False

    def _norm(self) -> torch.Tensor:
        if self._update == IN_BACKWARD:
            raise LuwuError(
                f"clipping needs all gradients before the first update: accepted with update={AT_STEP!r}"
            )
        norm = Norm(1.0)
        for number, layer in enumerate(self._store.model.layers):
            self._with([layer.gradients_bytes], partial(self._see, norm, number))
        return norm.total()

    def _see(self, norm: Norm, number: int, buffers: Sequence[memoryview]) -> None:
        self._read(GRADIENTS, number, buffers[0])
        norm.see(number, views(self._store.model.layers[number], buffers[0], torch.float32))

    def _step(self, clip_norm: float | None) -> int:
        self._check_whole()
        missing = set(range(len(self._store.model.layers))) - self._pushed
        if missing:
            layer = self._store.model.layers[min(missing)]
            raise LuwuError(f"layer {layer.name} has no gradients: freeze it, or use it in the loss")
        clipped = None if clip_norm is None else Clipped(Norm(clip_norm), self._norm())
        if self._update == IN_BACKWARD:
            self._check_unspent("gradients that a step has used are not there for another")
            if self._rule.groups() != self._groups:
                raise LuwuError(
                    "settings of the optimizer changed between the first gradients and step(): "
                    f"accepted with update={AT_STEP!r}"
                )
        self._failed = True  # until it is whole
        if self._update == AT_STEP:
            for number in reversed(range(len(self._store.model.layers))):
                self._updates.begin(number, clipped=clipped)
        self._updates.finish()
        with self._store.spans.span("commit", self._store.iteration + 1, "commit", -1):
            self._store.commit(packed(self._rule))
        self._failed = False
        self._spent = clipped is not None or self._update == IN_BACKWARD
        return self._store.iteration

    def _check_whole(self) -> None:
        if self._failed:
            raise LuwuError("a step has failed; resume its store")

    def _check_unspent(self, problem: str) -> None:
        if self._spent:
            raise LuwuError(f"{problem}: call zero_grad() after each step")

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


def say(notice: str) -> None:
    """Print what a store was found to be, once, beside what a script prints."""
    if notice:
        print(f"LuWu: {notice}", file=sys.stderr, flush=True)


def _pass_on(done: Future[None], future: Future[None]) -> None:
    """Have a future end as another one has."""
    if (problem := done.exception()) is not None:
        future.set_exception(problem)
    else:
        future.set_result(None)
