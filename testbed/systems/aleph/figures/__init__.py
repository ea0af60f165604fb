"""The paper's figures, run again: section 6.4 by simulation."""

from __future__ import annotations

from testbed.aggregation.figure import Figure
from testbed.systems.aleph.figures.simulated.figure import DataCenterFigure

FIGURES: tuple[Figure, ...] = tuple(DataCenterFigure(name) for name in ("fig13", "fig14", "fig15", "fig16"))
