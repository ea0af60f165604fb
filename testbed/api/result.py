"""The typed result of a job."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from testbed.api.telemetry import Array, JobSamples, LinkTable
from testbed.errors import TestbedError
from testbed.messages.coding import decode
from testbed.messages.links import LinkDelta
from testbed.messages.verdict import JobVerdict
from testbed.telemetry.bound import Bound


@dataclass(frozen=True, slots=True)
class JobResult:
    """A job that has ended. `hosts` are its workers', by rank; `output` the lines that they printed, each
    with the host's name; `reported` what the worker of rank 0 printed as JSON objects, a line each, later
    ones over earlier ones; `data` all that `testbed run --json` writes.
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
    tensor_bytes: Mapping[str, int]  # by the way that they went: packets, server, gloo
    samples: JobSamples | None
    output: tuple[tuple[str, str], ...]
    reported: Mapping[str, Any]
    record: Path | None  # the folder of its record (docs/records.md)
    data: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        data: Mapping[str, Any],
        output: Sequence[tuple[str, str]] = (),
        record: Path | None = None,
    ) -> JobResult:
        """Return the result of what a testbed answered, and what its workers printed meanwhile."""
        hosts = tuple(worker["host"] for worker in data["workers"])
        bound = data["bound"]
        series = data.get("series")
        return cls(
            id=data["id"],
            testbed=data["testbed"],
            script=data["script"],
            sync=data["sync"],
            hosts=hosts,
            ps_host=data["ps_host"],
            failure=data["failure"],
            wall_s=data["wall_s"],
            verdict=decode(JobVerdict, data["verdict"], "verdict"),
            bound=bound
            and Bound(**{field.name: bound[field.name] for field in fields(Bound) if field.name in bound}),
            links=LinkTable.of(decode(tuple[LinkDelta, ...], data["links"], "links")),
            tensor_bytes=data["bytes_by"],
            samples=JobSamples.of(base64.b64decode(series)) if series else None,
            output=tuple(output),
            reported=_reported(line for host, line in output if hosts and host == hosts[0]),
            record=record,
            data={name: value for name, value in data.items() if name != "series"},
        )

    @property
    def iteration_ms(self) -> Array | None:
        """The time that each iteration took, from the second on: a mean over the workers. None where the
        script's sums were not seen.
        """
        if self.samples is None or not self.samples.rounds["took_ms"].size:
            return None
        return self.samples.rounds["took_ms"]

    @property
    def link_bytes(self) -> int:
        """The bytes that all links carried, both ways."""
        return int(self.links.bytes_up.sum() + self.links.bytes_down.sum())

    @property
    def accuracy(self) -> float | None:
        """The accuracy that the script reported last, as `test_accuracy` or `accuracy`; None if it did
        not.
        """
        value = self.reported.get("test_accuracy", self.reported.get("accuracy"))
        return float(value) if isinstance(value, int | float) else None


class JobError(TestbedError):
    """A job failed; `result` is what it came to until then."""

    def __init__(self, result: JobResult) -> None:
        super().__init__(f"job {result.id} failed: {result.failure}")
        self.result = result


def _reported(lines: Any) -> dict[str, Any]:
    reported: dict[str, Any] = {}
    for line in lines:
        if line.startswith("{"):
            try:
                reported |= json.loads(line)
            except (ValueError, TypeError, RecursionError):  # a script prints what it likes
                continue
    return reported
