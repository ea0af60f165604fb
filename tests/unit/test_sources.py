"""The loop of checks of text: it lists all that it finds, and never passes for want of files."""

from __future__ import annotations

import pytest

from tests.sources import ROOT, assert_no_faults, line_at


def test_every_fault_of_every_file_is_listed_by_its_line() -> None:
    paths = [ROOT / "docs/one.c", ROOT / "two.py", ROOT / "three.py"]
    faults = {"one.c": ["3: long", "9: long"], "two.py": [], "three.py": ["1: empty"]}
    with pytest.raises(AssertionError) as failed:
        assert_no_faults(paths, lambda path: faults[path.name])
    assert str(failed.value) == "docs/one.c:3: long\ndocs/one.c:9: long\nthree.py:1: empty"
    assert_no_faults(paths[1:2], lambda path: faults[path.name])


def test_to_have_checked_no_file_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="no files"):
        assert_no_faults([], lambda path: [])


def test_lines_are_counted_from_one() -> None:
    text = "one\ntwo\n\nfour"
    assert [line_at(text, text.index(word)) for word in ("one", "two", "four")] == [1, 2, 4]
    assert line_at(text, 3) == 1, "a line's end is the line's"
