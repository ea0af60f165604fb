"""Tables of ALEPH's simulations for a terminal. Imports rich."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from reproductions.aleph.simulated.report import IterationReport
from reproductions.sweep import Spread
from reproductions.tables import ruled, statements
from testbed.systems.aleph.simulator import TITLES

COLUMNS: Mapping[str, tuple[tuple[str, str, int], ...]] = {
    "fig13": (
        ("workers_gbps", "workers,\nGb/s", 0),
        ("servers_gbps", "PSs,\nGb/s", 0),
        ("contributors", "contri-\nbutors", 0),
        ("time_s", "communi-\ncation, s", 2),
    ),
    "fig14": (
        ("overhead_gb", "overhead,\nGB", 1),
        ("both_ways_gb", "both\nways, GB", 1),
        ("time_s", "communi-\ncation, s", 2),
    ),
    "fig15": (("hops", "gradient\nhops", 2), ("time_s", "communi-\ncation, s", 2)),
    "fig16": (("hops", "gradient\nhops", 2), ("time_s", "communi-\ncation, s", 2)),
}


def show(report: IterationReport, console: Console) -> None:
    """Print a table of means for each topology, and the paper's claims with ours."""
    columns = COLUMNS[report.figure]
    for topology in dict.fromkeys(mean.topology for mean in report.means):
        table = ruled(
            f"Fig. {report.figure.removeprefix('fig')}: {report.about}, {topology}",
            [report.sweep, "scheme", *(title for _, title, _ in columns)],
            left=2,
        )
        before = None
        for mean in report.means:
            if mean.topology == topology:
                value = "" if mean.value == before else f"{mean.value:g}"
                cells = [_spread(mean.spread(metric), digits) for metric, _, digits in columns]
                table.add_row(value, TITLES[mean.scheme], *cells)
                before = mean.value
        console.print(table)
    console.print(statements(report.claims, "our runs say"))
    options = report.options
    console.print(
        Text(
            f"Means of {len(report.seeds)} seeds \u00b1 their standard deviation. A worker can head "
            f"{'anybody' if options.reach == 'anybody' else 'those of its rack'}; workers are placed "
            f"{'rack by rack' if options.place == 'packed' else 'at random'}. Agrees: within 20 % of the "
            f"paper's number.",
            style="dim",
        )
    )


def _spread(spread: Spread, digits: int) -> str:
    mean, deviation = f"{spread.mean:,.{digits}f}", f"{spread.deviation:,.{digits}f}"
    return mean if spread.least == spread.most else f"{mean} \u00b1 {deviation}"
