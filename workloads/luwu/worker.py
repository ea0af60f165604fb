"""The transport of a worker to an optimizer node on another host: parameters and gradients travel by the
job's owned tree, calls by TCP.

Imports torch and, from the project, the node's parts.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import queue
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from workloads.luwu.calls import (
    CLEAR,
    CLOSE,
    NORM,
    NOT_FINITE,
    PULL,
    PUSH,
    RECORD,
    STATES,
    STEP,
    Connection,
    Exponent,
    FirstValue,
    Greeting,
    Message,
    NodeCall,
    NodeFailure,
    Opened,
    Reply,
    ValueQuestion,
)
from workloads.luwu.errors import LuwuError
from workloads.luwu.layout import GRADIENT_BYTES, PARAMETER_BYTES, Model
from workloads.luwu.nic import Facts, Nic, Request, Tree
from workloads.luwu.rates import Rates
from workloads.luwu.rule import Rule
from workloads.luwu.seen import Seen
from workloads.luwu.states import Moments
from workloads.luwu.transport import AT_STEP, IN_BACKWARD, say

T = TypeVar("T")
Answer = tuple[Reply, bytes]
"""A reply, and the bytes that came with it."""
PUSHES = 3  # pushes of gradients that have a buffer in the memory


@dataclass(frozen=True, slots=True)
class Opening:
    """The arguments with which `initialize` connects to a node."""

    model: Model
    rule: Rule
    values: Callable[[str], torch.Tensor]
    resume: bool
    folders: tuple[str, ...] = ()  # of the node's disks, where the node is another process
    rates: Rates | None = None
    update: str = AT_STEP
    seen: Seen | None = None  # records the requests, for the verdict on a job
    moments: Callable[[str], Moments] | None = None  # the first moments; None: zeros
    start: int = 0  # the iteration of the first values


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request to the tree that is under way, and the function to call when it is done."""

    request: Request
    future: Future[None]
    then: Callable[[], None]


class Distant:
    """A `Transport` to a node on another host.

    `udp` is bound and `control` is connected to the node, which messages call `node`; this object owns both
    sockets from now on. The NIC shares the buffers that `parameters` and `gradients` return: pulls and pushes
    of these need no copy in this process.
    """

    def __init__(
        self,
        opening: Opening,
        tree: Tree,
        udp: socket.socket,
        control: socket.socket,
        node: str,
        host: bool = False,
        added: Callable[[int], None] = lambda _: None,
        ended: Callable[[Facts], None] = lambda _: None,
    ) -> None:
        """`added` is called with the bytes of gradients of each push that has ended, and `ended` with the
        NIC's counters when this transport closes.
        """
        self._added, self._ended, self._is_closed = added, ended, False
        self._model, self._rule = opening.model, opening.rule
        self._settings_due = self._updates_within = opening.update == IN_BACKWARD
        self._reason: str | None = None
        self._lock = threading.Lock()
        self._number = 0
        self._replies: dict[int, Future[Answer]] = {}
        self._iteration = 0
        layers = self._model.layers
        self._starts: list[int] = []
        end = 0
        for layer in layers:
            self._starts.append(end)
            end += _pages(layer.used * PARAMETER_BYTES)
        slot = _pages(max(layer.used for layer in layers) * GRADIENT_BYTES)
        self._slots = [end + number * slot for number in range(PUSHES)]
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._lent: set[int] = set()
        for start in self._slots:
            self._free.put(start)
        self._queues: dict[str, queue.SimpleQueue[_Asked | None]] = {
            name: queue.SimpleQueue() for name in ("luwu pulls", "luwu scales", "luwu pushes")
        }
        with contextlib.ExitStack() as stack:
            self._control = Connection(control, node)
            stack.callback(self._control.close)
            room = end + PUSHES * slot
            self._nic = stack.enter_context(Nic(tree, udp, room, host, lambda: self._reason))
            self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._nic.memory))
            self._workers = tree.workers
            self._greet(opening, tree)
            self._threads = [
                threading.Thread(target=self._receive_replies, name="luwu replies", daemon=True),
                *(
                    threading.Thread(target=self._finish, args=(name,), name=name, daemon=True)
                    for name in self._queues
                ),
            ]
            for thread in self._threads:
                thread.start()
            self._stack = stack.pop_all()

    @property
    def iteration(self) -> int:
        return self._iteration

    @property
    def nic(self) -> Nic:
        """Return this worker's end of the tree, for measurements."""
        return self._nic

    # ------------------------------------------------------------ buffers that the NIC shares

    def parameters(self, layer: int) -> torch.Tensor:
        """Return memory that a pull of this layer fills without a copy. `forget` frees it."""
        used = self._model.layers[layer].used
        return torch.frombuffer(
            self._nic.memory,
            dtype=getattr(torch, self._model.dtype),
            count=used,
            offset=self._starts[layer],
        )

    def forget(self, layer: int) -> None:
        """Free the memory of a layer's parameters; they are zeros until the next pull."""
        size = _pages(self._model.layers[layer].used * PARAMETER_BYTES)
        self._nic.forget(self._starts[layer], size)

    def gradients(self, elements: int) -> torch.Tensor:
        """Return zeros that one push sends without a copy; wait while PUSHES others are in use."""
        start = self._free_slot()
        flat = torch.frombuffer(self._nic.memory, dtype=torch.float32, count=elements, offset=start)
        self._lent.add(start)
        return flat.zero_()

    # ------------------------------------------------------------ requests

    def pull(self, layer: int, parameters: memoryview) -> Future[None]:
        start = self._starts[layer]
        size = len(parameters)
        shared = self._offset(parameters) == start
        what = f"pull of layer {self._model.layers[layer].name}"

        def then() -> None:
            if not shared:
                parameters[:] = self._nic.memory[start : start + size]
                self.forget(layer)

        with self._lock:
            self._call(PULL, layer=layer)
            return self._ask("luwu pulls", self._nic.get(what, start, size), then)

    def push(self, layer: int, gradients: memoryview) -> Future[None]:
        size = len(gradients)
        start = self._offset(gradients)
        if start in self._lent:
            self._lent.remove(start)
        else:
            start = self._free_slot()
            self._nic.memory[start : start + size] = gradients
        what = f"push of layer {self._model.layers[layer].name}"
        with self._lock:
            groups = self._rule.groups() if self._settings_due else None
            self._settings_due = False
            number, scale = self._call(PUSH, layer=layer, groups=groups)
            request = self._nic.give_numbers(what, start, size // GRADIENT_BYTES)
            future = self._ask("luwu pushes", request, lambda: self._end_push(start, size))
            scale.add_done_callback(lambda reply: self._set_scale(request, reply, start, size))
            self._queues["luwu scales"].put(
                _Asked(
                    request,
                    Future(),
                    lambda: self._send(Exponent(number, request.measured())),
                )
            )
            return future

    def clear(self) -> Future[None]:
        self._settings_due = self._updates_within
        return _mapped(self._asked(CLEAR), lambda _reply, _content: None)

    def not_finite(self) -> Future[str | None]:
        asked = self._asked(NOT_FINITE)
        return _mapped(asked, lambda reply, _: reply.value and str(reply.value))

    def norm(self, factor: float = 1.0) -> Future[torch.Tensor]:
        asked = self._asked(NORM, factor=factor)
        return _mapped(asked, lambda reply, _: torch.tensor(reply.value))

    def step(self, clip_norm: float | None, factor: float = 1.0) -> Future[int]:
        def take(reply: Reply, _: bytes) -> int:
            self._iteration = int(reply.value)
            return self._iteration

        groups = self._rule.groups()
        return _mapped(self._asked(STEP, clip_norm=clip_norm, factor=factor, groups=groups), take)

    def states(self, layer: int, states: memoryview) -> Future[bool]:
        def take(reply: Reply, content: bytes) -> bool:
            if reply.value:
                states[:] = content
            return bool(reply.value)

        return _mapped(self._asked(STATES, layer=layer), take)

    def record(self, file: Path) -> Future[int]:
        return _mapped(self._asked(RECORD, file=str(file)), lambda reply, _: int(reply.value))

    def close(self) -> None:
        """Close the transport after the requests under way; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(LuwuError), self._lock:
            self._call(CLOSE)
        for each in self._queues.values():
            each.put(None)
        for thread in self._threads[1:]:
            thread.join()
        self._fail("closed")
        self._control.shut()
        self._threads[0].join()
        self._ended(self._nic.facts)
        self._stack.close()

    # ------------------------------------------------------------ within

    def _greet(self, opening: Opening, tree: Tree) -> None:
        """Send the greeting, and the first values that the node asks for, until the node's store is open."""
        self._control.send(
            Greeting(
                worker=tree.worker,
                job=tree.job,
                generation=tree.generation,
                model=self._model.description(),
                dtype=self._model.dtype,
                rule=self._rule.name,
                names=self._rule.names(),
                groups=self._rule.groups(),
                resume=opening.resume,
                start=opening.start,
                moments=opening.moments is not None,
                folders=opening.folders,
                rates=opening.rates,
                update=opening.update,
            )
        )
        while True:
            message, _ = self._control.receive()
            if isinstance(message, NodeFailure):
                raise LuwuError(message.error)
            if isinstance(message, Opened):
                break
            if not isinstance(message, ValueQuestion):
                raise LuwuError(f"{self._control.peer} sent a {type(message).__name__} before it opened")
            if message.part == 0:
                given = opening.values(message.name)
            else:
                assert opening.moments is not None
                given = opening.moments(message.name)[message.part - 1]
            value = given.detach().contiguous()
            kind = str(value.dtype).removeprefix("torch.")
            content = value.reshape(-1).view(torch.uint8).numpy().tobytes()
            self._control.send(FirstValue(kind, tuple(value.shape)), content)
        self._iteration = message.iteration
        self._rule.set_groups(message.groups)
        if tree.worker == 0:
            say(message.notice)

    def _send(self, message: Message) -> None:
        try:
            self._control.send(message)
        except LuwuError as problem:
            self._fail(str(problem))
            raise

    def _call(self, call: str, **needs: Any) -> tuple[int, Future[Answer]]:
        """Send the next call, and return its number and the future of its reply. The caller holds the lock.
        The node does not reply to PULL and CLOSE.
        """
        if self._reason is not None:
            raise LuwuError(self._reason)
        number = self._number
        self._number += 1
        reply: Future[Answer] = Future()
        if call not in (PULL, CLOSE):
            self._replies[number] = reply
        self._send(NodeCall(call=call, number=number, **needs))
        return number, reply

    def _asked(self, call: str, **needs: Any) -> Future[Answer]:
        with self._lock:
            return self._call(call, **needs)[1]

    def _ask(self, name: str, request: Request, then: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        self._queues[name].put(_Asked(request, future, then))
        return future

    def _finish(self, name: str) -> None:
        """Finish the requests of a queue in order: wait for each, call its function, complete its future."""
        while (asked := self._queues[name].get()) is not None:
            try:
                if name != "luwu scales":
                    asked.request.wait()
                asked.then()
                asked.future.set_result(None)
            except BaseException as problem:
                reason = str(problem) if self._reason is None else self._reason
                self._fail(reason)
                asked.future.set_exception(LuwuError(reason))

    def _receive_replies(self) -> None:
        try:
            while True:
                message, content = self._control.receive()
                if isinstance(message, NodeFailure):
                    raise LuwuError(message.error)
                if not isinstance(message, Reply):
                    raise LuwuError(f"{self._control.peer} sent a {type(message).__name__}, and no reply")
                future = self._replies.pop(message.of)
                if message.error is not None:
                    future.set_exception(LuwuError(message.error))
                else:
                    future.set_result((message, content))
        except LuwuError as problem:
            self._fail(str(problem))

    def _fail(self, reason: str) -> None:
        """Record the first reason for which nothing more will come, and fail the replies that are awaited."""
        if self._reason is None:
            self._reason = reason
        for future in list(self._replies.values()):
            with contextlib.suppress(InvalidStateError):
                future.set_exception(LuwuError(self._reason))

    def _end_push(self, start: int, size: int) -> None:
        self._free.put(start)
        self._added(size)

    def _set_scale(self, request: Request, reply: Future[Answer], start: int, size: int) -> None:
        """Give a push its scale, so that it is sent. If some worker's values are not finite, zeros are sent,
        which the node does not use.
        """
        if reply.exception() is None:
            scale = reply.result()[0].scale
            if scale is None:
                self._nic.memory[start : start + size] = bytes(size)
            request.scale(scale or 0)

    def _free_slot(self) -> int:
        while True:
            try:
                return self._free.get(timeout=0.2)
            except queue.Empty:
                if self._reason is not None:
                    raise LuwuError(self._reason) from None

    def _offset(self, buffer: memoryview) -> int:
        """Return a buffer's offset in the memory; of a buffer outside, any other number."""
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer)) - self._base if len(buffer) else -1


def _pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _mapped(asked: Future[Answer], function: Callable[[Reply, bytes], T]) -> Future[T]:
    """Return a future with the value of `function` on a reply."""
    future: Future[T] = Future()

    def settle(reply: Future[Answer]) -> None:
        problem = reply.exception()
        if problem is not None:
            future.set_exception(problem)
        else:
            future.set_result(function(*reply.result()))

    asked.add_done_callback(settle)
    return future
