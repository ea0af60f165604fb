"""The Trio-ML paper's figures, on a testbed."""

from __future__ import annotations

from reproductions.trio.accuracy import figure as accuracy
from reproductions.trio.packets import figure as packets
from reproductions.trio.slow import figure as slow

FIGURES = (*accuracy.EXPERIMENTS, *slow.EXPERIMENTS, *packets.EXPERIMENTS)
