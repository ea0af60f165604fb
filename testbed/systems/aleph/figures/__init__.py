"""The paper's figures, run again: sections 3.1 and 6.3 on a running testbed, section 6.2 on veth, section 6.4
by simulation.
"""

from __future__ import annotations

from testbed.aggregation.figure import Figure
from testbed.systems.aleph.figures.live.figure import OnTestbed
from testbed.systems.aleph.figures.micro.figure import NAMES, MicroFigure
from testbed.systems.aleph.figures.simulated.figure import DataCenterFigure

FIGURES: tuple[Figure, ...] = (
    *(OnTestbed(name) for name in ("table1", "fig9", "fig10", "fig11", "fig12")),
    *(MicroFigure(name) for name in NAMES),
    *(DataCenterFigure(name) for name in ("fig13", "fig14", "fig15", "fig16")),
)
