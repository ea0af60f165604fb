"""Table 2 and figures 5 to 8 as figures of the paper: options, runs, claims. Imports nothing heavy before it
is asked for something.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.aggregation.figure import Report
from testbed.errors import RequestError

if TYPE_CHECKING:
    from rich.console import Console

VERSION = 1
NAMES = ("table2", "fig5", "fig6", "fig7", "fig8")
PAPERS_LANES = 128
SECONDS, QUICK_SECONDS = 1.0, 0.4
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class MicroFigure:
    """Measure what a head's data plane costs, by XDP and by sockets, on veth pairs in namespaces of the
    command's own. What counts, and what differs from the paper's machines: docs/aleph.md,
    "Microbenchmarks".
    """

    name: str

    @property
    def on_testbed(self) -> bool:
        return True

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--quick", action="store_true", help="fewer points, shorter windows, one round")
        parser.add_argument(
            "--seconds", type=float, metavar="S", help=f"that each is measured for ({SECONDS:g})"
        )
        parser.add_argument("--rounds", type=int, metavar="N", help=f"all in turn, so often ({ROUNDS})")
        parser.add_argument(
            "--gradients",
            type=int,
            default=PAPERS_LANES,
            metavar="N",
            help=f"of the smaller packet ({PAPERS_LANES}, the paper's)",
        )

    def check(self, options: argparse.Namespace) -> None:
        if options.seconds is None:
            options.seconds = QUICK_SECONDS if options.quick else SECONDS
        if options.rounds is None:
            options.rounds = 1 if options.quick else ROUNDS
        if not 0.1 <= options.seconds <= 60:
            raise RequestError(f"--seconds {options.seconds:g}: 0.1 to 60 are accepted")
        if not 1 <= options.rounds <= 100:
            raise RequestError(f"--rounds {options.rounds}: 1 to 100 are accepted")
        if not 2 <= options.gradients <= 360 or options.gradients % 2:
            raise RequestError(f"--gradients {options.gradients}: even numbers from 2 to 360 are accepted")

    def lasts_s(self, options: argparse.Namespace) -> float:
        """Return about how many seconds it measures."""
        from reproductions.aleph.micro.plan import Extent, count

        asked = Extent(options.seconds, options.rounds, options.quick)
        return float(count(self.name, asked) * (options.seconds + 1.0))

    def run(self, options: argparse.Namespace, out: Path) -> dict[str, Any]:
        import sys

        from reproductions.aleph.micro import session, tables
        from reproductions.aleph.micro.plan import Extent, count, present
        from reproductions.live import runs_folder
        from reproductions.progress import progress
        from testbed.reproduction import kept

        asked = Extent(options.seconds, options.rounds, options.quick)
        cores = len(present())
        if cores == 1:
            print("one core: hosts and head share it, and times are of both", file=sys.stderr, flush=True)
        folder = runs_folder(out, self.name)
        with progress(self.name, count(self.name, asked), lines=True) as on_done:

            def on_row(row: dict[str, Any]) -> None:
                kept.keep(folder, tables.said(row), row)
                on_done(tables.said(row))

            rows = session.run(self.name, asked, options.gradients, on_row)
        tables.judge(rows)
        return {
            "version": VERSION,
            "rows": rows,
            "cores": cores,
            "gradients": options.gradients,
            "seconds": options.seconds,
            "rounds": options.rounds,
            "trust": tables.trust(rows),
        }

    def claims(self, report: Report) -> Sequence[Mapping[str, Any]]:
        from reproductions.aleph.micro import claims

        return claims.claims(self.name, report)

    def show(self, report: Report, console: Console) -> None:
        from reproductions.aleph.micro import tables

        tables.show(report, console)

    def draw(self, report: Report, path: Path) -> None:
        from reproductions.aleph.micro import plots

        plots.draw(report, path)
