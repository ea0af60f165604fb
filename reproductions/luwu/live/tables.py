"""The live figures as tables on a terminal. Imports rich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from reproductions.luwu.live.claims import computing, serialised
from reproductions.tables import ruled, show_trust, statements


def show(report: Mapping[str, Any], console: Console) -> None:
    """Print the runs, and the paper's statements with ours."""
    rows: Sequence[Mapping[str, Any]] = report["rows"]
    columns = ["system", "workers", "micro-\nbatch", "disks", "parameters", "iteration,\ns", "forward,\ns"]
    columns += ["backward,\ns", "step,\ns", "of it\ncomputing", "communi-\ncating, s", "of it\nserialised"]
    columns += ["up, bytes a\nparameter", "down", "peak,\nMB"]
    shown = ruled(f"{report['figure']}, live: {report['about']}", columns)
    for row in rows:
        disks = f"{row['disks']} of {row['disk_mb_s']:g} MB/s" if row["disk_mb_s"] else ""
        seconds = [f"{row[f'{phase}_s']:.3f}" for phase in ("iteration", "forward", "backward", "step")]
        shown.add_row(
            row["title"],
            *(str(row["workers"]), str(row["micro_batch"] or ""), disks, f"{row['elements'] / 1e6:.2f}e6"),
            *seconds,
            f"{computing(row):.0%}",
            f"{row['communicated_s']:.3f}",
            f"{serialised(row):.0%}",
            *(f"{max(row[f'{way}_bytes']):.2f}" for way in ("up", "down")),
            f"{row['peak_bytes'] / 1e6:.0f}",
        )
    console.print(shown)
    console.print(statements(report["claims"], "the runs say"))
    show_trust(report["trust"], console)
