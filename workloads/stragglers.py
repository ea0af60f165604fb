"""Delay workers on purpose, by the Slow Worker Pattern (testbed/wire/stragglers.py).

A script that names its delay points uses `DelayPoints`. `install` adds delay points to an unchanged script,
for `testbed run --stragglers` (docs/training.md, "Slow workers").

A delay is a sleep. Only `install` imports torch, so that an undelayed worker pays nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import operator
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from testbed.wire.stragglers import POINTS, Slowed, SlowWorkers
from workloads.job_env import VARIABLE, JobEnv, NotInJobError, of_worker

WARM_UP, MEASURED = 2, 5  # iterations: for torch's first call and DDP's first bucket layout; then measured
FIRST = WARM_UP + MEASURED + 1  # the first iteration that may be slow, if the typical time is measured
MOST_ROWS = 20_000  # delays recorded one by one; later ones are only counted
FORWARD, BACKWARD, SUM = range(len(POINTS))


@dataclass(frozen=True, slots=True)
class DelayRecord:
    """The record of a worker's delays.

    `asked` is the pattern, `first` the first iteration that may be slow. A row of `rows` has: iteration,
    point, begin (CLOCK_MONOTONIC), requested length, and actual length, times in nanoseconds. `typical_s` is
    the typical iteration time, None while it is not known.
    """

    asked: str
    typical_s: float | None
    iterations: int
    first: int
    count: int
    seconds: float
    rows: tuple[tuple[int, int, int, int, int], ...]

    def __add__(self, other: DelayRecord) -> DelayRecord:
        """Return both records as one, with this one's pattern."""
        return replace(
            self,
            iterations=self.iterations + other.iterations,
            count=self.count + other.count,
            seconds=self.seconds + other.seconds,
            rows=(*self.rows, *other.rows)[:MOST_ROWS],
        )

    def as_statistics(self) -> dict[str, object]:
        """Return the record by its fields' names, as statistics need it."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


class Delays:
    """Makes and records the delays of one worker. Iterations count from 0. `sleep` is called with seconds.

    The typical iteration time is declared, or it is the median of the first MEASURED iterations after
    WARM_UP. No worker is slow in these, so that the median includes the model, the links and the machine, but
    no delay. Thread-safe as long as points come one after the other.
    """

    def __init__(
        self, pattern: SlowWorkers, rank: int, world_size: int, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._pattern, self._rank, self._world_size, self._sleep = pattern, rank, world_size, sleep
        self._lock = threading.Lock()
        self._began_ns: list[int] = []  # of the first iterations
        self._typical_s = pattern.iteration_s
        self._iterations = 0
        self._count, self._slept_ns = 0, 0
        self._rows: list[tuple[int, int, int, int, int]] = []

    @property
    def slept_s(self) -> float:
        """Return how long this worker has slept so far, in seconds."""
        return self._slept_ns / 1e9

    def begin(self) -> int:
        """Begin an iteration, and return its number."""
        number, self._iterations = self._iterations, self._iterations + 1
        if number < FIRST:
            self._began_ns.append(time.monotonic_ns())
            if number == FIRST - 1 and self._typical_s is None:
                began = self._began_ns[WARM_UP:]
                self._typical_s = statistics.median(
                    (after - before) / 1e9 for before, after in itertools.pairwise(began)
                )
        return number

    def take(self, iteration: int, point: int) -> None:
        """Sleep, if this worker is slow at this point of this iteration."""
        if self._typical_s is None or (self._pattern.iteration_s is None and iteration < FIRST):
            return
        factor = self._pattern.factor(self._rank, self._world_size, iteration, point)
        if not factor:
            return
        asked_s = factor * self._typical_s
        began_ns = time.monotonic_ns()
        try:
            self._sleep(asked_s)
        finally:  # a delay cut short by the script's end counts with its actual length
            slept_ns = time.monotonic_ns() - began_ns
            with self._lock:
                self._count += 1
                self._slept_ns += slept_ns
                if len(self._rows) < MOST_ROWS:
                    self._rows.append((iteration, point, began_ns, round(asked_s * 1e9), slept_ns))

    def summary(self) -> DelayRecord:
        """Return the record so far."""
        with self._lock:
            return DelayRecord(
                asked=str(self._pattern),
                typical_s=self._typical_s,
                iterations=self._iterations,
                first=0 if self._pattern.iteration_s is not None else FIRST,
                count=self._count,
                seconds=round(self._slept_ns / 1e9, 6),
                rows=tuple(self._rows),
            )


class Hooks:
    """The delay points of a script that has none of its own.

    An iteration ends with its first sum: of gradients in a backward pass or, where a script sums none there,
    after a step of its optimizer. The points are before the forward pass of a DistributedDataParallel,
    between that and the backward pass, and before the first sum. A point that a script never reaches (it has
    no DistributedDataParallel) is made up at the next one, so that each iteration has three before its first
    sum.
    """

    def __init__(self, delays: Delays) -> None:
        self._delays = delays
        self._iteration: int | None = None
        self._next = FORWARD
        self._is_armed = True
        self._sees_forward = self._sees_backward = self._sees_steps = False
        self._pass = -1  # the latest backward pass that summed
        self.stands_back = False  # whether the script has delay points of its own

    def forward(self) -> None:
        """Handle the start of a training forward pass of a DistributedDataParallel."""
        self._sees_forward = self._is_armed = True
        self._reach(FORWARD)

    def forward_is_done(self) -> None:
        self._reach(BACKWARD)

    def stepped(self) -> None:
        """Handle a step of an optimizer."""
        self._sees_steps = True
        if not self._sees_forward:
            self._is_armed = True

    def sums(self, backward: int) -> None:
        """Handle the script's request for a sum, in the backward pass of this number; -1: outside a backward
        pass.
        """
        if backward != -1:
            if not self._sees_forward and backward != self._pass:
                self._is_armed = True
            self._sees_backward, self._pass = True, backward
        elif self._sees_backward or not (self._sees_forward or self._sees_steps):
            return  # a sum of something other than gradients
        if self._is_armed:
            self._reach(SUM)
            self._is_armed, self._iteration, self._next = False, None, FORWARD

    def _reach(self, point: int) -> None:
        if self.stands_back:
            return
        if self._iteration is None:
            self._iteration = self._delays.begin()
        while self._next <= point:
            self._next += 1
            self._delays.take(self._iteration, self._next - 1)


_all: list[Delays] = []  # of this process
_hooks: Hooks | None = None
_asked: Delays | None = None  # the delays that `testbed run --stragglers` asks for


class DelayPoints:
    """Delay points that a script names itself:
        slow = DelayPoints(p=0.16, seed=1)
        for images, labels in loader:
            with slow.iteration() as point:
                point()
                loss = loss_of(model(images), labels)
                point()
                loss.backward()
                point()
                optimiser.step()

    An iteration has three points; those that the script did not call are made up at the iteration's end.
    `iteration_s` is the typical iteration time (None: measured). `workers` is `each` or `one`. Rank and world
    size come from torch's launcher variables, unless given. In a job with --stragglers these points are used
    with that option's pattern, instead of those that `install` adds. Raises ValueError for arguments that are
    not accepted.
    """

    def __init__(
        self,
        p: float = 0.0,
        seed: int = 1,
        workers: str = Slowed.EACH,
        iteration_s: float | None = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        try:
            pattern = SlowWorkers(p, seed, Slowed(workers), iteration_s)
        except Exception as error:  # a script's author does not know the testbed's error types
            raise ValueError(str(error)) from None
        if _hooks is not None and _asked is not None:
            _hooks.stands_back = True
            self._delays = _asked
            return
        mine = int(os.environ.get("RANK", "0")) if rank is None else rank
        size = int(os.environ.get("WORLD_SIZE", "1")) if world_size is None else world_size
        self._delays = _recorded(Delays(pattern, mine, size))

    @property
    def slept_s(self) -> float:
        """Return for how long this worker has slept so far."""
        return self._delays.slept_s

    @contextlib.contextmanager
    def iteration(self) -> Iterator[Callable[[], None]]:
        """Begin an iteration; the script calls the function that this yields at each delay point. The fourth
        call raises RuntimeError.
        """
        points = iter(range(len(POINTS)))
        number = self._delays.begin()

        def point() -> None:
            which = next(points, None)
            if which is None:
                raise RuntimeError(f"iteration {number} has {len(POINTS)} delay points, and all were taken")
            self._delays.take(number, which)

        yield point
        for left in points:
            self._delays.take(number, left)


def install(asked: str, rank: int, world_size: int) -> None:
    """Add delay points to this worker's script, by the pattern in `asked` (read by `SlowWorkers.parse`), for
    rank `rank` of `world_size` workers.
    """
    global _hooks, _asked
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim.optimizer import register_optimizer_step_post_hook

    _asked = _recorded(Delays(SlowWorkers.parse(asked), rank, world_size))
    _hooks = hooks = Hooks(_asked)
    made: Any = DistributedDataParallel.__init__

    @functools.wraps(made)
    def with_points(self: Any, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        self.register_forward_pre_hook(_before_forward)
        self.register_forward_hook(_after_forward)

    vars_of: Any = DistributedDataParallel
    vars_of.__init__ = with_points
    register_optimizer_step_post_hook(lambda *_: hooks.stepped())


def _trains(module: Any) -> bool:
    import torch

    return bool(module.training and torch.is_grad_enabled())


def _before_forward(module: Any, _arguments: Any) -> None:
    if _hooks is not None and _trains(module):
        _hooks.forward()


def _after_forward(module: Any, _arguments: Any, _result: Any) -> None:
    if _hooks is not None and _trains(module):
        _hooks.forward_is_done()


def is_installed() -> bool:
    """Return whether `install` added delay points to this worker's script."""
    return _hooks is not None


def before_sum() -> None:
    """Handle this thread's request for a sum over all workers: a delay point."""
    if _hooks is not None:
        import torch

        _hooks.sums(torch._C._current_graph_task_id())


def slept_s() -> float:
    """Return how long this process has slept on purpose so far, in seconds."""
    return sum(each.slept_s for each in _all)


def summary() -> DelayRecord | None:
    """Return the record of this worker's delays, for its statistics; None if it has no delay points."""
    records = [each.summary() for each in _all]
    used = [record for record in records if record.iterations] or records
    return functools.reduce(operator.add, used) if used else None


def _recorded(delays: Delays) -> Delays:
    if not _all:
        atexit.register(_leave, os.getpid())
    _all.append(delays)
    return delays


def _leave(pid: int) -> None:
    """Write the record, at the worker's end, where no process group has written statistics."""
    settings = of_worker() if VARIABLE in os.environ and pid == os.getpid() else None
    if settings is None or os.path.exists(settings.stats):
        return
    try:
        job = JobEnv.from_environ()
        record = summary()
        job.write_stats({"rank": job.rank, "delays": record and record.as_statistics()})
    except NotInJobError:
        pass
    except OSError as error:  # the training itself is done
        print(f"the result lacks this worker's delays: {error.strerror}", file=sys.stderr)
