"""The paper's claims about figures 2 to 4, 10 and 14 to 16, compared with live runs. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from reproductions.claims import Finding
from reproductions.luwu.live.runs import TrainedRow
from reproductions.luwu.live.setting import DDP, FSDP, IN_SWITCH, LAYERS, LUWU, ON_DISKS, TUNED
from reproductions.verdicts import (
    AGREES,
    DIFFERS,
    PARTLY,
    TIE,
    near,
    of_ratio,
    of_size,
    standard_error,
)
from testbed.messages.coding import UnsetType
from testbed.systems.luwu.scaled import GRADIENT_BYTES, PACKET_BYTES, PAYLOAD_BYTES
from testbed.systems.luwu.shapes import PARAMETER_BYTES

Rows = Sequence[TrainedRow]
FRAMING = PACKET_BYTES / PAYLOAD_BYTES
S_BYTES = {"down": 2 * PARAMETER_BYTES, "up": GRADIENT_BYTES}
"""Bytes of a model's element on a worker's link in an iteration: parameters in two passes, gradients in
one.
"""
ON_TIME = 0.02
"""Share of S that heartbeats and retransmissions may add."""
NEAR = 0.10
"""Share of a live iteration by which the model's prediction may differ from it."""
LIMIT_BYTES = 1e9
"""Memory of a worker for which the largest model is stated."""
LAST = 100
"""Iterations whose mean loss is compared."""


def picked(rows: Rows, way: str) -> list[TrainedRow]:
    return [row for row in rows if row.way == way]


def over_s(row: TrainedRow) -> dict[str, float]:
    """Return the bytes on the busiest worker's link over S, without framing; for LuWu also the
    optimizer's link.
    """
    most = {"down": max(row.down_bytes), "up": max(row.up_bytes)}
    shares = {f"worker, {way}": most[way] / S_BYTES[way] / FRAMING for way in most}
    if row.node_bytes:
        shares["optimizer, up"] = row.node_bytes.up / S_BYTES["down"] / FRAMING
        shares["optimizer, down"] = row.node_bytes.down / S_BYTES["up"] / FRAMING
    return shares


def serialised(row: TrainedRow) -> float:
    """Return the share of communication time for which computing waits."""
    return row.serialised_s / row.communicated_s if row.communicated_s else 0.0


def computing(row: TrainedRow) -> float:
    """Return the share of an iteration for which a worker computes."""
    waits = row.forward_waited_s + row.backward_waited_s
    return (row.forward_s + row.backward_s - waits) / row.iteration_s


def findings(figure: str, rows: Rows) -> list[Finding]:
    return [*_CLAIMS[figure](rows), *_predictions(rows)]


def _breakdown(rows: Rows) -> list[Finding]:
    free = [row for row in rows if row.disk_mb_s is None]
    declared = [row for row in rows if row.disk_mb_s is not None]
    (ours,) = picked(free, LUWU.name)
    judged = []
    for link, share in over_s(ours).items():
        word = AGREES if share <= 1 + ON_TIME else DIFFERS
        judged.append(Finding(f"LuWu's bytes over S, {link}", "1", f"{share:.3f}", word).on(ours))
    for row in picked(free, FSDP.name):
        workers = row.workers
        bound = (workers - 1) / workers
        # parameters are gathered in two passes, and gradients reduced by gloo's all-reduce
        bytes_each = bound * (2 * PARAMETER_BYTES + 2 * GRADIENT_BYTES)
        share = max(row.up_bytes) / FRAMING / bytes_each
        text = "FSDP's bytes over those of its collectives on gloo"
        judged.append(Finding(text, "1", f"{share:.3f}", AGREES if near(share, 1) else DIFFERS).on(row))
        ratio = max(row.up_bytes) / max(ours.up_bytes)
        judged.append(_number("bytes up, FSDP over LuWu", 2 * bound, ratio).on(row, ours))
    for row in picked(declared, ON_DISKS.name):
        share = row.step_s / row.iteration_s
        text = "states on disks: the step's share of FSDP's iteration"
        judged.append(_share(text, 0.37, share).on(row))
        text = "states on disks: computing's share of FSDP's iteration"
        judged.append(_share(text, 0.23, computing(row)).on(row))
    for way, paper in ((FSDP, 2.33), (DDP, 5.8), (IN_SWITCH, 2.38)):
        for row in picked(free, way.name):
            ratio = row.iteration_s / ours.iteration_s
            judged.append(_number(f"iteration, {way.title} over LuWu", paper, ratio).on(row, ours))
    for theirs, group in zip(picked(declared, ON_DISKS.name), picked(declared, LUWU.name), strict=False):
        ratio = theirs.iteration_s / group.iteration_s
        text = "iteration, states on disks, FSDP over LuWu"
        judged.append(_number(text, 3.98, ratio).on(theirs, group))
    return judged


def _beside_fsdp(rows: Rows) -> list[Finding]:
    """Compare LuWu's gain over both baselines, by number of blocks, with the paper's gain over ZeRO-3
    on NCCL.
    """
    judged = []
    for way in (FSDP, TUNED):
        for row in picked(rows, way.name):
            (ours,) = (each for each in picked(rows, LUWU.name) if each.layers == row.layers)
            text = f"{row.layers} blocks: iteration, {way.title} over LuWu"
            judged.append(_number(text, 2.33, row.iteration_s / ours.iteration_s).on(row, ours))
    return judged


def _overlap(rows: Rows) -> list[Finding]:
    judged = []
    sixteen = [row for row in rows if row.micro_batch == 16]
    for row in picked(sixteen, FSDP.name):
        text = "micro-batch 16: FSDP's communication that is serialised"
        judged.append(_share(text, 0.30, serialised(row)).on(row))
    for row in picked(sixteen, LUWU.name):
        share = serialised(row)
        word = AGREES if share <= 0.05 else PARTLY if share < 0.5 else DIFFERS
        text = "micro-batch 16: LuWu's communication that is serialised"
        judged.append(Finding(text, "0%", f"{share:.0%}", word).on(row))
    pairs = zip(picked(rows, FSDP.name), picked(rows, LUWU.name), strict=True)
    less = [ours.communicated_s < theirs.communicated_s for theirs, ours in pairs]
    word = AGREES if all(less) else PARTLY if any(less) else DIFFERS
    judged.append(
        Finding("LuWu communicates for less time", "yes", f"at {sum(less)} of {len(less)} sizes", word)
    )
    return judged


def _switchml(rows: Rows) -> list[Finding]:
    judged = []
    for row in rows:
        share, idle = serialised(row), 1 - computing(row)
        size = row.micro_batch
        word = AGREES if share > 0.95 else DIFFERS
        text = f"micro-batch {size}: communication that is serialised"
        judged.append(Finding(text, "100%", f"{share:.0%}", word).on(row))
        word = AGREES if 0.3 <= idle <= 0.5 else DIFFERS
        text = f"micro-batch {size}: an iteration's share of waiting"
        judged.append(Finding(text, "30 to 50%", f"{idle:.0%}", word).on(row))
    return judged


def slope(rows: Rows) -> float:
    """Return by how many bytes a worker's peak memory grows with each element of the model, from runs that
    differ in depth.
    """
    least, most = (find(rows, key=lambda row: row.elements) for find in (min, max))
    return (most.peak_bytes - least.peak_bytes) / (most.elements - least.elements)


def _largest(rows: Rows, slope_bytes: float) -> str:
    """Return the largest model that fits LIMIT_BYTES of a worker's memory, as text."""
    if slope_bytes < 1:
        return "any that disks hold"
    first = rows[0]
    beyond = (LIMIT_BYTES - first.peak_bytes) / slope_bytes
    return f"{(first.elements + beyond) / 1e6:.0f}e6 in {LIMIT_BYTES / 1e9:g} GB"


def _memory(rows: Rows) -> list[Finding]:
    judged = []
    for way in dict.fromkeys(row.way for row in rows):
        runs = {
            workers: [row for row in picked(rows, way) if row.workers == workers]
            for workers in dict.fromkeys(row.workers for row in rows)
        }
        grown = {workers: slope(group) for workers, group in runs.items()}
        ours = ", ".join(
            f"{each:.1f} with {workers} ({_largest(runs[workers], each)})" for workers, each in grown.items()
        )
        flat = all(each < 1 for each in grown.values())
        falls = all(after < before for before, after in pairwise(grown.values()))
        same = all(near(each, next(iter(grown.values()))) for each in grown.values())
        of = {
            LUWU.name: ("0, whatever the workers", flat),
            DDP.name: ("the same, whatever the workers", same),
        }
        paper, holds = of.get(way, ("falls with the workers", falls))
        title = picked(rows, way)[0].title
        word = AGREES if holds else DIFFERS
        text = f"{title}: bytes a worker needs for each parameter"
        judged.append(Finding(text, paper, ours, word, untimed="bytes of memory"))
    return judged


def _scaling(rows: Rows) -> list[Finding]:
    judged = []
    for way in dict.fromkeys(row.way for row in rows):
        group = picked(rows, way)
        first, last = group[0], group[-1]
        factor = last.workers * first.iteration_s / last.iteration_s
        text = f"{last.title}: throughput, {last.workers} workers over {first.workers}"
        if way == LUWU.name:
            judged.append(_number(text, last.workers / first.workers, factor).on(first, last))
    return judged


def _disks(rows: Rows) -> list[Finding]:
    declared = [row for row in rows if row.disk_mb_s is not None]
    times = [row.iteration_s for row in declared]
    word = AGREES if all(after < before for before, after in pairwise(times)) else DIFFERS
    ours = ", ".join(f"{row.disks}: {row.iteration_s:.2f} s" for row in declared)
    return [Finding("more disks, a shorter iteration while these bound it", "yes", ours, word)]


def _convergence(rows: Rows) -> list[Finding]:
    """Compare the difference of LuWu's final loss from FSDP's with the difference between seeds. With one
    seed the verdict is a tie, since the spread is unknown.
    """
    ends: dict[str, list[float]] = {
        way.name: [statistics.fmean(row.losses[-LAST:]) for row in picked(rows, way.name)]
        for way in (LUWU, FSDP)
    }
    apart = [ours - theirs for ours, theirs in zip(ends[LUWU.name], ends[FSDP.name], strict=True)]
    noise = statistics.stdev(ends[FSDP.name]) if len(apart) > 1 else 0.0
    mean, error = statistics.fmean(apart), standard_error(apart)
    iterations = len(rows[0].losses)
    ours = f"{mean:+.1e} (standard error {error:.1e}; seeds differ by {noise:.4f})"
    word = TIE if len(apart) == 1 else AGREES if abs(mean) <= noise else DIFFERS
    text = f"LuWu's loss less FSDP's, mean of the last {min(LAST, iterations)} of {iterations} iterations"
    fell = all(statistics.fmean(row.losses[-LAST:]) < 0.8 * row.losses[0] for row in rows)
    return [
        Finding(text, "none", ours, word, untimed="losses"),
        Finding(
            "the model learns, by either",
            "yes",
            "yes" if fell else "no",
            AGREES if fell else DIFFERS,
            untimed="losses",
        ),
    ]


def _predictions(rows: Rows) -> list[Finding]:
    judged = []
    for row in rows:
        predicted_s = row.predicted_s
        if predicted_s is None or isinstance(predicted_s, UnsetType):
            continue
        off = predicted_s / row.iteration_s - 1
        disks = f", {row.disks} disks" if row.disk_mb_s else ""
        disks += f", {row.layers} blocks" if row.layers != LAYERS else ""
        text = (
            f"{row.title}, {row.workers} workers, micro-batch {row.micro_batch}{disks}: "
            "an iteration by the model"
        )
        ours = f"{predicted_s:.2f} s, measured {row.iteration_s:.2f} s ({off:+.1%})"
        word = AGREES if abs(off) <= NEAR else DIFFERS
        judged.append(Finding(text, "within 10%", ours, word).on(row))
    return judged


def _number(text: str, paper: float, ours: float) -> Finding:
    """Judge a ratio that the paper has above 1."""
    return Finding(text, f"{paper:.3g}", f"{ours:.3g}", of_ratio(ours, paper))


def _share(text: str, paper: float, ours: float) -> Finding:
    return Finding(text, f"{paper:.0%}", f"{ours:.0%}", of_size(ours, paper))


_CLAIMS: Mapping[str, Callable[[Rows], list[Finding]]] = {
    "fig2": _breakdown,
    "fsdp": _beside_fsdp,
    "fig3": _overlap,
    "fig4": _switchml,
    "fig10-live": _memory,
    "fig14-live": _scaling,
    "fig15-live": _disks,
    "fig16": _convergence,
}
