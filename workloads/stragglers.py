"""Workers that are slow on purpose, by the Slow Worker Pattern (testbed/wire/stragglers.py).

`DelayPoints` is for scripts that say where their delay points are; `install` gives them to one that is
unchanged, as `testbed run --stragglers` asks for (docs/training.md, "Slow workers").

A delay is a sleep. Imports torch only in `install`: whoever is not to be slow pays nothing.
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

WARM_UP, MEASURED = 2, 5  # iterations: torch's first call and DDP's first layout of buckets; those measured
FIRST = WARM_UP + MEASURED + 1  # the first that may be slow, where the typical iteration time is measured
MOST_ROWS = 20_000  # delays that are recorded one by one; those after them are only counted
FORWARD, BACKWARD, SUM = range(len(POINTS))


@dataclass(frozen=True, slots=True)
class DelayRecord:
    """The record of a worker's delays by the pattern `asked`, `first` the first iteration that may be slow.
    `rows`: iteration, point, when the delay began (CLOCK_MONOTONIC), how long it was to be, and how long it
    was, in nanoseconds. `typical_s` is None where it was not known yet.
    """

    asked: str
    typical_s: float | None
    iterations: int
    first: int
    count: int
    seconds: float
    rows: tuple[tuple[int, int, int, int, int], ...]

    def __add__(self, other: DelayRecord) -> DelayRecord:
        """Return the record of both, by the pattern of this one."""
        return replace(
            self,
            iterations=self.iterations + other.iterations,
            count=self.count + other.count,
            seconds=self.seconds + other.seconds,
            rows=(*self.rows, *other.rows)[:MOST_ROWS],
        )

    def as_statistics(self) -> dict[str, object]:
        """Return the record as statistics have it, by the names of its fields."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


class Delays:
    """The delays of one worker, made and recorded. Iterations count from 0. `sleep` is called with seconds.

    The typical iteration time is declared, or the median of the first MEASURED iterations after WARM_UP, in
    which no worker is slow: there an iteration lasts as long as it takes when nobody is late, whatever the
    model, the links, and the machine. Thread-safe, as far as points come one after the other.
    """

    def __init__(
        self, pattern: SlowWorkers, rank: int, world_size: int, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._pattern, self._rank, self._world_size, self._sleep = pattern, rank, world_size, sleep
        self._lock = threading.Lock()
        self._began_ns: list[int] = []  # the first iterations
        self._typical_s = pattern.iteration_s
        self._iterations = 0
        self._count, self._slept_ns = 0, 0
        self._rows: list[tuple[int, int, int, int, int]] = []

    @property
    def slept_s(self) -> float:
        """Return for how long this worker has slept so far."""
        return self._slept_ns / 1e9

    def begin(self) -> int:
        """Say that an iteration begins, and return its number."""
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
        """Sleep here, if this worker is slow at this point of this iteration."""
        if self._typical_s is None or (self._pattern.iteration_s is None and iteration < FIRST):
            return
        factor = self._pattern.factor(self._rank, self._world_size, iteration, point)
        if not factor:
            return
        asked_s = factor * self._typical_s
        began_ns = time.monotonic_ns()
        try:
            self._sleep(asked_s)
        finally:  # a delay in which the script ends counts as far as it went
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
    """The delay points of a script that knows nothing of them. An iteration ends with its first sum: of
    gradients in a backward pass, or, where a script sums none there, after a step of its optimizer.

    Points are before the forward pass of a DistributedDataParallel, between that and the backward pass, and
    before the first sum. One that a script does not pass (it has no DistributedDataParallel) is taken with
    the next that it does: an iteration has three before it asks for its first sum.
    """

    def __init__(self, delays: Delays) -> None:
        self._delays = delays
        self._iteration: int | None = None
        self._next = FORWARD
        self._is_armed = True
        self._sees_forward = self._sees_backward = self._sees_steps = False
        self._pass = -1  # the backward pass that summed last
        self.stands_back = False  # the script has delay points of its own

    def forward(self) -> None:
        """A training pass of a DistributedDataParallel begins."""
        self._sees_forward = self._is_armed = True
        self._reach(FORWARD)

    def forward_is_done(self) -> None:
        self._reach(BACKWARD)

    def stepped(self) -> None:
        """An optimizer made a step."""
        self._sees_steps = True
        if not self._sees_forward:
            self._is_armed = True

    def sums(self, backward: int) -> None:
        """A sum is about to be asked for, in this backward pass; -1: in none."""
        if backward != -1:
            if not self._sees_forward and backward != self._pass:
                self._is_armed = True
            self._sees_backward, self._pass = True, backward
        elif self._sees_backward or not (self._sees_forward or self._sees_steps):
            return  # of other things than gradients
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
_asked: Delays | None = None  # by `testbed run --stragglers`


class DelayPoints:
    """Delay points of a script's own:

        slow = DelayPoints(p=0.16, seed=1)
        for images, labels in loader:
            with slow.iteration() as point:
                point()
                loss = loss_of(model(images), labels)
                point()
                loss.backward()
                point()
                optimiser.step()

    An iteration has three; what it did not take, it takes at its end. `iteration_s` is the typical iteration
    time; None: measured. `workers` is `each` or `one`. Rank and world size are those of torch's launcher
    variables, unless they are given. In a job with --stragglers what that says is taken instead, and its own
    points are not. Raises ValueError for what is not accepted.
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
        except Exception as error:  # a script's author knows nothing of the testbed's own
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
        """Mark an iteration; what it gives is called at each delay point. RuntimeError at a fourth."""
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
    """Give the script of this worker, of so many, the delay points of a pattern, which `SlowWorkers.parse`
    reads.
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
    """Return whether the job gives this worker's script delay points."""
    return _hooks is not None


def before_sum() -> None:
    """A sum of all workers is about to be asked for by this thread."""
    if _hooks is not None:
        import torch

        _hooks.sums(torch._C._current_graph_task_id())


def slept_s() -> float:
    """Return for how long this process has slept on purpose so far."""
    return sum(each.slept_s for each in _all)


def summary() -> DelayRecord | None:
    """Return the record of this worker's delays, for its statistics; None where there are no delay points."""
    records = [each.summary() for each in _all]
    used = [record for record in records if record.iterations] or records
    return functools.reduce(operator.add, used) if used else None


def _recorded(delays: Delays) -> Delays:
    if not _all:
        atexit.register(_leave, os.getpid())
    _all.append(delays)
    return delays


def _leave(pid: int) -> None:
    """Leave the record where nothing else of the worker's leaves statistics: it made no group that does."""
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
