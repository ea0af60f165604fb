"""The view of a record: what a command left, in the places where the page shows what lives."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from testbed.messages.coding import decode
from testbed.messages.verdict import JobVerdict
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
    change_text,
    duration,
    hosts_text,
    ports_of,
    remarks,
    switch_of,
)


def of_record(record: Record, number: int | None = None) -> View:
    """Return what is shown of a record: its run of that number, without one the last that left a result."""
    run = _chosen(record.runs, number)
    result = (run.result if run else None) or {}
    topology = _topology(record)
    jobs = _jobs(result)
    changes = [LitChange.of(event) for event in result.get("ocs", {}).get("events", ())]
    lit = ports_in(record.set_up.network.get("circuits") or ())
    began = run.began if run else record.began
    now = (run.ended if run else record.ended) or time.time()
    return View(
        title=f"record {record.name}",
        attention=tuple(text for text in (record.failure, *record.notes) if text),
        facts=tuple(_facts(record, run)),
        units=tuple(_unit(unit, _holders(jobs)) for unit in topology.units) if topology else (),
        links={link.name: link for link in _links(result)},
        circuits=_circuits(lit, changes),
        jobs=tuple(_shown(job) for job in jobs),
        happenings=tuple(_happenings(record, run, result)),
        spans=_spans(result, jobs, lit, changes, topology, began, now),
        cores=tuple(core["busy"]["median"] or 0.0 for core in result.get("telemetry", {}).get("cores", ())),
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
        yield "configuration", f"{record.set_up.testbed.get('configuration')}"
    if run is not None and len(record.runs) > 1:
        yield "run", f"{run.number} of {len(record.runs)}"
    if run is not None and run.verdict:
        yield "verdict", run.verdict.removeprefix("verdict: ")
    if commit := record.set_up.source.get("commit"):
        yield "commit", f"{commit}{', changed' if record.set_up.source.get('changed') else ''}"


# ---- jobs ----


def _jobs(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the jobs of a result: that of `run`, which is one itself, or those of `submit`."""
    if "jobs" in result:
        return list(result["jobs"])
    return [result] if "placement" in result else []


def _workers(job: Mapping[str, Any]) -> list[str]:
    return list(
        job.get("hosts") or [worker["host"] for worker in job.get("workers") or () if "host" in worker]
    )


def _holders(jobs: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the job that each host was a worker's or the server's of; the last one of several."""
    return {
        host: job["id"] for job in jobs for host in (*_workers(job), job.get("ps_host")) if host is not None
    }


def _shown(job: Mapping[str, Any]) -> JobLine:
    run = job.get("run") or job  # a queued job's result has its own result in it
    verdict = decode(JobVerdict, run["verdict"], "verdict") if run.get("verdict") else None
    return JobLine(
        number=job["id"],
        state=outcome(job["failure"]),
        sync=str(run.get("sync") or job.get("mode") or ""),
        script=str(run.get("script") or job.get("name") or ""),
        hosts=hosts_text(_workers(job), job.get("ps_host")),
        progress="",
        uses="",
        verdict=verdict.text if verdict else "none",
        trustworthy=verdict.trustworthy if verdict else None,
        attention=remarks(job["failure"], run.get("notes", ()), verdict),
    )


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


def _links(result: Mapping[str, Any]) -> Iterable[ShownLink]:
    """Yield the links with what they carried, over the time in which any carried something."""
    telemetry = result.get("telemetry", {})
    seconds = telemetry.get("traffic_s") or 0.0
    used = {link["name"]: link["utilisation"]["median"] for link in telemetry.get("links", ())}
    for link in result.get("links", ()):
        up, down = ((link[way] * 8e-6 / seconds) if seconds else 0.0 for way in ("bytes_up", "bytes_down"))
        share = used.get(link["name"], 0.0) if link["rate_mbps"] else None
        yield ShownLink(link["name"], link["rate_mbps"], up, down, share, True, link["drops"])


def _circuits(lit: frozenset[tuple[str, str]], changes: Iterable[LitChange]) -> tuple[ShownCircuit, ...]:
    """Return the circuits that there were at the end."""
    for change in changes:
        lit = (lit - change.removed) | change.added
    return tuple(ShownCircuit(*ports, False, ()) for ports in sorted(lit))


# ---- what happened ----


def _happenings(record: Record, run: Run | None, result: Mapping[str, Any]) -> list[Happening]:
    lines = [
        Happening(event["time"], change_text(event)) for event in result.get("ocs", {}).get("events", ())
    ]
    if run is not None:
        lines += [
            Happening(run.began + float(step.get("run_s") or 0.0), f"step: {step['command']}")
            for step in run.steps
        ]
        lines.append(Happening(run.began, f"run {run.number} began"))
        if run.ended is not None:
            lines.append(
                Happening(run.ended, f"run {run.number} ended{f': {run.failure}' if run.failure else ''}")
            )
    return sorted(lines, key=lambda line: line.at, reverse=True)


def _spans(
    result: Mapping[str, Any],
    jobs: Sequence[Mapping[str, Any]],
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


def _job_span(job: Mapping[str, Any], began: float, now: float, is_queued: bool) -> JobSpan:
    """Return when a job ran: one of `run` from its processes' start to their end, by the record's clock."""
    name = f"job {job['id']} {job.get('sync') or job.get('mode') or ''}".rstrip()
    has_failed = bool(job["failure"])
    if not is_queued:
        return JobSpan(job["id"], name, began, now, (), has_failed)
    start, end = job.get("started_s"), job.get("ended_s")
    first = now if start is None else began + start
    return JobSpan(job["id"], name, first, NOT_OVER if end is None else began + end, (), has_failed)
