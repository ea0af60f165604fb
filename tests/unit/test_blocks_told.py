"""The words on a job's block records: in its result's notes, and in `testbed status`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace

import pytest

from testbed.aggregation.counts import ProgramCounts
from testbed.errors import TestbedError
from testbed.messages.jobs import WrittenCounts
from testbed.plugins import counts
from testbed.systems.trio.counts import AbsenceStatus, BlocksStatus
from tests.limits import CALL_S
from tests.unit import page_world

SOME = BlocksStatus(made=200, active=3, without={"1": 10, "u1r2": 1}, left=())
NONE = BlocksStatus(made=200, active=0, without={}, left=())
ABSENCE = AbsenceStatus("worker 2", (2,), "u1", events=3, left_s=1.0, back_s=3.5, blocks=60)


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
    blocks = replace(NONE, left=(ABSENCE, replace(ABSENCE, left_s=9.0, back_s=None, blocks=None)))
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
    imported = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=CALL_S
    ).stdout
    assert imported.split() == ["testbed.systems.trio", "testbed.systems.trio.counts"]


@dataclass(frozen=True, slots=True)
class Beats(ProgramCounts):
    """Counts of another system's program."""

    beats: int

    def lines(self) -> list[str]:
        return [f"{self.beats} beats"]

    def notes(self) -> list[str]:
        return []

    def absent(self) -> int:
        return 0


def test_counts_are_read_by_the_type_that_has_their_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "counts_types", lambda: (Beats, BlocksStatus))
    (job,) = page_world.read(page_world.status()).jobs
    for each in (Beats(3), SOME, replace(NONE, left=(ABSENCE,))):
        assert counts.checked(each, 7) == each
        assert counts.counts_of(replace(job, blocks=counts.written(each))) == each
    assert counts.counts_of(job) is None
    with pytest.raises(TestbedError, match=r"^job 7: its program counts dict, not Beats or BlocksStatus$"):
        counts.checked({}, 7)
    with pytest.raises(
        TestbedError, match=f"^job {job.id}: its program's counts: not as this version has it"
    ):
        counts.counts_of(replace(job, blocks=WrittenCounts({"made": "many"})))
