"""The report as one JSON document. Pure, but for `write_json`.

Both clocks are in it: times are real, as measured on this host; beside them, under `emulated`, is what they stand for on
the fabric that the configuration declares, which is `scale` times as fast.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.report.files import replacing
from testbed.report.host import HostFacts
from testbed.report.measures import JobMeasures, job_measures, merged_events, merged_links
from testbed.topology.model import Topology

VERSION = 1


def document(
    host: HostFacts,
    topology: Topology,
    runs: Mapping[str, Mapping[str, Any]],
    scripts: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Of the runs' results and the scripts' own JSON, both by sync. Raises TestbedError where one does not read."""
    events = merged_events(runs)
    measures = {sync: job_measures(run, scripts[sync]) for sync, run in runs.items()}
    observed = {sync: {key: run[key] for key in ("verdict", "telemetry")} for sync, run in runs.items()}
    return {
        "version": VERSION,
        "host": {**asdict(host), "memory": host.memory_bytes},
        "config": asdict(topology),
        "clock": {"scale": topology.scale, "emulated_ms": "real_ms / scale", "optical_times": "real, not scaled"},
        "trustworthy": all(run["verdict"]["trustworthy"] for run in runs.values()),
        "jobs": {sync: _job(measured, topology.scale) | observed[sync] for sync, measured in measures.items()},
        "links": merged_links(runs),
        "ocs": {"reconfigurations": len(events), "events": events},
    }


def _job(measured: JobMeasures, scale: int) -> dict[str, Any]:
    emulated = {"iteration_ms": measured.iteration_ms / scale, "comm_ms": measured.comm_ms / scale}
    return {**asdict(measured), "emulated": emulated}


def below_threshold(report: Mapping[str, Any], threshold: float) -> list[str]:
    """A line for each job whose test accuracy is less than the threshold."""
    return [
        f"{sync}: test accuracy {job['test_accuracy']:.2%} is below {threshold:.0%}"
        for sync, job in report["jobs"].items()
        if job["test_accuracy"] < threshold
    ]


def write_json(path: Path, report: Mapping[str, Any]) -> None:
    """Replaces the file whole."""
    with replacing(path) as draft:
        draft.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
