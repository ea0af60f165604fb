"""The table of packet vectors, and the scenes of light and of copies, on the XDP programs."""

from __future__ import annotations

from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.program import Programs
from tests.privileged import copy_scenes
from tests.privileged.observed import Observed
from tests.privileged.xdp_aggregator import SpreadingXdp, XdpAggregator
from tests.privileged.xdp_optics import XdpOptics
from tests.vectors import lights, spread
from tests.vectors.run import play
from tests.vectors.table import TABLE


def inside(programs: Programs, ports: dict[int, int]) -> dict[str, list[str]]:
    """Return, for each vector, a line for each difference from it."""
    wrong, cells = {}, Cells(programs)
    with Observed(programs) as observed:
        for name, vector in TABLE.items():
            with XdpAggregator(cells, observed, ports, vector.is_host) as subject:
                wrong[name] = play(vector, subject)
        for name, scene in lights.TABLE.items():
            wrong[name] = lights.play(
                scene, XdpOptics(programs, observed, {port: ports[port] for port in range(1, 9)})
            )
        for name, scene in spread.TABLE.items():
            with SpreadingXdp(cells, observed, ports) as switch:
                wrong[name] = spread.play(scene, switch)
        with XdpAggregator(cells, observed, ports, is_host=True) as host:
            wrong |= copy_scenes.differences(host, ports[0])
    return wrong
