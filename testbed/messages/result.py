"""The result of a job: printed by `testbed run --json`, kept in records, and read by all code that judges or
shows a job. Pure.

A field with a default is missing in results of earlier versions.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace

from testbed.messages.automatic import AutomaticChoice
from testbed.messages.coding import UNSET, Number, UnsetType
from testbed.messages.controller import ReconfigurationEvent
from testbed.messages.jobs import SummingTree, WrittenCounts
from testbed.messages.links import LinkDelta
from testbed.messages.statistics import Statistics
from testbed.messages.traffic import TrafficResult
from testbed.messages.verdict import JobVerdict

PROTOCOLS = {1: "ICMP", 6: "TCP", 17: "UDP", 132: "SCTP"}


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """A worker of a job's last start: its log, the file with its stack traces if the job failed, and the
    statistics that it wrote, without its timeline.
    """

    rank: int
    host: str
    exit_code: int | None
    log: str
    stacks: str | None = None
    stats: Statistics | None = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class GroupBytes:
    """The tensor bytes of a group that a script made besides its first, by transport; its workers by rank."""

    workers: tuple[int, ...]
    bytes_by: dict[str, int]


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """One start of a job: its duration, and why it failed, if it did."""

    generation: int
    wall_s: Number
    failure: str | None


@dataclass(frozen=True, slots=True)
class OpticalEvents:
    """The reconfigurations of the optical switch while a job ran."""

    events: tuple[ReconfigurationEvent, ...]


@dataclass(frozen=True, slots=True)
class MedianAndMax:
    """The median and the largest of several values; None if there are none."""

    median: Number | None
    max: Number | None


@dataclass(frozen=True, slots=True)
class Lateness:
    """The lateness of samples, in ms after their deadlines: median, largest, and 99th percentile."""

    median: Number | None
    max: Number | None
    p99: Number | None


@dataclass(frozen=True, slots=True)
class CoreShares:
    """The shares of the time with traffic that a core was busy, in total and by state."""

    core: int
    busy: MedianAndMax
    softirq: MedianAndMax
    steal: MedianAndMax
    iowait: MedianAndMax


@dataclass(frozen=True, slots=True)
class SoftnetCounts:
    """The packets that the kernel dropped, and the times that it cut its work on packets short
    (/proc/net/softnet_stat).
    """

    dropped: int
    squeezed: int


@dataclass(frozen=True, slots=True)
class LinkTelemetry:
    """The samples of a link that carried something, summarized (testbed/telemetry/evidence.py, LinkUse)."""

    name: str
    rate_mbps: Number | None
    bytes: int
    most_bytes: int
    utilisation: MedianAndMax
    excess: Number
    queue_drops: int
    queue_bytes_max: int
    bytes_up: int = 0


@dataclass(frozen=True, slots=True)
class JobTelemetry:
    """A summary of a job's samples. Shares are of the time in which links carried traffic, `traffic_s`.
    `file` names the file with all samples, if one was written beside the result.
    """

    interval_s: Number
    samples: int
    sampled_s: Number
    unsampled_s: Number
    traffic_s: Number
    cost_share: Number | None
    cores: tuple[CoreShares, ...]
    waiting: MedianAndMax
    late_ms: Lateness
    softnet: SoftnetCounts
    device_drops: dict[str, int]
    segments_max: dict[str, int]
    links: tuple[LinkTelemetry, ...]
    file: str | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class WorkerDelays:
    """The delays that were injected into a worker: how many, their seconds in total, in how many iterations.
    `typical_s` is the duration of its typical iteration.
    """

    rank: int
    delays: int
    seconds: Number
    iterations: int
    typical_s: Number | None


@dataclass(frozen=True, slots=True)
class JobDelays:
    """The delays that were injected into a job's workers, by the pattern in `asked`."""

    asked: str
    delays: int
    seconds: Number
    workers: tuple[WorkerDelays, ...]
    line: str


@dataclass(frozen=True, slots=True)
class OpticalLosses:
    """The frames that were lost in dark time, and those that met no circuit."""

    dark: int
    unlit: int


@dataclass(frozen=True, slots=True)
class OthersTraffic:
    """Other traffic on a link of the job: its bytes with headers, and those of them that went up (from a
    host, out of a rack or a unit). Parallel circuits each count all of it. `port` is the lower of the two
    ports; 0: the protocol has none.
    """

    link: str
    protocol: int
    port: int
    bytes: int
    bytes_up: int = 0

    def __str__(self) -> str:
        name = PROTOCOLS.get(self.protocol, f"IP protocol {self.protocol}")
        port = f", port {self.port}" if self.port else ""
        return f"{self.bytes / 1e6:.3g} MB on {self.link} ({name}{port})"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundResult:
    """The bound of a job's rounds (testbed/telemetry/bound.py, Bound), and how it was computed."""

    bound_ms: Number
    measured_ms: Number
    rounds: int
    left_out: int
    link: str
    link_ms: Number
    computing_ms: Number
    starved_ms: Number
    shared: bool
    coarse: bool
    lit_share: Number = 1.0
    ratio: Number
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A job that has ended. `sync` is the system that summed it, `asked_sync` the system that was requested.
    `workers` are those of the last of its `attempts`, by rank; `placement` has their racks. `ocs` is unset
    for a queued job, whose circuits belong to its policy; `blocks` is unset for a job without block records.
    `series` has all samples, an .npz file in base64, if they were requested. `automatic` is unset unless
    `--sync auto` chose the system, `traffic` unless `--traffic` sent flows meanwhile.
    """

    id: int
    testbed: str
    script: str
    sync: str
    placement: tuple[str, ...]
    ps_host: str | None
    failure: str | None
    bytes_by: dict[str, int]
    groups: tuple[GroupBytes, ...]
    workers: tuple[WorkerResult, ...]
    notes: tuple[str, ...]
    asked_sync: str
    sums: tuple[SummingTree, ...] | None
    lanes: int | None
    recovery: str | None
    attempts: tuple[AttemptResult, ...]
    wall_s: Number
    ocs: OpticalEvents | UnsetType = UNSET
    blocks: WrittenCounts | UnsetType = UNSET
    links: tuple[LinkDelta, ...]
    telemetry: JobTelemetry
    stragglers: JobDelays | None
    optical_losses: dict[str, OpticalLosses] = field(default_factory=dict)
    other_traffic: tuple[OthersTraffic, ...] = ()
    bound: BoundResult | None
    verdict: JobVerdict
    series: str | UnsetType = UNSET
    automatic: AutomaticChoice | UnsetType = UNSET
    traffic: TrafficResult | UnsetType = UNSET

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the workers' hosts, by rank."""
        return tuple(worker.host for worker in self.workers)

    @property
    def samples(self) -> bytes | None:
        """Return the content of the .npz file with all samples, if it is included."""
        return None if isinstance(self.series, UnsetType) else base64.b64decode(self.series)

    def with_samples_in(self, file: str) -> RunResult:
        """Replace the samples by the name of the file that holds them."""
        return replace(self, telemetry=replace(self.telemetry, file=file), series=UNSET)

    @property
    def events(self) -> tuple[ReconfigurationEvent, ...]:
        """Return the reconfigurations during the job, as far as they were its own."""
        return () if isinstance(self.ocs, UnsetType) else self.ocs.events


@dataclass(frozen=True, slots=True)
class MeanResult:
    """The mean of several runs' values, and its 95 % confidence interval; `low` and `high` are None for one
    value.
    """

    mean: Number
    low: Number | None
    high: Number | None
    values: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class RepeatedRuns:
    """The runs of a repeated job, and the means of their numbers, by name."""

    runs: tuple[RunResult, ...]
    means: dict[str, MeanResult]
