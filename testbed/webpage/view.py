"""The view: everything that the page shows, as data, of a running testbed or of a record. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from testbed import status as command
from testbed.messages.controller import ReconfigurationEvent
from testbed.messages.journal import EndedJob, JournalEntry, RunningJob
from testbed.messages.links import LinkStatus
from testbed.messages.queue import QueuedStatus
from testbed.messages.status import HostStatus, Status, UnitStatus
from testbed.messages.verdict import JobVerdict
from testbed.ocs.circuits import circuit
from testbed.topology.addresses import optical_port_name
from testbed.topology.units import unit_named
from testbed.webpage.source import Answers, outcome
from testbed.webpage.spans import (
    NOT_OVER,
    JobSpan,
    LitChange,
    Ports,
    Spans,
    circuit_spans,
    lit_before,
    ports_in,
)

MOST_ENDED = 30  # ended jobs in the table of jobs
MOST_HAPPENINGS = 100


@dataclass(frozen=True, slots=True)
class ShownHost:
    """A host, its switch, and the job that holds it."""

    name: str
    switch: str
    job: int | None = None

    @property
    def short(self) -> str:
        return self.name.removeprefix(self.switch)


@dataclass(frozen=True, slots=True)
class ShownUnit:
    """A rack, or a pod of `racks` (the names of their switches); its hosts and optical ports."""

    name: str
    what: str
    hosts: tuple[ShownHost, ...]
    racks: tuple[str, ...]
    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShownLink:
    """A link, by the name of its host, rack or optical port. `share` is the utilisation of its busier
    direction; None if that is unknown or the link has no rate.
    """

    name: str
    rate_mbps: float | None
    up_mbps: float | None
    down_mbps: float | None
    share: float | None
    is_up: bool
    drops: int


@dataclass(frozen=True, slots=True)
class ShownCircuit:
    """A circuit between two optical ports, and the jobs that use it."""

    a: str
    b: str
    is_dark: bool
    jobs: tuple[int, ...]
    is_down: bool = False

    @property
    def light(self) -> str:
        """A word for its state."""
        return "down" if self.is_down else "dark" if self.is_dark else "lit"

    @property
    def ports(self) -> tuple[str, str]:
        return (self.a, self.b)

    @property
    def name(self) -> str:
        return f"{self.a}-{self.b}"


@dataclass(frozen=True, slots=True)
class JobLine:
    """A running or ended job. `trustworthy` is the verdict so far, `badge` the verdict in a word or two;
    `ratio` is a round's measured time over its bound, for an ended job with a bound.
    """

    number: int
    state: str
    sync: str
    script: str
    hosts: str
    progress: str
    uses: str
    verdict: str
    trustworthy: bool | None
    badge: str
    attention: tuple[str, ...] = ()
    ratio: float | None = None
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class ShownQueued:
    """A job in the queue."""

    number: int
    name: str
    state: str
    mode: str
    rate: str
    done: float
    hosts: str
    is_over: bool


@dataclass(frozen=True, slots=True)
class Happening:
    """A line about an event, with its time in seconds since 1970."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class View:
    """Everything shown. `attention` has the warnings, `facts` the general facts."""

    title: str
    attention: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    units: tuple[ShownUnit, ...] = ()
    links: Mapping[str, ShownLink] = field(default_factory=dict)
    circuits: tuple[ShownCircuit, ...] = ()
    dark: frozenset[str] = frozenset()
    down: frozenset[str] = frozenset()
    jobs: tuple[JobLine, ...] = ()
    queue: tuple[ShownQueued, ...] = ()
    queue_lines: tuple[str, ...] = ()
    happenings: tuple[Happening, ...] = ()
    spans: Spans = field(default_factory=Spans)
    cores: tuple[float, ...] = ()


def of_look(look: Answers) -> View:
    """Return the view of a running testbed."""
    if look.status is None:
        return View(f"testbed {look.name}", (look.why,), ())
    said = look.status
    jobs_of = {each.circuit: each.jobs for each in said.circuit_jobs}
    dark, down = frozenset(said.dark or ()), frozenset(said.down)
    pairs = ports_in(said.circuits or ())
    return View(
        title=f"testbed {said.name}",
        attention=tuple(_attention(said)),
        facts=tuple(_facts(said)),
        units=tuple(_unit(unit, said.hosts) for unit in said.units),
        links={link.name: _link(link, look) for link in said.links},
        circuits=tuple(
            ShownCircuit(*ports, bool(dark & {*ports}), jobs_of.get(ports, ()), bool(down & {*ports}))
            for ports in sorted(pairs, key=lambda ports: circuit(*ports))
        ),
        dark=dark,
        down=down,
        jobs=(*_running(look), *_ended(look)),
        queue=tuple(map(_queued, said.schedule.jobs)) if said.schedule else (),
        queue_lines=tuple(command.policy_lines(said.schedule)) if said.schedule else (),
        happenings=tuple(happenings(look.entries, look.changes)),
        spans=_spans(look, said, pairs),
        cores=tuple(said.cores_busy or ()),
    )


def _attention(said: Status) -> list[str]:
    lines = []
    if said.state != "ready":
        lines.append(f"the testbed is {said.state}")
    if said.circuits is None:
        lines.append("circuits are not known while the controller is away")
    lines += [
        f"link {link}: its device {device} was deleted: down, and up again"
        for link, device in said.gone_links.items()
    ]
    if down := [link.name for link in said.links if not link.up]:
        lines.append(f"links down: {' '.join(down)}")
    if said.faults:
        lines.append(f"faults {command.faults_text(said.faults)}")
    lines += [f"job {job.id}: {line}" for job in said.jobs for line in command.waiting_lines(job)]
    return [*lines, *(said.schedule.complaints if said.schedule else ())]


def _facts(said: Status) -> list[tuple[str, str]]:
    facts = [
        ("state", f"{said.state}, up {duration(said.uptime_s)}, {said.user}'s"),
        ("configuration", f"{said.configuration}, scale {said.scale:g}"),
        ("controller", command.controller_text(said.controller)),
        ("links", command.links_text(said.links)),
    ]
    if table := said.timetable:
        facts.append(("timetable", command.turns_text(table)))
    return facts


def duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _unit(unit: UnitStatus, hosts: Iterable[HostStatus]) -> ShownUnit:
    return ShownUnit(
        name=unit.name,
        what=f"{unit.kind}, {unit.engine}{command.restarted_text(unit.restarts)}",
        hosts=tuple(
            ShownHost(host.name, switch_of(host.name), host.job) for host in hosts if host.unit == unit.name
        ),
        racks=tuple(rack.name for rack in unit.tors),
        ports=ports_of(unit.name, unit.optical_ports),
    )


def switch_of(host: str) -> str:
    """Return a host's switch, by name: u1h2 is at u1, u1r1h2 at u1r1."""
    return host.rpartition("h")[0]


def ports_of(unit: str, count: int) -> tuple[str, ...]:
    """Return the names of a unit's optical ports."""
    return tuple(optical_port_name(unit_named(unit), port) for port in range(1, count + 1))


def _link(link: LinkStatus, look: Answers) -> ShownLink:
    flow, rate = look.flows.get(link.name), link.rate_mbps
    up, down = (flow.up_bytes_s * 8e-6, flow.down_bytes_s * 8e-6) if flow else (None, None)
    share = None if up is None or down is None or not rate else min(1.0, max(up, down) / rate)
    return ShownLink(link.name, rate, up, down, share, link.up, link.drops)


# ---- jobs ----


def _running(look: Answers) -> list[JobLine]:
    assert look.status is not None
    shown = []
    for job in look.status.jobs:
        running = look.running.get(job.id)
        verdict = running.verdict if running else None
        line = verdict.text if verdict else "too early to say"
        shown.append(
            JobLine(
                number=job.id,
                state=f"{job.state}, {duration(job.running_s)}",
                sync=job.sync,
                script=job.script,
                hosts=hosts_text(job.hosts, job.ps_host),
                progress=progress_text(job.summed_bytes),
                uses=", ".join(f"{a}-{b}" for a, b in job.uses.circuits) if job.uses else "",
                verdict=f"so far {line}",
                trustworthy=verdict.trustworthy if verdict else None,
                badge=f"so far {badge(verdict)}" if verdict else line,
                attention=(
                    *command.waiting_lines(job),
                    *command.counts_lines(job),
                    *job.service_lines,
                ),
            )
        )
    return shown


def _ended(look: Answers) -> list[JobLine]:
    over = [(entry.time, entry.ended) for entry in look.entries if entry.ended][-MOST_ENDED:]
    return [
        ended_job(job, f"{outcome(job.failure)} after {duration(ended - job.began)}")
        for ended, job in reversed(over)
    ]


def ended_job(job: EndedJob, state: str) -> JobLine:
    """Return the line of an ended job from the journal. Without a result, its failure replaces the
    verdict.
    """
    verdict, failure = job.verdict, job.failure
    return JobLine(
        number=job.id,
        state=state,
        sync=job.sync,
        script=job.script,
        hosts=hosts_text(job.hosts, job.ps_host),
        progress="",
        uses="",
        verdict=verdict.text if verdict else failure or "none",
        trustworthy=verdict.trustworthy if verdict else None,
        badge=badge(verdict, failure),
        attention=remarks(failure if verdict else None, job.notes, verdict),
        ratio=job.ratio,
        is_over=True,
    )


def badge(verdict: JobVerdict | None, failure: str | None = None) -> str:
    """Describe a job's outcome in a word or two: failed, or its verdict with the first reason."""
    if failure:
        return "failed"
    if verdict is None or verdict.trustworthy is None:
        return "no verdict"
    if verdict.trustworthy:
        return "trustworthy"
    reasons = [reason.name.replace("_", " ") for reason in verdict.reasons[:1]]
    return ": ".join(["not trustworthy", *reasons])


def remarks(failure: str | None, notes: Iterable[str], verdict: JobVerdict | None) -> tuple[str, ...]:
    """Return what a reader of a job's result must know, without duplicate lines."""
    of_verdict = [note.text for note in verdict.notes] if verdict else []
    return tuple(dict.fromkeys([*([failure] if failure else []), *notes, *of_verdict]))


def hosts_text(hosts: Iterable[str], ps_host: str | None) -> str:
    """Return the names of a job's hosts and of its server's host."""
    return " ".join(hosts) + (f", ps on {ps_host}" if ps_host else "")


def progress_text(summed_bytes: int) -> str:
    """Describe how many bytes every worker has the sums of."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if summed_bytes >= size:
            return f"{summed_bytes / size:.3g} {unit} summed"
    return "nothing summed yet"


def _queued(job: QueuedStatus) -> ShownQueued:
    state = "cancelled" if job.cancelled else "failed" if job.failure else job.state
    return ShownQueued(
        job.id,
        job.name,
        state,
        job.mode or "",
        f"{job.rate_gbps:g}",
        job.progress,
        hosts_text(job.hosts, job.ps_host),
        job.state == "ended",
    )


# ---- events ----


def happenings(entries: Iterable[JournalEntry], changes: Iterable[ReconfigurationEvent]) -> list[Happening]:
    """Return the newest of a journal's entries and of reconfigurations, newest first."""
    lines = [Happening(entry.time, entry.text) for entry in entries]
    lines += [Happening(change.time, change_text(change)) for change in changes]
    return sorted(lines, key=lambda line: line.at, reverse=True)[:MOST_HAPPENINGS]


def change_text(change: ReconfigurationEvent) -> str:
    """Describe a reconfiguration."""
    parts = [
        f"{word} {', '.join(f'{a}-{b}' for a, b in circuits)}"
        for word, circuits in (("removed", change.removed), ("added", change.added))
        if circuits
    ]
    measured = change.measured_ms
    dark = "" if measured is None else f"; dark for {measured:.3f} ms, {change.asked_ms:.3f} asked"
    return f"reconfiguration {change.id}: {', '.join(parts) or 'nothing'}{dark}"


def _spans(look: Answers, said: Status, pairs: frozenset[Ports]) -> Spans:
    jobs = tuple(
        [
            _job_span(job, entry.time, job.sync, bool(job.failure))
            for entry in look.entries
            if (job := entry.ended)
        ]
        + [_job_span(look.running[job.id], NOT_OVER, job.sync) for job in said.jobs if job.id in look.running]
    )
    begun = round(look.at - said.uptime_s)
    if said.circuits is None or said.timetable:  # not known, or others every few milliseconds
        return Spans(jobs, (), begun, look.at)
    changes = tuple(LitChange.of(change) for change in look.changes)
    if changes and changes[0].number > 1:  # those before it are forgotten
        begun = math.floor(changes[0].at)
    units = tuple(unit.name for unit in said.units)
    first, has_core = lit_before(pairs, changes), said.core is not None
    circuits = circuit_spans(first, changes, jobs, units, begun, has_core)
    return Spans(jobs, circuits, begun, look.at)


def _job_span(job: RunningJob | EndedJob, ended: float, sync: str, has_failed: bool = False) -> JobSpan:
    return JobSpan(job.id, f"job {job.id} {sync}", job.began, ended, job.pairs, has_failed)
