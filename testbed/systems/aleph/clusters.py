"""The plug-in of `testbed cluster`: its options, and the report of each method's clusters."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.errors import RequestError
from testbed.topology.model import Topology
from testbed.topology.places import Host

MEGABYTES = 97.0
"""Gradients per iteration, in MB: ResNet50's, as in the paper."""


class Clusters:
    """A comparison of ALEPH's clustering methods."""

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--megabytes",
            type=float,
            default=MEGABYTES,
            metavar="N",
            help=f"of gradients in an iteration ({MEGABYTES:g}, ResNet50's)",
        )
        parser.add_argument(
            "--seed", type=int, default=1, metavar="N", help="of the first of 20 runs of ways that draw (1)"
        )
        parser.add_argument("--optimum", action="store_true", help="ask HiGHS for the optima, too")

    def report(
        self,
        topology: Topology,
        workers: Sequence[Host],
        servers: Sequence[Host],
        options: argparse.Namespace,
    ) -> dict[str, Any]:
        from testbed.messages.coding import plain
        from testbed.systems.aleph.comparison import compare

        _check(options)
        return plain(compare(topology, workers, servers, options))  # type: ignore[no-any-return]

    def lines(self, report: Mapping[str, Any]) -> Sequence[str]:
        from testbed.messages.coding import decode
        from testbed.systems.aleph.comparison import ComparedClusters

        return decode(ComparedClusters, report, "clusters").lines()


def _check(options: argparse.Namespace) -> None:
    if not 0 < options.megabytes < math.inf:
        raise RequestError(f"--megabytes {options.megabytes:g}: a number above 0 is accepted")
