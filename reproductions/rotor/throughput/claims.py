"""RotorNet's claims about throughput, compared with our runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from reproductions.claims import Finding, timed
from reproductions.rotor.throughput.runs import LIT, RotationRow
from reproductions.verdicts import AGREES, DIFFERS, of_size

HALF = 0.5
"""The share of the ideal throughput that RotorNet guarantees by detours for any demand, about."""
TOLERANCE = 0.05
"""Share of HALF: packets are whole, and queues are empty when a run begins."""
FULL = 0.9
"""The share of its bound from which on a throughput counts as all of it."""


def of(rows: Sequence[RotationRow], units: int) -> list[Finding]:
    """Judge the claims of which there are runs."""
    claims = []
    for row in rows:
        if row.routing == "vlb":
            holds = row.of_ideal >= (1 - TOLERANCE) * HALF
            text = f"{row.demand}: VLB's throughput over the ideal"
            claims.append(_claim(text, f"{HALF:g} or more", f"{row.of_ideal:.2f}", holds, row))
        elif row.routing == "direct" and row.demand == "uniform":
            holds = row.of_bound >= FULL
            text = "uniform: direct circuits' throughput over their bound"
            claims.append(_claim(text, "near 1", f"{row.of_bound:.2f}", holds, row))
        elif row.routing == "direct" and row.demand == "permutation":
            share = LIT / (units - 1)
            text = "permutation: direct circuits' throughput over the ideal"
            word = of_size(row.of_ideal, share)
            claims.append(timed(text, f"{share:.2f}", f"{row.of_ideal:.2f}", word, [row]))
    return claims


def _claim(text: str, paper: str, ours: str, holds: bool, row: RotationRow) -> Finding:
    return timed(text, paper, ours, AGREES if holds else DIFFERS, [row])
