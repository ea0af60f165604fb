"""The optimizer node: passes a model's layers through the steps of an iteration, each step a queue with its
own thread.

Owns those threads and the pool of buffers. Uses the network only as a source and a sink.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Protocol, Self

import torch

from workloads.luwu.disk import Purpose
from workloads.luwu.errors import LuwuError, StoreError
from workloads.luwu.layout import GRADIENT_BYTES, PARAMETER_BYTES, Layer
from workloads.luwu.pool import Pool
from workloads.luwu.rule import Norm, Rule, RuleSettings, check_finite, views
from workloads.luwu.spans import Span
from workloads.luwu.store import GRADIENTS, PARAMETERS, STATES, Store

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"  # phases; UPDATE only with clipping
_PARTS = 3  # of states: master weights, first and second moments


class Network(Protocol):
    """The network as the node uses it.

    `push` sends parameters, `pull` receives gradients. A future completes when the buffer may be overwritten
    (push) or read (pull); its exception ends the iteration. The node makes requests in the order of the
    layers, several at a time.
    """

    def push(self, iteration: int, phase: str, layer: int, parameters: memoryview) -> Future[None]: ...

    def pull(self, iteration: int, layer: int, gradients: memoryview) -> Future[None]: ...


@dataclass(slots=True)
class _Task:
    """A layer in a phase, with its buffers and the futures that it waits for."""

    phase: str
    layer: int
    buffers: dict[str, mmap.mmap]
    read: list[Future[None]] = field(default_factory=list)
    pushed: list[Future[None]] = field(default_factory=list)
    accepted: list[Future[None]] = field(default_factory=list)


class Node:
    """An optimizer node; call `iterate` for each iteration. A context manager.

    `memory_bytes` bounds the buffers. After an error the node is useless: resume the store.
    """

    def __init__(
        self, store: Store, rule: Rule, network: Network, memory_bytes: int, clip_norm: float | None = None
    ) -> None:
        self._store = store
        self._rule = rule
        self._network = network
        self._dtype = getattr(torch, store.model.dtype)
        self._norm = None if clip_norm is None else Norm(clip_norm)
        self.pool = Pool(memory_bytes)
        phases = (BACKWARD,) if self._norm is None else (BACKWARD, UPDATE)
        for layer in store.model.layers:
            needed = max(sum(_sizes(layer, phase, self._norm is not None).values()) for phase in phases)
            if needed > memory_bytes:
                raise LuwuError(
                    f"memory_bytes {memory_bytes}: layer {layer.name} needs at least {needed} for its buffers"
                )
        if self._norm is not None:
            store.reserve_gradients()
        if store.settings:
            rule.restore(unpacked(store.settings))
        self._settings = store.settings or packed(rule)
        self._failure: BaseException | None = None
        self._waits: set[Future[None]] = set()
        self._changed = threading.Condition()
        self._under_way = 0
        self._steps = {
            "push": _Step("push", self._push, self._fail),
            "update": _Step("update", self._update, self._fail),
        }

    @property
    def iteration(self) -> int:
        """Return the last complete iteration on the disks."""
        return self._store.iteration

    def iterate(self) -> int:
        """Carry out an iteration, commit it, and return its number.

        Raises LuwuError, or the error of a network's future. Either the previous iteration or this one is the
        last complete one then: resuming the store finds out.
        """
        if self._failure is not None:
            raise LuwuError("this node has failed; resume its store") from self._failure
        try:
            count = len(self._store.model.layers)
            order = [(FORWARD, layer) for layer in range(count)]
            order += [(BACKWARD, layer) for layer in reversed(range(count))]
            self._admit(order)
            if self._norm is not None:
                self._total = self._norm.total()
                self._admit([(UPDATE, layer) for layer in reversed(range(count))])
            self._commit()
        except BaseException as problem:
            self._fail(problem)
            raise
        return self._store.iteration

    def close(self) -> None:
        self._fail(LuwuError("closed"))
        for step in self._steps.values():
            step.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------ steps

    def _admit(self, order: Sequence[tuple[str, int]]) -> None:
        """Run step 1 for each layer: wait for buffers and read its parameters. Return when all layers have
        passed all steps.
        """
        for phase, number in order:
            layer = self._store.model.layers[number]
            sizes = _sizes(layer, phase, self._norm is not None)
            with self._span("buffers", phase, number):
                buffers = self.pool.take(list(sizes.values()))
            if buffers is None:
                break
            task = _Task(phase, number, dict(zip(sizes, buffers, strict=True)))
            with self._changed:
                self._under_way += 1
            if phase == UPDATE:
                task.read = self._read(task, GRADIENTS) + self._read(task, STATES)
                self._steps["update"].put(task)
            else:
                task.read = self._read(task, PARAMETERS)
                self._steps["push"].put(task)
        with self._changed:
            self._changed.wait_for(lambda: self._under_way == 0 or self._failure is not None)
            if self._failure is not None:
                raise self._failure

    def _push(self, task: _Task) -> None:
        """Run step 2: send the parameters. In the backward pass also start to accept gradients and to read
        states.
        """
        layer = self._store.model.layers[task.layer]
        await_all(task.read)
        iteration = self._store.iteration + 1
        view = memoryview(task.buffers[PARAMETERS])[: layer.used * PARAMETER_BYTES]
        start_ns = time.monotonic_ns()
        asked = self._network.push(iteration, task.phase, task.layer, view)
        task.pushed = [self._watch(asked, "push", task, start_ns, len(view))]
        if task.phase == FORWARD:
            task.pushed[0].add_done_callback(lambda future: self._release(task, [future]))
            return
        view = memoryview(task.buffers[GRADIENTS])[: layer.used * GRADIENT_BYTES]
        start_ns = time.monotonic_ns()
        asked = self._network.pull(iteration, task.layer, view)
        task.accepted = [self._watch(asked, "accept gradients", task, start_ns, len(view))]
        task.read = self._read(task, STATES) if STATES in task.buffers else []
        self._steps["update"].put(task)

    def _update(self, task: _Task) -> None:
        """Run steps 3 to 5: wait for gradients and states, update, and write."""
        layer = self._store.model.layers[task.layer]
        await_all(task.accepted)
        gradients = views(layer, memoryview(task.buffers[GRADIENTS]), torch.float32)
        if self._norm is not None and task.phase == BACKWARD:
            check_finite("gradients", layer, gradients)
            with self._span("norm", task.phase, task.layer):
                self._norm.see(task.layer, gradients)
            self._write(task, (GRADIENTS,), task.pushed)
            return
        await_all(task.read)
        await_all(task.pushed)
        states = memoryview(task.buffers[STATES])
        masters, firsts, seconds = (views(layer, states, torch.float32, part) for part in range(_PARTS))
        parameters = views(layer, memoryview(task.buffers[PARAMETERS]), self._dtype)
        with self._span("update", task.phase, task.layer):
            if self._norm is not None:
                self._norm.clip(gradients, self._total)
            iteration = self._store.iteration + 1
            self._rule.update(layer, iteration, parameters, masters, firsts, seconds, gradients)
        self._write(task, (STATES, PARAMETERS), [])

    def _commit(self) -> None:
        iteration = self._store.iteration + 1
        self._rule.advance()
        settings = packed(self._rule)
        try:
            with self._span("commit", "commit", -1, iteration):
                self._store.commit(settings)
        except BaseException:  # restore the user's optimizer and schedule
            self._rule.restore(unpacked(self._settings))
            raise
        self._settings = settings

    # ------------------------------------------------------------ waiting

    def _read(self, task: _Task, kind: str) -> list[Future[None]]:
        return self._move(self._store.read, task, kind)

    def _write(self, task: _Task, kinds: Sequence[str], also: Sequence[Future[None]]) -> None:
        """Write these buffers; release the task when they and the futures in `also` are done."""
        futures = [future for kind in kinds for future in self._move(self._store.write, task, kind)]
        when_all([*futures, *also], lambda: self._release(task, [*futures, *also]))

    def _move(
        self,
        function: Callable[[str, int, memoryview, Purpose], list[Future[None]]],
        task: _Task,
        kind: str,
    ) -> list[Future[None]]:
        purpose = Purpose(self._store.iteration + 1, task.phase, task.layer)
        return function(kind, task.layer, memoryview(task.buffers[kind]), purpose)

    def _release(self, task: _Task, futures: Sequence[Future[None]]) -> None:
        for future in futures:
            if (problem := future.exception()) is not None:
                self._fail(problem)
                return
        buffers = list(task.buffers.values())
        # futures keep callbacks, and so the task, alive: drop its references now, not at garbage collection
        task.buffers, task.read, task.pushed, task.accepted = {}, [], [], []
        self.pool.give(buffers)
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def _watch(self, asked: Future[None], place: str, task: _Task, start_ns: int, size: int) -> Future[None]:
        """Record a request's span. Return a future that completes when `asked` does, or fails when the
        iteration fails.
        """
        own: Future[None] = Future()
        iteration = self._store.iteration + 1

        def settle(done: Future[None]) -> None:
            with self._changed:
                self._waits.discard(own)
            span = Span(place, iteration, task.phase, task.layer, start_ns, time.monotonic_ns(), size)
            self._store.spans.add(span)
            problem = Cancelled(f"{place} was cancelled") if done.cancelled() else done.exception()
            with contextlib.suppress(InvalidStateError):
                own.set_result(None) if problem is None else own.set_exception(problem)

        with self._changed:
            self._waits.add(own)
            failed = self._failure
        if failed is not None:
            with contextlib.suppress(InvalidStateError):
                own.set_exception(failed)
        asked.add_done_callback(settle)
        return own

    def _fail(self, problem: BaseException) -> None:
        """Record the first failure, and fail or wake everything that waits."""
        with self._changed:
            if self._failure is None:
                self._failure = problem
            waits, self._waits = self._waits, set()
            self._changed.notify_all()
        self.pool.stop()
        for own in waits:
            with contextlib.suppress(InvalidStateError):
                own.set_exception(problem)

    @contextlib.contextmanager
    def _span(self, place: str, phase: str, layer: int, iteration: int | None = None) -> Iterator[None]:
        start_ns = time.monotonic_ns()
        yield
        number = self._store.iteration + 1 if iteration is None else iteration
        self._store.spans.add(Span(place, number, phase, layer, start_ns, time.monotonic_ns(), 0))


class Cancelled(LuwuError):
    """The network cancelled a request."""


class _Step:
    """A queue of tasks, and the thread that runs a step for each."""

    def __init__(
        self, name: str, function: Callable[[_Task], None], fail: Callable[[BaseException], None]
    ) -> None:
        self._function = function
        self._fail = fail
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"luwu {name}", daemon=True)
        self._thread.start()

    def put(self, task: _Task) -> None:
        self._tasks.put(task)

    def close(self) -> None:
        self._tasks.put(None)
        self._thread.join()

    def _serve(self) -> None:
        failed = False
        while (task := self._tasks.get()) is not None:
            if failed:
                continue
            try:
                self._function(task)
            except BaseException as problem:
                failed = True
                self._fail(problem)


def _sizes(layer: Layer, phase: str, clipped: bool) -> dict[str, int]:
    """Return the sizes of the buffers that a layer needs in a phase."""
    sizes = {PARAMETERS: layer.parameters_bytes}
    if phase != FORWARD:
        sizes[GRADIENTS] = layer.gradients_bytes
    if phase == UPDATE or (phase == BACKWARD and not clipped):
        sizes[STATES] = layer.states_bytes
    return sizes


def await_all(futures: Sequence[Future[None]]) -> None:
    """Wait until all futures have ended, since they may use their buffers until then. Raises the first
    error.
    """
    wait(futures)
    for future in futures:
        future.result()


def when_all(futures: Sequence[Future[None]], function: Callable[[], None]) -> None:
    """Call a function when all futures have ended, on the thread of the last one."""
    left = len(futures)
    lock = threading.Lock()

    def count(_: Future[None]) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = left == 0
        if last:
            function()

    for future in futures:
        future.add_done_callback(count)


def packed(rule: Rule) -> bytes:
    """Serialise a rule's settings for a commit."""
    content, settings = io.BytesIO(), rule.settings()
    torch.save({each.name: getattr(settings, each.name) for each in fields(settings)}, content)
    return content.getvalue()


def unpacked(settings: bytes) -> RuleSettings:
    """Parse the settings of a commit, for `Rule.restore`. Raises StoreError."""
    try:
        value = torch.load(io.BytesIO(settings), weights_only=True)
    except (RuntimeError, pickle.UnpicklingError) as problem:
        raise StoreError(f"the committed settings cannot be read: {problem}") from problem
    return RuleSettings(**value)
