"""The paper's figures, run again: section VII-C by simulation, section VII-B on a running testbed."""

from __future__ import annotations

from reproductions.p4inc.live.figure import LiveFigure
from reproductions.p4inc.simulated.figure import SimulatedFigure
from testbed.aggregation.figure import Figure

FIGURES: tuple[Figure, ...] = (
    *(SimulatedFigure(name) for name in ("table1", "fig8", "fig9", "fig10", "fig11", "fig12")),
    *(LiveFigure(name) for name in ("fig5", "fig6", "fig7")),
)
