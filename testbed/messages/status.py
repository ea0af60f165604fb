"""A testbed's status: printed by `testbed status --json`, and read by the web page and the library. Pure.

A field with a default is missing in the status of earlier versions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from testbed.messages.coding import UNSET, Number, UnsetType
from testbed.messages.jobs import JobStatus
from testbed.messages.links import CalendarStatus, FaultStatus, LinkStatus
from testbed.messages.queue import QueueStatus
from testbed.messages.timetable import TimetableStatus

Nothing: TypeAlias = tuple[()]
"""No unit, host, circuit or job: an empty list, for programs that read only these."""

STARTING, NOT_ANSWERING, DEAD = "starting", "not answering", "dead"


@dataclass(frozen=True, slots=True)
class RackStatus:
    """A rack of a pod; `restarts` counts its ToR's restarts."""

    name: str
    hosts: int
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStatus:
    """A rack or a pod. `planes` has the number of its optical ports by plane; `link_rates_mbps` has the
    declared rates of the links that have one of their own; `racks` are a pod's racks, unset for a rack.
    """

    name: str
    kind: str
    hosts: int
    optical_ports: int
    planes: dict[str, int] = field(default_factory=dict)
    engine: str
    restarts: int = 0
    link_rates_mbps: dict[str, Number | None] = field(default_factory=dict)
    racks: tuple[RackStatus, ...] | UnsetType = UNSET

    @property
    def tors(self) -> tuple[RackStatus, ...]:
        """Return the racks of a pod; empty for a rack."""
        return () if isinstance(self.racks, UnsetType) else self.racks


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCommand:
    """The command line that a host runs from the start, and its state: `running`, or how it ended."""

    line: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """A host: its link's declared rate, the job that holds it, the users who run commands in it, its second
    name, and the command that it runs from the start.
    """

    name: str
    unit: str
    ip: str
    rate_mbps: Number | None
    cpus: Number | None
    job: int | None
    commands_of: tuple[str, ...] = ()
    second_name: str | None = None
    exec: HostCommand | None = None


@dataclass(frozen=True, slots=True)
class CoreStatus:
    """The electrical core, with the declared rate of its links."""

    rate_mbps: Number | None


@dataclass(frozen=True, slots=True)
class OpticalModelStatus:
    """The optical model, if it is not the default one, and its settings as in the configuration: those for
    all, and those of single planes and ports.
    """

    name: str
    values: dict[str, str]
    planes: dict[str, dict[str, str]]
    ports: dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class CircuitUse:
    """The jobs that use a circuit."""

    circuit: tuple[str, str]
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStatus:
    """The controller: `state` is running or away, `lacks` names what it waits for, `error` says why it is
    away. Fields are unset where it did not answer.
    """

    state: str
    restarts: int
    library: str | UnsetType = UNSET
    lacks: tuple[str, ...] | UnsetType = UNSET
    ready: bool = False
    error: str | UnsetType = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A testbed that answers. `circuits` and `dark` are None while its controller is away, `schedule` while
    nothing is queued, `cores_busy` while no job runs. `kept_apart` counts, by host, the frames dropped on
    their way to hosts of other users' jobs; None if hosts are not kept apart. `gone_links` has, by link, the
    device that was deleted from outside. `down` are the optical ports and links to the core without carrier,
    round which routes lead. `calendar` has the calendar queues that ever had a frame;
    `calendar_overrun` frames were lost because they came faster than this machine took them in.
    """

    name: str
    state: str
    pid: int
    user: str
    configuration: str
    scale: Number
    uptime_s: Number
    units: tuple[UnitStatus, ...]
    hosts: tuple[HostStatus, ...]
    core: CoreStatus | None = None
    circuits: tuple[tuple[str, str], ...] | None
    circuit_jobs: tuple[CircuitUse, ...] = ()
    dark: tuple[str, ...] | None
    down: tuple[str, ...] = ()
    failed_locks: dict[str, int] = field(default_factory=dict)
    timetable: TimetableStatus | None = None
    controller: ControllerStatus
    datapath: str
    jobs: tuple[JobStatus, ...]
    schedule: QueueStatus | None = None
    cores_busy: tuple[Number, ...] | None = None
    links: tuple[LinkStatus, ...]
    calendar: tuple[CalendarStatus, ...] = ()
    calendar_overrun: int = 0
    kept_apart: dict[str, int] | None = None
    gone_links: dict[str, str] = field(default_factory=dict)
    faults: tuple[FaultStatus, ...] = ()
    log: str
    optical_model: OpticalModelStatus | UnsetType = UNSET

    @property
    def queued(self) -> frozenset[int]:
        """Return the numbers of the jobs in the queue."""
        return frozenset(job.id for job in self.schedule.jobs) if self.schedule else frozenset()


@dataclass(frozen=True, slots=True)
class SilentStatus:
    """A testbed that does not answer, described by its main process's file; `error` says why it does not."""

    name: str
    pid: int
    user: str
    configuration: str
    state: str
    units: Nothing
    hosts: Nothing
    circuits: Nothing
    jobs: Nothing
    error: str


@dataclass(frozen=True, slots=True)
class UnwrittenStatus:
    """A testbed whose main process has not yet written its file."""

    name: str
    pid: None
    units: Nothing
    hosts: Nothing
    circuits: Nothing
    jobs: Nothing
    state: str
    error: str
    configuration: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class DeadStatus:
    """A testbed that died: the reason, the time in s since 1970 (None: not noted), and the logs that it
    left.
    """

    name: str
    pid: int | None
    user: str
    configuration: str
    reason: str
    died: Number | None
    state: str
    logs: tuple[str, ...]


LivingStatus: TypeAlias = Status | SilentStatus | UnwrittenStatus
