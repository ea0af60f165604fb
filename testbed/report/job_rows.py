"""Format a report's jobs as table rows, and compute the mean times that tables and pictures share. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Self

from testbed.messages.report import DemoReport, ReportedJob
from testbed.report.measures import GRADIENT_BYTES

HEADS = (
    "job",
    "test accuracy",
    "time an iteration (ms)",
    "communication (ms)",
    "least by the links (ms)",
    "measured / least",
    "bytes on all links",
    "frames lost",
    "trust",
)
MEANS_TOLD = "Times are means over the iterations that the verdict judges, which are not the first ones."


@dataclass(frozen=True, slots=True)
class MeanTimes:
    """Mean times of an iteration in ms: in total, of communication, and the least that the links allow (None:
    no bound).

    They are means over the iterations that the bound covers, or over all if there is no bound. (The report's
    own `iteration_ms` and `comm_ms` are medians.)
    """

    iteration_ms: float
    communication_ms: float
    least_ms: float | None

    @classmethod
    def of(cls, job: ReportedJob) -> Self:
        """Compute the mean times of a job."""
        communication, bound = job.comm_ms_list, job.bound
        if bound is None:
            return cls(statistics.fmean(job.iteration_ms_list), statistics.fmean(communication), None)
        if len(communication) == bound.left_out + bound.rounds:
            communication = communication[bound.left_out :]
        return cls(bound.measured_ms, statistics.fmean(communication), bound.bound_ms)

    @property
    def ratio(self) -> float | None:
        """Return the measured time of an iteration over the least; None without a bound."""
        return self.iteration_ms / self.least_ms if self.least_ms else None


def job_cells(name: str, job: ReportedJob) -> tuple[str, ...]:
    """Format a job's cells below HEADS."""
    times = MeanTimes.of(job)
    return (
        name,
        f"{job.test_accuracy:.2%}",
        milliseconds(times.iteration_ms),
        milliseconds(times.communication_ms),
        "-" if times.least_ms is None else milliseconds(times.least_ms),
        "-" if times.ratio is None else f"{times.ratio:.2f}",
        size(job.link_bytes),
        f"{job.link_drops}",
        {True: "yes", False: "no", None: "-"}[job.verdict.trustworthy],
    )


def trusted_first(report: DemoReport) -> list[tuple[str, ReportedJob]]:
    """Return the jobs by name, trustworthy ones first."""
    return sorted(report.jobs.items(), key=lambda named: not named[1].verdict.trustworthy)


def milliseconds(ms: float) -> str:
    """Format milliseconds with at least three digits, and up to 99 s in at most five characters."""
    return f"{ms:.2f}" if ms < 9.995 else f"{ms:.1f}" if ms < 999.95 else f"{ms:.0f}"


def size(count: float) -> str:
    """Format bytes in decimal units, like link rates."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def host_told(report: DemoReport) -> str:
    """Describe the machine on which the report's times were measured."""
    host = report.host
    return f"{host.cores} cores, {host.memory / 2**30:.1f} GiB, kernel {host.kernel}."


def scale_told(report: DemoReport) -> str:
    """Explain the jobs' gradients and times in terms of the fabric that the configuration declares."""
    scale, config = report.clock.scale, report.config
    host_mbps = config["host_link"]["rate_mbps"]
    if host_mbps is None:
        return "Times are real."
    job = next(iter(report.jobs.values()))
    count = job.params * GRADIENT_BYTES[job.dtype]
    real, declared = f"{host_mbps / scale:g} Mb/s", f"{host_mbps / 1e3:g} Gb/s"
    if all(other.scaled for other in report.jobs.values()):
        return (
            f"Times are real, volumes are divided by {scale}: {size(count)} of gradients over {real} take "
            f"what {size(count * scale)} "
            f"take over the {declared} that {config['name']!r} declares."
        )
    return (
        f"Times are real. Links have a {scale}th of their declared rates and these gradients were not "
        f"divided by {scale}: to these jobs "
        f"the fabric is one of {real}, not of {declared}."
    )
