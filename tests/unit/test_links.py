"""Rates of links: those that may be, those that count as set, and the judgement of a measured one: pure, so
no root.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.links import WireEnd, WireSpec, check_bucket, check_rate
from testbed.emulation.netlink import QueueState
from testbed.errors import RequestError, SettingError
from testbed.machine.links import rate_bytes_per_s
from testbed.topology.load import parse
from testbed.topology.values import MAX_MBPS, MIN_MBPS
from tests.privileged.wire_cases import Case, Direction, Found, judged

WAYS = (Direction("l", "ab", 101.0, 5, 1.0, 101.0), Direction("l", "ba", 90.0, 0, 0.7, 98.0))


def wire(rate_mbps: float | None, mtu: int = 1500) -> WireSpec:
    return WireSpec("u1h1", WireEnd("eth0", "u1h1"), WireEnd("u1-h1"), rate_mbps, 100 * 1514, mtu)


def bucket(rate_mbps: float, limit_bytes: int) -> QueueState:
    return QueueState(7, rate_bytes_per_s(rate_mbps), limit_bytes, 0, 0, 0)


@given(st.floats(MIN_MBPS, MAX_MBPS))
def test_every_rate_that_a_configuration_may_name_can_be_set(rate_mbps: float) -> None:
    check_rate(wire(rate_mbps))


def test_an_unshaped_link_has_no_rate_to_check() -> None:
    check_rate(wire(None))


@pytest.mark.parametrize(
    ("rate_mbps", "nearest"),
    [(1e-6, "0 Mb/s"), (1.1e-5, "8e-06 Mb/s"), (1e6, "1.00933e+06 Mb/s"), (5e7, "1.2112e+07")],
)
def test_a_rate_that_the_kernel_would_round_away_is_an_error(rate_mbps: float, nearest: str) -> None:
    with pytest.raises(SettingError) as error:
        check_rate(wire(rate_mbps))
    asked = (
        f"link u1h1: {rate_mbps:g} Mb/s was asked for, and the nearest that the kernel can set is {nearest}"
    )
    assert str(error.value).startswith(asked)


def test_a_rate_that_reads_back_as_set_is_none() -> None:
    check_bucket(wire(200), "u1h1-a", bucket(200, 100 * 1514))


@pytest.mark.parametrize(
    ("state", "reads"),
    [
        (bucket(1000, 151400), "reads back 1000 Mb/s, 151400 bytes"),
        (bucket(200, 1514), "reads back 200 Mb/s, 1514 bytes"),
        (None, "reads back no rate"),
    ],
)
def test_a_rate_that_reads_back_otherwise_is_an_error(state: QueueState | None, reads: str) -> None:
    with pytest.raises(SettingError) as error:
        check_bucket(wire(200), "u1h1-a", state)
    assert str(error.value).startswith("link u1h1: 200 Mb/s ")
    assert str(error.value).endswith(f"u1h1-a {reads}")


@pytest.mark.parametrize("rate", [0.5, 20_001, 1e9, float("inf")])
def test_a_configuration_with_such_a_rate_is_refused_in_one_line(rate: float) -> None:
    with pytest.raises(RequestError) as error:
        parse({"units": [{"hosts": 2}], "host_rate_mbps": rate, "scale": 1}, "t")
    assert str(error.value).startswith("host_rate_mbps: ")
    assert str(error.value).endswith("from 1 to 20000 Mb/s can be emulated")


@pytest.mark.parametrize(
    ("error", "least_idle", "steal", "queued", "verdict"),
    [
        (-0.029, 0.0, 0.5, 1.0, "holds"),
        (0.029, 0.0, 0.5, 0.0, "holds"),
        (0.031, 0.0, 0.5, 0.0, "wrong"),  # nothing excuses a link that is too fast
        (-0.031, 0.5, 0.0, 0.0, "wrong"),
        (-0.031, 0.05, 0.0, 0.9, "inconclusive"),
        (-0.031, 0.05, 0.0, 1.0, "wrong"),  # frames always waited: the sender had its time
        (-0.031, 0.5, 0.02, 1.0, "inconclusive"),
    ],
)
def test_a_slow_link_is_excused_by_a_busy_machine_alone(
    error: float, least_idle: float, steal: float, queued: float, verdict: str
) -> None:
    assert judged(error, least_idle, steal, queued) == verdict


def test_the_direction_farthest_off_is_judged() -> None:
    link = Found(Case("udp", 100, both=True), WAYS, (0.5, 0.6), 0.0, 2)
    assert link.worst_error == pytest.approx(-0.1)
    assert link.verdict == "wrong"


def test_tcp_both_ways_is_judged_while_frames_wait() -> None:
    link = Found(Case("tcp", 100, both=True), WAYS, (0.5, 0.6), 0.0, 1)
    assert link.worst_error == pytest.approx(-0.02)
    one_way = Found(Case("tcp", 100), WAYS, (0.5, 0.6), 0.0, 1)
    assert one_way.worst_error == pytest.approx(-0.1)
