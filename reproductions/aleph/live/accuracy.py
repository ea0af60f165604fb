"""Figure 12: a small model that really learns, by each way in section 6.3's network; what it has learnt
against the time that its communication took. Owns the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reproductions import live
from reproductions.aleph.live.setting import ALEPH, PS, RING, Sync, run, section_6_3, shown
from reproductions.verdicts import AGREES, DIFFERS, TIE
from testbed.figures import finished_runs
from testbed.figures.verdict_gate import runs_of

LEVEL = 0.01
"""Of accuracies of 360 test images: four of them."""


def measure(epochs: int, scale: int, folder: Path, on_done: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return a row for each way."""
    rows: list[dict[str, Any]] = []
    with live.testbed("aleph-fig12", section_6_3(scale), folder) as testbed:
        for way in (PS, RING, ALEPH):
            rows.append(finished_runs.row(folder, way.sync, partial(_row, testbed, way, epochs, folder)))
            on_done(way.title)
    return rows


def _row(testbed: live.TestbedOfFigures, way: Sync, epochs: int, folder: Path) -> dict[str, Any]:
    words = ("digits.py", "--epochs", str(epochs))
    result, script = run(testbed, way, f"fig12.{way.sync}", folder, *words)
    busy_s = max(stats["allreduce"]["busy_s"] for stats in live.statistics_of(result))
    return {
        "way": way.sync,
        "title": way.title,
        "accuracy": script["test_accuracy_list"],
        "communication_s": [busy_s * (epoch + 1) / epochs for epoch in range(epochs)],
        **shown(result),
    }


def reached(row: Mapping[str, Any], seconds: float) -> float:
    """Return the accuracy of the last epoch that ended within so much communication; 0 before the first."""
    ended = [
        accuracy
        for accuracy, at_s in zip(row["accuracy"], row["communication_s"], strict=True)
        if at_s <= seconds
    ]
    return float(ended[-1]) if ended else 0.0


def claims(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what the paper says of the time at which ALEPH has learnt all: the others have learnt less."""
    by = {row["way"]: row for row in rows}
    whole_s = by[ALEPH.sync]["communication_s"][-1]
    ours = reached(by[ALEPH.sync], whole_s)
    findings = []
    for way, paper in ((PS, "80.4 against 69.8 %"), (RING, "80.4 against 78.1 %")):
        theirs = reached(by[way.sync], whole_s)
        ahead = ours - theirs
        findings.append(
            {
                "text": f"accuracy when ALEPH is done, ALEPH above {way.title} ({way.paper})",
                "paper": paper,
                "ours": f"{ours:.1%} against {theirs:.1%}",
                "verdict": AGREES if ahead > LEVEL else TIE if ahead >= -LEVEL else DIFFERS,
                "runs": runs_of(by[each.sync] for each in (ALEPH, way)),
            }
        )
    return findings
