"""The paper's claims about figures 10 to 15 (sections 4.2 to 4.7), compared with the model's
predictions. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from reproductions.claims import Finding
from reproductions.luwu.predicted.rows import LargestRow
from reproductions.verdicts import AGREES, DIFFERS, of_ratio, of_size
from testbed.systems.luwu.memory import INFINITY, LUWU, SHARP, STORED_BYTES, SWITCHML, ZERO3
from testbed.systems.luwu.prediction import BOUND, TITLES, Prediction

Rows = Sequence[Prediction]
PAPER_OVER_BOUND = {8: 1.21, 32: 1.94}
"""LuWu's throughput over BOUND's with 8 workers (figure 14), by micro-batch."""


def findings(figure: str, rows: Rows) -> list[Finding]:
    """Judge the claims on one of figures 11 to 15."""
    return {
        "fig11": _by_micro_batch,
        "fig12": _by_model,
        "fig13": _beside_sharp,
        "fig14": _by_workers,
        "fig15": _by_disks,
    }[figure](rows)


def of_largest(rows: Sequence[LargestRow]) -> list[Finding]:
    """Judge the claims on figure 10.

    Table 2 ends at 1.0T, so every system that can train as much has its last row as the largest model:
    instead, compare the parameters that LuWu's disks hold. ZeRO-Infinity's largest model is declared
    (`memory._STAGED`), so it is not judged.
    """
    models = {(row.system, row.workers): row.model for row in rows}
    held = next(row.disks_hold for row in rows if row.system == LUWU and row.disks_hold is not None)
    judged = Finding(
        f"LuWu: parameters that disks hold, of {STORED_BYTES} bytes each in the store",
        "1e12 trained",
        f"{held:.2g}",
        of_size(held, 1e12),
    )
    small = models[SWITCHML, 8]
    text = f"{TITLES[SWITCHML]}: largest model, 8 workers"
    return [judged, Finding(text, "1.3B", str(small), AGREES if small == "1.3B" else DIFFERS)]


def _by_micro_batch(rows: Rows) -> list[Finding]:
    """Judge the ratios of section 4.3, which compare the highest throughputs of each model over
    micro-batches.
    """
    peaks: dict[tuple[str, str], float] = {}
    for row in rows:
        key = row.model, row.system
        peaks[key] = max(peaks.get(key, 0.0), row.tflops)
    judged = [
        ("175B", INFINITY, 3.98),
        ("1.3B", INFINITY, 2.90),
        ("1.3B", ZERO3, 2.33),
        ("1.3B", SWITCHML, 5.80),
    ]
    return [
        _ratio(f"OPT-{model}: LuWu over {TITLES[of]}, peaks", paper, peaks[model, LUWU], peaks[model, of])
        for model, of, paper in judged
    ]


def _by_model(rows: Rows) -> list[Finding]:
    by = {(row.system, row.model): row.tflops for row in rows}
    judged = []
    for of, paper in ((ZERO3, 2.04), (INFINITY, 2.34)):
        both = [model for model in ("13B", "30B", "66B", "175B") if (of, model) in by]
        least = min(both, key=lambda model: by[LUWU, model] / by[of, model])
        text = f"13B to 175B: LuWu over {TITLES[of]}, at least (ours: at {least})"
        judged.append(_ratio(text, paper, by[LUWU, least], by[of, least]))
    fall = by[LUWU, "505B"] < 0.95 * by[LUWU, "276B"] and by[LUWU, "1.0T"] < 0.95 * by[LUWU, "505B"]
    ours = f"{by[LUWU, '276B']:.0f}, {by[LUWU, '505B']:.0f}, {by[LUWU, '1.0T']:.0f} TFLOPS"
    judged.append(Finding("LuWu falls from 276B to 505B and 1T", "yes", ours, AGREES if fall else DIFFERS))
    return judged


def _beside_sharp(rows: Rows) -> list[Finding]:
    by = {(row.system, row.micro_batch): row.tflops for row in rows}
    ratios = [by[LUWU, size] / by[SHARP, size] for system, size in by if system == SHARP and size >= 4]
    least, most = min(ratios), max(ratios)
    return [
        _number("LuWu over ZeRO-Infinity+SHARP, least", 2.38, least),
        _number("LuWu over ZeRO-Infinity+SHARP, most", 3.35, most),
    ]


def _by_workers(rows: Rows) -> list[Finding]:
    by = {(row.system, row.micro_batch, row.workers): row.tflops * row.workers for row in rows}
    judged = []
    for size, paper in PAPER_OVER_BOUND.items():
        text = f"micro-batch {size}, 8 workers: LuWu over {TITLES[BOUND]}"
        judged.append(_ratio(text, paper, by[LUWU, size, 8], by[BOUND, size, 8]))
    return judged


def _by_disks(rows: Rows) -> list[Finding]:
    by = {(row.disks, row.micro_batch): row for row in rows}
    judged = []
    for disks in (4, 8):
        few, more = by[disks, 4].iteration_s, by[disks, 16].iteration_s
        word = AGREES if abs(more / few - 1) < 0.05 else DIFFERS
        judged.append(
            Finding(
                f"{disks} disks: the same time to a micro-batch of 16", "yes", f"{more / few - 1:+.0%}", word
            )
        )
    for size in (8, 16, 24):
        row = by[12, size]
        waits = row.iteration_s / row.computing_s - 1
        expected = size >= 16
        text = f"12 disks, micro-batch {size}: computing bounds"
        word = AGREES if (waits < 0.05) == expected else DIFFERS
        judged.append(Finding(text, "yes" if expected else "no", f"{waits:+.0%} beyond computing", word))
    return judged


def _ratio(text: str, paper: float, ours: float, theirs: float) -> Finding:
    return _number(text, paper, ours / theirs)


def _number(text: str, paper: float, ours: float) -> Finding:
    """Judge a ratio that the paper has above 1."""
    return Finding(text, f"{paper:g}", f"{ours:.3g}", of_ratio(ours, paper))
