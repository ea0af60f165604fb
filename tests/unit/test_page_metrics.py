"""The metrics: OpenMetrics' names and units, what they say of made-up answers, and a dashboard that asks for
nothing else.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from testbed.webpage.metrics import exposition
from testbed.webpage.source import Answers
from tests.unit.page_world import NOW, World, change, ended, fault, link, queue, queued, status

ROOT = Path(__file__).resolve().parents[2]
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
DASHBOARD = ROOT / "docs" / "grafana.json"
UNITS = ("seconds", "bytes", "ratio", "bytes_per_second")


def full_status() -> dict[str, Any]:
    """One that has all that there are metrics of."""
    counters = {"lost": 1, "duplicated": 2, "held": 3, "corrupted": 4}
    schedule = queue(queued(8, "b", "running", progress=0.25), overruns=2)
    row = {"who": "worker 1", "workers": [1], "at": "u1", "events": 3, "left_s": 1.0}
    left = [{**row, "back_s": None, "blocks": None}, {**row, "back_s": 2.0, "blocks": 9}]
    blocks = {"made": 9, "active": 1, "without": {}, "left": left}
    jobs = [{**status()["jobs"][0], "blocks": blocks}]
    return status(faults=[fault(**counters)], schedule=schedule, jobs=jobs, failed_locks={"u1o1": 2})


@pytest.fixture
def families(tmp_path: Path) -> dict[str, Metric]:
    world = World(tmp_path)
    world.status = full_status()
    text = exposition(world.source.look(), OPENMETRICS)[0].decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families: dict[str, Metric], sample: str, **labels: str) -> float:
    (number,) = [
        each.value
        for family in families.values()
        for each in family.samples
        if each.name == sample and each.labels == labels
    ]
    return float(number)


def test_they_say_what_status_says(families: dict[str, Metric]) -> None:
    assert value(families, "testbed_up") == 1
    assert value(families, "testbed_hosts", state="busy") == 2
    assert value(families, "testbed_circuit_lit", a="u1o1", b="u2o1") == 1
    assert value(families, "testbed_circuit_lit", a="u1o2", b="u3o1") == 0
    assert value(families, "testbed_link_rate_bytes_per_second", link="u1h1") == 12_500_000
    assert value(families, "testbed_link_dropped_frames_total", link="u1h1") == 3
    assert value(families, "testbed_job_summed_bytes_total", job="7", sync="inc") == 2_500_000
    assert value(families, "testbed_job_trustworthy", job="7", sync="inc") == 1
    assert value(families, "testbed_job_workers_absent", job="7", sync="inc") == 1
    assert value(families, "testbed_jobs_ended_total", outcome="done", trust="yes") == 1
    assert value(families, "testbed_ended_job_iteration_seconds_count", sync="ring") == 1
    assert value(families, "testbed_ended_job_iteration_seconds_sum", sync="ring") == 0.25
    assert value(families, "testbed_ended_job_retransmitted_packets_total", sync="ring") == 11
    assert value(families, "testbed_link_queued_bytes", link="u1h1") == 1514
    assert value(families, "testbed_reconfiguration_dark_seconds_count") == 1
    assert value(families, "testbed_reconfiguration_dark_seconds_sum") == 0.5
    assert value(families, "testbed_optical_frames_total", port="u1o1", light="dark") == 5
    assert value(families, "testbed_optical_frames_total", port="u1o2", light="unlit") == 7
    assert value(families, "testbed_optical_lock_failures_total", port="u1o1") == 2
    assert value(families, "testbed_core_busy_ratio", core="1") == 1
    assert value(families, "testbed_queue_job_progress_ratio", job="8", name="b") == 0.25
    faults = {"link": "u1h1", "direction": "up", "effect": "held"}
    assert value(families, "testbed_fault_frames_total", **faults) == 3


def test_dark_times_are_in_buckets_and_a_change_that_lit_nothing_is_in_none(tmp_path: Path) -> None:
    world = World(tmp_path)
    circuit = [("u1o1", "u2o1")]
    world.changes = [
        *(change(number, NOW, added=circuit, ms=ms) for number, ms in enumerate((0.4, 5.0, 5.1, 9e3), 1)),
        change(5, NOW, removed=circuit),
    ]
    text = exposition(world.source.look(), OPENMETRICS)[0].decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    name = "testbed_reconfiguration_dark_seconds"
    assert value(families, f"{name}_count") == 4
    assert value(families, f"{name}_sum") == pytest.approx(9.0105)
    ends = {"0.001": 1, "0.002": 1, "0.005": 2, "0.01": 3, "5.0": 3, "+Inf": 4}
    assert {end: value(families, f"{name}_bucket", le=end) for end in ends} == ends


def test_bytes_of_links_are_by_direction(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.status = status(links=[link("u1h1", 11, 13)])
    text = exposition(world.source.look(), OPENMETRICS)[0].decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert value(families, "testbed_link_bytes_total", link="u1h1", direction="up") == 11
    assert value(families, "testbed_link_bytes_total", link="u1h1", direction="down") == 13


def test_names_say_their_units(families: dict[str, Metric]) -> None:
    for name, family in families.items():
        assert name == "testbed" or name.startswith("testbed_")
        assert family.documentation.endswith(".")
        unit = next((unit for unit in sorted(UNITS, key=len, reverse=True) if name.endswith(f"_{unit}")), "")
        assert family.unit == unit, name


def test_totals_outlive_what_the_journal_keeps(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.source.look()
    for number in range(2, 5):
        world.entries = [ended(number, number)]
        world.later(2)
        look = world.source.look()
    assert look.totals.ended == {("done", "yes"): 4}
    assert (look.totals.measured["ring"], look.totals.measured_s["ring"]) == (4, 1.0)


def test_without_a_testbed_there_is_one() -> None:
    text = exposition(Answers("none", 0.0, why="it is not running"), OPENMETRICS)[0].decode()
    assert [family.name for family in text_string_to_metric_families(text)] == ["testbed_up"]
    assert "testbed_up 0.0" in text


def test_the_dashboard_asks_for_metrics_that_there_are(families: dict[str, Metric]) -> None:
    samples = {sample.name for family in families.values() for sample in family.samples}
    dashboard = json.loads(DASHBOARD.read_text())
    titles, asked = [], set()
    for panel in dashboard["panels"]:
        titles.append(panel["title"])
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            asked |= set(re.findall(r"testbed_[a-z_]+", target["expr"]))
    assert len(set(titles)) == len(titles)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(titles)
    assert asked
    assert asked <= samples, asked - samples
