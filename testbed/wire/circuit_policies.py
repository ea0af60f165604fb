"""The names of the policies by which a job's calls get circuits (workloads/circuit_policy.py). Pure."""

from __future__ import annotations

from typing import Final

STATIC: Final = "static"  # the circuits that are lit stay
ON_DEMAND: Final = "on-demand"
AHEAD: Final = "ahead"
NAMES: Final = (STATIC, ON_DEMAND, AHEAD)
