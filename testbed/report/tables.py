"""The report as tables on a terminal. Imports rich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from testbed.report.style import TERMINAL


def show(report: Mapping[str, Any], console: Console) -> None:
    """Links and reconfigurations first; the comparison, which is what one came for, last."""
    console.print(
        Group(_links(report), "", _events(report), "", _jobs(report), _verdicts(report), "", _footnote(report))
    )


def size(count: float) -> str:
    """Bytes in decimal units, as link rates are."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _table(title: str, columns: Sequence[str], left: int = 1) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right", no_wrap=column != "ports dark")
    return table


def _jobs(report: Mapping[str, Any]) -> RenderableType:
    columns = ["job", "test\nacc.", "last\nloss", "ms per\niter.", "of it\ncomm.", "iter. ms\nemulated"]
    columns += ["on all\nlinks", "frames\ndropped", "trust-\nworthy"]
    jobs = report["jobs"]
    table = _table("Training", columns)
    for sync, job in jobs.items():
        last_epoch = job["loss"][-max(1, job["iterations"] // job["epochs"]) :]
        table.add_row(
            Text(sync, style=TERMINAL.get(sync, "")),
            f"{job['test_accuracy']:.2%}",
            f"{sum(last_epoch) / len(last_epoch):.4f}",
            f"{job['iteration_ms']:.1f}",
            f"{job['comm_ms']:.1f}",
            f"{job['emulated']['iteration_ms']:.2f}",
            size(job["link_bytes"]),
            f"{job['link_drops']}",
            Text("yes", style="green") if job["verdict"]["trustworthy"] else Text("no", style="bold red"),
        )
    return table


def _verdicts(report: Mapping[str, Any]) -> RenderableType:
    """A line for jobs that can be trusted; for each other one its own, with the reasons."""
    jobs = report["jobs"]
    lines = [
        Text(f"{sync}: {job['verdict']['line']}", style="red")
        for sync, job in jobs.items()
        if not job["verdict"]["trustworthy"]
    ]
    trusted = [sync for sync, job in jobs.items() if job["verdict"]["trustworthy"]]
    if trusted:
        lines.insert(0, Text(f"{', '.join(trusted)}: verdict: trustworthy", style="green"))
    return Group(*lines)


def _links(report: Mapping[str, Any]) -> RenderableType:
    syncs = list(report["jobs"])
    used = [link for link in report["links"] if link["bytes"]]
    table = _table("Bytes per link", ["link", "rate", *syncs, "drops"])
    for link in used:
        rate = "no limit" if link["rate_mbps"] is None else f"{link['rate_mbps']:g} Mb/s"
        carried = [size(link["bytes_by_sync"].get(sync, 0)) for sync in syncs]
        table.add_row(link["name"], rate, *carried, f"{link['drops']}")
    idle = len(report["links"]) - len(used)
    return Group(table, Text(f"{idle} more link{'s' * (idle > 1)} carried nothing", style="dim")) if idle else table


def _events(report: Mapping[str, Any]) -> RenderableType:
    events = report["ocs"]["events"]
    if not events:
        return Text("No reconfiguration of the optical switch: the circuits that were lit served all jobs.")
    table = _table("Reconfigurations", ["", "for", "ports dark", "asked", "measured", "error"], left=3)
    for event in events:
        asked, measured = event["asked_ms"], event["measured_ms"]
        known = measured is not None
        table.add_row(
            f"{event['id']}",
            event["sync"],
            " ".join(event["ports"]),
            f"{asked:.2f} ms",
            f"{measured:.2f} ms" if known else "not measured",
            f"{(measured - asked) * 1e3:+.0f} µs" if known else "",
        )
    return table


def _footnote(report: Mapping[str, Any]) -> RenderableType:
    host, scale = report["host"], report["clock"]["scale"]
    return Text(
        f"{host['cores']} cores, {host['memory'] / 2**30:.1f} GiB, kernel {host['kernel']}. Times are real and medians; "
        f"emulated is a {scale}th of them, what they stand for at the rates that {report['config']['name']!r} declares.",
        style="dim",
    )
