"""The text of examples/: a page that names each file once, short programs, and promises that tests hold."""

from __future__ import annotations

import re
import sys

import pytest

from tests.promises import promised
from tests.sources import ROOT, assert_no_faults

pytestmark = pytest.mark.text

FOLDER = ROOT / "examples"
PROGRAMS = sorted(FOLDER.glob("*.py"))
FILES = sorted(path for path in FOLDER.rglob("*") if path.suffix in (".py", ".h", ".yaml"))
LINES = 45


def test_the_page_names_each_file_once() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(str(path.relative_to(FOLDER)) for path in FILES)


def test_examples_are_short_and_promise_what_they_print() -> None:
    def faults(source: str) -> list[str]:
        lines = len(source.splitlines())
        long = [f"{lines}: more than {LINES} lines"] if lines > LINES else []
        return long if promised(source) else [*long, '1: the docstring ends with no promise: Prints "..."']

    assert_no_faults(PROGRAMS, lambda path: faults(path.read_text()))


def test_a_name_is_no_other_modules() -> None:
    """A program's folder is the first in which it finds modules."""
    assert [path.name for path in PROGRAMS if path.stem in sys.stdlib_module_names] == []


def test_promises_are_read() -> None:
    source = '"""It sums.\n\nPrints "took ... ms", and "1 (of 2)\n3".\n"""'
    assert promised(source) == [r"took\s+.+\s+ms", r"1\s+\(of\s+2\)\s+3"]
    assert promised('"""It prints "a"."""') == []
