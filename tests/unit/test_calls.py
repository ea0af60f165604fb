"""The tables of workers' calls: what is read of them, the words on calls that disagree, torch's numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from testbed.wire import calls
from testbed.wire.calls import CALL, TABLE, Call, CollectiveKind, Operation, Tables

GROUP = 0x5EED
OLDER = {
    **{"Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64"},
    **{"Half": "float16", "Float": "float32", "Double": "float64", "ComplexHalf": "complex32"},
    **{"ComplexFloat": "complex64", "ComplexDouble": "complex128"},
}
BARRIER = calls.what(CollectiveKind.BARRIER)
FLOAT32, FLOAT64 = 6, 7


def tables_of(workers: int) -> Tables:
    return Tables(np.zeros(workers * TABLE.dtype().itemsize, np.uint8))


def ask(
    tables: Tables,
    rank: int,
    number: int,
    what: int,
    elements: int = 0,
    group: int = GROUP,
    waits: bool = True,
) -> Call:
    """Write a call as the compiled backend does."""
    columns = tables._columns
    at = calls.place(group, number)
    columns.calls[rank].reshape(calls.ENTRIES, len(CALL.members))[at] = number, group, what, elements, 7
    columns.last[rank] = at + 1
    columns.waits[rank] = at + 1 if waits else 0
    return Call(number, group, what, elements, 7)


def broadcast(root: int = 0, type_: int = FLOAT32) -> int:
    return calls.what(CollectiveKind.BROADCAST, type_=type_, root=root)


def test_what_a_worker_asked_for_is_found_by_its_number_until_it_is_overwritten() -> None:
    tables = tables_of(2)
    first = ask(tables, 1, 1, BARRIER)
    assert tables.call(1, GROUP, 1) == tables.last(1) == first
    assert tables.awaited(1) == (first, 0)
    assert tables.call(0, GROUP, 1) is None
    assert tables.call(1, GROUP + 1, 1) is None, "of another group"
    later = ask(tables, 1, 1 + calls.ENTRIES, BARRIER, waits=False)
    assert tables.call(1, GROUP, 1) is None
    assert tables.last(1) == later
    assert tables.awaited(1) is None


@pytest.mark.parametrize(
    ("what", "elements", "words"),
    [
        (broadcast(), 16, "broadcast of 16 float32 from worker 0"),
        (BARRIER, 0, "barrier"),
        (calls.what(CollectiveKind.ALL_REDUCE, Operation.SUM, FLOAT64), 3, "all_reduce of 3 float64"),
        (calls.what(CollectiveKind.ALL_REDUCE, Operation.MAX, FLOAT32), 3, "all_reduce (MAX) of 3 float32"),
        (calls.what(CollectiveKind.ALL_GATHER, type_=FLOAT32), 0, "all_gather of float32"),
        (calls.what(CollectiveKind.ALL_REDUCE, 77, 200), 1, "all_reduce (unknown) of 1 type 200"),
        (99, 0, "collective of kind 99"),
    ],
)
def test_a_call_is_told_as_the_script_would_call_it(what: int, elements: int, words: str) -> None:
    assert Call(1, GROUP, what, elements, 0).in_words() == words


def test_texts_are_read_without_what_a_terminal_would_carry_out_and_only_of_their_call() -> None:
    tables = tables_of(2)
    call = ask(tables, 0, 5, BARRIER)
    tables.say_where(0, call, "a\x1b]0;b:3")
    assert tables.where(0, call) == "a?]0;b:3"
    assert tables.where(0, Call(6, GROUP, BARRIER, 0, 0)) == ""
    assert tables.where(1, call) == ""
    tables.say_at(1, "x" * 500 + ".py:7", "recv", 0)
    assert tables.line(1) == ("x" * 500 + ".py:7")[-(calls.WHERE_BYTES - 1) :]
    assert tables.inside(1) == "", "it is in no function"
    tables.say_at(1, "t.py:7", "recv", 9)
    assert (tables.line(1), tables.inside(1)) == ("t.py:7", "recv")
    tables.say_meets(1, "tcp://somewhere")
    assert (tables.meets(1), tables.meets(0)) == ("tcp://somewhere", "")


def test_all_sides_of_a_disagreement_are_told() -> None:
    asked = {
        0: Call(9, GROUP, broadcast(), 16, 0),
        1: Call(9, GROUP, BARRIER, 0, 0),
        2: Call(9, GROUP, BARRIER, 0, 0),
    }
    assert calls.disagreement(asked, {0: "val.py:14", 1: "val.py:15", 2: "val.py:15"}) == (
        "worker 0 asks for broadcast of 16 float32 from worker 0 (collective 9, val.py:14), "
        "workers 1, 2 for barrier (collective 9, val.py:15): they do not ask for the same"
    )


def test_a_disagreement_of_many_workers_stays_a_line() -> None:
    asked = {rank: Call(9, GROUP, broadcast(rank), 16, 0) for rank in range(64)}
    assert calls.disagreement(asked, {}).endswith(
        "worker 7 for broadcast of 16 float32 from worker 7 (collective 9), and so on (56 more): "
        "they do not ask for the same"
    )


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([3], "worker 3"),
        ([0, 1], "workers 0, 1"),
        (range(64), "workers 0 to 63"),
        ([5, 0, 1, 2, 7, 8], "workers 0 to 2, 5, 7, 8"),
        (range(0, 40, 2), "workers 0, 2, 4, 6, 8, 10 and 14 others"),
    ],
)
def test_workers_are_told_by_their_ranks(ranks: list[int], words: str) -> None:
    assert calls.workers_in_words(ranks) == words


def test_the_pulse_changes_when_a_running_worker_goes_on() -> None:
    tables = tables_of(2)
    both, none = np.array([True, True]), np.array([False, False])
    ask(tables, 0, 1, BARRIER)
    ask(tables, 1, 1, BARRIER, waits=False)
    tables.say_at(1, "t.py:7", "recv", 9)
    beat, waits = tables.pulse(both, none)
    assert waits
    tables.say_at(0, "t.py:9", "barrier", 11)
    assert tables.pulse(both, none) == (beat, waits), "who waits for a call does so wherever it is"
    tables.say_at(1, "t.py:8", "recv", 12)
    assert tables.pulse(both, none)[0] != beat
    assert not tables.pulse(none, none)[1], "who has ended waits for nothing"
    ask(tables, 0, 2, BARRIER, waits=False)
    tables.say_at(0, "t.py:10", "", 0)
    assert tables.pulse(np.array([True, False]), none)[1] is False


def test_types_are_numbered_as_torch_numbers_them() -> None:
    """Torch's header has them in their order, by names of which the older ones are not Python's."""
    header = (Path(torch.__file__).parent / "include/torch/headeronly/core/ScalarType.h").read_text()
    _, _, table = header.partition("#define AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(_)")
    theirs = re.findall(r"_\(.*?, (\w+)\) *\\?/\* (\d+) \*/", table.partition("\n\n")[0])
    names = {int(number): OLDER.get(name, name.lower()) for name, number in theirs}
    assert len(names) > 40
    assert {number: names[number] for number in calls.TYPES} == dict(calls.TYPES)
    assert all(isinstance(getattr(torch, name), torch.dtype) for name in calls.TYPES.values())


def test_operations_are_numbered_as_torch_numbers_them() -> None:
    theirs: Any = dist.ReduceOp.RedOpType.__members__  # type: ignore[attr-defined]
    assert {name: int(kind) + 1 for name, kind in theirs.items() if name != "UNUSED"} == {
        operation.name: int(operation) for operation in Operation
    }
