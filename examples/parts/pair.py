"""Two racks in Mininet's words: a Topo whose units are switches with hosts."""

from collections.abc import Mapping
from typing import Any

from testbed.emulation.topo import FabricTopo


class Pair(FabricTopo):
    """Racks of as many hosts each, and two circuits between them."""

    settings: Mapping[str, Any] = {"ocs": {"circuits": [["u1o1", "u2o1"], ["u1o2", "u2o2"]]}}

    def build(self, hosts: int = 2) -> None:
        for _ in range(2):
            self.addUnit(hosts, bw=100, optical_bw=50)
