"""The LuWu paper's figures: figures 10 to 15 predicted, and live the part that two cores can show."""

from __future__ import annotations

from reproductions.luwu.live import figure as live
from reproductions.luwu.predicted import figure as predicted

FIGURES = (*predicted.EXPERIMENTS, *live.EXPERIMENTS)
