"""The block records of a P4 switch: the rows of trees, the terms in the program's order, and which marks are
due for a tick.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from testbed.aggregation.entries import Entry
from testbed.aggregation.segments import NoRoomError
from testbed.dataplanes.bmv2 import program
from testbed.systems.trio.bmv2.records import BlockRow, Rows, row_for, terms_data
from testbed.systems.trio.bmv2.timers import BLOCK_SHIFT, SLOT_SHIFT, SeenMarks, TimedTree
from testbed.systems.trio.contract import KEPT_WINDOWS, P4_RECORDS, P4_TERMS, P4_WINDOW, VOTE_WINDOW
from testbed.systems.trio.terms import BlockTerms
from tests.vectors.blocks import job, terms

ROW = BlockRow(8, 32, 8)


def usual(window: int = P4_WINDOW) -> BlockTerms:
    """Return what a job with such a window has."""
    kept = KEPT_WINDOWS * window, KEPT_WINDOWS * VOTE_WINDOW
    return terms(window=(window, VOTE_WINDOW), kept=kept)


@pytest.mark.parametrize(
    ("window", "kept", "records"), [(8, 24, 32), (8, 25, 64), (1, 1, 2), (102, 408, 512)]
)
def test_no_two_blocks_of_a_span_meet_in_a_row(window: int, kept: int, records: int) -> None:
    row = row_for(terms(window=(window, 2), kept=(kept, 4)), 7)
    assert row == BlockRow(7, records, 8)
    assert row.end == 7 + records + 8
    for floor in (0, 5, 2**32 - 3):  # block numbers come round
        met = {(floor + beyond) % 2**32 & records - 1 for beyond in range(window + kept)}
        assert len(met) == window + kept


def test_three_jobs_have_room() -> None:
    rows = Rows()
    taken = [rows.take((job, 0), usual()) for job in (1, 2, 3)]
    spans = [record for row in taken for record in range(row.first, row.end)]
    assert len(spans) == len(set(spans))
    assert max(spans) < P4_RECORDS
    with pytest.raises(NoRoomError, match=r"^640 block records in a row .* job 1 \(640\), job 2 \(640\)"):
        rows.take((4, 0), usual())
    rows.free((2, 0))
    rows.free((9, 0))
    assert rows.take((4, 0), usual()).first == taken[1].first
    assert rows.of((2, 0)) is None


def test_the_largest_window_has_room_and_no_larger_one() -> None:
    most = P4_RECORDS // (KEPT_WINDOWS + 1) // 2
    Rows().take((1, 0), usual(most))
    with pytest.raises(NoRoomError, match=r"no jobs$"):
        Rows().take((1, 0), usual(2 * most + 2))


def test_terms_in_the_order_of_the_programs_parameters() -> None:
    loaded = json.loads(program.compiled("wide", 1500).read_text())
    (action,) = (action for action in loaded["actions"] if action["name"] == "set_terms")
    names = [parameter["name"] for parameter in action["runtime_data"]]
    widths = [parameter["bitwidth"] for parameter in action["runtime_data"]]
    assert [(field.name, field.bits) for field in P4_TERMS] == list(zip(names, widths, strict=True))
    made = terms(cap=3, window=(5, 6), kept=(10, 20), ahead=(7, 9))
    data = dict(zip(names, terms_data(made, 2, ROW), strict=True))
    assert data == {
        **{"record": 2, "sources": 128, "data": 10, "cap": 3, "first": 8, "mask": 31, "vote_first": 40},
        **{"vote_mask": 7, "window": 5, "vote_window": 6, "reach": 15, "vote_reach": 26},
        **{"ahead": 7, "vote_ahead": 9},
    }


def timed(age_out_ms: float = 10.0, number: int = 4, row: BlockRow = ROW) -> TimedTree:
    made: Entry = job(3, terms=terms(age_out_ms=age_out_ms))
    return TimedTree(number, made, row)


def marks(**waiting: tuple[int, int, int]) -> list[int]:
    """Return all marks: `m12=(block, slot, sources)` says what waits in record 12."""
    said = [0] * P4_RECORDS
    for name, (block, slot, sources) in waiting.items():
        said[int(name[1:])] = block << BLOCK_SHIFT | slot << SLOT_SHIFT | sources
    return said


def test_a_mark_that_does_not_change_for_a_timeout_is_ticked() -> None:
    seen, tree = SeenMarks(), timed()
    assert seen.due(marks(m12=(2**32 - 4, 60_000, 64)), 100.0, [tree]) == []
    assert seen.due(marks(m12=(2**32 - 4, 60_000, 64)), 100.009, [tree]) == []
    ((entry, tick),) = seen.due(marks(m12=(2**32 - 4, 60_000, 64)), 100.012, [tree])
    assert entry is tree.entry
    assert (tick.job, tick.generation, tick.tree) == (4, tree.entry.generation, 0)
    assert (tick.fragment, tick.slot, tick.sources, tick.age_ms) == (2**32 - 4, 60_000, 64, 12)


def test_a_further_contribution_sets_it_back() -> None:
    seen, trees = SeenMarks(), [timed()]
    seen.due(marks(m12=(4, 4, 1)), 1.0, trees)
    assert seen.due(marks(m12=(4, 4, 2)), 1.011, trees) == []
    assert seen.due(marks(m12=(4, 4, 2)), 1.020, trees) == []
    assert len(seen.due(marks(m12=(4, 4, 2)), 1.022, trees)) == 1
    assert seen.due(marks(), 1.030, trees) == []
    assert seen.due(marks(), 9.0, trees) == []


def test_a_block_does_not_inherit_the_wait_of_a_gone_job() -> None:
    seen, tree = SeenMarks(), timed()
    seen.due(marks(m12=(4, 4, 1)), 1.0, [tree])
    again = replace(tree, entry=replace(tree.entry, generation=tree.entry.generation + 1))
    assert seen.due(marks(m12=(4, 4, 1)), 1.011, [again]) == []
    assert len(seen.due(marks(m12=(4, 4, 1)), 1.022, [again])) == 1


def test_a_tick_comes_again_twice_as_seldom_each_time() -> None:
    seen, trees, came = SeenMarks(), [timed()], []
    for ms in range(400):
        if seen.due(marks(m12=(4, 4, 1)), 5 + ms / 1e3, trees):
            came.append(ms)
    waited = [after - before for before, after in itertools.pairwise(came)]
    assert 10 <= came[0] <= 11
    assert len(came) >= 4
    assert all(1.8 * before <= after <= 2.2 * before for before, after in itertools.pairwise(waited))


def test_each_tree_has_its_own_timeout_and_no_other_is_ticked() -> None:
    seen = SeenMarks()
    slow = timed(50.0, 5, replace(ROW, first=48))
    said = marks(m12=(1, 1, 1), m50=(2, 2, 1), m90=(3, 3, 1))
    assert seen.due(said, 1.0, [timed(), slow]) == []
    assert [tick.job for _, tick in seen.due(said, 1.02, [timed(), slow])] == [4]
    assert [tick.job for _, tick in seen.due(said, 1.06, [slow])] == [5]
