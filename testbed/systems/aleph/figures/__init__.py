"""The paper's figures, run again: section 6.2 on veth, section 6.4 by simulation."""

from __future__ import annotations

from testbed.aggregation.figure import Figure
from testbed.systems.aleph.figures.micro.figure import NAMES, MicroFigure
from testbed.systems.aleph.figures.simulated.figure import DataCenterFigure

FIGURES: tuple[Figure, ...] = (
    *(MicroFigure(name) for name in NAMES),
    *(DataCenterFigure(name) for name in ("fig13", "fig14", "fig15", "fig16")),
)
