"""The reference model and the XDP programs in step."""

from __future__ import annotations

from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.program import Programs
from tests.privileged.observed import Observed
from tests.privileged.xdp_aggregator import UNIT, XdpAggregator
from tests.vectors.in_step import KINDS, Trial
from tests.vectors.world import HOST_PORT, way_to

EXAMPLES = 25


def inside(
    programs: Programs, ports: dict[int, int], tried: str, examples: str = str(EXAMPLES)
) -> dict[str, int]:
    """Return how often each verdict was given in a method of Trial."""
    cells = Cells(programs)
    # a world's other switches use devices that the first does not need, since worlds are small
    others = {
        node: {
            **{port: ports[12 * node + port] for port in range(1, HOST_PORT + 1)},
            **{way_to(unit): ports[12 * node + HOST_PORT + 1 + unit] for unit in range(3)},
        }
        for node in (1, 2)
    }
    with Observed(programs) as observed:

        def make(node: int, is_host: bool) -> XdpAggregator:
            return XdpAggregator(cells, observed, others.get(node, ports), is_host, node + 1 or UNIT)

        trial = Trial(make, True, int(examples), tuple(KINDS))
        return dict(getattr(trial, tried)())
