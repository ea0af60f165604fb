"""The calls of a job: the collectives that each worker's script recently asked for, and the one it waits for.

Each worker has a table behind the records of the job board (testbed/jobs/board.py). Its compiled backend
writes the table (workloads/native/calls.hpp); all other workers and the launcher read it in place. A call's
index follows from its group and number, so workers find each other's calls of the same number without a
search. Pure: the layout, and its texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from testbed.wire.numbers import Choice, Number, named
from testbed.wire.records import Column, Kind, Member, Record, columns, members

U8, U64 = Kind.U8, Kind.U64

ENTRIES: Final = 64  # in a table: a power of two
WHERE_BYTES: Final = 96
INSIDE_BYTES: Final = 32
MEETS_BYTES: Final = 192
_MOST_RANGES = 6  # ranges of ranks in a text
_MOST_SIDES = 8
MOST_ROWS: Final = 60_000  # in a timeline, which ends there: it covers the time until then


class CollectiveKind(Choice):
    """The kind of a collective; torch's name in capitals."""

    ALL_REDUCE = 1
    BROADCAST = 2
    REDUCE = 3
    ALL_GATHER = 4
    GATHER = 5
    SCATTER = 6
    REDUCE_SCATTER = 7
    ALL_TO_ALL = 8
    BARRIER = 9


class Operation(Choice):
    """The reduction of values, numbered as c10d's ReduceOp, from 1; 0: none."""

    SUM = 1
    AVG = 2
    PRODUCT = 3
    MIN = 4
    MAX = 5
    BAND = 6
    BOR = 7
    BXOR = 8
    PREMUL_SUM = 9


class Deed(Choice):
    """The script's action in a row of a timeline."""

    ASKED = 0
    WAITED = 1
    RESUMED = 2


class Course(Choice):
    """A collective's kind in a timeline."""

    BESIDE = 0, "by gloo beside the sums, or carried beside them"
    SUMMED = 1, "by the job's own kind of synchronisation"
    PULLED = 2, "from a tree's owner"
    PUSHED = 3, "to it"
    CALLED = 4, "an answer of its"


TYPES: Final[Mapping[int, str]] = {
    **{0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32"},
    **{7: "float64", 8: "complex32", 9: "complex64", 10: "complex128", 11: "bool", 15: "bfloat16"},
    **{23: "float8_e5m2", 24: "float8_e4m3fn", 25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz"},
    **{27: "uint16", 28: "uint32", 29: "uint64", 44: "float8_e8m0fnu"},
}
"""Torch's types by c10's numbers."""
KIND_BITS, OPERATION_BITS, TYPE_BITS, ROOT_BITS = 8, 8, 8, 16
_OPERATION_SHIFT, _TYPE_SHIFT, _ROOT_SHIFT = 8, 16, 24

NUMBERS = (
    Number("CALL_ENTRIES", ENTRIES, 32, "of a worker's table"),
    Number("CALL_WHERE_BYTES", WHERE_BYTES, 32),
    Number("ROWS_MOST", MOST_ROWS, 32, "of a timeline"),
    Number("CALL_OPERATION_SHIFT", _OPERATION_SHIFT, 32, "in `what`; the kind is below"),
    Number("CALL_TYPE_SHIFT", _TYPE_SHIFT, 32, "c10's number of the type, and 1; 0: none"),
    Number("CALL_ROOT_SHIFT", _ROOT_SHIFT, 32, "the root's number in its group, and 1; 0: none"),
    *named("CALL_", CollectiveKind, 32),
    *named("ROW_", Deed, 32),
    *named("COURSE_", Course, 32),
)

CALL = Record(
    "call",
    (
        Member("number", U64, "of all calls of its group, from 1; 0: being written; written last"),
        Member("group", U64, "a random word"),
        Member("what", U64, "kind, operation, type and root: the same on all workers"),
        Member("elements", U64, "likewise; 0 where workers may differ"),
        Member("asked_ns", U64, "by CLOCK_MONOTONIC"),
    ),
    "A collective that a script has asked for.",
)
TABLE = Record(
    "call_table",
    (
        Member("waits", U64, "the place of the call that the script waits for, from 1; 0: it waits for none"),
        Member("waits_ns", U64, "since when, by CLOCK_MONOTONIC"),
        Member("last", U64, "the place of its last call, from 1"),
        Member("doubt_group", U64, "the first call in which it found others to ask for something else"),
        Member("doubt_number", U64, "0: none; written last"),
        *members(U64, "where_group", "where_number"),
        Member("where", U8, "the script's line that waits for it: UTF-8, ended by 0", WHERE_BYTES),
        Member("calls", U64, "CALL_ENTRIES calls", ENTRIES * len(CALL.members)),
        # by the worker's watcher (workloads/waiting.py), texts as above
        Member("inside_ns", U64, "since when the script is in the function `inside`; 0: it is in none"),
        Member("inside", U8, "a function of torch.distributed", INSIDE_BYTES),
        Member("line", U8, "the script's present line", WHERE_BYTES),
        Member("meets", U8, "where it waits for its process group, and why there", MEETS_BYTES),
    ),
    "The calls of a worker. It alone writes here.",
)
RECORDS = (CALL, TABLE)


@dataclass(frozen=True, slots=True)
class Call:
    """A call, as in a table."""

    number: int
    group: int
    what: int
    elements: int
    asked_ns: int

    def _part(self, shift: int, bits: int) -> int:
        return self.what >> shift & (1 << bits) - 1

    @property
    def asks_for(self) -> tuple[int, int]:
        """The part on which all workers must agree."""
        return self.what, self.elements

    def in_words(self) -> str:
        """Return `broadcast of 16 float32 from worker 0`, as the script would call it."""
        kind, operation = self._part(0, KIND_BITS), self._part(_OPERATION_SHIFT, OPERATION_BITS)
        type_, root = self._part(_TYPE_SHIFT, TYPE_BITS), self._part(_ROOT_SHIFT, ROOT_BITS)
        words = (
            CollectiveKind(kind).name.lower()
            if kind in list(CollectiveKind)
            else f"collective of kind {kind}"
        )
        if operation and operation != Operation.SUM:
            words += f" ({Operation(operation).name})" if operation in list(Operation) else " (unknown)"
        if type_:
            count = f"{self.elements} " if self.elements else ""
            words += f" of {count}{TYPES.get(type_ - 1, f'type {type_ - 1}')}"
        return words + (f" from worker {root - 1}" if root else "")


def what(kind: CollectiveKind, operation: int = 0, type_: int | None = None, root: int | None = None) -> int:
    """Encode a call's `what`."""
    type_part = 0 if type_ is None else type_ + 1
    root_part = 0 if root is None else root + 1
    return (
        int(kind) + (operation << _OPERATION_SHIFT) + (type_part << _TYPE_SHIFT) + (root_part << _ROOT_SHIFT)
    )


def place(group: int, number: int) -> int:
    """Return the index of a call in every worker's table, from 0."""
    return (group + number) % ENTRIES


@dataclass(frozen=True, slots=True, eq=False)
class TableColumns:
    """The members of workers' tables (TABLE), each by rank."""

    waits: Column
    waits_ns: Column
    last: Column
    doubt_group: Column
    doubt_number: Column
    where_group: Column
    where_number: Column
    where: Column
    calls: Column
    inside_ns: Column
    inside: Column
    line: Column
    meets: Column


class Tables:
    """The tables of a job's workers, by rank, in memory written by others. Contents may be of any age, and
    arbitrary: only their form is relied upon.
    """

    def __init__(self, memory: npt.NDArray[np.uint8]) -> None:
        self._columns = columns(TableColumns, memory.view(TABLE.dtype()))

    def call(self, rank: int, group: int, number: int) -> Call | None:
        """Return a worker's call of this number; None if the worker has not asked for it, or too long ago."""
        call = self._at(rank, place(group, number))
        return call if call is not None and (call.group, call.number) == (group, number) else None

    def last(self, rank: int) -> Call | None:
        """Return a worker's latest call."""
        at = int(self._columns.last[rank])
        return self._at(rank, at - 1) if 0 < at <= ENTRIES else None

    def awaited(self, rank: int) -> tuple[Call, int] | None:
        """Return the call that a worker's script waits for, and since when, in ns; None if it waits
        for none.
        """
        at, since_ns = int(self._columns.waits[rank]), int(self._columns.waits_ns[rank])
        call = self._at(rank, at - 1) if 0 < at <= ENTRIES else None
        return None if call is None else (call, since_ns)

    def doubt(self) -> tuple[int, int] | None:
        """Return group and number of a call in which a worker saw others ask for something else, or None."""
        for rank in np.flatnonzero(self._columns.doubt_number):
            return int(self._columns.doubt_group[rank]), int(self._columns.doubt_number[rank])
        return None

    def where(self, rank: int, call: Call) -> str:
        """Return the script's line that waits for a call; "" if its worker has not written it."""
        of = self._columns
        if (int(of.where_group[rank]), int(of.where_number[rank])) != (call.group, call.number):
            return ""
        return _text(of.where[rank])

    def say_where(self, rank: int, call: Call, text: str) -> None:
        """Write the line that `where` returns. Only for the worker itself."""
        of = self._columns
        of.where_number[rank] = 0
        _say(of.where[rank], text)
        of.where_group[rank] = call.group
        of.where_number[rank] = call.number

    def line(self, rank: int) -> str:
        """Return the current line of a worker's script; "" if its worker has not written it."""
        return _text(self._columns.line[rank])

    def inside(self, rank: int) -> str:
        """Return the function of torch.distributed in which a worker's script is; "": none."""
        return _text(self._columns.inside[rank]) if self._columns.inside_ns[rank] else ""

    def meets(self, rank: int) -> str:
        """Return where a worker waits for its process group, and why there; "" if it does not wait."""
        return _text(self._columns.meets[rank])

    def say_at(self, rank: int, line: str, inside: str, inside_ns: int) -> None:
        """Write what `line` and `inside` return. Only for the worker itself. `inside_ns` 0: in no
        function.
        """
        of = self._columns
        of.inside_ns[rank] = 0
        _say(of.line[rank], line)
        _say(of.inside[rank], inside)
        of.inside_ns[rank] = inside_ns

    def say_meets(self, rank: int, text: str) -> None:
        """Write what `meets` returns. Only for the worker itself."""
        _say(self._columns.meets[rank], text)

    def waiting(self) -> frozenset[int]:
        """Return the workers whose scripts wait for a call."""
        return frozenset(map(int, np.flatnonzero(self._columns.waits)))

    def pulse(self, running: npt.NDArray[np.bool_], waiting: npt.NDArray[np.bool_]) -> tuple[bytes, bool]:
        """Return bytes that change whenever one of the running workers makes progress, and whether any of
        them waits. For workers known to be waiting, a change of function does not count.
        """
        of = self._columns
        waits = (of.waits != 0) & running
        inside_ns = np.where(waits | waiting | ~running, 0, of.inside_ns)
        parts = (of.last, of.waits, of.waits_ns, inside_ns)
        return b"".join(part.tobytes() for part in parts), bool(inside_ns.any() or waits.any())

    def asked(self, ranks: Sequence[int], group: int, number: int) -> dict[int, Call]:
        """Return the calls of this number, by rank, of the workers that have asked for it."""
        calls = ((rank, self.call(rank, group, number)) for rank in ranks)
        return {rank: call for rank, call in calls if call is not None}

    def _at(self, rank: int, at: int) -> Call | None:
        words = self._columns.calls[rank].reshape(ENTRIES, len(CALL.members))[at]
        call = Call(*(int(word) for word in words.copy()))
        return call if call.number and int(words[0]) == call.number else None


def _text(cells: Column) -> str:
    text = bytes(cells).split(b"\0", 1)[0].decode(errors="replace")
    return "".join(each if each.isprintable() else "?" for each in text)


def _say(cells: Column, text: str) -> None:
    """Write a text, shortened to its end."""
    line = text.encode(errors="replace")[-(len(cells) - 1) :].ljust(len(cells), b"\0")
    cells[:] = np.frombuffer(line, np.uint8)


def disagreement(calls: Mapping[int, Call], where: Mapping[int, str]) -> str:
    """Describe workers, by rank, that ask for different things at the same point: `worker 0 asks for
    broadcast of 16 float32 (collective 9, val.py:14), worker 1 for barrier (...): they do not ask for the
    same`. Workers with the same request are grouped.
    """
    sides: dict[tuple[tuple[int, int], str], list[int]] = {}
    for rank, call in sorted(calls.items()):
        sides.setdefault((call.asks_for, where.get(rank, "")), []).append(rank)
    number = next(iter(calls.values())).number
    phrases = list[str]()
    for (_, line), ranks in sides.items():
        verb = "" if phrases else ("asks " if len(ranks) == 1 else "ask ")
        at = f"collective {number}" + (f", {line}" if line else "")
        phrases.append(f"{workers_in_words(ranks)} {verb}for {calls[ranks[0]].in_words()} ({at})")
    return f"{sides_in_words(phrases)}: they do not ask for the same"


def workers_in_words(ranks: Iterable[int]) -> str:
    """Return `worker 3`, or `workers 0 to 5, 8`."""
    ranges = list[list[int]]()
    for rank in sorted(ranks):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return f"worker {ranges[0][0]}"
    words = [
        f"{first} to {last}" if last - first > 1 else ", ".join(map(str, sorted({first, last})))
        for first, last in ranges[:_MOST_RANGES]
    ]
    others = sum(last - first + 1 for first, last in ranges[_MOST_RANGES:])
    return f"workers {', '.join(words)}" + (f" and {others} others" if others else "")


def sides_in_words(sides: Sequence[str]) -> str:
    """Join the first sides, and say how many more there are."""
    others = len(sides) - _MOST_SIDES
    return ", ".join(sides[:_MOST_SIDES]) + (f", and so on ({others} more)" if others > 0 else "")
