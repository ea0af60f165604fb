"""The report of `testbed demo`, report.json: its jobs side by side. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.messages.coding import Number
from testbed.messages.controller import ReconfigurationEvent
from testbed.messages.result import BoundResult, JobTelemetry
from testbed.messages.verdict import JobVerdict


@dataclass(frozen=True, slots=True)
class ReportHost:
    """The machine on which the report's times were measured; `memory` equals `memory_bytes`."""

    kernel: str
    cores: int
    memory_bytes: int
    machine: str
    python: str
    memory: int


@dataclass(frozen=True, slots=True)
class ReportClock:
    """The configuration's scale, and in words which times and volumes are scaled."""

    scale: Number
    times: str
    volumes: str


@dataclass(frozen=True, slots=True)
class JobMeasures:
    """A job's measures. `iteration_ms` and `comm_ms` are medians over the iterations of the lists beside
    them. `scale` is the number by which the script says that it divides its gradients; 1 if it says nothing.
    """

    sync: str
    hosts: tuple[str, ...]
    ps_host: str | None
    test_accuracy: float
    iterations: int
    epochs: int
    params: int
    dtype: str
    scale: int
    iteration_ms: Number
    comm_ms: Number
    loss: tuple[float, ...]
    iteration_ms_list: tuple[float, ...]
    comm_ms_list: tuple[float, ...]
    wall_s: float
    retransmits: int
    link_bytes: int
    link_drops: int


@dataclass(frozen=True, slots=True)
class ReportedJob(JobMeasures):
    """A job's measures with the testbed's observations. `scaled`: its gradients are divided by the
    configuration's scale.
    """

    scaled: bool
    verdict: JobVerdict
    bound: BoundResult | None
    telemetry: JobTelemetry


@dataclass(frozen=True, slots=True)
class ReportedLink:
    """A link, with the bytes that all jobs together sent over it, and each, by the job's name in the
    report.
    """

    name: str
    rate_mbps: Number | None
    bytes: int
    drops: int
    bytes_by_sync: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedEvent(ReconfigurationEvent):
    """A reconfiguration, and the job that caused it."""

    sync: str


@dataclass(frozen=True, slots=True)
class ReportedOptics:
    """The reconfigurations that the jobs caused."""

    reconfigurations: int
    events: tuple[ReportedEvent, ...]


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The report. `config` is the topology (testbed/topology/model.py)."""

    version: int
    host: ReportHost
    config: dict[str, Any]
    clock: ReportClock
    trustworthy: bool
    jobs: dict[str, ReportedJob]
    links: tuple[ReportedLink, ...]
    ocs: ReportedOptics
