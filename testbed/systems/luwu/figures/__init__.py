"""The paper's figures, run again."""

from __future__ import annotations

from testbed.aggregation.figure import Figure
from testbed.systems.luwu.figures.predicted.figure import PLANS, PredictedFigure

FIGURES: tuple[Figure, ...] = tuple(PredictedFigure(name) for name in PLANS)
