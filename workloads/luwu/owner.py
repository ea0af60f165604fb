"""The optimizer node's side of a job: a store, which the workers' calls update, and the owner's end of their
tree.

Carries out the n-th call when all workers have made it. Imports torch and, from the project, the node's
parts.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

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
    GoneError,
    Greeting,
    Message,
    NodeCall,
    NodeFailure,
    Opened,
    Reply,
    ValueQuestion,
)
from workloads.luwu.errors import LuwuError
from workloads.luwu.layout import GRADIENT_BYTES, PARAMETER_BYTES, STATE_BYTES, Layer, Model, Tensor
from workloads.luwu.nic import Nic, Request, Tree, scale_of
from workloads.luwu.node import BACKWARD, FORWARD
from workloads.luwu.rule import RULES, Rule, first_states, placeholders
from workloads.luwu.spans import Span
from workloads.luwu.standing import Now, StatusWriter
from workloads.luwu.store import Store
from workloads.luwu.transport import Local, say

M = TypeVar("M", NodeCall, Exponent)
_SLOTS = 2  # layers under way in a stream
_LAYERS = 2  # layers that have buffers for their update
_NO_NUMBER = 255  # the exponent of NaN and infinity
_LOOK_S = 0.5
_ALIKE = (
    *("model", "dtype", "rule", "names", "groups", "resume", "start", "moments"),
    *("folders", "rates", "update"),
)  # fields that must be equal in all workers' greetings


@dataclass(slots=True)
class _Worker:
    """A worker's connection, its greeting, and the messages from it that were not handled yet."""

    connection: Connection
    greeting: Greeting
    calls: queue.SimpleQueue[NodeCall]
    exponents: queue.SimpleQueue[Exponent]


class Owner:
    """Serves the workers of a job until they have closed. `names` are the workers' names in messages."""

    def __init__(
        self,
        tree: Tree,
        udp: socket.socket,
        listener: socket.socket,
        names: Sequence[str],
        host: bool = False,
        slate_fd: int = -1,
    ) -> None:
        """`slate_fd` is the descriptor of the slate to which the node's status is written; -1: none."""
        self._slate_fd = slate_fd
        self._tree, self._udp, self._listener = tree, udp, listener
        self._names, self._host = names, host
        self._reason: str | None = None
        self._refusal: str | None = None
        self._over = threading.Event()
        self._workers: list[_Worker] = []
        self._threads: list[threading.Thread] = []

    def serve(self) -> None:
        """Serve until all workers have closed. Raises LuwuError, after reporting it to the workers."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._listener)
            stack.callback(self._udp.close)
            self._meet(stack)
            try:
                model, rule, store = self._opened()
                with contextlib.ExitStack() as undo:
                    undo.callback(store.close)
                    local = Local(store, rule, self._workers[0].greeting.update, _LAYERS)
                    undo.pop_all()
            except LuwuError as problem:
                self._send_to_all(NodeFailure(str(problem)))
                raise
            stack.callback(local.close)
            sizes = [
                max(layer.used for layer in model.layers) * each for each in (PARAMETER_BYTES, GRADIENT_BYTES)
            ]
            starts = [0, _SLOTS * -(-sizes[0] // 4096) * 4096]
            room = starts[1] + _SLOTS * -(-sizes[1] // 4096) * 4096
            nic = stack.enter_context(Nic(self._tree, self._udp, room, self._host, lambda: self._reason))
            steps = [-(-size // 4096) * 4096 for size in sizes]
            self._send_to_all(Opened(store.iteration, rule.groups(), store.notice))
            for number, worker in enumerate(self._workers):
                thread = threading.Thread(
                    target=self._receive, args=(number, worker), name=f"luwu worker {number}", daemon=True
                )
                self._threads.append(thread)
                thread.start()
            carrier = stack.enter_context(
                contextlib.closing(
                    _Carrier(
                        self,
                        model,
                        rule,
                        store,
                        local,
                        nic,
                        [
                            [start + number * step for number in range(_SLOTS)]
                            for start, step in zip(starts, steps, strict=True)
                        ],
                    )
                )
            )
            try:
                with StatusWriter(self._slate_fd, carrier.now):
                    carrier.carry_out()
            except LuwuError as problem:
                reason = self._reason or str(problem)
                self.fail(reason)
                raise LuwuError(reason) from problem
            finally:
                self._over.set()
                for worker in self._workers:
                    worker.connection.shut()
                for thread in self._threads:
                    thread.join()

    # ------------------------------------------------------------ for _Carrier

    def next_calls(self) -> list[NodeCall]:
        """Wait for the next call of each worker, and return them. Raises LuwuError when no more will come."""
        return [self._next(worker.calls) for worker in self._workers]

    def next_exponents(self) -> list[int]:
        """Wait for the next exponent of each worker, and return them."""
        return [self._next(worker.exponents).exponent for worker in self._workers]

    def name(self, worker: int) -> str:
        return f"worker {worker} ({self._names[worker]})"

    def fail(self, reason: str) -> None:
        """Report the node's end to all workers. The first reason is also that of everything that fails
        later.
        """
        if self._reason is None:
            self._reason = reason
        self._send_to_all(NodeFailure(reason))

    def refused(self, problem: str | None) -> None:
        """Record why the last call was refused (None: it was not). If a worker leaves then, this is reported
        as the cause.
        """
        self._refusal = problem

    def answer(self, reply: Reply) -> None:
        """Send a reply to all workers."""
        self._send_to_all(reply)

    def answer_first(self, number: int, content: memoryview) -> None:
        """Send content to the first worker, and a reply without content to the others."""
        for worker in self._workers:
            first = worker is self._workers[0]
            with contextlib.suppress(GoneError):
                worker.connection.send(Reply(number, value=first), content if first else b"")

    # ------------------------------------------------------------ within

    def _next(self, messages: queue.SimpleQueue[M]) -> M:
        while True:
            try:
                return messages.get(timeout=0.2)
            except queue.Empty:
                if self._reason is not None:
                    raise LuwuError(self._reason) from None

    def _meet(self, stack: contextlib.ExitStack) -> None:
        """Wait until all workers have connected and greeted."""
        met: dict[int, _Worker] = {}
        while len(met) < self._tree.workers:
            end, address = self._listener.accept()
            connection = Connection(end, f"the worker at {address[0]}")
            stack.callback(connection.close)
            greeting, _ = connection.expect(Greeting)
            number = greeting.worker
            connection.peer = self.name(number)
            if (greeting.job, greeting.generation) != (self._tree.job, self._tree.generation):
                connection.send(NodeFailure(f"this is the optimizer node of job {self._tree.job}"))
                continue
            met[number] = _Worker(connection, greeting, queue.SimpleQueue(), queue.SimpleQueue())
        self._workers = [met[number] for number in range(self._tree.workers)]

    def _opened(self) -> tuple[Model, Rule, Store]:
        """Open or create the store of the model that all workers have. Raises LuwuError where the workers'
        greetings differ.
        """
        first = self._workers[0].greeting
        for number, worker in enumerate(self._workers):
            for name in _ALIKE:
                theirs, ours = (_shown(each, name) for each in (worker.greeting, first))
                if theirs != ours:
                    raise LuwuError(
                        f"{self.name(number)} has another {name} than {self.name(0)}: "
                        f"{_difference(theirs, ours)}"
                    )
        layers = [
            Layer(name, tuple(Tensor(each, shape) for each, shape in tensors))
            for name, tensors in first.model
        ]
        model = Model(layers, first.dtype)
        named = placeholders(model)
        groups = [{"params": [named[name] for name in names]} for names in first.names]
        if first.rule not in RULES:
            raise LuwuError(f"optimizer {first.rule}: accepted are {', '.join(RULES)}")
        rule = Rule(RULES[first.rule](groups, fused=True), model, named)
        rule.set_groups(first.groups)
        dtype = getattr(torch, model.dtype)
        folders = [Path(folder) for folder in first.folders]
        if first.resume:
            store = Store.resume(folders, model, rule.name, first.rates)
            say(store.notice)
            return model, rule, store
        fill = first_states(partial(self._value, 0), dtype, self._moments if first.moments else None)
        return model, rule, Store.create(folders, model, rule.name, fill, first.rates, first.start)

    def _moments(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        return self._value(1, name), self._value(2, name)

    def _value(self, part: int, name: str) -> torch.Tensor:
        """Ask the first worker for a first value of a tensor: its weights (part 0) or a moment (1 and 2)."""
        connection = self._workers[0].connection
        connection.send(ValueQuestion(name, part))
        value, content = connection.expect(FirstValue)
        flat = torch.frombuffer(bytearray(content), dtype=getattr(torch, value.dtype))
        return flat.view(value.shape)

    def _send_to_all(self, message: Message) -> None:
        for worker in self._workers:
            with contextlib.suppress(GoneError):
                worker.connection.send(message)

    def _receive(self, number: int, worker: _Worker) -> None:
        closed = False
        try:
            while True:
                message, _ = worker.connection.receive()
                if isinstance(message, NodeCall):
                    closed = closed or message.call == CLOSE
                    worker.calls.put(message)
                elif isinstance(message, Exponent):
                    worker.exponents.put(message)
                else:
                    raise LuwuError(f"{self.name(number)} sent a {type(message).__name__}, and no call")
        except LuwuError as problem:
            if not closed and not self._over.is_set() and self._reason is None:
                gone = self._refusal or f"{self.name(number)} is gone"
                self.fail(gone if isinstance(problem, GoneError) else str(problem))


class _Carrier:
    """Carries out the calls in their order. Transfers of parameters and gradients go on while the next calls
    begin.
    """

    def __init__(
        self,
        owner: Owner,
        model: Model,
        rule: Rule,
        store: Store,
        local: Local,
        nic: Nic,
        slots: list[list[int]],
    ) -> None:
        self._store, self._call, self._layer = store, "", -1
        self._forward: set[int] = set()  # layers pulled in this iteration
        self._watches = {name: _Watch(store, name) for name in ("push", "accept gradients")}
        self._owner, self._model, self._rule, self._local, self._nic = owner, model, rule, local, nic
        self._names = [layer.name for layer in model.layers]
        self._parameters, self._gradients = slots
        self._pulls: list[Future[None]] = []  # under way, oldest first; they use the slots in turn
        self._pushes: list[Future[None]] = []
        self._pulled = self._pushed = 0

    def close(self) -> None:
        for each in self._watches.values():
            each.close()

    def now(self) -> Now:
        """Return the node's present state; another thread calls this."""
        facts = self._nic.facts
        return Now(
            iteration=self._store.iteration,
            layers=len(self._names),
            call=self._call or "start",
            layer=self._names[self._layer] if self._layer >= 0 else "",
            pulls=len(self._pulls),
            pushes=len(self._pushes),
            given=facts.given,
            gotten=facts.gotten,
            disks=self._store.disks_now(),
        )

    def carry_out(self) -> None:
        acts: dict[str, Callable[[NodeCall, int], None]] = {
            PULL: self._pull,
            PUSH: self._push,
            STATES: self._states,
        }
        while True:
            calls = self._owner.next_calls()
            self._compare(calls)
            call = calls[0]
            self._call, self._layer = call.call, -1 if call.layer is None else call.layer
            if call.call == CLOSE:
                # no worker waits any more; a NIC that ends before its beat loses the last acknowledgement
                return
            if call.call in acts:
                acts[call.call](call, self._layer)
                continue
            self._settle()
            try:
                value = self._value(call)
            except LuwuError as problem:
                self._owner.refused(str(problem))
                self._owner.answer(Reply(call.number, error=str(problem)))
            else:
                self._owner.refused(None)
                self._owner.answer(Reply(call.number, value=value))

    def _compare(self, calls: Sequence[NodeCall]) -> None:
        first = calls[0]
        for number, call in enumerate(calls):
            if call != first:
                words = [each.in_words(self._names) for each in (call, first)]
                if words[0] == words[1]:
                    words = [
                        f"{each} with {call.groups and json.loads(call.groups)}"
                        for each, call in zip(words, (call, first), strict=True)
                    ]
                raise LuwuError(
                    f"{self._owner.name(number)} asks for {words[0]}, {self._owner.name(0)} for {words[1]}: "
                    f"all workers make the same calls in the same order"
                )

    def _pull(self, call: NodeCall, number: int) -> None:
        layer = self._model.layers[number]
        if len(self._pulls) == _SLOTS:
            self._pulls.pop(0).result()
        start = self._parameters[self._pulled % _SLOTS]
        self._pulled += 1
        size = layer.used * PARAMETER_BYTES
        self._local.pull(number, self._nic.memory[start : start + size]).result()
        phase = BACKWARD if number in self._forward else FORWARD
        self._forward.add(number)
        given = self._nic.give(f"parameters of layer {layer.name}", start, size)
        self._pulls.append(self._watches["push"].watch(given, phase, number, size))

    def _push(self, call: NodeCall, number: int) -> None:
        layer = self._model.layers[number]
        if len(self._pushes) == _SLOTS:
            self._pushes.pop(0).result()
        if call.groups is not None:
            self._rule.set_groups(call.groups)
        start = self._gradients[self._pushed % _SLOTS]
        self._pushed += 1
        exponents = self._owner.next_exponents()
        whose = [worker for worker, exponent in enumerate(exponents) if exponent >= _NO_NUMBER]
        what = f"gradients of layer {layer.name}"
        refusal = None
        if whose:  # all workers send zeros
            names = ", ".join(self._owner.name(worker) for worker in whose)
            refusal = f"{names}: {what} have NaN or infinity"
        workers = len(exponents)
        scale = 0 if whose else scale_of(max(exponents), workers)
        request = self._nic.get_numbers(what, start, layer.used, 2.0**-scale / workers)
        self._owner.answer(Reply(call.number, scale=None if whose else scale))
        size = layer.used * GRADIENT_BYTES
        accepted = self._watches["accept gradients"].watch(request, BACKWARD, number, size)
        gradients = self._nic.memory[start : start + size]
        self._pushes.append(self._local.push(number, gradients, accepted, refusal))

    def _states(self, call: NodeCall, number: int) -> None:
        """Send a layer's states to the first worker over its connection: only one worker needs them."""
        content = memoryview(bytearray(self._model.layers[number].used * STATE_BYTES))
        self._settle()
        self._local.states(number, content).result()
        self._owner.answer_first(call.number, content)

    def _settle(self) -> None:
        while self._pushes:
            self._pushes.pop(0).result()

    def _value(self, call: NodeCall) -> object:
        if call.call == CLEAR:
            self._local.clear().result()
            return None
        if call.call == NORM:
            return float(self._local.norm(call.factor).result())
        if call.call == NOT_FINITE:
            return self._local.not_finite().result()
        if call.call == RECORD:
            assert call.file is not None
            return self._local.record(Path(call.file)).result()
        assert call.call == STEP
        assert call.groups is not None
        self._forward.clear()
        self._rule.set_groups(call.groups)
        return self._local.step(call.clip_norm, call.factor).result()


class _Watch:
    """Waits for a stream's requests in their order, and adds their spans to the store's record."""

    def __init__(self, store: Store, place: str) -> None:
        self._store, self._place = store, place
        self._asked: queue.SimpleQueue[tuple[Request, Future[None], Span] | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"luwu {place}", daemon=True)
        self._thread.start()

    def watch(self, request: Request, phase: str, layer: int, size_bytes: int) -> Future[None]:
        """Return a future that completes when the request is done. The request owns its buffer until then."""
        future: Future[None] = Future()
        iteration, now_ns = self._store.iteration + 1, time.monotonic_ns()
        self._asked.put((request, future, Span(self._place, iteration, phase, layer, now_ns, 0, size_bytes)))
        return future

    def close(self) -> None:
        """Stop the thread; requests under way fail."""
        self._over.set()
        self._asked.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            request, future, span = asked
            try:
                while True:
                    with contextlib.suppress(TimeoutError):
                        request.wait(_LOOK_S)
                        break
                    if self._over.is_set():
                        raise LuwuError("closed")
            except LuwuError as problem:
                future.set_exception(problem)
                continue
            self._store.spans.add(replace(span, end_ns=time.monotonic_ns()))
            future.set_result(None)


def _shown(greeting: Greeting, name: str) -> object:
    """Return a field of a greeting as messages show it: settings and rates by name, lists instead of
    tuples.
    """
    value = getattr(greeting, name)
    return json.loads(value if name == "groups" else json.dumps(value, default=asdict))


def _difference(theirs: object, ours: object) -> str:
    if isinstance(theirs, list) and isinstance(ours, list):
        for each, other in zip(theirs, ours, strict=False):
            if each != other:
                return f"{each} and {other}"
        return f"{len(theirs)} and {len(ours)} of them"
    return f"{theirs} and {ours}"
