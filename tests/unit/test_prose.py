"""Prose as readers expect it: docstrings that are sentences, names that are nouns, lines that end where an
editor's window does.

Documents end at 100 columns and programs at 110; Python's lines are ruff's.
"""

from __future__ import annotations

import ast
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
MODULES = sorted([ROOT / "setup.py", *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))])
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
FRAGMENTS = frozenset(
    re.findall(
        r"\w+",
        """about above across after against among around as at before below beside besides between beyond by
        during for from how if in instead into like of on once over per since than through to under unless
        until what when where whether which who whose why with within without""",
    )
)
SAY_NOTHING = frozenset({"one", "found", "there", "told"})
# tuples, made once: a union is made anew at each of a million nodes
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Module)
CAPTURES = (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)


# ---------------------------------------------------------------- docstrings and names


def lacking(source: str) -> list[str]:
    """Return a line for each docstring of a module that is no sentence, and each local that says nothing."""
    tree = ast.parse(source)
    wrong = [] if ast.get_docstring(tree) else ["1: a module without a docstring"]
    for node in ast.walk(tree):
        if isinstance(node, SCOPES):
            words = (ast.get_docstring(node) or "").split()
            if words and words[0].lower().strip(",.:;`") in FRAGMENTS:
                wrong.append(f"{node.body[0].lineno}: a docstring that begins with {words[0]!r}")
        wrong += [f"{node.lineno}: a local named {word!r}" for word in _bound(node) if word in SAY_NOTHING]
    return wrong


def _bound(node: ast.AST) -> list[str]:
    """Return the local names that a node binds."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, CAPTURES) and node.name:
        return [node.name]
    if isinstance(node, FUNCTIONS):
        return [each.name for each in node.body if isinstance(each, FUNCTIONS)]
    return []


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ('"""The host."""\nfirst = 1', 0),
        ('"""Of the host."""\n', 1),
        ("first = 1", 1),
        ('"""The host."""\ndef f():\n    """Whether it is."""', 1),
        ('"""The host."""\nclass A:\n    def f(self):\n        """With, perhaps, more."""', 1),
        ('"""The host."""\ndef f(told, *, other):\n    return [one for one in told]', 2),
        ('"""The host."""\nwith a as found, b as there:\n    pass', 2),
        ('"""The host."""\ntry:\n    pass\nexcept OSError as told:\n    pass', 1),
        ('"""The host."""\ndef f():\n    def one():\n        return found.one(there=1)', 1),
    ],
)
def test_fragments_and_names_that_say_nothing_are_seen(source: str, number: int) -> None:
    assert len(lacking(source)) == number, lacking(source)


def test_docstrings_are_sentences_and_locals_are_nouns() -> None:
    assert_no_faults(MODULES, lambda path: lacking(path.read_text()))


# ---------------------------------------------------------------- lines


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
