"""The P4INC-AOI paper's figures: section VII-C by simulation, section VII-B on a running testbed."""

from __future__ import annotations

from reproductions.p4inc.live import figure as live
from reproductions.p4inc.simulated import figure as simulated

FIGURES = (*simulated.EXPERIMENTS, *live.EXPERIMENTS)
