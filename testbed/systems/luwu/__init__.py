"""LuWu: the optimizer in the network, and a model of it and its baselines on the hardware of the paper."""

from __future__ import annotations

from testbed.aggregation.system import System

SYSTEMS: tuple[System, ...] = ()
