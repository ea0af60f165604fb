"""Lines end where an editor's window does: in documents at 100 columns, in C at 110. Python's are ruff's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])
FOLDERS = ("bpf", "wireshark", "workloads", "tests")
SOURCES = sorted(
    path for folder in FOLDERS for kind in ("c", "h", "lua") for path in (ROOT / folder).rglob(f"*.{kind}")
)
DOCUMENT_COLUMNS, SOURCE_COLUMNS, TAB = 100, 110, 8


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines of a document that can be broken: not those of tables, code, comments, headings,
    images, or where a link leads."""
    code = comment = False
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*```", line):
            code = not code
        elif comment or (not code and "<!--" in line):
            comment = "-->" not in line
        elif not code and not re.match(r"\s*(\||#|!\[|\[[^]]+\]:)", line):
            yield number, line


def test_what_can_be_broken_is_told_from_what_cannot() -> None:
    document = (
        "# head\n\ntext\n| a |\n```\ncode\n```\n- item\n<!-- a\nb -->\n<!-- c -->\n![d](e)\n[f]: g\n  end\n"
    )
    assert list(prose(document)) == [(2, ""), (3, "text"), (8, "- item"), (14, "  end")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_a_documents_sentences_are_broken(path: Path) -> None:
    assert [number for number, line in prose(path.read_text()) if len(line) > DOCUMENT_COLUMNS] == []


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_programs_lines_are_broken(path: Path) -> None:
    lines = enumerate(path.read_text().splitlines(), 1)
    assert [number for number, line in lines if len(line.expandtabs(TAB)) > SOURCE_COLUMNS] == []
