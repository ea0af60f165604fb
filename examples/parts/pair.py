"""Two racks in Mininet's terms: a Topo whose units are switches with hosts."""

from collections.abc import Mapping
from typing import Any

from testbed.emulation.topo import FabricTopo


class Pair(FabricTopo):
    """Two racks with the same number of hosts, and two circuits between them."""

    settings: Mapping[str, Any] = {"ocs": {"circuits": [["u1o1", "u2o1"], ["u1o2", "u2o2"]]}}

    def build(self, hosts: int = 2) -> None:
        for _ in range(2):
            self.addUnit(hosts, bw=100, optical_bw=50)
