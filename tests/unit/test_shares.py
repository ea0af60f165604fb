"""The shares of a place's table of block records: no bucket overflows, whoever has how much."""

from __future__ import annotations

import pytest

from testbed.aggregation.segments import NoRoomError
from testbed.systems.trio.contract import BUCKET, KEPT_WINDOWS, VOTE_WINDOW, buckets_for
from testbed.systems.trio.options import USUAL_WINDOW
from testbed.systems.trio.shares import Shares
from testbed.wire.spec import lanes_for
from tests.vectors.blocks import terms


def usual(window: int = USUAL_WINDOW) -> dict[str, tuple[int, int]]:
    """Return what a job with such a window has of a table."""
    return {
        "window": (window, VOTE_WINDOW),
        "kept": (KEPT_WINDOWS * window, KEPT_WINDOWS * VOTE_WINDOW),
    }


def test_a_share_is_what_the_blocks_of_a_span_can_have_in_a_bucket() -> None:
    assert terms(window=(8, 2), kept=(16, 4)).records(24) == 2
    assert terms(window=(8, 2), kept=(16, 4)).records(23) == 3
    assert terms(window=(8, 2), kept=(16, 4)).records(6) == 5


@pytest.mark.parametrize("mtu", [1500, 3490, 9000])
def test_four_jobs_have_room_at_any_mtu(mtu: int) -> None:
    buckets = buckets_for(lanes_for(mtu))
    shares = Shares(buckets)
    for job in range(1, 5):
        shares.take((job, 0), 1, terms(**usual(min(USUAL_WINDOW, buckets // (KEPT_WINDOWS + 1)))), False)
    assert shares.jobs() == 4
    with pytest.raises(NoRoomError, match=r"^2 of the 8 block records .* and 0 are free: job 1 \(2\), job 2"):
        shares.take((5, 0), 1, terms(**usual(100)), False)
    shares.free((2, 0))
    shares.free((9, 0))
    shares.take((5, 0), 1, terms(**usual(100)), False)


def test_a_share_that_does_not_fit_is_refused_and_takes_nothing() -> None:
    shares = Shares(4)
    with pytest.raises(NoRoomError, match=f"{BUCKET} are free: no jobs"):
        shares.take((1, 0), 1, terms(window=(8, 2), kept=(24, 4)), False)
    assert shares.jobs() == 0
