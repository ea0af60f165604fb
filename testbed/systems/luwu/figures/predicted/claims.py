"""The paper's statements on figures 10 to 15 (sections 4.2 to 4.7), held against the model's. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from testbed.reproduction.claims import Finding
from testbed.reproduction.verdicts import AGREES, DIFFERS, SIZE, near
from testbed.systems.luwu.memory import INFINITY, LUWU, SHARP, SWITCHML, ZERO3
from testbed.systems.luwu.prediction import BOUND, TITLES

Rows = Sequence[Mapping[str, Any]]


def findings(figure: str, rows: Rows) -> list[Finding]:
    """Return the claims on a figure."""
    return {
        "fig10": _largest,
        "fig11": _by_micro_batch,
        "fig12": _by_model,
        "fig13": _beside_sharp,
        "fig14": _by_workers,
        "fig15": _by_disks,
    }[figure](rows)


def _largest(rows: Rows) -> list[Finding]:
    models = {(row["system"], row["workers"]): row["model"] for row in rows}
    said = [(LUWU, 1, "1.0T"), (LUWU, 8, "1.0T"), (INFINITY, 8, "175B"), (SWITCHML, 8, "1.3B")]
    return [
        Finding(
            f"{TITLES[system]}: largest model, {workers} worker{'s' * (workers > 1)}",
            paper,
            str(models[system, workers]),
            AGREES if models[system, workers] == paper else DIFFERS,
        )
        for system, workers, paper in said
    ]


def _by_micro_batch(rows: Rows) -> list[Finding]:
    """Peaks by model: sections 4.3's ratios are of peaks."""
    peaks: dict[tuple[str, str], float] = {}
    for row in rows:
        key = row["model"], row["system"]
        peaks[key] = max(peaks.get(key, 0.0), row["tflops"])
    said = [
        ("175B", INFINITY, 3.98),
        ("1.3B", INFINITY, 2.90),
        ("1.3B", ZERO3, 2.33),
        ("1.3B", SWITCHML, 5.80),
    ]
    return [
        _ratio(f"OPT-{model}: LuWu over {TITLES[of]}, peaks", paper, peaks[model, LUWU], peaks[model, of])
        for model, of, paper in said
    ]


def _by_model(rows: Rows) -> list[Finding]:
    by = {(row["system"], row["model"]): row["tflops"] for row in rows}
    said = []
    for of, paper in ((ZERO3, 2.04), (INFINITY, 2.34)):
        both = [model for model in ("13B", "30B", "66B", "175B") if (of, model) in by]
        least = min(both, key=lambda model: by[LUWU, model] / by[of, model])
        text = f"13B to 175B: LuWu over {TITLES[of]}, at least (ours: at {least})"
        said.append(_ratio(text, paper, by[LUWU, least], by[of, least]))
    said.append(_number("LuWu on 276B", 184, by[LUWU, "276B"], " TFLOPS"))
    fall = by[LUWU, "505B"] < 0.95 * by[LUWU, "276B"] and by[LUWU, "1.0T"] < 0.95 * by[LUWU, "505B"]
    ours = f"{by[LUWU, '276B']:.0f}, {by[LUWU, '505B']:.0f}, {by[LUWU, '1.0T']:.0f} TFLOPS"
    said.append(Finding("LuWu falls from 276B to 505B and 1T", "yes", ours, AGREES if fall else DIFFERS))
    return said


def _beside_sharp(rows: Rows) -> list[Finding]:
    by = {(row["system"], row["micro_batch"]): row["tflops"] for row in rows}
    ratios = [by[LUWU, size] / by[SHARP, size] for system, size in by if system == SHARP and size >= 4]
    least, most = min(ratios), max(ratios)
    return [
        _number("LuWu over ZeRO-Infinity+SHARP, least", 2.38, least, ""),
        _number("LuWu over ZeRO-Infinity+SHARP, most", 3.35, most, ""),
    ]


def _by_workers(rows: Rows) -> list[Finding]:
    by = {(row["system"], row["micro_batch"], row["workers"]): row["tflops"] * row["workers"] for row in rows}
    said = []
    for size, paper in ((8, 1.21), (32, 1.94)):
        text = f"micro-batch {size}, 8 workers: LuWu over {TITLES[BOUND]}"
        said.append(_ratio(text, paper, by[LUWU, size, 8], by[BOUND, size, 8]))
    for size in (8, 32):
        said.append(
            _number(
                f"micro-batch {size}: LuWu, 8 workers over 1", 8, by[LUWU, size, 8] / by[LUWU, size, 1], ""
            )
        )
        grows = by[INFINITY, size, 8] / by[INFINITY, size, 1]
        word = AGREES if grows > 8 else DIFFERS
        text = f"micro-batch {size}: ZeRO-Infinity, 8 workers over 1"
        said.append(Finding(text, "more than 8", f"{grows:.1f}", word))
    return said


def _by_disks(rows: Rows) -> list[Finding]:
    by = {(row["disks"], row["micro_batch"]): row for row in rows}
    said = []
    for disks in (4, 8):
        few, more = by[disks, 4]["iteration_s"], by[disks, 16]["iteration_s"]
        word = AGREES if abs(more / few - 1) < 0.05 else DIFFERS
        said.append(
            Finding(
                f"{disks} disks: the same time to a micro-batch of 16", "yes", f"{more / few - 1:+.0%}", word
            )
        )
    for size in (8, 16, 24):
        row = by[12, size]
        waits = row["iteration_s"] / row["computing_s"] - 1
        expected = size >= 16
        text = f"12 disks, micro-batch {size}: computing bounds"
        word = AGREES if (waits < 0.05) == expected else DIFFERS
        said.append(Finding(text, "yes" if expected else "no", f"{waits:+.0%} beyond computing", word))
    return said


def _ratio(text: str, paper: float, ours: float, theirs: float) -> Finding:
    return _number(text, paper, ours / theirs, "")


def _number(text: str, paper: float, ours: float, unit: str) -> Finding:
    """Return the finding on a number; a ratio above 1 where the paper's is has the same sign."""
    word = AGREES if near(ours, paper) else SIZE if ours > 1 else DIFFERS
    return Finding(text, f"{paper:g}{unit}", f"{ours:.3g}{unit}", word)
