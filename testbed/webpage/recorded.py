"""The view of a record: what a command left, in the same places of the page as a live testbed's data."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from testbed.messages.controller import ReconfigurationEvent
from testbed.messages.result import RunResult
from testbed.messages.submission import QueuedRun, SubmissionResult
from testbed.records.outcome import Outcome, outcome_of
from testbed.records.record import QUEUED, RUNNING, Record, Run
from testbed.topology import addresses
from testbed.topology.model import Topology, UnitSpec
from testbed.webpage.source import outcome
from testbed.webpage.spans import NOT_OVER, JobSpan, LitChange, Spans, circuit_spans, ports_in
from testbed.webpage.view import (
    Happening,
    JobLine,
    ShownCircuit,
    ShownHost,
    ShownLink,
    ShownUnit,
    View,
    badge,
    change_text,
    duration,
    hosts_text,
    ports_of,
    remarks,
    switch_of,
)


def of_record(record: Record, number: int | None = None) -> View:
    """Return the view of a record: of the run with this number, or else of the last one with a result."""
    run = _chosen(record.runs, number)
    result = outcome_of(record, run) if run else None
    topology = _topology(record)
    jobs = _jobs(result)
    ran = result if isinstance(result, RunResult) else None
    events = ran.events if ran else ()
    changes = [LitChange.of(event) for event in events]
    lit = ports_in(record.set_up.network.circuits or ())
    began = run.began if run else record.began
    now = (run.ended if run else record.ended) or time.time()
    return View(
        title=f"record {record.name}",
        attention=tuple(text for text in (record.failure, *record.notes) if text),
        facts=tuple(_facts(record, run)),
        units=tuple(_unit(unit, _holders(jobs)) for unit in topology.units) if topology else (),
        links={link.name: link for link in _links(ran)} if ran else {},
        circuits=_circuits(lit, changes),
        jobs=tuple(job.line for job in jobs),
        happenings=tuple(_happenings(run, events)),
        spans=_spans(jobs, lit, changes, topology, began, now),
        cores=tuple(core.busy.median or 0.0 for core in ran.telemetry.cores) if ran else (),
    )


def _chosen(runs: Sequence[Run], number: int | None) -> Run | None:
    if number is not None:
        return next((run for run in runs if run.number == number), None)
    with_result = [run for run in runs if run.result is not None] or runs
    return with_result[-1] if with_result else None


def _topology(record: Record) -> Topology | None:
    configuration = record.configuration
    return None if configuration is None else Topology.from_json(json.dumps(configuration))


def _facts(record: Record, run: Run | None) -> Iterable[tuple[str, str]]:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.began))
    over = record.state not in (RUNNING, QUEUED) and record.ended is not None
    took = f", {duration(record.ended - record.began)}" if over and record.ended is not None else ""
    yield "command", f"testbed {' '.join(record.words)}"
    yield "state", f"{record.state}, began {began}{took}"
    if record.set_up.testbed:
        yield "configuration", f"{record.set_up.testbed.configuration}"
    if run is not None and len(record.runs) > 1:
        yield "run", f"{run.number} of {len(record.runs)}"
    if run is not None and run.verdict:
        yield "verdict", run.verdict.removeprefix("verdict: ")
    source = record.set_up.source
    if source.commit:
        yield "commit", f"{source.commit}{', changed' if source.changed else ''}"


# ---- jobs ----


@dataclass(frozen=True, slots=True)
class _Ran:
    """A job of a result: its line, the hosts of its workers and server, how its gradients were summed, and
    for a queued one when it ran, in s since its session's first slot.
    """

    line: JobLine
    hosts: tuple[str, ...]
    way: str
    has_failed: bool
    started_s: float | None = None
    ended_s: float | None = None

    @classmethod
    def alone(cls, job: RunResult) -> Self:
        """Make the job of `testbed run`."""
        line = _line(job, job.hosts, job.sync, job.script, job)
        return cls(line, _with_server(job.hosts, job.ps_host), job.sync, bool(job.failure))

    @classmethod
    def queued(cls, job: QueuedRun) -> Self:
        """Make a job of `testbed submit`, which may have no result of its own."""
        run, way = job.run, job.mode or ""
        line = _line(job, job.hosts, run.sync if run else way, run.script if run else job.name, run)
        hosts = _with_server(job.hosts, job.ps_host)
        return cls(line, hosts, way, bool(job.failure), job.started_s, job.ended_s)


def _line(
    job: RunResult | QueuedRun, hosts: Sequence[str], sync: str, script: str, run: RunResult | None
) -> JobLine:
    verdict = run.verdict if run else None
    return JobLine(
        number=job.id,
        state=outcome(job.failure),
        sync=sync,
        script=script,
        hosts=hosts_text(hosts, job.ps_host),
        progress="",
        uses="",
        verdict=verdict.text if verdict else "none",
        trustworthy=verdict.trustworthy if verdict else None,
        badge=badge(verdict, job.failure),
        attention=remarks(job.failure, run.notes if run else (), verdict),
        ratio=run.bound.ratio if run and run.bound else None,
        is_over=True,
    )


def _with_server(hosts: tuple[str, ...], ps_host: str | None) -> tuple[str, ...]:
    return hosts if ps_host is None else (*hosts, ps_host)


def _jobs(result: Outcome | None) -> tuple[_Ran, ...]:
    """Return the jobs of a result: `run`'s single one, or those of `submit`."""
    if isinstance(result, SubmissionResult):
        return tuple(_Ran.queued(job) for job in result.jobs)
    return (_Ran.alone(result),) if isinstance(result, RunResult) else ()


def _holders(jobs: Iterable[_Ran]) -> dict[str, int]:
    """Return the job that last had a worker or server on each host."""
    return {host: job.line.number for job in jobs for host in job.hosts}


# ---- the network ----


def _unit(unit: UnitSpec, holders: Mapping[str, int]) -> ShownUnit:
    names = [addresses.host_name(unit.index, host) for host in unit.numbers]
    return ShownUnit(
        name=unit.name,
        what=f"{unit.kind}, {unit.engine}",
        hosts=tuple(ShownHost(name, switch_of(name), holders.get(name)) for name in names),
        racks=tuple(addresses.rack_name(unit.index, rack) for rack in unit.rack_numbers if unit.racks),
        ports=ports_of(unit.name, unit.optical_ports),
    )


def _links(result: RunResult) -> Iterable[ShownLink]:
    """Yield the links with their traffic, over the time in which any link carried some."""
    seconds = result.telemetry.traffic_s
    used = {link.name: link.utilisation.median for link in result.telemetry.links}
    for link in result.links:
        up, down = (
            (carried * 8e-6 / seconds) if seconds else 0.0 for carried in (link.bytes_up, link.bytes_down)
        )
        share = used.get(link.name, 0.0) if link.rate_mbps else None
        yield ShownLink(link.name, link.rate_mbps, up, down, share, True, link.drops)


def _circuits(lit: frozenset[tuple[str, str]], changes: Iterable[LitChange]) -> tuple[ShownCircuit, ...]:
    """Return the circuits at the end."""
    for change in changes:
        lit = (lit - change.removed) | change.added
    return tuple(ShownCircuit(*ports, False, ()) for ports in sorted(lit))


# ---- events ----


def _happenings(run: Run | None, events: Iterable[ReconfigurationEvent]) -> list[Happening]:
    lines = [Happening(event.time, change_text(event)) for event in events]
    if run is not None:
        lines += [Happening(run.began + step.run_s, f"step: {step.command}") for step in run.steps]
        lines.append(Happening(run.began, f"run {run.number} began"))
        if run.ended is not None:
            lines.append(
                Happening(run.ended, f"run {run.number} ended{f': {run.failure}' if run.failure else ''}")
            )
    return sorted(lines, key=lambda line: line.at, reverse=True)


def _spans(
    jobs: Sequence[_Ran],
    lit: frozenset[tuple[str, str]],
    changes: Sequence[LitChange],
    topology: Topology | None,
    began: float,
    now: float,
) -> Spans:
    spans = tuple(_job_span(job, began, now, len(jobs) > 1) for job in jobs)
    units = tuple(unit.name for unit in topology.units) if topology else ()
    if not lit and not changes:
        return Spans(spans, (), began, now)
    has_core = topology is not None and topology.core_link is not None
    circuits = circuit_spans(lit, tuple(changes), spans, units, began, has_core)
    return Spans(spans, circuits, began, now)


def _job_span(job: _Ran, began: float, now: float, is_queued: bool) -> JobSpan:
    """Return the span of a job; of `run` from its processes' start to their end, by the record's clock."""
    number, has_failed = job.line.number, job.has_failed
    name = f"job {number} {job.way}".rstrip()
    if not is_queued:
        return JobSpan(number, name, began, now, (), has_failed)
    first = now if job.started_s is None else began + job.started_s
    last = NOT_OVER if job.ended_s is None else began + job.ended_s
    return JobSpan(number, name, first, last, (), has_failed)
