"""The one shape of a paper's figure: an experiment is its options, its rows, its claims and its chart. Owns
no figure. Imports nothing heavy: an experiment is listed far more often than it is run.
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
"""A figure's report as a type; in JSON's form it is a `Report`."""


@dataclass(frozen=True, slots=True)
class ExperimentOption:
    """An option, `--name`: its default, `usual`, and the one with --quick (None: the same); the least and the
    most that are accepted (None: whatever `complete` of the experiment lets pass). One of kind bool is a
    flag, one that may be repeated a list.
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
        """Return the attribute of parsed options that has it."""
        return self.name.replace("-", "_")

    def add(self, parser: ArgumentParser) -> None:
        """Have a parser know it. What was not asked for is completed later, when --quick is known."""
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
        """Set the default where nothing was asked."""
        if getattr(options, self.key) is None:
            is_quick = self.quick is not None and options.quick
            setattr(options, self.key, self.quick if is_quick else self.usual)

    def check(self, options: Namespace) -> None:
        """Raise RequestError for what is not accepted."""
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
    """The type of a report, and the two forms in which it is seen: tables on a console, and a picture in a
    PNG.
    """

    report: type[ReportOf]
    show: Callable[[ReportOf, Console], None]
    draw: Callable[[ReportOf, Path], None]


@dataclass(frozen=True, slots=True)
class Experiment(Generic[ReportOf]):
    """A figure of a paper, run again: a `Figure` of four parts, each given the figure's name, since several
    figures share a part. The parts have a report as the type that `chart` names; the methods of a `Figure`
    have it as JSON does.

    `declared` are its options; `complete` finishes these, or raises RequestError, once each has its default
    and is in its range. `rows` runs it, with the folder for what runs leave, and returns the report without
    stamp and claims; `estimate_s` says how long that takes where it is live. `findings` holds a report
    against what the paper says. `chart` imports what shows a report.
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
        """Return about how many seconds a live experiment takes, as checked options have it."""
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
        """Return a report as its type. TestbedError for one of another form."""
        from testbed.messages.coding import decode

        return decode(self.chart().report, report, f"the report of {self.name}")


def words_of(option: str, asked: str, accepted: Sequence[str]) -> list[str]:
    """Return the words of a list with commas, each once. RequestError for one that is not accepted."""
    chosen = list(dict.fromkeys(word.strip() for word in asked.split(",") if word.strip()))
    for word in chosen or [asked]:
        if word not in accepted:
            raise RequestError(f"--{option} {word}: accepted are {', '.join(accepted)}")
    return chosen
