"""Places on real devices: ticks, live on a whole network too, and the loop of a host."""

from __future__ import annotations

import pytest

from testbed.topology import addresses
from testbed.wire import spec
from tests.privileged import inside
from tests.privileged.packets import findings
from tests.privileged.tick_scenarios import fabric
from tests.vectors.build import OPTICAL

pytestmark = [pytest.mark.needs("namespaces", "xdp"), pytest.mark.timeout(300)]
WHOLE, LACKING = int(spec.Flag.FINAL), int(spec.Flag.FINAL | spec.Flag.DEGRADED)


def test_a_tick_completes_a_sum_and_the_result_reaches_every_port() -> None:
    came = findings("place_run", "ticked")["came"]
    results = [[2, LACKING, 1, 250], [3, WHOLE, 2, 0], [4, LACKING, 1, 1]]
    assert came == {str(port): results for port in (1, 2, OPTICAL[0])}


def test_a_host_sums_what_a_worker_of_its_own_pushes() -> None:
    seen = findings("place_run", "looped")
    assert (seen["before"], seen["with"], seen["after"]) == ([], ["sum0", "sum1"], [])
    assert seen["left"] == [True, True]
    assert seen["ring"] == [[3, True], [4, True]]
    assert seen["woken"] == [3, addresses.host_ip(3, 1)]
    assert seen["ticked"] == [4, LACKING, 4, 9]


@pytest.mark.needs("ovs")
@pytest.mark.parametrize("mtu", [1500, spec.MAX_MTU])
@pytest.mark.parametrize("engine", ["xdp", pytest.param("bmv2", marks=pytest.mark.needs("bmv2"))])
def test_the_daemon_ticks_places_on_a_running_network(engine: str, mtu: int) -> None:
    seen = inside.findings("tick_scenarios:ticked", fabric(engine, mtu))
    for name in ("u1", "u2", "host"):
        assert seen[name] == {
            "ticked": [[1, LACKING, True]] * 2,
            "changed by late ones": False,
            "changed by a tick of a whole sum": False,
            "whole": [[2, WHOLE, True]] * 2,
        }, name
