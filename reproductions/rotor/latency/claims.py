"""Opera's claims about latency, compared with our runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from reproductions.claims import Finding, timed
from reproductions.rotor.latency.runs import LatencyRow
from reproductions.rotor.latency.setting import SIZES_KB
from reproductions.verdicts import AGREES, DIFFERS

FULL = 0.9
"""The share of the bulk traffic from which on it counts as carried."""


def of(rows: Sequence[LatencyRow]) -> list[Finding]:
    """Judge the claims of which there are runs."""
    by = {(row.routing, row.has_bulk): row for row in rows}
    claims = []
    for place, size_kb in enumerate(SIZES_KB):
        for has_bulk in (False, True):
            ours, other = by.get(("opera", has_bulk)), by.get(("direct", has_bulk))
            if ours and other:
                ratio = ours.median_ms[place] / other.median_ms[place]
                text = f"{size_kb} kB, {_bulk(has_bulk)}: Opera's median over that of direct circuits"
                claims.append(_claim(text, "below 1", f"{ratio:.2f}", ratio < 1, [ours, other]))
    ours, other = by.get(("opera", True)), by.get(("at-once", True))
    if ours and other:
        ratio = ours.p99_ms[0] / other.p99_ms[0]
        text = f"{SIZES_KB[0]} kB, with bulk: Opera's 99th percentile over that with bulk sent at once"
        claims.append(_claim(text, "below 1", f"{ratio:.2f}", ratio < 1, [ours, other]))
    if ours:
        share = ours.carried_mbps / ours.offered_mbps
        text = "bulk by Opera: carried by direct circuits, of what was offered"
        claims.append(_claim(text, "all", f"{share:.0%}", share >= FULL, [ours]))
    return claims


def _bulk(has_bulk: bool) -> str:
    return "with bulk" if has_bulk else "no bulk"


def _claim(text: str, paper: str, ours: str, holds: bool, rows: Sequence[LatencyRow]) -> Finding:
    return timed(text, paper, ours, AGREES if holds else DIFFERS, rows)
