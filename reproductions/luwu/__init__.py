"""The paper's figures, run again: figures 10 to 15 predicted, and on a testbed what two cores can show."""

from __future__ import annotations

from reproductions.luwu.live import figure as live
from reproductions.luwu.predicted.figure import PLANS, PredictedFigure
from testbed.aggregation.figure import Figure

FIGURES: tuple[Figure, ...] = (
    *(PredictedFigure(name) for name in PLANS),
    *(live.TrainingFigure(name) for name in live.PLANS),
)
