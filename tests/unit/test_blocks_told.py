"""The words on a job's block records: in its result's notes, and in `testbed status`."""

from __future__ import annotations

from dataclasses import replace

from testbed.jobs.result import notes_of_blocks
from testbed.messages.jobs import AbsenceStatus, BlocksStatus
from testbed.status import blocks_lines

SOME = BlocksStatus(made=200, active=3, without={"1": 10, "u1r2": 1}, left=())
NONE = BlocksStatus(made=200, active=0, without={}, left=())


def test_who_was_left_out_is_said_with_a_share() -> None:
    assert notes_of_blocks(SOME) == [
        "of 200 blocks and votes some were sent without worker 1 10 (5.0%), u1r2 1 (0.5%)",
        "3 block records were left without a result",
    ]
    assert blocks_lines(SOME) == [
        "200 blocks and votes, 3 under way, some without worker 1 10 (5.0%), u1r2 1 (0.5%)"
    ]


def test_nothing_is_said_where_all_were_in_all() -> None:
    assert notes_of_blocks(NONE) == []
    assert blocks_lines(NONE) == ["200 blocks and votes, 0 under way"]
    assert blocks_lines(None) == []


def test_who_left_is_said_and_for_how_long() -> None:
    was = AbsenceStatus("worker 2", (2,), "u1", events=3, left_s=1.0, back_s=3.5, blocks=60)
    blocks = replace(NONE, left=(was, replace(was, left_s=9.0, back_s=None, blocks=None)))
    lines = [
        "worker 2 left u1 after 3 looks in vain, and was back 2.50 s later; 60 blocks and votes went on "
        "without it",
        "worker 2 left u1 after 3 looks in vain, and did not come back",
    ]
    assert notes_of_blocks(blocks) == lines
    assert blocks_lines(blocks) == ["200 blocks and votes, 0 under way", *lines]
