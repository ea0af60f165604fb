"""The paper's figures, run again on a testbed."""

from __future__ import annotations

from reproductions.trio.accuracy.figure import AccuracyFigure
from reproductions.trio.packets.figure import PLANS, PacketsFigure
from reproductions.trio.slow.figure import SlowWorkersFigure
from testbed.aggregation.figure import Figure

FIGURES: tuple[Figure, ...] = (
    AccuracyFigure(),
    SlowWorkersFigure(),
    *(PacketsFigure(name) for name in PLANS),
)
