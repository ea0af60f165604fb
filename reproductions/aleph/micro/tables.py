"""The microbenchmarks' numbers: medians over rounds, whether they are trustworthy, and tables. Pure apart
from printing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from reproductions.aleph.micro.report import MicroReport
from reproductions.aleph.micro.rows import (
    WAITED,
    AnyRow,
    CopyRow,
    CostRow,
    MicroRow,
    RoundsVerdict,
    RoundTripRow,
    SumRow,
    known,
)
from reproductions.reports import Trust
from reproductions.tables import plain

if TYPE_CHECKING:
    from rich.console import Console

TITLES = {
    "xdp-native": "XDP native",
    "xdp-generic": "XDP generic",
    "tcp": "TCP in C, chunks of 64 KiB",
    "tcp-gro": "TCP in C, segments merged (GRO)",
    "tcp-packet": "TCP in C, chunks of a packet",
    "ps": "TCP, PS in Python",
    "xdp": "XDP, into the map",
    "xdp-socket": "XDP, to a process",
}


def medians(rows: Iterable[AnyRow]) -> list[AnyRow]:
    """Merge the rounds of each measurement into one row; each float becomes its median over the rounds."""
    groups: dict[Hashable, list[AnyRow]] = {}
    for row in rows:
        groups.setdefault(row.key, []).append(row)
    return [_median(group) for group in groups.values()]


def _median(group: Sequence[AnyRow]) -> AnyRow:
    changes: dict[str, Any] = {}
    for field in fields(group[0]):
        values = [getattr(row, field.name) for row in group]
        if isinstance(values[0], float):
            changes[field.name] = statistics.median(v for v in values if isinstance(v, int | float))
    runs = [row.run for row in group if isinstance(row.run, int)]
    if len(runs) == len(group):
        changes["run"] = runs
    return replace(group[0], **changes)


def judged(rows: Sequence[AnyRow]) -> list[AnyRow]:
    """Return the measurements with their verdicts: trustworthy if the median of the rounds is."""
    words = {row.key: RoundsVerdict(row.is_undisturbed) for row in medians(rows)}
    return [replace(row, verdict=words[row.key]) for row in rows]


def trust(rows: Sequence[MicroRow]) -> Trust:
    """Count the measurements during which no other process used the head's cores. Where hosts share those
    cores (too many were asked for), the CPU time still counts and the rate does not.
    """
    reasons: dict[str, int] = {}
    if shared := sum(row.shared for row in rows):
        reasons["hosts on the head's cores: only what is per CPU second counts"] = shared
    if late := sum(row.waited > WAITED and not row.shared for row in rows):
        reasons[f"the head waited for a core for more than {WAITED:.0%} of the time"] = late
    return Trust(sum(row.is_undisturbed for row in rows), len(rows), reasons)


def said(row: CostRow | RoundTripRow) -> str:
    """Return a measurement's name for the progress display."""
    words = [TITLES[row.case]]
    if isinstance(row, RoundTripRow):
        if row.median_us is not None:
            words.append(f"{row.per_s:.0f} a second: {row.median_us:.0f} us")
        return ", ".join(words)
    if lanes := known(row.lanes):
        words.append(f"{lanes} gradients")
    words.append(f"{row.cores} core{'s' * (row.cores > 1)}")
    words.append(f"{row.gbps_per_core:.1f} Gb/s a core")
    return ", ".join(words)


def show_sums(report: MicroReport[SumRow], console: Console) -> None:
    """Print the tables of table 2 and figures 5 and 6."""
    _show(report, _losses if report.figure == "fig6" else _costs, console)


def show_copies(report: MicroReport[CopyRow], console: Console) -> None:
    """Print the tables of figure 8."""
    _show(report, _costs, console)


def show_round_trips(report: MicroReport[RoundTripRow], console: Console) -> None:
    """Print the tables of figure 7."""
    _show(report, _times, console)


def _show(
    report: MicroReport[AnyRow], show: Callable[[Sequence[AnyRow], Console], None], console: Console
) -> None:
    rows = medians(report.rows)
    console.print(
        f"{report.cores} cores; {report.rounds} rounds of {report.seconds:g} s; medians; Gb/s of "
        "gradients; a core: per CPU second of the head",
        highlight=False,
    )
    show(rows, console)
    table = plain("What the paper says", "", "paper", "ours", "verdict")
    for claim in report.claims:
        table.add_row(claim.text, claim.paper, claim.ours, claim.verdict or "not to be seen")
    console.print(table)
    trusted = report.trust
    if trusted.of:
        console.print(
            f"trustworthy: {trusted.trustworthy} of {trusted.of} measurements"
            + "".join(f"; {count}: {reason}" for reason, count in trusted.reasons.items()),
            highlight=False,
        )


def title_of(row: CostRow | RoundTripRow) -> str:
    """Return the title of a measurement's case, with the size of its packets."""
    if isinstance(row, RoundTripRow):
        return "TCP in C" if row.case == "tcp" else TITLES[row.case]
    lanes = known(row.lanes)
    gradients = f", {lanes} gradients" if lanes else ""
    alone = ", counted and dropped" if isinstance(row, SumRow) and row.program == "take_only" else ""
    return TITLES[row.case] + gradients + alone


def _costs(rows: Sequence[SumRow | CopyRow], console: Console) -> None:
    columns = ("cores", "asked", "Gb/s", "load", "Gb/s a core", "ns a packet", "loss")
    table = plain("The head's cost", "", *columns)
    for row in rows:
        packet = row.ns_per_packet if isinstance(row, SumRow) else None
        table.add_row(
            title_of(row),
            str(row.cores),
            _asked(row),
            f"{row.gbps:.2f}",
            f"{row.load:.0%}",
            f"{row.gbps_per_core:.2f}",
            f"{packet:.0f}" if packet else "",
            f"{row.loss:.2%}",
        )
    console.print(table)


def _asked(row: SumRow | CopyRow) -> str:
    if isinstance(row, SumRow) and (target := known(row.target_gbps)):
        return f"{target:g} Gb/s"
    offered = known(row.offered)
    return f"{offered:.0%}" if offered else "all"


def _losses(rows: Sequence[SumRow], console: Console) -> None:
    table = plain("Loss by the head's load", "", "offered", "packets/s", "load", "loss")
    for row in rows:
        share = known(row.offered)
        offered = "as many as are taken" if share is None else f"{share:.0%}"
        table.add_row(title_of(row), offered, f"{row.per_s:.0f}", f"{row.load:.0%}", f"{row.loss:.3%}")
    console.print(table)


def _times(rows: Sequence[RoundTripRow], console: Console) -> None:
    table = plain(
        "Time of one packet, there and back", "", "packets/s", "median us", "mean us", "99 % us", "lost"
    )
    for row in rows:
        if row.median_us is not None:
            table.add_row(
                title_of(row),
                f"{row.per_s:.0f}",
                f"{row.median_us:.1f}",
                f"{row.mean_us:.1f}",
                f"{row.p99_us:.0f}",
                f"{row.loss:.1%}",
            )
    console.print(table)
