"""The reference model and the XDP programs in step."""

from __future__ import annotations

from testbed.xdp.engine import Cells
from testbed.xdp.program import Programs
from tests.privileged.xdp_aggregator import UNIT, XdpAggregator
from tests.vectors.build import OPTICAL
from tests.vectors.in_step import Trial
from tests.vectors.world import PS_PORT, UPLINK

EXAMPLES = 25


def inside(programs: Programs, ports: dict[int, int], tried: str) -> dict[str, int]:
    """How often each verdict was given in a method of Trial."""
    cells = Cells(programs)
    first = {**ports, PS_PORT: ports[PS_PORT], UPLINK: ports[UPLINK]}
    # a second switch, and a PS host, which is behind its port 1: devices that the first does without
    second = {**{port: ports[10 + port] for port in range(1, 8)}, UPLINK: ports[OPTICAL[1]]}
    host = {1: ports[30]}

    def make(node: int, is_host: bool) -> XdpAggregator:
        return XdpAggregator(cells, host if is_host else (first, second)[node], is_host, node + 1 or UNIT)

    trial = Trial(make, False, EXAMPLES, ("final", "partial", "ps"))
    return dict(getattr(trial, tried)())
