"""The paper's claims about figures 14 to 16 (section 6.3), compared with our runs. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from reproductions.claims import Finding, timed
from reproductions.trio.packets.runs import AgedRow, StreamRow
from reproductions.verdicts import AGREES, DIFFERS
from testbed.figures.verdict_gate import JudgedRun

MEDIAN, WORST = 1.2, 2.0
"""How many timeouts an aged packet may take, in the median and at most; the second is the paper's."""
FULL = 0.95
"""Share of the highest throughput that counts as full."""
FLATTER = 0.9
"""Largest ratio of the last step's gain to the first step's that shows flattening; a smaller difference may
be noise.
"""


def of_aged(rows: Sequence[AgedRow]) -> list[Finding]:
    """Judge the claims on figure 14. The paper's switch was otherwise idle, so runs with busy cores are not
    compared.
    """
    claims = []
    for row in rows:
        if row.busy:
            continue
        name = f"{row.timeout_ms:g} ms, others use {row.load:.0%} of the cores"
        median, worst = statistics.median(row.over), max(row.over)
        ours = f"{worst:.2f} at most, median {median:.2f}"
        claims.append(_claim(f"{name}: within two timeouts", f"{WORST:g}", ours, worst <= WORST, [row]))
        text = f"{name}: median within {MEDIAN:g} timeouts"
        claims.append(_claim(text, "asked for here", f"{median:.2f}", median <= MEDIAN, [row]))
    return claims


def of_streams(figure: str, rows: Sequence[StreamRow]) -> list[Finding]:
    """Judge the claims on figure 15 or 16."""
    return _STREAMS[figure](rows)


def _sizes(rows: Sequence[StreamRow]) -> list[Finding]:
    first, last = rows[0], rows[-1]
    times = last.gradients / first.gradients
    grows = last.latency_us / first.latency_us
    span = f"{first.gradients} to {last.gradients} gradients"
    claims = [
        _claim(
            f"latency grows by less than the size, {span}",
            "6.6 for 16",
            f"{grows:.1f} for {times:g}",
            grows < times,
            [first, last],
        )
    ]
    rates = [row.rate for row in rows]
    if len(rates) > 2:
        steps = [after / before for before, after in pairwise(rates)]
        ours = ", ".join(f"{step:.2f}" for step in steps)
        flattens = steps[-1] <= FLATTER * steps[0]
        claims.append(
            _claim("the rate flattens: gained with each step", "less and less", ours, flattens, rows)
        )
    return claims


def _windows(rows: Sequence[StreamRow]) -> list[Finding]:
    claims = []
    for gradients in dict.fromkeys(row.gradients for row in rows):
        group = [row for row in rows if row.gradients == gradients]
        rates, latencies = [row.rate for row in group], [row.latency_us for row in group]
        ours = f"{rates[-1] / rates[0]:.1f} times from {group[0].window} to {group[-1].window}"
        text = f"{gradients} gradients: throughput grows with the window"
        claims.append(_claim(text, "yes", ours, rates[-1] > rates[0], [group[0], group[-1]]))
        ours = f"{latencies[0]:.0f} to {latencies[-1]:.0f} us"
        grows = all(after > before for before, after in pairwise(latencies[1:]))
        text = f"{gradients} gradients: so does latency"
        claims.append(_claim(text, "yes", ours, grows and latencies[-1] > latencies[0], group))
        best = next(row.window for row, each in zip(group, rates, strict=True) if each >= FULL * max(rates))
        text = f"{gradients} gradients: the smallest window with {FULL:.0%} of the highest throughput"
        claims.append(_claim(text, "4096", f"{best}", best == 4096, group))
    return claims


def _claim(text: str, paper: str, ours: str, holds: bool, of: Sequence[JudgedRun]) -> Finding:
    return timed(text, paper, ours, AGREES if holds else DIFFERS, of)


_STREAMS: Mapping[str, Callable[[Sequence[StreamRow]], list[Finding]]] = {"fig15": _sizes, "fig16": _windows}
