"""The plug-in interface of clustering: the methods that `testbed cluster` calls for a system with heads among
its workers. Contains no method of clustering.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from testbed.topology.model import Topology
from testbed.topology.places import Host


class Clusterer(Protocol):
    """A system's methods to cluster a job's workers on a topology, each with the time that links allow.
    Starts nothing, and its constructor imports nothing heavy.
    """

    def options(self, parser: ArgumentParser) -> None:
        """Add its options to the parser."""

    def report(
        self, topology: Topology, workers: Sequence[Host], servers: Sequence[Host], options: Namespace
    ) -> dict[str, Any]:
        """Compute the clusters by each method, as JSON data. Raises RequestError, in a line, if a request is
        impossible. `servers` are the requested hosts of parameter servers; if empty, one is chosen.
        """

    def lines(self, report: Mapping[str, Any]) -> Sequence[str]:
        """Format a report for printing."""
