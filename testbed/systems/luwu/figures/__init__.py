"""The paper's figures, run again: figures 10 to 15 predicted, and on a testbed what two cores can show."""

from __future__ import annotations

from testbed.aggregation.figure import Figure
from testbed.systems.luwu.figures.live import figure as live
from testbed.systems.luwu.figures.predicted.figure import PLANS, PredictedFigure

FIGURES: tuple[Figure, ...] = (
    *(PredictedFigure(name) for name in PLANS),
    *(live.TrainingFigure(name) for name in live.PLANS),
)
