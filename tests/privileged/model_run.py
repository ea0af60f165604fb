"""The reference model and the XDP programs in step."""

from __future__ import annotations

from testbed.xdp.engine import Cells
from testbed.xdp.program import Programs
from tests.privileged.observed import Observed
from tests.privileged.xdp_aggregator import UNIT, XdpAggregator
from tests.vectors.build import FABRIC, ROUTES
from tests.vectors.in_step import Trial
from tests.vectors.world import UPLINK

EXAMPLES = 25


def inside(
    programs: Programs, ports: dict[int, int], tried: str, examples: str = str(EXAMPLES)
) -> dict[str, int]:
    """How often each verdict was given in a method of Trial."""
    cells = Cells(programs)
    # a second switch has devices that the first does without: its worlds are small
    second = {**{port: ports[10 + port] for port in range(1, 8)}, UPLINK: ports[FABRIC[1]]}
    second |= {port: ports[20 + at] for at, port in enumerate({route.port for route in ROUTES.values()})}
    with Observed(programs) as observed:

        def make(node: int, is_host: bool) -> XdpAggregator:
            mine = second if node == 1 else ports
            return XdpAggregator(cells, observed, mine, is_host, node + 1 or UNIT)

        trial = Trial(make, True, int(examples), ("final", "partial", "ps"))
        return dict(getattr(trial, tried)())
