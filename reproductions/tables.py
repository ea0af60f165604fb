"""Console tables that figures of any paper share: their two styles, the paper's claims beside our results,
and how many runs are trustworthy. Imports rich.
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
"""The style of any other verdict word, and of a claim that is not judged."""


def plain(title: str, *columns: str) -> Table:
    """Return an empty table without lines; its first column holds words, the others numbers."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def ruled(title: str, columns: Sequence[str], left: int = 1) -> Table:
    """Return an empty table with a line below its head; its first `left` columns hold words."""
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right")
    return table


def statements(findings: Sequence[Finding], who_says: str) -> Table:
    """Return a ruled table of the paper's statements and our numbers, with the verdicts in colour. `who_says`
    is the subject and verb in the title, such as "our runs say".
    """
    table = ruled(f"The paper's statements, and what {who_says} of each", ["", "paper", "ours", ""])
    for finding in findings:
        word = finding.verdict or ""
        verdict = Text(word, style=STYLES.get(word, STYLE_BETWEEN))
        table.add_row(finding.text, finding.paper, finding.ours, verdict)
    return table


def plain_claims(findings: Sequence[Finding]) -> Table:
    """Return a plain table of the paper's claims beside our numbers."""
    table = plain("The paper's claims", "", "paper", "ours", "")
    for finding in findings:
        table.add_row(finding.text, finding.paper, finding.ours, finding.verdict)
    return table


def show_trust(trust: Trust, console: Console) -> None:
    """Print how many runs are trustworthy, and how often each reason made another not so."""
    reasons = ", ".join(f"{name} {count}" for name, count in trust.reasons.items())
    console.print(f"{trust.trustworthy} of {trust.of} runs trustworthy{f' ({reasons})' if reasons else ''}")
