"""Coflow traces, read. Owns the format of the Coflow-Benchmark; the file is the user's, none comes with the
project.

The format (FB2010-1Hr-150-0.txt) is words separated by blanks:

    150 526                                  racks, numbered from 0, and coflows, of which each has a line
    4 15531 3 13 16 17 2 0:648.0 1:972.0     coflow 4 arrives after 15531 ms; 3 mappers, in racks 13, 16 and
                                             17; 2 reducers, in racks 0 and 1, that receive 648 and 972 MB

The original has merged the tasks of a coflow in a rack into one mapper and one reducer. Lines are in the
order of arrival.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import RequestError


@dataclass(frozen=True, slots=True)
class Coflow:
    """A shuffle from mappers in some racks to reducers in some racks; `reducers` are (rack, MB received)."""

    id: int
    arrival_ms: float
    mappers: tuple[int, ...]
    reducers: tuple[tuple[int, float], ...]

    @property
    def megabytes(self) -> float:
        return math.fsum(megabytes for _, megabytes in self.reducers)


def load(path: Path) -> tuple[Coflow, ...]:
    """Read all coflows of a file. RequestError names the file, the line, what was found and what is
    accepted.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}; a coflow trace is accepted") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: byte {error.start} is not text; a coflow trace is accepted") from error
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise RequestError(f"{path}: it is empty; a coflow trace is accepted, its first line RACKS COFLOWS")
    head = _Line(path, 1, lines[0])
    racks, coflows = head.whole("the number of racks", 1), head.whole("the number of coflows", 1)
    head.end()
    if len(lines) - 1 != coflows:
        raise RequestError(
            f"{path}: line 1: {coflows} coflows, and {len(lines) - 1} lines follow; a line each is accepted"
        )
    read: list[Coflow] = []
    seen: dict[int, int] = {}
    for number, text in enumerate(lines[1:], 2):
        coflow = _coflow(_Line(path, number, text), racks)
        if coflow.id in seen:
            raise RequestError(
                f"{path}: line {number}: coflow {coflow.id} is in line {seen[coflow.id]}; each id once is "
                f"accepted"
            )
        if read and coflow.arrival_ms < read[-1].arrival_ms:
            before = read[-1].arrival_ms
            raise RequestError(
                f"{path}: line {number}: arrival {coflow.arrival_ms:g} ms; at least the {before:g} ms of the "
                f"line before is accepted"
            )
        seen[coflow.id] = number
        read.append(coflow)
    return tuple(read)


def _coflow(line: _Line, racks: int) -> Coflow:
    id_ = line.whole("the coflow's id", 0)
    arrival_ms = line.number("its arrival in ms")
    mappers = tuple(
        line.rack(line.word("a mapper's rack"), racks) for _ in range(line.whole("its number of mappers", 1))
    )
    reducers = tuple(line.reducer(racks) for _ in range(line.whole("its number of reducers", 1)))
    line.end()
    return Coflow(id_, arrival_ms, mappers, reducers)


class _Line:
    """The words of a line, read one after the other."""

    def __init__(self, path: Path, number: int, text: str) -> None:
        self._at, self._words, self._next = f"{path}: line {number}", text.split(), 0

    def word(self, what: str) -> str:
        if self._next == len(self._words):
            raise RequestError(
                f"{self._at}: it ends after {self._next} words, before {what}; the line is cut short, or a "
                f"count in it wrong"
            )
        self._next += 1
        return self._words[self._next - 1]

    def _wrong(self, word: str, what: str, accepted: str) -> RequestError:
        return RequestError(f"{self._at}: word {self._next}, {what}: {word!r}; {accepted} is accepted")

    def whole(self, what: str, least: int) -> int:
        word = self.word(what)
        if not _is_whole(word) or int(word) < least:
            raise self._wrong(word, what, f"a whole number of at least {least}")
        return int(word)

    def number(self, what: str) -> float:
        word = self.word(what)
        value = _float(word)
        if value is None:
            raise self._wrong(word, what, "a number of at least 0")
        return value

    def rack(self, word: str, racks: int) -> int:
        if not _is_whole(word) or int(word) >= racks:
            raise self._wrong(word, "a rack", f"0 to {racks - 1}")
        return int(word)

    def reducer(self, racks: int) -> tuple[int, float]:
        word = self.word("a reducer's RACK:MB")
        rack, colon, size = word.partition(":")
        megabytes = _float(size)
        if not colon or not megabytes:
            raise self._wrong(word, "a reducer", "RACK:MB, with more than 0 MB,")
        return self.rack(rack, racks), megabytes

    def end(self) -> None:
        left = len(self._words) - self._next
        if left:
            word = self._words[self._next]
            raise RequestError(
                f"{self._at}: {left} words too many, the first {word!r}; the end of the line is accepted "
                f"there"
            )


def _is_whole(word: str) -> bool:
    return word.isdigit() and len(word) < 16


def _float(word: str) -> float | None:
    """Parse a finite number of at least 0; None for anything else."""
    try:
        value = float(word)
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None
