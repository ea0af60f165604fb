"""One linear program with integers, as HiGHS takes it: columns, rows, and an answer. Owns the solver's
settings; knows no problem.

HiGHS runs on one thread with a fixed seed, so that an answer that no time limit cut short is always the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import highspy
import numpy as np

SEED = 1
THREADS = 1
TOLERANCE = 1e-7
"""Of rows, columns and integrality: HiGHS's own for linear programs; for integers it would take 1e-6."""

Terms = Iterable[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Answer:
    """`status` is "optimal", "infeasible", or "limit" when time, nodes or solutions ran out. `values` has a
    number for each column, or is None where no solution was found. `bound` is proven, and minus infinity
    where none was.
    """

    status: str
    values: tuple[float, ...] | None
    objective: float
    bound: float
    seconds: float
    nodes: int


@dataclass(slots=True)
class LinearProgram:
    """Minimises. Columns and rows are numbers from 0."""

    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    row_low: list[float] = field(default_factory=list)
    row_high: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)

    def real(self, low: float = 0.0, high: float = math.inf, cost: float = 0.0) -> int:
        return self._column(low, high, cost, False)

    def whole(self, low: float, high: float, cost: float = 0.0) -> int:
        return self._column(low, high, cost, True)

    def flag(self, cost: float = 0.0) -> int:
        return self._column(0.0, 1.0, cost, True)

    def _column(self, low: float, high: float, cost: float, integer: bool) -> int:
        self.low.append(low)
        self.high.append(high)
        self.cost.append(cost)
        self.integer.append(integer)
        return len(self.low) - 1

    def row(self, terms: Terms, low: float = -math.inf, high: float = math.inf) -> None:
        """low <= sum <= high. A column may stand in it more than once."""
        summed: dict[int, float] = {}
        for column, factor in terms:
            summed[column] = summed.get(column, 0.0) + factor
        self.starts.append(len(self.columns))
        self.columns.extend(summed)
        self.factors.extend(summed.values())
        self.row_low.append(low)
        self.row_high.append(high)

    def fix(self, column: int, value: float) -> None:
        self.low[column] = self.high[column] = value

    def solve(
        self,
        time_limit_s: float,
        *,
        nodes: int | None = None,
        relaxed: bool = False,
        any_solution: bool = False,
    ) -> Answer:
        """`relaxed` lets integers be real; `any_solution` stops at the first."""
        if time_limit_s <= 0:
            return Answer("limit", None, math.inf, -math.inf, 0.0, 0)
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.setOptionValue("output_flag", False)
        options = {"random_seed": SEED, "threads": THREADS, "time_limit": time_limit_s, "mip_rel_gap": 0.0}
        options |= {"mip_feasibility_tolerance": TOLERANCE, "mip_abs_gap": 1e-9}
        if nodes is not None:
            options["mip_max_nodes"] = nodes
        if any_solution:
            options["mip_max_improving_sols"] = 1
        for name, value in options.items():
            solver.setOptionValue(name, value)
        solver.passModel(self._model(relaxed))
        solver.run()
        return _answer(solver, relaxed or not any(self.integer))

    def _model(self, relaxed: bool) -> highspy.HighsLp:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.low), len(self.row_low)
        model.col_cost_, model.col_lower_, model.col_upper_ = (
            np.array(each, np.float64) for each in (self.cost, self.low, self.high)
        )
        model.row_lower_, model.row_upper_ = (
            np.array(self.row_low, np.float64),
            np.array(self.row_high, np.float64),
        )
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.num_col_, model.a_matrix_.num_row_ = len(self.low), len(self.row_low)
        model.a_matrix_.start_ = np.array([*self.starts, len(self.columns)], np.int32)
        model.a_matrix_.index_ = np.array(self.columns, np.int32)
        model.a_matrix_.value_ = np.array(self.factors, np.float64)
        if not relaxed and any(self.integer):
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            model.integrality_ = [kinds[whole] for whole in self.integer]
        return model


def _answer(solver: highspy.Highs, linear: bool) -> Answer:
    status, info = solver.getModelStatus(), solver.getInfo()
    has_values = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = tuple(solver.getSolution().col_value) if has_values else None
    objective = info.objective_function_value if has_values else math.inf
    solved = status == highspy.HighsModelStatus.kOptimal
    bound = (objective if solved else -math.inf) if linear else info.mip_dual_bound
    # no objective here is without a floor, so that what is unbounded or infeasible is infeasible
    impossible = (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)
    name = "optimal" if solved else "infeasible" if status in impossible else "limit"
    return Answer(name, values, objective, bound, solver.getRunTime(), max(0, info.mip_node_count))
