"""The live figures as tables on a terminal. Imports rich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from reproductions.luwu.live.claims import computing, serialised
from reproductions.luwu.predicted.tables import STYLES, table

STYLE_PARTLY = "yellow"


def show(report: Mapping[str, Any], console: Console) -> None:
    """Print the runs, and the paper's statements with ours."""
    rows: Sequence[Mapping[str, Any]] = report["rows"]
    columns = ["system", "workers", "micro-\nbatch", "disks", "parameters", "iteration,\ns", "forward,\ns"]
    columns += ["backward,\ns", "step,\ns", "of it\ncomputing", "communi-\ncating, s", "of it\nserialised"]
    columns += ["up, bytes a\nparameter", "down", "peak,\nMB"]
    shown = table(f"{report['figure']}, live: {report['about']}", columns)
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
    claims = table("The paper's statements, and what the runs say of each", ["", "paper", "ours", ""])
    for claim in report["claims"]:
        style = STYLES.get(claim["verdict"], STYLE_PARTLY)
        claims.add_row(claim["text"], claim["paper"], claim["ours"], Text(claim["verdict"], style=style))
    console.print(claims)
    trust = report["trust"]
    reasons = ", ".join(f"{name} {count}" for name, count in trust["reasons"].items())
    console.print(
        f"{trust['trustworthy']} of {trust['of']} runs trustworthy{f' ({reasons})' if reasons else ''}"
    )
