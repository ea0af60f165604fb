"""The report as tables on a terminal. Imports rich."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from testbed.messages.report import DemoReport
from testbed.messages.result import BoundResult
from testbed.report.measures import GRADIENT_BYTES
from testbed.report.style import look


def show(report: DemoReport, console: Console) -> None:
    """Links and reconfigurations first; the comparison, which is what one came for, last."""
    console.print(
        Group(
            _links(report), "", _events(report), "", _jobs(report), _verdicts(report), "", _footnote(report)
        )
    )


def size(count: float) -> str:
    """Bytes in decimal units, as link rates are."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _table(title: str, columns: Sequence[str], left: int = 1) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right", no_wrap=column != "ports dark")
    return table


def _jobs(report: DemoReport) -> RenderableType:
    columns = ["job", "test\nacc.", "last\nloss", "iter.\nms", "of it\ncomm.", "links\nallow", "ratio"]
    columns += ["on all\nlinks", "lost\nfr.", "trust"]
    jobs = report.jobs
    table = _table("Training", columns)
    for sync, job in jobs.items():
        last_epoch = job.loss[-max(1, job.iterations // job.epochs) :]
        table.add_row(
            Text(sync, style=look(sync).terminal),
            f"{job.test_accuracy:.2%}",
            f"{sum(last_epoch) / len(last_epoch):.4f}",
            _ms(job.iteration_ms),
            _ms(job.comm_ms),
            *_bound(job.bound),
            size(job.link_bytes),
            f"{job.link_drops}",
            _trusted(job.verdict.trustworthy),
        )
    return table


def _bound(bound: BoundResult | None) -> list[str]:
    """Return the table of what links allow, and by how much more was measured."""
    return ["-"] * 2 if bound is None else [_ms(bound.bound_ms), f"{bound.ratio:.2f}"]


def _ms(ms: float) -> str:
    """Return milliseconds in five characters at most, up to 99 s, so that a row has room on 80 columns."""
    return f"{ms:.1f}" if ms < 999.95 else f"{ms:.0f}"


def _trusted(trustworthy: bool | None) -> Text:
    if trustworthy is None:
        return Text("-")
    return Text("yes", style="green") if trustworthy else Text("no", style="bold red")


def _verdicts(report: DemoReport) -> RenderableType:
    """A line for each job, those that can be trusted first."""
    jobs = sorted(report.jobs.items(), key=lambda job: not job[1].verdict.trustworthy)
    styles = {True: "green", False: "red", None: ""}
    return Group(
        *(Text(f"{name}: {job.verdict.line}", styles[job.verdict.trustworthy]) for name, job in jobs)
    )


def _links(report: DemoReport) -> RenderableType:
    syncs = list(report.jobs)
    used = [link for link in report.links if link.bytes]
    table = _table("Bytes per link", ["link", "rate", *syncs, "drops"])
    for link in used:
        rate = "no limit" if link.rate_mbps is None else f"{link.rate_mbps:g} Mb/s"
        carried = [size(link.bytes_by_sync.get(sync, 0)) for sync in syncs]
        table.add_row(link.name, rate, *carried, f"{link.drops}")
    idle = len(report.links) - len(used)
    return (
        Group(table, Text(f"{idle} more link{'s' * (idle > 1)} carried nothing", style="dim"))
        if idle
        else table
    )


def _events(report: DemoReport) -> RenderableType:
    events = report.ocs.events
    if not events:
        return Text("No reconfiguration of the optical switch: the circuits that were lit served all jobs.")
    table = _table("Reconfigurations", ["", "for", "ports dark", "asked", "measured", "error"], left=3)
    for event in events:
        asked, measured = event.asked_ms, event.measured_ms
        table.add_row(
            f"{event.id}",
            event.sync,
            " ".join(event.ports),
            f"{asked:.2f} ms",
            "not measured" if measured is None else f"{measured:.2f} ms",
            "" if measured is None else f"{(measured - asked) * 1e3:+.0f} µs",
        )
    return table


def _footnote(report: DemoReport) -> RenderableType:
    host = report.host
    text = f"{host.cores} cores, {host.memory / 2**30:.1f} GiB, kernel {host.kernel}. "
    return Text(
        f"{text}Iterations: medians; what links allow and the ratio: means. {scale_told(report)}", style="dim"
    )


def scale_told(report: DemoReport) -> str:
    """Return in words what the jobs' gradients and times stand for on the fabric that the configuration
    declares.
    """
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
