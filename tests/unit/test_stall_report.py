"""The account of a job that stands still: each worker's wait in its script's words, and what is certain."""

from __future__ import annotations

import pytest

from testbed.jobs.board import GroupState
from testbed.jobs.stall_report import NOT_THE_SAME, OTHER_GROUPS, THE_NETWORK, Activity, account
from testbed.wire import calls
from testbed.wire.calls import CollectiveKind, Operation, Tables
from tests.unit.test_calls import BARRIER, FLOAT32, FLOAT64, ask, broadcast, tables_of

SUM = calls.what(CollectiveKind.ALL_REDUCE, Operation.SUM, FLOAT32)


def member(rank: int, asked: int = 9, runs: bool = True, acts: str = "") -> Activity:
    return Activity(rank, GroupState.JOINED, asked, 0, runs, acts)


def at(tables: Tables, rank: int, number: int, what: int, line: str, elements: int = 0) -> None:
    tables.say_where(rank, ask(tables, rank, number, what, elements), line)


def test_workers_that_ask_for_different_things_are_told_as_their_scripts_ask() -> None:
    tables = tables_of(2)
    ask(tables, 0, 8, broadcast(), 16)  # a root waits for nobody
    at(tables, 0, 9, broadcast(), "val.py:14", 16)
    at(tables, 1, 8, BARRIER, "val.py:15")
    assert account([member(0), member(1)], tables) == (
        "worker 0 waits in broadcast of 16 float32 from worker 0 (collective 9, val.py:14), "
        f"worker 1 in barrier (collective 8, val.py:15): {NOT_THE_SAME}"
    )


@pytest.mark.parametrize(
    ("theirs", "elements"),
    [
        (calls.what(CollectiveKind.ALL_REDUCE, Operation.AVG, FLOAT32), 100),
        (calls.what(CollectiveKind.ALL_REDUCE, Operation.SUM, FLOAT64), 100),
        (SUM, 101),
        (broadcast(1), 100),
        (BARRIER, 0),
    ],
)
def test_each_difference_is_certain(theirs: int, elements: int) -> None:
    tables = tables_of(2)
    at(tables, 0, 3, SUM, "t.py:3", 100)
    at(tables, 1, 3, theirs, "t.py:3", elements)
    assert account([member(0), member(1)], tables).endswith(f": {NOT_THE_SAME}")


def test_many_that_wait_for_the_same_are_one_side() -> None:
    tables = tables_of(64)
    for rank in range(64):
        at(tables, rank, 3, SUM, "t.py:3", 100)
    assert account([member(rank) for rank in range(64)], tables) == (
        f"workers 0 to 63 wait in all_reduce of 100 float32 (collective 3, t.py:3): {THE_NETWORK}"
    )


def test_who_does_not_wait_is_told_too_and_nothing_is_certain_then() -> None:
    tables = tables_of(5)
    at(tables, 0, 8, SUM, "t.py:3", 100)
    for rank, line in enumerate(("t.py:40", "t.py:41", "t.py:42"), 1):
        tables.say_at(rank, line, "recv" if rank == 3 else "", 7 if rank == 3 else 0)
    members = [
        member(0),
        member(1, 7, acts="running"),
        member(2, 7, acts="sleeping"),
        member(3, 7),
        member(4, 7, runs=False),
    ]
    assert account(members, tables) == (
        "worker 0 waits in all_reduce of 100 float32 (collective 8, t.py:3), "
        "worker 1 computes since collective 7 (t.py:40), worker 2 sleeps since collective 7 (t.py:41), "
        "worker 3 waits in recv (t.py:42), worker 4 has ended"
    )


def test_groups_are_told_apart_where_several_are_waited_in() -> None:
    tables = tables_of(2)
    ask(tables, 0, 4, SUM, 100, group=1)
    ask(tables, 1, 2, SUM, 100, group=2)
    assert account([member(0), member(1)], tables) == (
        "worker 0 waits in all_reduce of 100 float32 (collective 4, group 1), "
        f"worker 1 in all_reduce of 100 float32 (collective 2, group 2): {OTHER_GROUPS}"
    )


def test_a_doubt_of_a_worker_is_certain_though_all_have_gone_on() -> None:
    tables = tables_of(2)
    ask(tables, 0, 4, SUM, 100)
    ask(tables, 1, 4, BARRIER)
    for rank in range(2):
        at(tables, rank, 5, BARRIER, "t.py:9")
    assert account([member(0), member(1)], tables).endswith(THE_NETWORK), "nobody has found out"
    tables._columns.doubt_group[0], tables._columns.doubt_number[0] = 0x5EED, 4
    assert account([member(0), member(1)], tables).endswith(NOT_THE_SAME)


def test_without_tables_the_job_board_is_told() -> None:
    members = [Activity(0, GroupState.JOINED, 9, 9, True), Activity(1, GroupState.ALONE, 0, 0, True)]
    assert account(members, None) == (
        "worker 0 waits in collective 9, worker 1 has not joined the process group"
    )
