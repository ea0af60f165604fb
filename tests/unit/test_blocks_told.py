"""The words on a job's block records: in its result's notes, and in `testbed status`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from testbed.systems.trio.counts import AbsenceStatus, BlocksStatus

SOME = BlocksStatus(made=200, active=3, without={"1": 10, "u1r2": 1}, left=())
NONE = BlocksStatus(made=200, active=0, without={}, left=())


def test_who_was_left_out_is_said_with_a_share() -> None:
    assert SOME.notes() == [
        "of 200 blocks and votes some were sent without worker 1 10 (5.0%), u1r2 1 (0.5%)",
        "3 block records were left without a result",
    ]
    assert SOME.lines() == [
        "200 blocks and votes, 3 under way, some without worker 1 10 (5.0%), u1r2 1 (0.5%)"
    ]


def test_nothing_is_said_where_all_were_in_all() -> None:
    assert NONE.notes() == []
    assert NONE.lines() == ["200 blocks and votes, 0 under way"]
    assert NONE.absent() == 0


def test_who_left_is_said_and_for_how_long() -> None:
    was = AbsenceStatus("worker 2", (2,), "u1", events=3, left_s=1.0, back_s=3.5, blocks=60)
    blocks = replace(NONE, left=(was, replace(was, left_s=9.0, back_s=None, blocks=None)))
    lines = [
        "worker 2 left u1 after 3 looks in vain, and was back 2.50 s later; 60 blocks and votes went on "
        "without it",
        "worker 2 left u1 after 3 looks in vain, and did not come back",
    ]
    assert blocks.notes() == lines
    assert blocks.lines() == ["200 blocks and votes, 0 under way", *lines]
    assert blocks.absent() == 1


def test_a_status_is_read_without_any_system_or_program() -> None:
    """A command that only shows a job does not wait for the imports of all systems."""
    code = (
        "import sys\n"
        "from testbed.plugins.counts import counts_types\n"
        "assert [kind.__name__ for kind in counts_types()] == ['BlocksStatus']\n"
        "print(*(name for name in sys.modules if name.startswith('testbed.systems.')))"
    )
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert imported.split() == ["testbed.systems.trio", "testbed.systems.trio.counts"]
