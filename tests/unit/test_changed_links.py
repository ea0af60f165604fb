"""Links whose rate changes while a job runs, or that are down: what its evidence, bound and notes make of
them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from testbed.telemetry.changes import changed, with_down
from testbed.telemetry.link_usage import Carried
from testbed.telemetry.samples import Recording
from tests.unit.recordings import RATE_MBPS, evidence_of, made


def with_rates(recording: Recording, rates_mbps: list[float]) -> Recording:
    """Return it with these rates of u1h1, reading by reading; u1h2 keeps its own."""
    samples = []
    for sample, rate in zip(recording.samples, rates_mbps, strict=True):
        assert sample.links is not None
        links = replace(sample.links, rates_mbps=np.array([rate, RATE_MBPS]))
        samples.append(replace(sample, links=links))
    recording.samples = samples
    recording.rates_mbps = (rates_mbps[0], RATE_MBPS)
    return recording


def test_what_changed_is_said_of_the_links_that_were_asked_for() -> None:
    recording = with_rates(made([0.5] * 5, [0.5] * 5), [200, 0, 0, 100, 100, 200])
    assert changed(recording, {"u1h1", "u1h2"}) == [
        "u1h1 was down for 0.2 s",
        "u1h1 had 200, then 100, then 200 Mb/s",
    ]
    assert changed(recording, {"u1h2"}) == []
    assert changed(made([0.5], [0.5], rate_mbps=None), {"u1h1"}) == []


@pytest.mark.parametrize(
    ("rates", "mean"),
    [
        ([200] * 6, 200.0),
        ([200, 200, 200, 100, 100, 100], 150.0),
        ([200, 200, 200, 0, 0, 0], 100.0),
        ([0] * 6, None),
    ],
)
def test_a_rate_counts_for_as_long_as_there_was_one(rates: list[float], mean: float | None) -> None:
    carried = Carried(with_rates(made([0.5] * 5, [0.5] * 5), rates))
    assert carried.rate_mbps("u1h1", 100.04, 100.56) == mean
    assert carried.rate_mbps("u1h2", 100.04, 100.56) == RATE_MBPS


def test_a_collective_that_ran_between_two_readings_has_a_rate_though_both_were_dark() -> None:
    carried = Carried(with_rates(made([0.5] * 5, [0.5] * 5), [200, 0, 0, 0, 200, 200]))
    assert carried.rate_mbps("u1h1", 100.15, 100.25) == 200


def test_a_link_that_is_down_is_no_link_above_its_rate_and_has_no_share_of_it() -> None:
    recording = with_rates(made([0.5] * 5, [0.5, 0, 0, 0, 0.5]), [200, 200, 0, 0, 0, 200])
    seen = evidence_of(recording)
    (link,) = [link for link in seen.links if link.name == "u1h1"]
    assert link.excess == 0
    assert link.utilisation == pytest.approx((0.5, 0.5))
    assert not np.isnan([second.link for second in seen.seconds]).any()


def test_links_that_went_down_without_a_user_are_said_once() -> None:
    by_hand = ["u1o1 was down for 2.0 s", "u1h1 had 10, then 20 Mb/s"]
    assert with_down(by_hand, {"u1o1": 2.1, "u1h1": 0.5}) == [*by_hand, "u1h1 was down for 0.5 s"]
    assert with_down([], {}) == []
