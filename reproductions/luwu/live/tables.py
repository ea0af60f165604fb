"""Tables of the live figures for a terminal. Imports rich."""

from __future__ import annotations

from rich.console import Console

from reproductions.luwu.live.claims import computing, serialised
from reproductions.luwu.live.runs import LiveReport
from reproductions.tables import ruled, show_trust, statements


def show(report: LiveReport, console: Console) -> None:
    """Print the runs, and the paper's claims with ours."""
    columns = ["system", "workers", "micro-\nbatch", "disks", "parameters", "iteration,\ns", "forward,\ns"]
    columns += ["backward,\ns", "step,\ns", "of it\ncomputing", "communi-\ncating, s", "of it\nserialised"]
    columns += ["up, bytes a\nparameter", "down", "peak,\nMB"]
    shown = ruled(f"{report.figure}, live: {report.about}", columns)
    for row in report.rows:
        disks = f"{row.disks} of {row.disk_mb_s:g} MB/s" if row.disk_mb_s else ""
        seconds = [row.iteration_s, row.forward_s, row.backward_s, row.step_s]
        shown.add_row(
            row.title,
            *(str(row.workers), str(row.micro_batch or ""), disks, f"{row.elements / 1e6:.2f}e6"),
            *(f"{each:.3f}" for each in seconds),
            f"{computing(row):.0%}",
            f"{row.communicated_s:.3f}",
            f"{serialised(row):.0%}",
            *(f"{max(each):.2f}" for each in (row.up_bytes, row.down_bytes)),
            f"{row.peak_bytes / 1e6:.0f}",
        )
    console.print(shown)
    console.print(statements(report.claims, "the runs say"))
    show_trust(report.trust, console)
