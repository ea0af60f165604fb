"""Table 1: a vector's sum by a parameter server, a ring and ALEPH in section 3.1's network. Owns the runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reproductions import live
from reproductions.aleph.live.setting import ALEPH, PS, RING, Sync, example, run, shown
from reproductions.verdicts import AGREES, DIFFERS
from testbed.figures import finished_runs
from testbed.figures.verdict_gate import runs_of

GIGABITS = 4.2
"""What each worker sends, as the paper counts VGG19's gradients."""
PAPER_S = {PS.sync: 0.84, RING.sync: 0.63, ALEPH.sync: 0.42}
WITHIN = 0.05
"""Of the paper's number, which it has from arithmetic: no more may be lacking here."""


def values(scale: int) -> int:
    """Return how many float32 make the volume at a scale."""
    return math.floor(GIGABITS * 1e9 / 32 / scale)


def measure(scale: int, turns: int, folder: Path, on_done: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return a row for each way: the seconds of a sum, median over the turns."""
    rows: list[dict[str, Any]] = []
    with live.testbed("table1", example(scale), folder) as testbed:
        for way in (PS, RING, ALEPH):
            measure_one = partial(_row, testbed, way, scale, turns, folder)
            rows.append(finished_runs.row(folder, way.sync, measure_one))
            on_done(way.title)
    return rows


def _row(testbed: live.TestbedOfFigures, way: Sync, scale: int, turns: int, folder: Path) -> dict[str, Any]:
    words = ("vectors.py", "--values", str(values(scale)), "--turns", str(turns), "--warm-up", "2")
    result, script = run(testbed, way, f"table1.{way.sync}", folder, *words)
    return {
        "way": way.sync,
        "title": way.title,
        "seconds": script["sum_ms"] / 1e3,
        "paper_s": PAPER_S[way.sync],
        "error": script["error"],
        **shown(result),
    }


def claims(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each way's time beside the paper's."""
    return [
        {
            "text": f"one sum by {row['title']}, s",
            "paper": f"{row['paper_s']:.2f}",
            "ours": f"{row['seconds']:.3f} ({row['seconds'] / row['paper_s'] - 1:+.1%})",
            "verdict": AGREES if abs(row["seconds"] / row["paper_s"] - 1) <= WITHIN else DIFFERS,
            "runs": runs_of([row]),
        }
        for row in rows
    ]
