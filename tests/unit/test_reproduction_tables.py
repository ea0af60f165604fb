"""The tables that figures of all papers share: what the paper says beside ours, and the runs that count."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reproductions import tables
from reproductions.claims import Finding
from reproductions.reports import Trust
from reproductions.verdicts import AGREES, DIFFERS, PARTLY, SIZE, TIE
from testbed.figures.verdict_gate import UNJUDGED

COLOURS = {AGREES: "green", SIZE: "yellow", PARTLY: "yellow", TIE: "blue", DIFFERS: "red", UNJUDGED: "yellow"}
CLAIMS = [Finding(f"it {word}", "2", "3", word) for word in COLOURS]


def printed(shown: Table) -> list[list[str]]:
    """Return the cells of each line below the title, blank ones left out."""
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(shown)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.split("  ") for line in text.splitlines()]


def test_each_verdict_has_its_colour_beside_the_statement() -> None:
    shown = tables.statements(CLAIMS, "our runs say")
    assert shown.title == "The paper's statements, and what our runs say of each"
    verdicts = [cell for cell in shown.columns[-1].cells if isinstance(cell, Text)]
    assert {cell.plain: cell.style for cell in verdicts} == COLOURS
    assert [column.justify for column in shown.columns] == ["left", "right", "right", "right"]


def test_plain_claims_are_all_there_in_their_order() -> None:
    lines = printed(tables.plain_claims(CLAIMS))
    assert [" ".join(line).split()[:2] for line in lines[2:]] == [claim.text.split()[:2] for claim in CLAIMS]
    assert tables.plain("", "words", "1", "2").columns[0].justify == "left"
    assert tables.plain("", "words", "1", "2").columns[2].justify == "right"
    assert [column.justify for column in tables.ruled("", ["a", "b", "c"], left=2).columns] == [
        "left",
        "left",
        "right",
    ]


@pytest.mark.parametrize(
    ("reasons", "line"),
    [
        ({}, "2 of 3 runs trustworthy\n"),
        ({"busy": 1, "late": 2}, "2 of 3 runs trustworthy (busy 1, late 2)\n"),
    ],
)
def test_reasons_are_beside_the_runs_that_do_not_count(reasons: dict[str, int], line: str) -> None:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    tables.show_trust(Trust(2, 3, reasons), console)
    assert console.file.getvalue() == line  # type: ignore[attr-defined]
