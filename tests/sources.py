"""Checks of the text of files: one test for a rule, which lists every breach in every file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def assert_no_faults(paths: Sequence[Path], faults_of: Callable[[Path], Iterable[str]]) -> None:
    """Fail with a line `FILE:FAULT` for each fault that `faults_of` has of a file; a fault begins with the
    number of its line. Fail where there is no file, too: then nothing was checked.
    """
    __tracebackhide__ = True
    assert paths, "no files"
    faults = [f"{path.relative_to(ROOT)}:{fault}" for path in paths for fault in faults_of(path)]
    assert not faults, "\n".join(faults)


def line_at(text: str, offset: int) -> int:
    """Return the number of the line in which the character at this offset stands."""
    return text.count("\n", 0, offset) + 1
