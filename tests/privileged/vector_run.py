"""The table of packet vectors on the XDP programs."""

from __future__ import annotations

from testbed.xdp.engine import Cells
from testbed.xdp.program import Programs
from tests.privileged.xdp_aggregator import XdpAggregator
from tests.vectors.run import play
from tests.vectors.table import TABLE


def inside(programs: Programs, ports: dict[int, int]) -> dict[str, list[str]]:
    """By vector, what was not as it says."""
    wrong, cells = {}, Cells(programs)
    for name, vector in TABLE.items():
        with XdpAggregator(cells, ports, vector.is_host) as engine:
            wrong[name] = play(vector, engine, knows_where=False)
    return wrong
