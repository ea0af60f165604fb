"""Record a worker's requests to its node for the verdict on the job: when each was made, waited for and
answered, and the time that the node's disks need for it at their declared rates.

From the project it imports the timeline and its contract, the layout and the rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from testbed.wire.calls import Course
from workloads.luwu.layout import GRADIENT_BYTES, PARAMETER_BYTES, Layer, Model
from workloads.luwu.rates import Rates
from workloads.timeline import Timeline

T = TypeVar("T")
PARAMETERS, READS, WRITES = "disks' parameters", "disks' reads", "disks' writes"
"""The limits on the node's disks that have declared rates; the first is served before all others."""


class Seen:
    """The requests of one worker.

    `in_step` says when the node updates a layer: in the step, or when the layer's gradients have arrived.
    Each method that takes a request's future returns it.
    """

    def __init__(self, model: Model, rates: Rates | None, disks: int, in_step: bool) -> None:
        self._model, self._in_step = model, in_step
        declared = rates or Rates()
        self._rates = {
            PARAMETERS: _least(declared.read_parameters, declared.reads),
            READS: _least(declared.read_states, declared.reads),
            WRITES: declared.write_states,
        }
        self._disks = disks
        self._pushed: set[int] = set()  # layers, since the last `clear`
        self._timeline = Timeline()
        self._numbers: dict[Future[Any], int] = {}

    def pull(self, layer: int, asked: Future[T]) -> Future[T]:
        """Record a request for a layer's parameters."""
        shape = self._model.layers[layer]
        number = self._ask(shape.used * PARAMETER_BYTES, Course.PULLED, asked)
        self._use(number, PARAMETERS, shape.parameters_bytes, False)
        self._use(number, READS, shape.parameters_bytes, True)
        return asked

    def push(self, layer: int, asked: Future[T]) -> Future[T]:
        shape = self._model.layers[layer]
        number = self._ask(shape.used * GRADIENT_BYTES, Course.PUSHED, asked)
        if not self._in_step:
            self._update(number, [shape], True)
        else:
            if layer in self._pushed:
                self._use(number, READS, shape.gradients_bytes, True)
            self._use(number, WRITES, shape.gradients_bytes, True)
        self._pushed.add(layer)
        return asked

    def clear(self, asked: Future[T]) -> Future[T]:
        self._ask(0, Course.CALLED, asked)
        self._pushed.clear()
        return asked

    def check(self, asked: Future[T]) -> Future[T]:
        """Record a question about the gradients, for which no disk is read."""
        self._ask(0, Course.CALLED, asked)
        return asked

    def states(self, layer: int, asked: Future[T]) -> Future[T]:
        """Record a request for a layer's states."""
        self._use(self._ask(0, Course.CALLED, asked), READS, self._model.layers[layer].states_bytes, False)
        return asked

    def norm(self, asked: Future[T]) -> Future[T]:
        number = self._ask(0, Course.CALLED, asked)
        self._use(number, READS, sum(each.gradients_bytes for each in self._model.layers), False)
        return asked

    def step(self, asked: Future[T], clipped: bool) -> Future[T]:
        number = self._ask(0, Course.CALLED, asked)
        if self._in_step:
            layers = self._model.layers
            gradients_bytes = sum(each.gradients_bytes for each in layers)
            self._use(number, READS, gradients_bytes * (2 if clipped else 1), False)
            self._update(number, layers, False)
        return asked

    def waited(self, asked: Future[T]) -> T:
        """Wait for a request, record the wait, and return the request's result."""
        number = self._numbers.pop(asked, None)
        if number is None:
            return asked.result()
        self._timeline.wait(number)
        try:
            return asked.result()
        finally:
            self._timeline.resume(number)

    def summary(self) -> dict[str, Any]:
        """Return the timeline as JSON: `Timeline.summary`."""
        return dict(self._timeline.summary())

    def _ask(self, size_bytes: int, kind: Course, asked: Future[T]) -> int:
        number: int = self._timeline.ask(size_bytes, int(kind))
        self._numbers[asked] = number
        asked.add_done_callback(lambda _: self._timeline.is_there(number))
        return number

    def _update(self, number: int, layers: Sequence[Layer], behind: bool) -> None:
        self._use(number, READS, sum(each.states_bytes for each in layers), behind)
        self._use(number, WRITES, sum(each.states_bytes + each.parameters_bytes for each in layers), behind)

    def _use(self, number: int, queue: str, size_bytes: int, behind: bool) -> None:
        rate = self._rates[queue]
        if rate is not None:
            self._timeline.use(number, queue, size_bytes / (rate * self._disks), behind)


def _least(*rates: float | None) -> float | None:
    return min((rate for rate in rates if rate is not None), default=None)
