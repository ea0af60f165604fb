"""The report as one JSON document. Pure, but for `write_json`.

There is one clock: times are real, and volumes are scaled (docs/configuration.md, Scale). A job that does not
divide its gradients by the configuration's scale is like a job on a slower fabric; `scaled` says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.messages.coding import as_json
from testbed.messages.report import DemoReport, ReportClock, ReportedJob, ReportedOptics, ReportHost
from testbed.messages.result import RunResult
from testbed.report.files import replacing
from testbed.report.host import HostFacts
from testbed.report.measures import job_measures, merged_events, merged_links
from testbed.topology.model import Topology

VERSION = 1


@dataclass(frozen=True, slots=True)
class Training:
    """A training's result, and the JSON that its script wrote."""

    run: RunResult
    script: Any


def document(host: HostFacts, topology: Topology, trainings: Mapping[str, Training]) -> DemoReport:
    """Make the document from the trainings by job. Raises TestbedError if one cannot be read."""
    runs = {sync: training.run for sync, training in trainings.items()}
    events = merged_events(runs)
    measures = {sync: job_measures(each.run, each.script) for sync, each in trainings.items()}
    return DemoReport(
        version=VERSION,
        host=ReportHost(**asdict(host), memory=host.memory_bytes),
        config=asdict(topology),
        clock=ReportClock(topology.scale, "real", "link rates are divided by the scale"),
        trustworthy=all(run.verdict.trustworthy for run in runs.values()),
        jobs={
            sync: ReportedJob(
                **asdict(measured),
                scaled=measured.scale == topology.scale,
                verdict=runs[sync].verdict,
                bound=runs[sync].bound,
                telemetry=runs[sync].telemetry,
            )
            for sync, measured in measures.items()
        },
        links=merged_links(runs),
        ocs=ReportedOptics(len(events), events),
    )


def below_threshold(report: DemoReport, threshold: float) -> list[str]:
    """Return a line for each job with a test accuracy below the threshold."""
    return [
        f"{sync}: test accuracy {job.test_accuracy:.2%} is below {threshold:.0%}"
        for sync, job in report.jobs.items()
        if job.test_accuracy < threshold
    ]


def write_json(path: Path, report: object) -> None:
    """Replace the file atomically."""
    with replacing(path) as draft:
        draft.write_text(json.dumps(as_json(report), indent=1) + "\n", encoding="utf-8")
