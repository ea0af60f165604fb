"""The tables in which figures of any paper are shown on a console: their two styles, what the paper says
beside ours, and how many runs are trustworthy. Imports rich.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from reproductions.claims import Finding
from reproductions.reports import Trust
from reproductions.verdicts import AGREES, DIFFERS, TIE

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {AGREES: "green", TIE: "blue", DIFFERS: "red"}
STYLE_BETWEEN = "yellow"
"""Of a verdict word that is neither, and of a claim that is not judged."""


def plain(title: str, *columns: str) -> Table:
    """Return an empty table without lines, whose first column is words and the others numbers."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def ruled(title: str, columns: Sequence[str], left: int = 1) -> Table:
    """Return an empty table with a line below its head; `left` of its columns are words."""
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right")
    return table


def statements(findings: Sequence[Finding], who_says: str) -> Table:
    """Return a ruled table of the paper's statements and ours, with their verdicts in colour; `who_says` is
    such as "our runs say".
    """
    table = ruled(f"The paper's statements, and what {who_says} of each", ["", "paper", "ours", ""])
    for finding in findings:
        word = finding.verdict or ""
        verdict = Text(word, style=STYLES.get(word, STYLE_BETWEEN))
        table.add_row(finding.text, finding.paper, finding.ours, verdict)
    return table


def plain_claims(findings: Sequence[Finding]) -> Table:
    """Return a plain table of what the paper says beside ours."""
    table = plain("The paper's claims", "", "paper", "ours", "")
    for finding in findings:
        table.add_row(finding.text, finding.paper, finding.ours, finding.verdict)
    return table


def show_trust(trust: Trust, console: Console) -> None:
    """Print how many runs are trustworthy, and the reasons why others are not."""
    reasons = ", ".join(f"{name} {count}" for name, count in trust.reasons.items())
    console.print(f"{trust.trustworthy} of {trust.of} runs trustworthy{f' ({reasons})' if reasons else ''}")
