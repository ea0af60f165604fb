"""The result of a solve, and its time budget. Knows no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from testbed.linear_programs.linear import Answer
from testbed.scheduling.model import Schedule

LATE = 0.03
"""The share of the time limit that is held back: HiGHS checks its clock up to 2 s late in 60."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of the search: its seconds, the number of solver calls, and the size of the largest program."""

    name: str
    seconds: float
    solves: int
    columns: int
    rows: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Solution:
    """The result of the search. `status` is "optimal" (within the requested gap), "feasible" (a schedule with
    a wider gap) or "unsolved".

    `ct_bti_s` is max t_j of the schedule minus the start of the first slot with an arrival; infinite without
    a schedule. `bound_s` is proven: no schedule has less. `gap` is (ct_bti_s - bound_s) / ct_bti_s. If the
    fewest circuits were requested, `connections_bound` is proven: no schedule of this CT-BTI sets up fewer.
    """

    schedule: Schedule | None
    ct_bti_s: float
    bound_s: float
    gap: float
    status: str
    wall_s: float
    stages: tuple[Stage, ...]
    connections_bound: int | None = None


@dataclass(slots=True)
class Budget:
    """The time limit, measured by `clock`; without one, by the time that the solver reports, which excludes
    building programs.
    """

    limit_s: float
    clock: Callable[[], float] | None
    solver_s: float = 0.0
    began: float = 0.0
    tally: dict[str, list[float]] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        self.began = self.clock() if self.clock else 0.0

    @property
    def spent_s(self) -> float:
        return self.clock() - self.began if self.clock else self.solver_s

    @property
    def left_s(self) -> float:
        return self.limit_s * (1 - LATE) - self.spent_s

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time spent in the block under `name`."""
        outer, before = self.name, self.spent_s
        self.name = name
        self.tally.setdefault(name, [0.0] * 5)
        try:
            yield
        finally:
            self.tally[name][0] += self.spent_s - before
            self.name = outer

    def count(self, answer: Answer, columns: int, rows: int) -> None:
        self.solver_s += answer.seconds
        its = self.tally[self.name]
        its[1] += 1
        its[2], its[3] = max(its[2], columns), max(its[3], rows)
        its[4] += answer.nodes

    def stages(self) -> tuple[Stage, ...]:
        return tuple(
            Stage(name, seconds, int(solves), int(columns), int(rows), int(nodes))
            for name, (seconds, solves, columns, rows, nodes) in self.tally.items()
        )
