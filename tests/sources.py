"""Checks of the text of files: one test for each rule, which lists every breach in every file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def assert_no_faults(paths: Sequence[Path], faults_of: Callable[[Path], Iterable[str]]) -> None:
    """Fail with a line `FILE:FAULT` for each fault that `faults_of` returns for a file; a fault begins with
    its line number. Fail also if there is no file, since then nothing was checked.
    """
    __tracebackhide__ = True
    assert paths, "no files"
    faults = [f"{path.relative_to(ROOT)}:{fault}" for path in paths for fault in faults_of(path)]
    assert not faults, "\n".join(faults)


def line_at(text: str, offset: int) -> int:
    """Return the number of the line of the character at this offset."""
    return text.count("\n", 0, offset) + 1
