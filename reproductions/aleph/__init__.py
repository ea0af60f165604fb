"""The paper's figures, run again: sections 3.1 and 6.3 on a running testbed, section 6.2 on veth, section 6.4
by simulation.
"""

from __future__ import annotations

from reproductions.aleph.live.figure import OnTestbed
from reproductions.aleph.micro.figure import NAMES, MicroFigure
from reproductions.aleph.simulated.figure import DataCenterFigure
from testbed.aggregation.figure import Figure

FIGURES: tuple[Figure, ...] = (
    *(OnTestbed(name) for name in ("table1", "fig9", "fig10", "fig11", "fig12")),
    *(MicroFigure(name) for name in NAMES),
    *(DataCenterFigure(name) for name in ("fig13", "fig14", "fig15", "fig16")),
)
