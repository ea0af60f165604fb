"""The paper's figures, run again: section VII-C by simulation, section VII-B on a running testbed."""

from __future__ import annotations

from testbed.aggregation.figure import Figure
from testbed.systems.p4inc.figures.live.figure import LiveFigure
from testbed.systems.p4inc.figures.simulated.figure import SimulatedFigure

FIGURES: tuple[Figure, ...] = (
    *(SimulatedFigure(name) for name in ("table1", "fig8", "fig9", "fig10", "fig11", "fig12")),
    *(LiveFigure(name) for name in ("fig5", "fig6", "fig7")),
)
