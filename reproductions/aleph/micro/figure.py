"""Table 2 and figures 5 to 8 as experiments. Heavy modules are imported only when a figure is used."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproductions.experiment import Chart, Experiment, ExperimentOption
from testbed.errors import RequestError

if TYPE_CHECKING:
    from reproductions.aleph.micro.report import MicroReport
    from reproductions.aleph.micro.rows import AnyRow, CopyRow, RoundTripRow, SumRow
    from reproductions.claims import Finding

VERSION = 1
NAMES = ("table2", "fig5", "fig6", "fig7", "fig8")
PAPERS_LANES = 128
SECONDS, QUICK_SECONDS = 1.0, 0.4
ROUNDS = 3


def _complete(_: str, options: Namespace) -> None:
    if not 0.1 <= options.seconds <= 60:
        raise RequestError(f"--seconds {options.seconds:g}: 0.1 to 60 are accepted")
    if not 1 <= options.rounds <= 100:
        raise RequestError(f"--rounds {options.rounds}: 1 to 100 are accepted")
    if not 2 <= options.gradients <= 360 or options.gradients % 2:
        raise RequestError(f"--gradients {options.gradients}: even numbers from 2 to 360 are accepted")


def _estimate_s(figure: str, options: Namespace) -> float:
    """Estimate how many seconds a figure's measurements take."""
    from reproductions.aleph.micro.plan import Extent, count

    asked = Extent(options.seconds, options.rounds, options.quick)
    return float(count(figure, asked) * (options.seconds + 1.0))


def _measured(kind: type[AnyRow], figure: str, options: Namespace, out: Path) -> MicroReport[AnyRow]:
    import sys

    from reproductions.aleph.micro import session, tables
    from reproductions.aleph.micro.plan import Extent, count, present
    from reproductions.aleph.micro.report import MicroReport
    from reproductions.live import runs_folder
    from reproductions.progress import progress
    from testbed.figures import finished_runs

    asked = Extent(options.seconds, options.rounds, options.quick)
    cores = len(present())
    if cores == 1:
        print("one core: hosts and head share it, and times are of both", file=sys.stderr, flush=True)
    folder = runs_folder(out, figure)
    with progress(figure, count(figure, asked), lines=True) as on_done:

        def on_row(row: AnyRow) -> None:
            finished_runs.keep(folder, tables.said(row), row)
            on_done(tables.said(row))

        rows = session.run(kind, figure, asked, options.gradients, on_row)
    return MicroReport(
        version=VERSION,
        rows=tables.judged(rows),
        cores=cores,
        gradients=options.gradients,
        seconds=options.seconds,
        rounds=options.rounds,
        trust=tables.trust(rows),
    )


def _sums(figure: str, options: Namespace, out: Path) -> MicroReport[SumRow]:
    from reproductions.aleph.micro.rows import SumRow

    return _measured(SumRow, figure, options, out)


def _copies(figure: str, options: Namespace, out: Path) -> MicroReport[CopyRow]:
    from reproductions.aleph.micro.rows import CopyRow

    return _measured(CopyRow, figure, options, out)


def _round_trips(figure: str, options: Namespace, out: Path) -> MicroReport[RoundTripRow]:
    from reproductions.aleph.micro.rows import RoundTripRow

    return _measured(RoundTripRow, figure, options, out)


def _sums_claims(figure: str, report: MicroReport[SumRow]) -> list[Finding]:
    from reproductions.aleph.micro import claims

    return claims.of_sums(figure, report)


def _copies_claims(_: str, report: MicroReport[CopyRow]) -> list[Finding]:
    from reproductions.aleph.micro import claims

    return claims.of_copies(report)


def _round_trips_claims(_: str, report: MicroReport[RoundTripRow]) -> list[Finding]:
    from reproductions.aleph.micro import claims

    return claims.of_round_trips(report)


def _sums_chart() -> Chart[MicroReport[SumRow]]:
    from reproductions.aleph.micro import plots, tables
    from reproductions.aleph.micro.report import MicroReport
    from reproductions.aleph.micro.rows import SumRow

    return Chart(MicroReport[SumRow], tables.show_sums, plots.draw_sums)


def _copies_chart() -> Chart[MicroReport[CopyRow]]:
    from reproductions.aleph.micro import plots, tables
    from reproductions.aleph.micro.report import MicroReport
    from reproductions.aleph.micro.rows import CopyRow

    return Chart(MicroReport[CopyRow], tables.show_copies, plots.draw_copies)


def _round_trips_chart() -> Chart[MicroReport[RoundTripRow]]:
    from reproductions.aleph.micro import plots, tables
    from reproductions.aleph.micro.report import MicroReport
    from reproductions.aleph.micro.rows import RoundTripRow

    return Chart(MicroReport[RoundTripRow], tables.show_round_trips, plots.draw_round_trips)


def _experiment(
    name: str,
    rows: Callable[[str, Namespace, Path], MicroReport[AnyRow]],
    findings: Callable[[str, MicroReport[AnyRow]], list[Finding]],
    chart: Callable[[], Chart[MicroReport[AnyRow]]],
) -> Experiment[MicroReport[AnyRow]]:
    return Experiment(
        name=name,
        on_testbed=True,
        about="Measure what a head's data plane costs, by XDP and by sockets, on veth pairs in namespaces of "
        "the command's own. What counts, and what differs from the paper's machines: docs/aleph.md, "
        '"Microbenchmarks".',
        declared=(
            ExperimentOption("quick", "fewer points, shorter windows, one round", bool),
            ExperimentOption(
                "seconds",
                f"that each is measured for ({SECONDS:g})",
                float,
                "S",
                usual=SECONDS,
                quick=QUICK_SECONDS,
            ),
            ExperimentOption("rounds", f"all in turn, so often ({ROUNDS})", usual=ROUNDS, quick=1),
            ExperimentOption(
                "gradients", f"of the smaller packet ({PAPERS_LANES}, the paper's)", usual=PAPERS_LANES
            ),
        ),
        rows=rows,
        findings=findings,
        chart=chart,
        complete=_complete,
        estimate_s=_estimate_s,
    )


EXPERIMENTS: tuple[Experiment[Any], ...] = (
    *(_experiment(name, _sums, _sums_claims, _sums_chart) for name in ("table2", "fig5", "fig6")),
    _experiment("fig7", _round_trips, _round_trips_claims, _round_trips_chart),
    _experiment("fig8", _copies, _copies_claims, _copies_chart),
)
