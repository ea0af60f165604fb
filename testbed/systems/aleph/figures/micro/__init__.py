"""The paper's microbenchmarks (section 6.2) and table 2, on veth: XDP against sockets, in one run."""

from __future__ import annotations

from testbed.aggregation.figure import Figure
from testbed.systems.aleph.figures.micro.figure import NAMES, MicroFigure

FIGURES: tuple[Figure, ...] = tuple(MicroFigure(name) for name in NAMES)
