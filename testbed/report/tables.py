"""Print the report as tables on a terminal. Imports rich."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from testbed.messages.report import DemoReport
from testbed.report.job_rows import HEADS, MEANS_TOLD, host_told, job_cells, scale_told, size, trusted_first
from testbed.report.style import look


def show(report: DemoReport, console: Console) -> None:
    """Print links and reconfigurations first, and the comparison, the main result, last."""
    console.print(
        Group(
            _links(report),
            "",
            _events(report),
            "",
            _jobs(report),
            "",
            _verdicts(report),
            "",
            _footnote(report),
        )
    )


_BROKEN = {
    "test accuracy": "test\naccuracy",
    "time an iteration (ms)": "time an\niteration\n(ms)",
    "communication (ms)": "communi-\ncation\n(ms)",
    "least by the links (ms)": "least by\nthe links\n(ms)",
    "measured / least": "measured\n/ least",
    "bytes on all links": "bytes\non all\nlinks",
    "frames lost": "frames\nlost",
}
"""Column heads broken into lines, so that a row fits into 80 columns."""
_STYLES = {True: "green", False: "red", None: ""}


def _table(title: str, columns: Sequence[str], left: int = 1) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right", no_wrap=column != "ports dark")
    return table


def _jobs(report: DemoReport) -> RenderableType:
    table = Table(
        title="Training",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    for head in HEADS:
        lines = _BROKEN.get(head, head)
        if head == HEADS[0]:
            table.add_column(lines, overflow="fold")
        else:
            table.add_column(lines, justify="right", no_wrap=True)
    for name, job in report.jobs.items():
        _, *cells, trust = job_cells(name, job)
        table.add_row(
            Text(name, style=look(name).terminal), *cells, Text(trust, _STYLES[job.verdict.trustworthy])
        )
    return table


def _verdicts(report: DemoReport) -> RenderableType:
    """Format a line for each job, trustworthy ones first."""
    return Group(
        *(
            Text(f"{name}: {job.verdict.line}", _STYLES[job.verdict.trustworthy])
            for name, job in trusted_first(report)
        )
    )


def _links(report: DemoReport) -> RenderableType:
    syncs = list(report.jobs)
    used = [link for link in report.links if link.bytes]
    table = _table("Bytes per link", ["link", "rate", *syncs, "frames lost"])
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
    table = _table("Reconfigurations", ["", "job", "ports dark", "asked", "measured", "error"], left=3)
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
    return Text(f"{host_told(report)} {MEANS_TOLD} {scale_told(report)}", style="dim")
