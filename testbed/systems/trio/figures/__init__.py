"""The paper's figures, run again on a testbed."""

from __future__ import annotations

from testbed.aggregation.figure import Figure
from testbed.systems.trio.figures.accuracy.figure import AccuracyFigure
from testbed.systems.trio.figures.packets.figure import PLANS, PacketsFigure
from testbed.systems.trio.figures.slow.figure import SlowWorkersFigure

FIGURES: tuple[Figure, ...] = (
    AccuracyFigure(),
    SlowWorkersFigure(),
    *(PacketsFigure(name) for name in PLANS),
)
