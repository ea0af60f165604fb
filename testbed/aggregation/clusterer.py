"""The grouping of workers into clusters as a plug-in: what `testbed cluster` asks of a system that has heads
among its workers. Owns no method.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from testbed.topology.model import Topology
from testbed.topology.places import Host


class Clusterer(Protocol):
    """A system's ways to cluster a job's workers on a topology, each with the time that links allow. It
    starts nothing, and to make one imports nothing heavy.
    """

    def options(self, parser: ArgumentParser) -> None:
        """Add what may be asked of it."""

    def report(
        self, topology: Topology, workers: Sequence[Host], servers: Sequence[Host], options: Namespace
    ) -> dict[str, Any]:
        """Return the clusters by each method, as JSON has them. RequestError, in a line, for what cannot
        be. `servers` are the parameter servers' hosts that were asked for; none: one is chosen.
        """

    def lines(self, report: Mapping[str, Any]) -> Sequence[str]:
        """Return a report as it is printed."""
