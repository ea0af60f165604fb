"""The plug-in interface of published figures: the methods that `testbed reproduce PAPER FIGURE` calls.
Contains no figure, and imports neither the terminal nor plots.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console

Report = Mapping[str, Any]
"""All results of a figure, as JSON data."""


class Figure(Protocol):
    """A figure of a system's paper, to be repeated: it adds its options, checks them, runs, compares its
    results with the paper's, and shows both. Its constructor imports nothing heavy; its methods do.

    `on_testbed` distinguishes a figure that needs a testbed from a simulation. The project's own figures
    bring testbeds up, as root. For these, `lasts_s(options)` is their duration in seconds, and
    testbed/figures/finished_runs.py keeps their finished runs if the command is interrupted. A figure of a
    user's file never has root's rights under sudo, and uses a running testbed. `--help` shows `about`, or the
    class's docstring.
    """

    @property
    def name(self) -> str: ...

    @property
    def on_testbed(self) -> bool: ...

    def options(self, parser: ArgumentParser) -> None:
        """Add its options, except `--out`."""

    def check(self, options: Namespace) -> None:
        """Complete the options. Raises RequestError, in a line, for an impossible combination, before
        anything runs.
        """

    def run(self, options: Namespace, out: Path) -> dict[str, Any]:
        """Run, and return the results without claims. Files of single runs go below `out`."""

    def claims(self, report: Report) -> Sequence[Mapping[str, Any]]:
        """Compare the paper's claims with a report's results. Pure."""

    def show(self, report: Report, console: Console) -> None:
        """Print a report as tables, with its claims in `claims`."""

    def draw(self, report: Report, path: Path) -> None:
        """Write a report's picture as a PNG."""
