"""The requests of a worker to the optimizer node (`Transport`), and their implementation within one process
(`Local`).

Imports torch and, from the project, the node's parts. Knows nothing of torch's models.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import torch

from workloads.luwu.disk import Purpose
from workloads.luwu.errors import LuwuError, NotFiniteError
from workloads.luwu.layout import GRADIENT_BYTES
from workloads.luwu.node import await_all, packed, unpacked
from workloads.luwu.pool import Pool
from workloads.luwu.rule import Norm, Rule, check_finite, unscale, views
from workloads.luwu.store import GRADIENTS, PARAMETERS, STATES, Store
from workloads.luwu.updates import Given, Prepared, Updates

AT_STEP, IN_BACKWARD = "step", "backward"
UPDATES: Final = (AT_STEP, IN_BACKWARD)
"""When a layer is updated: in the step, by all its gradients since `clear`, or as soon as they arrive."""


class Transport(Protocol):
    """Asynchronous requests, carried out in the order of the calls.

    The transport owns a buffer until its request's future is done; the future raises the request's error.
    Lengths are those of `Layer.used`: 2 bytes per element of parameters, 4 of gradients.
    """

    @property
    def iteration(self) -> int:
        """Return the last complete iteration."""

    def parameters(self, layer: int) -> torch.Tensor | None:
        """Return memory that a pull of this layer fills without a copy, None where there is none."""

    def forget(self, layer: int) -> None:
        """Free that memory; its address stays valid."""

    def gradients(self, elements: int) -> torch.Tensor:
        """Return zeros in binary32, for one push."""

    def pull(self, layer: int, parameters: memoryview) -> Future[None]:
        """Fill the buffer with a layer's parameters as of the last complete iteration."""

    def push(self, layer: int, gradients: memoryview) -> Future[None]:
        """Add gradients, in binary32, to the layer's gradients since `clear`."""

    def clear(self) -> Future[None]:
        """Discard all gradients."""

    def not_finite(self) -> Future[str | None]:
        """Return whose gradients since `clear` have NaN or an infinity; None if all are finite."""

    def norm(self, factor: float = 1.0) -> Future[torch.Tensor]:
        """Return the global norm of all gradients times `factor`; NaN where they are not finite."""

    def step(self, clip_norm: float | None, factor: float = 1.0) -> Future[int]:
        """Update all layers and return the iteration's number when it is complete.

        Gradients are multiplied by `factor` and then clipped to the norm. Raises NotFiniteError, without a
        commit, where they or the results are not finite: `clear` begins the iteration again.
        """

    def states(self, layer: int, states: memoryview) -> Future[bool]:
        """Fill the buffer with the layer's master weights, first and second moments as of the last complete
        iteration: 12 bytes per element. Of several workers only the first one's buffer is filled; return
        False for the others.
        """

    def record(self, file: Path) -> Future[int]:
        """Write the spans that the node measured so far (`Spans.write`), and return their number."""

    def close(self) -> None:
        """Close the transport after the requests under way."""


class Local:
    """The transport of one worker to a store in its own process.

    `rule` is over the worker's optimizer. The optimizer's groups are read at each step or, where `update` is
    IN_BACKWARD, with the first push after one.
    """

    def __init__(self, store: Store, rule: Rule, update: str = AT_STEP, ahead: int = 1) -> None:
        """`ahead` is how many layers may have buffers for their update at a time."""
        self._store, self._rule, self._update = store, rule, update
        self._pool = Pool(
            max(max(each.parameters_bytes, each.gradients_bytes) for each in store.model.layers)
        )
        if update == AT_STEP:
            store.reserve_gradients()
        if store.settings:
            rule.restore(unpacked(store.settings))
        self._pushed: set[int] = set()
        self._groups = rule.groups()  # the settings by which layers were updated in the backward pass
        self._spent = self._failed = False  # whether a step has used the gradients; whether one has failed
        self._refusal: str | None = None  # says whose gradients since `clear` are not finite
        self._updates = Updates(store, rule, ahead)
        self._thread = ThreadPoolExecutor(1, "luwu local")

    @property
    def iteration(self) -> int:
        return self._store.iteration

    def parameters(self, layer: int) -> torch.Tensor | None:
        return None

    def forget(self, layer: int) -> None:
        """Do nothing: there is no such memory."""

    def gradients(self, elements: int) -> torch.Tensor:
        return torch.zeros(elements)

    def pull(self, layer: int, parameters: memoryview) -> Future[None]:
        return self._thread.submit(self._pull, layer, parameters)

    def push(
        self,
        layer: int,
        gradients: memoryview,
        whole: Future[None] | None = None,
        refusal: str | None = None,
    ) -> Future[None]:
        """Add the gradients, or update the layer by them, when `whole` is done; until then they are still
        arriving.

        Where the layer is updated within the backward pass, its states are read meanwhile. With a `refusal`
        the gradients are not used: some worker's are not finite.
        """
        future: Future[None] = Future()
        if whole is None:
            whole = Future()
            whole.set_result(None)
        if self._update == IN_BACKWARD:
            begun = self._thread.submit(self._begin, layer, Given(whole, gradients, future), refusal)
            begun.add_done_callback(lambda done: _pass_on(done, future) if done.exception() else None)
        else:
            whole.add_done_callback(lambda done: self._add(done, layer, gradients, future, refusal))
        return future

    def clear(self) -> Future[None]:
        return self._thread.submit(self._clear)

    def not_finite(self) -> Future[str | None]:
        return self._thread.submit(self._not_finite)

    def norm(self, factor: float = 1.0) -> Future[torch.Tensor]:
        return self._thread.submit(self._norm, factor)

    def step(self, clip_norm: float | None, factor: float = 1.0) -> Future[int]:
        return self._thread.submit(self._step, clip_norm, factor)

    def states(self, layer: int, states: memoryview) -> Future[bool]:
        return self._thread.submit(self._states, layer, states)

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

    def _states(self, number: int, states: memoryview) -> bool:
        layer = self._store.model.layers[number]
        buffer = mmap.mmap(-1, layer.states_bytes)  # outside the pool, whose bound is smaller
        self._read(STATES, number, memoryview(buffer))
        padded, used = (each * GRADIENT_BYTES for each in (layer.elements, layer.used))
        for part in range(len(states) // used):
            states[part * used :][:used] = memoryview(buffer)[part * padded :][:used]
        return True

    def _begin(self, number: int, given: Given, refusal: str | None) -> None:
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
        if refusal is not None:
            self._refusal = self._refusal or refusal
            given.whole.add_done_callback(lambda done: _pass_on(done, given.used))
        else:
            self._updates.begin(number, given)

    def _add(
        self,
        whole: Future[None],
        number: int,
        gradients: memoryview,
        future: Future[None],
        refusal: str | None,
    ) -> None:
        if whole.exception() is not None:
            _pass_on(whole, future)
            return
        try:
            added = self._thread.submit(self._push, number, gradients, refusal)
        except RuntimeError as problem:  # the executor is shut down
            future.set_exception(LuwuError(f"push: {problem}"))
            return
        added.add_done_callback(lambda done: _pass_on(done, future))

    def _push(self, number: int, gradients: memoryview, refusal: str | None) -> None:
        self._check_unspent("gradients that were clipped are not added to")
        self._refusal = self._refusal or refusal
        if self._refusal is not None:  # gradients are not read until `clear`
            self._pushed.add(number)
            return
        layer = self._store.model.layers[number]

        def add(buffers: Sequence[memoryview]) -> None:
            if number in self._pushed:
                self._read(GRADIENTS, number, buffers[0])
                total = torch.frombuffer(buffers[0], dtype=torch.float32)[: layer.used]
                total += torch.frombuffer(gradients, dtype=torch.float32)
            else:
                buffers[0][: len(gradients)] = gradients
            try:
                check_finite("gradients", layer, views(layer, buffers[0], torch.float32))
            except NotFiniteError as problem:
                self._refusal = str(problem)
            await_all(self._store.write(GRADIENTS, number, buffers[0], self._purpose("push", number)))
            self._pushed.add(number)

        self._with([layer.gradients_bytes], add)

    def _clear(self) -> None:
        if not self._failed:
            with contextlib.suppress(NotFiniteError):
                self._updates.finish()
            self._updates.forget()
        self._pushed.clear()
        self._spent, self._refusal = False, None

    def _not_finite(self) -> str | None:
        self._check_all_come("scaling")
        return self._refusal

    def _norm(self, factor: float) -> torch.Tensor:
        self._check_all_come("clipping")
        if self._refusal is not None:
            return torch.tensor(float("nan"))
        norm = Norm(1.0)
        for number, layer in enumerate(self._store.model.layers):
            self._with([layer.gradients_bytes], partial(self._see, norm, number, factor))
        return norm.total()

    def _see(self, norm: Norm, number: int, factor: float, buffers: Sequence[memoryview]) -> None:
        self._read(GRADIENTS, number, buffers[0])
        gradients = views(self._store.model.layers[number], buffers[0], torch.float32)
        unscale(gradients, factor)
        norm.see(number, gradients)

    def _step(self, clip_norm: float | None, factor: float) -> int:
        self._check_whole()
        missing = set(range(len(self._store.model.layers))) - self._pushed
        if missing:
            layer = self._store.model.layers[min(missing)]
            raise LuwuError(f"layer {layer.name} has no gradients: freeze it, or use it in the loss")
        if self._refusal is not None:
            raise self._refused(self._refusal)
        norm = None if clip_norm is None else Norm(clip_norm)
        prepared = Prepared(factor, norm, torch.zeros(()) if norm is None else self._norm(factor))
        if self._update == IN_BACKWARD:
            self._check_unspent("gradients that a step has used are not there for another")
            if self._rule.groups() != self._groups:
                raise LuwuError(
                    "settings of the optimizer changed between the first gradients and step(): "
                    f"accepted with update={AT_STEP!r}"
                )
        self._failed = True  # until the iteration is complete
        if self._update == AT_STEP:
            for number in reversed(range(len(self._store.model.layers))):
                self._updates.begin(number, prepared=prepared)
        try:
            self._updates.finish()
        except NotFiniteError as problem:
            self._failed = False
            raise self._refused(str(problem)) from problem
        with self._store.spans.span("commit", self._store.iteration + 1, "commit", -1):
            self._store.commit(packed(self._rule))
        self._failed = False
        self._spent = norm is not None or self._update == IN_BACKWARD
        return self._store.iteration

    def _refused(self, problem: str) -> NotFiniteError:
        number = self._store.iteration + 1
        return NotFiniteError(f"iteration {number} is not committed: {problem}; zero_grad() begins it again")

    def _check_all_come(self, work: str) -> None:
        if self._update == IN_BACKWARD:
            raise LuwuError(
                f"{work} needs all gradients before the first update: accepted with update={AT_STEP!r}"
            )

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
        """Call a function with buffers of the pool."""
        buffers = self._pool.take(sizes)
        assert buffers is not None
        try:
            function([memoryview(buffer) for buffer in buffers])
        finally:
            self._pool.give(buffers)


def say(notice: str) -> None:
    """Print a store's notice, if there is one, to standard error."""
    if notice:
        print(f"LuWu: {notice}", file=sys.stderr, flush=True)


def _pass_on(done: Future[None], future: Future[None]) -> None:
    """Complete a future as another one has ended."""
    if (problem := done.exception()) is not None:
        future.set_exception(problem)
    else:
        future.set_result(None)
