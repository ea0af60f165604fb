"""Evidence put together from samples, and the summary and series written of them."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from testbed.messages.result import MedianAndMax
from testbed.report import timeline
from testbed.telemetry import samples
from testbed.telemetry.bound import coarse
from testbed.telemetry.evidence import evidence
from testbed.telemetry.summary import series, summary
from testbed.telemetry.verdict import verdict
from tests.unit.recordings import BURST_BYTES, RATE_MBPS, STEP_BYTES, evidence_of, made


def test_a_link_whose_rate_was_lowered_is_full_at_the_lower_rate() -> None:
    recording = made(busy=[0.9] * 20, link=[0.5] * 20)
    lowered = np.array([RATE_MBPS / 2, RATE_MBPS])
    recording.samples = [
        dataclasses.replace(sample, links=dataclasses.replace(sample.links, rates_mbps=lowered))
        for sample in recording.samples
        if sample.links
    ]
    link = next(link for link in evidence_of(recording).links if link.name == "u1h1")
    assert link.utilisation[0] == pytest.approx(1.0, abs=0.01)
    assert link.excess < 0.01


def test_only_the_time_with_traffic_is_judged() -> None:
    seen = evidence_of(
        made([1.0] * 50 + [0.5] * 30 + [1.0] * 20, [0.0] * 50 + [0.5] * 30 + [0.0] * 20, waiting=0.25)
    )
    assert seen.sampled_s == pytest.approx(10.0)
    assert seen.active_s == pytest.approx(3.0)
    assert np.array([second.busy for second in seen.seconds]) == pytest.approx(np.array([(0.0, 0.5)] * 3))
    assert [second.waiting for second in seen.seconds] == [pytest.approx(0.25)] * 3
    assert [second.link for second in seen.seconds] == [pytest.approx(0.5)] * 3


def test_traffic_that_comes_and_goes_is_put_together() -> None:
    seen = evidence_of(made([1.0, 0.3] * 20, [0.0, 0.5] * 20))
    assert seen.active_s == pytest.approx(2.0)
    assert [second.busy[1] for second in seen.seconds] == [pytest.approx(0.3)] * 2


def test_a_short_job_is_judged_by_what_there_is() -> None:
    assert [second.elapsed_s for second in evidence_of(made([0.5] * 3, [0.5] * 3)).seconds] == [
        pytest.approx(0.3)
    ]
    assert evidence_of(made([0.5] * 3, [0.0] * 3)).seconds == ()


def test_a_link_in_numbers() -> None:
    (link,) = evidence_of(
        made([0.1] * 20, [0.25] * 10 + [0.75] * 10, drops=3)
    ).links  # of two, one carried something
    assert (link.name, link.rate_mbps, link.queue_drops, link.queue_bytes_max) == (
        "u1h1",
        RATE_MBPS,
        60,
        3000,
    )
    assert (link.bytes, link.most_bytes) == pytest.approx((11 * STEP_BYTES, 10 * STEP_BYTES), rel=1e-3)
    assert list(link.utilisation) == pytest.approx([0.5, 0.75], rel=1e-3)


@pytest.mark.parametrize(("hosts", "full"), [(("u1h1", "u1h2"), 1.0), (("u1h2",), None)])
def test_links_that_another_job_fills_are_no_bound(hosts: tuple[str, ...], full: float | None) -> None:
    """All traffic is of u1h1, where nobody's collectives are seen."""
    seen = evidence(made([0.1] * 20, [1.0] * 20), {"u1h1": BURST_BYTES}, {}, hosts)
    allowed = coarse(seen)
    assert (allowed and allowed.bound_ms) == (None if full is None else pytest.approx(full * 1e3, rel=0.01))
    given = verdict(seen, allowed, hosts=hosts)
    assert given.trustworthy is (None if full is None else True)


@pytest.mark.parametrize(("share", "excess"), [(1.0, 0.0), (1.02, 0.0), (1.1, 0.08), (2.0, 0.98)])
def test_a_burst_is_no_excess(share: float, excess: float) -> None:
    (link,) = evidence_of(made([0.1] * 5, [share] * 5)).links
    assert link.excess == pytest.approx(excess, abs=1e-3)


def test_gaps_between_samples_are_time_not_sampled() -> None:
    recording = made([0.1] * 20, [0.5] * 20)
    del recording.samples[5:15]
    assert evidence_of(recording).unsampled_s == pytest.approx(
        0.9
    )  # 1.1 s between two samples, of which two intervals are allowed


def test_links_read_in_every_third_sample_only() -> None:
    whole, thin = made([0.4] * 30, [0.5] * 30), made([0.4] * 30, [0.5] * 30)
    thin.samples = [
        sample if at % 3 == 0 else dataclasses.replace(sample, links=None)
        for at, sample in enumerate(thin.samples)
    ]
    shares = np.array([second.busy for second in evidence_of(thin).seconds])
    assert shares == pytest.approx(np.array([(0.0, 0.4)] * len(shares)))
    assert evidence_of(thin).active_s == pytest.approx(evidence_of(whole).active_s)
    assert evidence_of(thin).links[0].bytes == evidence_of(whole).links[0].bytes


def test_a_long_recording_is_thinned_and_loses_no_byte_and_no_lateness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = evidence_of(made([0.4] * 999, [0.5] * 999))
    monkeypatch.setattr(samples, "MOST_SAMPLES", 64)
    recording = made([0.4] * 999, [0.5] * 999)
    assert len(recording.samples) <= 65
    assert recording.interval_s >= 0.1 * 1000 / 65
    seen = evidence_of(recording)
    assert seen.links[0].bytes == whole.links[0].bytes
    assert max(seen.late_s) == 0.001
    assert seen.unsampled_s == 0
    assert seen.sampled_s == pytest.approx(whole.sampled_s)


# ---------------------------------------------------------------- the summary and the series


def test_summary_and_series_say_the_same() -> None:
    recording = made([0.5] * 20, [0.5] * 20, softirq=0.25, drops=1)
    written = summary(recording, evidence_of(recording))
    assert written.cores[1].busy == MedianAndMax(0.5, 0.5)
    assert written.cores[1].softirq.max == 0.25
    assert written.links[0].utilisation == MedianAndMax(0.5, 0.5)
    assert written.segments_max == {"u1": 2}
    with np.load(io.BytesIO(series(recording))) as file:
        assert list(file["links"]) == ["u1h1"]
        assert file["time_s"][-1] == pytest.approx(2.0)
        assert file["sent"].shape == (20, 1, 2)
        assert file["sent"][:, 0].sum() == written.links[0].bytes
        assert file["queue_drops"].sum() == written.links[0].queue_drops
        assert file["cores"][:, 1, 0].sum() == pytest.approx(10 * 0.1)
        assert file["segments"].max() == 2


def test_ten_minutes_at_10_hz_are_some_hundred_kilobytes() -> None:
    random = np.random.default_rng(1)
    recording = made(list(random.random(6000)), list(random.random(6000)))
    assert 20_000 < len(series(recording)) < 400_000


def test_samples_as_they_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "job.telemetry.npz"
    path.write_bytes(series(made([0.8] * 40, [0.5] * 40, softirq=0.2)))
    drawn = timeline.Samples.read(path)
    assert drawn.rated
    assert drawn.link == pytest.approx(np.full(40, 0.5), rel=1e-2)
    assert drawn.busy[:, 1] == pytest.approx(np.full(40, 0.8), rel=1e-2)
    assert drawn.softirq[:, 1] == pytest.approx(np.full(40, 0.2), rel=1e-2)
    doubted: Any = SimpleNamespace(
        jobs={
            sync: SimpleNamespace(verdict=SimpleNamespace(trustworthy=trustworthy))
            for sync, trustworthy in (("inc", True), ("ps", False))
        }
    )
    assert timeline.finding(doubted)[0] == "The machine may have set the results of ps"
