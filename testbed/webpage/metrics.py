"""The metrics of a testbed, with OpenMetrics' names and base units, from one query of the testbed per
request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from testbed.messages.queue import QueueStatus
from testbed.messages.status import Status
from testbed.plugins.counts import counts_of
from testbed.webpage.source import DARK_TIMES_S, Answers

PATH = "/metrics"
_FAULTS = ("lost", "duplicated", "held", "corrupted")


class AnswersCollector(Collector):
    """The metrics of one query."""

    def __init__(self, look: Answers) -> None:
        self._look = look

    def collect(self) -> Iterator[Metric]:
        """Yield `testbed_up`, and the rest if a testbed answers."""
        look = self._look
        yield _gauge("testbed_up", "Whether the testbed answers.", [((), float(look.status is not None))])
        if look.status is None:
            return
        yield from _whole(look.status)
        yield from _links(look.status)
        yield from _optics(look, look.status)
        yield from _jobs(look, look.status)
        yield from _queue(look.status.schedule)


def exposition(look: Answers, accept: str) -> tuple[bytes, str]:
    """Return the metrics in the format that the header `Accept` requests, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(AnswersCollector(look))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _whole(said: Status) -> Iterator[Metric]:
    words = {
        "name": said.name,
        "configuration": said.configuration,
        "user": said.user,
        "state": said.state,
        "datapath": said.datapath,
    }
    yield InfoMetricFamily("testbed", "The testbed.", words)
    yield _gauge("testbed_uptime_seconds", "Since the testbed began.", [((), said.uptime_s)], unit="seconds")
    yield _gauge("testbed_units", "Racks and pods.", [((), len(said.units))])
    busy = sum(host.job is not None for host in said.hosts)
    yield _gauge(
        "testbed_hosts",
        "Hosts, by whether a job holds them.",
        [(("busy",), busy), (("free",), len(said.hosts) - busy)],
        ["state"],
    )
    yield _gauge(
        "testbed_core_busy_ratio",
        "How much of the last second each core was busy; only while a job runs.",
        [((str(core),), share) for core, share in enumerate(said.cores_busy or ())],
        ["core"],
        "ratio",
    )
    controller = said.controller
    yield _gauge(
        "testbed_controller_up", "Whether the controller answers.", [((), controller.state == "running")]
    )
    yield _counter(
        "testbed_controller_restarts", "How often it was started again.", [((), controller.restarts)]
    )
    yield _counter(
        "testbed_switch_restarts",
        "How often a ToR was started again.",
        [((unit.name,), unit.restarts) for unit in said.units],
        ["unit"],
    )


def _links(said: Status) -> Iterator[Metric]:
    links = said.links
    yield _counter(
        "testbed_link_bytes",
        "Bytes that a link carried, with Ethernet headers; up: from its host, port or rack.",
        [
            ((link.name, way), carried)
            for link in links
            for way, carried in (("up", link.bytes_up), ("down", link.bytes_down))
        ],
        ["link", "direction"],
        "bytes",
    )
    yield _gauge(
        "testbed_link_rate_bytes_per_second",
        "The rate of a link that has one, each way.",
        [((link.name,), link.rate_mbps * 125e3) for link in links if link.rate_mbps is not None],
        ["link"],
        "bytes_per_second",
    )
    yield _counter(
        "testbed_link_dropped_frames",
        "Frames that a link dropped.",
        [((link.name,), link.drops) for link in links],
        ["link"],
    )
    yield _gauge(
        "testbed_link_queued_bytes",
        "Bytes that wait in the queues of a link, both ways.",
        [((link.name,), link.queued_bytes) for link in links],
        ["link"],
        "bytes",
    )
    yield _gauge(
        "testbed_link_up",
        "Whether a link has carrier.",
        [((link.name,), link.up) for link in links],
        ["link"],
    )
    yield _counter(
        "testbed_fault_frames",
        "Frames that a fault lost, duplicated, held or corrupted.",
        [
            ((fault.link, fault.direction, what), fault.counters[what])
            for fault in said.faults
            for what in _FAULTS
        ],
        ["link", "direction", "effect"],
    )


def _optics(look: Answers, said: Status) -> Iterator[Metric]:
    dark = {*(said.dark or ()), *said.down}
    yield _gauge(
        "testbed_circuit_lit",
        "Whether a circuit between two optical ports is lit (1), or dark still or down (0).",
        [((a, b), not {a, b} & dark) for a, b in said.circuits or ()],
        ["a", "b"],
    )
    ends = [*map(str, DARK_TIMES_S), "+Inf"]
    dark_times = HistogramMetricFamily(
        "testbed_reconfiguration_dark_seconds",
        "How long the ports of a reconfiguration were dark, as measured.",
        unit="seconds",
    )
    at_most = zip(ends, accumulate(look.totals.dark_counts), strict=True)
    dark_times.add_metric((), list(at_most), look.totals.dark_s)
    yield dark_times
    yield _counter(
        "testbed_optical_frames",
        "Frames that came to an optical port: lit went on, dark met a change, unlit had no circuit.",
        [
            ((port, light), count)
            for port, frames in look.crossings.items()
            for light, count in (("lit", frames.lit), ("dark", frames.dark), ("unlit", frames.unlit))
        ],
        ["port", "light"],
    )
    yield _counter(
        "testbed_optical_lock_failures",
        "How often a transceiver did not lock at once.",
        [((port,), count) for port, count in said.failed_locks.items()],
        ["port"],
    )


def _jobs(look: Answers, said: Status) -> Iterator[Metric]:
    jobs = said.jobs
    states = [job.state for job in jobs]
    yield _gauge(
        "testbed_jobs",
        "Jobs that hold hosts, by state.",
        [((state,), states.count(state)) for state in sorted({*states, "running"})],
        ["state"],
    )
    labels = [(str(job.id), job.sync) for job in jobs]
    yield _counter(
        "testbed_job_summed_bytes",
        "Bytes that every worker of a job has its sums of, since its script began.",
        [(label, job.summed_bytes) for label, job in zip(labels, jobs, strict=True)],
        ["job", "sync"],
        "bytes",
    )
    yield _gauge(
        "testbed_job_age_seconds",
        "Since a job has its hosts.",
        [(label, job.running_s) for label, job in zip(labels, jobs, strict=True)],
        ["job", "sync"],
        "seconds",
    )
    yield _gauge(
        "testbed_job_trustworthy",
        "The verdict on the last seconds of a job: 1 trustworthy, 0 not.",
        [
            (label, running.verdict.trustworthy)
            for label, job in zip(labels, jobs, strict=True)
            if (running := look.running.get(job.id))
            and running.verdict
            and running.verdict.trustworthy is not None
        ],
        ["job", "sync"],
    )
    yield _gauge(
        "testbed_job_workers_absent",
        "Workers and places that are left out of a job's sums now, as stragglers.",
        [
            (label, counts.absent())
            for label, job in zip(labels, jobs, strict=True)
            if (counts := counts_of(job)) is not None
        ],
        ["job", "sync"],
    )
    yield _counter(
        "testbed_jobs_ended",
        "Jobs that have ended, by outcome and by whether their result is trustworthy.",
        [(key, count) for key, count in sorted(look.totals.ended.items())],
        ["outcome", "trust"],
    )
    iterations = SummaryMetricFamily(
        "testbed_ended_job_iteration_seconds",
        "The mean time of an iteration of jobs that have ended.",
        labels=["sync"],
        unit="seconds",
    )
    for sync, count in sorted(look.totals.measured.items()):
        iterations.add_metric([sync], count, look.totals.measured_s[sync])
    yield iterations
    yield _counter(
        "testbed_ended_job_retransmitted_packets",
        "Packets that workers of jobs that have ended sent again.",
        [((sync,), count) for sync, count in sorted(look.totals.retransmits.items())],
        ["sync"],
    )


def _queue(schedule: QueueStatus | None) -> Iterator[Metric]:
    if schedule is None:
        return
    states = [job.state for job in schedule.jobs]
    yield _gauge(
        "testbed_queue_jobs",
        "Jobs in the queue, by state.",
        [((state,), states.count(state)) for state in sorted(set(states))],
        ["state"],
    )
    yield _gauge(
        "testbed_queue_job_progress_ratio",
        "How much of its iterations a queued job has done.",
        [
            ((str(job.id), job.name), job.progress)
            for job in schedule.jobs
            if job.state not in ("coming", "ended")
        ],
        ["job", "name"],
        "ratio",
    )
    yield _counter("testbed_queue_slots_overrun", "Slots that lasted too long.", [((), schedule.overruns)])


Rows = Iterable[tuple[tuple[str, ...], float]]


def _gauge(name: str, text: str, rows: Rows, labels: list[str] | None = None, unit: str = "") -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels or [], unit=unit)
    for values, value in rows:
        family.add_metric(values, float(value))
    return family


def _counter(name: str, text: str, rows: Rows, labels: list[str] | None = None, unit: str = "") -> Metric:
    family = CounterMetricFamily(name, text, labels=labels or [], unit=unit)
    for values, value in rows:
        family.add_metric(values, float(value))
    return family
