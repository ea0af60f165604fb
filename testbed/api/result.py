"""The typed result of a job."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.api.telemetry import JobSamples, LinkTable
from testbed.errors import TestbedError
from testbed.messages.coding import UNSET, UnsetType, plain
from testbed.messages.result import RunResult
from testbed.messages.verdict import JobVerdict
from testbed.telemetry.bound import Bound
from testbed.telemetry.series import Array


@dataclass(frozen=True, slots=True)
class JobResult:
    """A job that has ended. `hosts` are its workers' hosts, by rank. `output` are the lines that workers
    printed, each with its host's name. `reported` merges the JSON objects that the worker of rank 0 printed,
    one a line; later ones replace earlier keys. `data` is the JSON that `testbed run --json` writes.
    """

    id: int
    testbed: str
    script: str
    sync: str
    hosts: tuple[str, ...]
    ps_host: str | None
    failure: str | None
    wall_s: float
    verdict: JobVerdict
    bound: Bound | None
    links: LinkTable
    tensor_bytes: Mapping[str, int]  # by transport: packets, server, gloo
    samples: JobSamples | None
    output: tuple[tuple[str, str], ...]
    reported: Mapping[str, Any]
    record: Path | None  # the folder of its record (docs/records.md)
    data: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        result: RunResult,
        output: Sequence[tuple[str, str]] = (),
        record: Path | None = None,
    ) -> JobResult:
        """Make the result from a testbed's answer and the output that its workers printed meanwhile."""
        hosts, series = result.hosts, result.series
        return cls(
            id=result.id,
            testbed=result.testbed,
            script=result.script,
            sync=result.sync,
            hosts=hosts,
            ps_host=result.ps_host,
            failure=result.failure,
            wall_s=result.wall_s,
            verdict=result.verdict,
            bound=Bound.of(result.bound) if result.bound else None,
            links=LinkTable.of(result.links),
            tensor_bytes=result.bytes_by,
            samples=None if isinstance(series, UnsetType) else JobSamples.of(base64.b64decode(series)),
            output=tuple(output),
            reported=_reported(line for host, line in output if hosts and host == hosts[0]),
            record=record,
            data=plain(replace(result, series=UNSET)),
        )

    @property
    def iteration_ms(self) -> Array | None:
        """The duration of each iteration in ms, from the second on, as the mean over the workers. None if the
        script's sums were not observed.
        """
        if self.samples is None or not self.samples.rounds["took_ms"].size:
            return None
        return self.samples.rounds["took_ms"]

    @property
    def link_bytes(self) -> int:
        """The bytes that all links carried, both directions together."""
        return int(self.links.bytes_up.sum() + self.links.bytes_down.sum())

    @property
    def accuracy(self) -> float | None:
        """The accuracy that the script reported last, as `test_accuracy` or `accuracy`; None if it reported
        none.
        """
        value = self.reported.get("test_accuracy", self.reported.get("accuracy"))
        return float(value) if isinstance(value, int | float) else None


class JobError(TestbedError):
    """A job failed; `result` holds its results up to the failure."""

    def __init__(self, result: JobResult) -> None:
        super().__init__(f"job {result.id} failed: {result.failure}")
        self.result = result


def _reported(lines: Any) -> Mapping[str, Any]:
    return {name: value for line in lines if line.startswith("{") for name, value in _object(line).items()}


def _object(line: str) -> Any:
    """Read an object; empty for anything else, since a script may print anything."""
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return {}
