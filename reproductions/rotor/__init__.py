"""The headline claims of RotorNet and Opera, on a testbed."""

from __future__ import annotations

from reproductions.rotor.latency import figure as latency
from reproductions.rotor.throughput import figure as throughput

FIGURES = (*throughput.EXPERIMENTS, *latency.EXPERIMENTS)
