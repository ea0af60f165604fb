"""Segments of a switch's slots, and the mapping of fragments to slots."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.aggregation.segments import NoRoomError, Segments
from testbed.wire.mapping import places


def test_segments_do_not_overlap_and_freed_ones_are_used_again_whole_or_joined() -> None:
    segments = Segments(slots=128, jobs=8)
    assert [segments.take((job, 0), 32) for job in (1, 2, 3, 4)] == [0, 32, 64, 96]
    segments.free((2, 0))
    assert segments.take((5, 0), 16) == 32
    assert segments.take((6, 0), 16) == 48
    segments.free((5, 0))
    segments.free((6, 0))
    segments.free((3, 0))
    assert segments.take((7, 0), 64) == 32


def test_a_segment_that_does_not_fit_is_refused_with_who_holds_what() -> None:
    segments = Segments(slots=128, jobs=8)
    segments.take((1, 0), 60)
    segments.take((2, 0), 30)
    segments.free((1, 0))
    with pytest.raises(
        NoRoomError, match=r"no 61 of its 128 slots in a row are free: job 2 \(30 slots\); .* 60"
    ):
        segments.take((3, 0), 61)
    assert segments.taken() == {(2, 0): (60, 30)}


def test_a_switch_takes_so_many_jobs_and_no_more() -> None:
    segments = Segments(slots=128, jobs=2)
    segments.take((1, 0), 32)
    segments.take((2, 0), 32)
    with pytest.raises(NoRoomError, match="2 jobs at most"):
        segments.take((3, 0), 32)
    segments.free((1, 0))
    assert segments.take((3, 0), 32) == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=60))
def test_held_segments_never_overlap(steps: list[tuple[bool, int]]) -> None:
    segments = Segments(slots=101, jobs=7)
    for job, (take, size) in enumerate(steps):
        if not take:
            segments.free((size % (job + 1), 0))
            continue
        try:
            segments.take((job, 0), size)
        except NoRoomError:
            continue
    held = sorted(segments.taken().values())
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(held))
    assert all(base >= 0 and base + size <= 101 for base, size in held)


@given(st.integers(0, 65535), st.integers(1, 1024))
def test_places_are_a_permutation(job: int, size: int) -> None:
    assert np.array_equal(np.sort(places(job, size)), np.arange(size))


def test_jobs_have_different_permutations() -> None:
    assert not np.array_equal(places(1, 97), places(2, 97))
