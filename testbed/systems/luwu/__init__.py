"""LuWu: a model of its iterations and of its baselines', on the hardware of the paper. Its optimizer node is
in workloads/luwu; no job takes it as `--sync` yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.aggregation.figure import Figure
from testbed.aggregation.system import System
from testbed.systems.luwu.figures import FIGURES

SYSTEMS: tuple[System, ...] = ()
PAPERS: Mapping[str, tuple[Figure, ...]] = {"luwu": FIGURES}
