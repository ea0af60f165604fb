"""The words on a job's block records: in its result's notes, and in `testbed status`."""

from __future__ import annotations

from testbed.jobs.result import notes_of_blocks
from testbed.status import blocks_lines

SOME = {"made": 200, "active": 3, "without": {"1": 10, "u1r2": 1}}
NONE = {"made": 200, "active": 0, "without": {}}


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
