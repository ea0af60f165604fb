"""The common form of a paper's figure: an experiment has options, rows, claims and a chart. Owns no figure.
Imports nothing heavy, because experiments are listed far more often than they are run.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from testbed.aggregation.figure import Report
from testbed.errors import RequestError

if TYPE_CHECKING:
    from rich.console import Console

ReportOf = TypeVar("ReportOf")
"""The type of a figure's report. The same report as JSON is a `Report`."""


@dataclass(frozen=True, slots=True)
class ExperimentOption:
    """A command-line option `--name`: its default `usual`, its default with --quick (`quick`; None: the
    same), and the least and the most that are accepted (`accepted`; None: only the experiment's `complete`
    checks it). An option of kind bool is a flag; a `repeated` option collects a list.
    """

    name: str
    help: str
    kind: Callable[[str], Any] = int
    metavar: str = "N"
    usual: Any = None
    quick: Any = None
    accepted: tuple[float, float] | None = None
    repeated: bool = False

    @property
    def key(self) -> str:
        """Return the name of the attribute of parsed options that holds the value."""
        return self.name.replace("-", "_")

    def add(self, parser: ArgumentParser) -> None:
        """Add the option to a parser. Its default is not set here but by `complete`, once --quick is
        known.
        """
        if self.kind is bool:
            parser.add_argument(f"--{self.name}", action="store_true", help=self.help)
            return
        parser.add_argument(
            f"--{self.name}",
            action="append" if self.repeated else "store",
            default=[] if self.repeated else None,
            type=self.kind,
            metavar=self.metavar,
            help=self.help,
        )

    def complete(self, options: Namespace) -> None:
        """Set the default where the user gave no value."""
        if getattr(options, self.key) is None:
            is_quick = self.quick is not None and options.quick
            setattr(options, self.key, self.quick if is_quick else self.usual)

    def check(self, options: Namespace) -> None:
        """Raise RequestError for a value outside the accepted range."""
        value = getattr(options, self.key)
        if self.accepted is None or value is None:
            return
        least, most = self.accepted
        if not least <= value <= most:
            accepted = f"at least {least} is" if most == math.inf else f"{least} to {most} are"
            raise RequestError(f"--{self.name} {value}: {accepted} accepted")


QUICK = ExperimentOption("quick", "the smallest experiment that shows something", bool)


@dataclass(frozen=True, slots=True)
class Chart(Generic[ReportOf]):
    """The type of a report and the two functions that present it: `show` prints tables on a console, `draw`
    writes a PNG.
    """

    report: type[ReportOf]
    show: Callable[[ReportOf, Console], None]
    draw: Callable[[ReportOf, Path], None]


@dataclass(frozen=True, slots=True)
class Experiment(Generic[ReportOf]):
    """A `Figure` that reproduces a figure of a paper. Its functions get the figure's name, since several
    figures share them. They receive the report as the type that `chart` names; the methods of `Figure`
    receive it as JSON.

    `declared`: the options. `complete`: adjusts the options, or raises RequestError, after each has its
    default and is in its range. `rows`: runs the experiment, is given the output folder, and returns the
    report without stamp and claims. `estimate_s`: how many seconds a live experiment takes. `findings`:
    compares a report with the paper. `chart`: imports the modules that present a report.
    """

    name: str
    on_testbed: bool
    about: str
    declared: tuple[ExperimentOption, ...]
    rows: Callable[[str, Namespace, Path], ReportOf]
    findings: Callable[[str, ReportOf], Sequence[object]]
    chart: Callable[[], Chart[ReportOf]]
    complete: Callable[[str, Namespace], None] | None = None
    estimate_s: Callable[[str, Namespace], float] | None = None

    def options(self, parser: ArgumentParser) -> None:
        for option in self.declared:
            option.add(parser)

    def check(self, options: Namespace) -> None:
        for option in self.declared:
            option.complete(options)
        for option in self.declared:
            option.check(options)
        if self.complete is not None:
            self.complete(self.name, options)

    def lasts_s(self, options: Namespace) -> float:
        """Estimate how many seconds a live experiment takes with these checked options."""
        assert self.estimate_s is not None, f"{self.name}: a simulation says no time"
        return self.estimate_s(self.name, options)

    def run(self, options: Namespace, out: Path) -> dict[str, Any]:
        from reproductions.reports import FigureReport
        from testbed.messages.coding import as_json

        stamp = {field.name for field in fields(FigureReport)}
        report = as_json(self.rows(self.name, options, out))
        return {key: value for key, value in report.items() if key not in stamp}

    def claims(self, report: Report) -> list[dict[str, Any]]:
        from testbed.messages.coding import as_json

        claims: list[dict[str, Any]] = as_json(self.findings(self.name, self._read(report)))
        return claims

    def show(self, report: Report, console: Console) -> None:
        self.chart().show(self._read(report), console)

    def draw(self, report: Report, path: Path) -> None:
        self.chart().draw(self._read(report), path)

    def _read(self, report: Report) -> ReportOf:
        """Decode a report from JSON. TestbedError where it has another form."""
        from testbed.messages.coding import decode

        return decode(self.chart().report, report, f"the report of {self.name}")


def words_of(option: str, asked: str, accepted: Sequence[str]) -> list[str]:
    """Split a comma-separated list and drop repeated words. RequestError for a word that is not accepted, or
    for an empty list.
    """
    chosen = list(dict.fromkeys(word.strip() for word in asked.split(",") if word.strip()))
    for word in chosen or [asked]:
        if word not in accepted:
            raise RequestError(f"--{option} {word}: accepted are {', '.join(accepted)}")
    return chosen
