"""A published figure as a plug-in: what `testbed reproduce PAPER FIGURE` asks of it. Owns no figure, and
imports neither the terminal nor plots.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console

Report = Mapping[str, Any]
"""All that a figure came to, as JSON has it."""


class Figure(Protocol):
    """A figure of a system's paper, run again. It says its options, checks what is asked, runs, compares with
    what the paper says, and shows both. To make one imports nothing heavy: its methods do.

    `on_testbed` tells one that needs a testbed from a simulation. One of the project's own brings testbeds
    up, as root; its `lasts_s(options)` says how many seconds that takes, and testbed/figures/finished_runs.py
    keeps its runs when the command is cut. One of a user's file never has root's rights behind sudo, and
    takes a testbed that is up. `--help` has its `about`, or else its class's docstring.
    """

    @property
    def name(self) -> str: ...

    @property
    def on_testbed(self) -> bool: ...

    def options(self, parser: ArgumentParser) -> None:
        """Add what may be asked of it, `--out` aside."""

    def check(self, options: Namespace) -> None:
        """Complete the options. RequestError, in a line, for what cannot be; nothing has run by then."""

    def run(self, options: Namespace, out: Path) -> dict[str, Any]:
        """Return what the runs came to, without claims. What it keeps of each run goes below `out`."""

    def claims(self, report: Report) -> Sequence[Mapping[str, Any]]:
        """Return what the paper says, each beside what a report says of it. Pure."""

    def show(self, report: Report, console: Console) -> None:
        """Print a report, its claims in `claims`, as tables."""

    def draw(self, report: Report, path: Path) -> None:
        """Write a report's picture as a PNG."""
