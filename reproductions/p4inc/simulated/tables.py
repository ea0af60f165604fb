"""Tables of P4INC-AOI's simulated figures for a terminal, with the paper's numbers. Imports rich."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reproductions.p4inc.simulated.report import PaperCell, SchemeMeans, SweepReport
from reproductions.sweep import Spread
from reproductions.tables import ruled, statements
from testbed.messages.coding import UnsetType
from testbed.systems.p4inc.policies.catalogue import TITLES
from testbed.systems.p4inc.simulator.settings import SETTINGS

AXES = {"job_count": "jobs", "units": "units", "inc": "INC jobs\na switch", "slot_s": "slot, s"}


def title_of(scheme: str) -> str:
    return TITLES.get(scheme, scheme.upper())


def show(report: SweepReport, console: Console) -> None:
    """Print the offered load, the results, and the paper's claims with ours."""
    console.print(_offered(report))
    console.print(_table1(report) if report.figure == "table1" else _means(report))
    if report.claims:
        console.print(statements(report.claims, "our runs say"))
    console.print(_footnote(report))


def _spread(spread: Spread, digits: int, scale: float = 1.0) -> str:
    """Format the mean and standard deviation, and the least and most in brackets, where the seeds differ."""
    values = (spread.mean, spread.deviation, spread.least, spread.most)
    mean, deviation, least, most = (f"{value * scale:,.{digits}f}" for value in values)
    return mean if least == most else f"{mean} \u00b1 {deviation} ({least}-{most})"


def _axis(report: SweepReport) -> str:
    sweep = SETTINGS[report.figure].sweep
    return AXES.get(sweep, sweep)


def _rows(report: SweepReport) -> list[tuple[str, SchemeMeans]]:
    """Return the means of each scheme with the swept value's name, which is empty after its first row."""
    rows: list[tuple[str, SchemeMeans]] = []
    before = None
    for mean in report.means:
        rows.append(("" if mean.value == before else f"{mean.value:g}", mean))
        before = mean.value
    return rows


def _offered(report: SweepReport) -> Table:
    table = ruled(
        "What is asked for",
        [_axis(report), "of the AOI,\nwithout INC", "of the INC\nplaces", "jobs in\none unit"],
    )
    for offered in report.offered:
        shares = (offered.aoi_without_inc, offered.inc_places, offered.local)
        table.add_row(f"{offered.value:g}", *(f"{share:.0%}" for share in shares))
    return table


def _means(report: SweepReport) -> Table:
    columns = [
        _axis(report),
        "scheme",
        "CT-BTI, s",
        "reconfigured\nconnections",
        "slots with\nreconfigurations",
    ]
    table = ruled(_title(report), [*columns, "mean\nJCT, s", "deciding\ntook, s"], left=2)
    for value, mean in _rows(report):
        table.add_row(
            value,
            title_of(mean.scheme),
            _spread(mean.ct_bti_s, 1),
            _spread(mean.connections, 0),
            _spread(mean.reconfigurations, 0),
            _spread(mean.mean_jct_s, 2),
            f"{mean.time_s.mean:.2f}",
        )
    return table


def _table1(report: SweepReport) -> Table:
    """Make Table I: our numbers, with the paper's in the columns marked P."""
    columns = [
        _axis(report),
        "scheme",
        "time, s",
        "P",
        "CT-BTI, s",
        "P",
        "δ, %",
        "P",
        "AOI",
        "P",
        "slots\nwith",
        "above the\nbound, %",
    ]
    table = ruled(_title(report), columns, left=2)
    for value, mean in _rows(report):
        paper = PaperCell() if isinstance(mean.paper, UnsetType) else mean.paper
        delta = ""
        if mean.scheme != "milp" and not isinstance(mean.delta, UnsetType):
            delta = _spread(mean.delta, 1, 100)
        above = "" if isinstance(mean.above_bound, UnsetType) else f"{mean.above_bound.mean * 100:.1f}"
        cells = [
            (f"{mean.time_s.mean:.2f}", paper.time_s),
            (_spread(mean.ct_bti_s, 2), paper.ct_bti_s),
            (delta, paper.delta_percent),
            (_spread(mean.connections, 0), paper.connections),
        ]
        beside = [cell for ours, theirs in cells for cell in (ours, Text(_number(theirs), style="dim"))]
        slots = f"{mean.reconfigurations.mean:.0f}"
        table.add_row(value, title_of(mean.scheme), *beside, slots, above)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _title(report: SweepReport) -> str:
    name = report.figure
    figure = "Table I" if name == "table1" else f"Fig. {name.removeprefix('fig')}"
    return f"{figure}: {SETTINGS[report.figure].about}, reading: {report.options.reading}"


def _footnote(report: SweepReport) -> Text:
    host, seeds = report.host, len(report.seeds)
    assert host is not None, "a report is shown when it has its stamp"
    spread = (
        f"Means of {seeds} seeds \u00b1 their standard deviation, least and most in brackets. Agrees: within "
        f"20 % of the paper's number; "
        "tie: less apart than 0.5 %, or than two standard errors of the difference."
        if seeds > 1
        else "One seed."
    )
    marks = (
        " P is the paper. δ is (CT-BTI - MILP's) / CT-BTI, as there; AOI are connections set up, in so many "
        "slots."
        if report.figure == "table1"
        else ""
    )
    return Text(
        f"{spread}{marks} Every schedule was checked against equations (2) to (11). {report.took_s:.0f} s "
        f"with "
        f"{report.options.processes} processes on {host.cores} cores, Python {host.python}.",
        style="dim",
    )
