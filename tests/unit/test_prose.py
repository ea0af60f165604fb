"""Lines that end where an editor's window does: documents at 100 columns, programs at 110. Python's lines
are ruff's. Words are a reader's (CONTRIBUTING.md, Style).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pytest

from tests.sources import ROOT, assert_no_faults

pytestmark = pytest.mark.text

FOLDERS = (
    "bpf",
    "controller",
    "docs",
    "examples",
    "p4",
    "reproductions",
    "scripts",
    "testbed",
    "tests",
    "wireshark",
    "workloads",
)
DOCUMENTS = sorted([*ROOT.glob("*.md"), ROOT / "examples/README.md", *ROOT.glob("docs/**/*.md")])
SOURCES = sorted(
    [
        *(ROOT / name for name in ("Containerfile", "Makefile", "action.yml", "pyproject.toml", ".ci/run")),
        *(ROOT / ".github").rglob("*.yml"),
        *(
            path
            for folder in FOLDERS
            for kind in ("c", "h", "lua", "p4")
            for path in (ROOT / folder).rglob(f"*.{kind}")
            if path.name != "wire.p4"  # rendered from the contract, a line for each of its words
        ),
    ]
)
DOCUMENT_COLUMNS, SOURCE_COLUMNS, TAB = 100, 110, 8


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a document that can be broken: not those of tables, code, comments,
    headings, images, or link targets.
    """
    code = comment = False
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*```", line):
            code = not code
        elif comment or (not code and "<!--" in line):
            comment = "-->" not in line
        elif not code and not re.match(r"\s*(\||#|!\[|\[[^]]+\]:)", line):
            yield number, line


def test_a_line_that_can_be_broken_is_told_from_others() -> None:
    document = (
        "# head\n\ntext\n| a |\n```\ncode\n```\n- item\n<!-- a\nb -->\n<!-- c -->\n![d](e)\n[f]: g\n  end\n"
    )
    assert list(prose(document)) == [(2, ""), (3, "text"), (8, "- item"), (14, "  end")]


def long(lines: Iterable[tuple[int, str]], most: int) -> list[str]:
    """Return a fault for each of the numbered lines that has more columns than `most`."""
    widths = ((number, len(line.expandtabs(TAB))) for number, line in lines)
    return [f"{number}: {width} columns" for number, width in widths if width > most]


def test_a_line_that_is_too_long_is_seen() -> None:
    assert long([(1, "a" * 9), (2, "b" * 10), (3, "\tcc")], 9) == ["2: 10 columns", "3: 10 columns"]


def test_a_documents_sentences_are_broken() -> None:
    assert_no_faults(DOCUMENTS, lambda path: long(prose(path.read_text()), DOCUMENT_COLUMNS))


def test_a_programs_lines_are_broken() -> None:
    assert_no_faults(SOURCES, lambda path: long(enumerate(path.read_text().splitlines(), 1), SOURCE_COLUMNS))
