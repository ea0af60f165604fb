"""The replay of scripts over links: workloads whose truth is known."""

from __future__ import annotations

import pytest

from testbed.telemetry.replay import Transfer, Use, replay
from testbed.telemetry.timelines import ASKED, WAITED, Step

ask, wait = (lambda number, after_s=0.0, what=what: Step(after_s, what, number) for what in (ASKED, WAITED))


def busy(seconds: float, depth_s: float = 0.0, sources: tuple[int, ...] = ()) -> Transfer:
    return Transfer((Use("link", seconds, depth_s, sources),))


def test_computing_and_a_transfer_follow_each_other() -> None:
    script = [ask(0, 1.0), wait(0), ask(1, 2.0), wait(1)]
    assert replay([script] * 2, {0: busy(10.0), 1: busy(20.0)}) == [33.0, 33.0]


def test_a_transfer_under_computing_costs_only_what_is_longer() -> None:
    def script(computing_s: float) -> list[Step]:
        return [ask(0), wait(0, computing_s)]

    assert replay([script(4.0)], {0: busy(10.0)}) == [10.0]
    assert replay([script(14.0)], {0: busy(10.0)}) == [14.0]


def test_transfers_go_in_the_order_in_which_they_were_asked_for() -> None:
    script = [ask(0), ask(1, 1.0), wait(0), wait(1, 0.5)]
    assert replay([script], {0: busy(10.0), 1: busy(5.0)}) == [15.0]


def test_all_wait_for_the_worker_that_asks_last() -> None:
    slow, quick = [ask(0, 7.0), wait(0)], [ask(0, 1.0), wait(0), wait(0, 2.0)]
    assert replay([slow, quick], {0: busy(3.0)}) == [10.0, 12.0]


def test_a_link_takes_the_early_ones_share_before_the_last_asks() -> None:
    slow, quick = [ask(0, 7.0), wait(0)], [ask(0, 1.0), wait(0)]
    assert replay([slow, quick], {0: busy(4.0, sources=(0, 1))}) == [9.0, 9.0]
    assert replay([slow, quick], {0: busy(4.0, sources=(1,))}) == [7.0, 7.0]


def test_after_a_pause_a_bucket_lets_its_depth_pass_at_once() -> None:
    script = [ask(0, 10.0), wait(0), ask(1, 0.5), wait(1), ask(2, 10.0), wait(2)]
    transfers = {0: busy(5.0, 2.0), 1: busy(5.0, 2.0), 2: busy(1.0, 2.0)}
    assert replay([script], transfers) == [pytest.approx(10 + 3 + 0.5 + 4.5 + 10)]


def test_what_comes_after_a_transfer_counts() -> None:
    assert replay([[ask(0), wait(0)]], {0: Transfer((Use("link", 2.0),), 0.25)}) == [2.25]


@pytest.mark.parametrize("scripts", [[[ask(0)], [ask(1)]], [[ask(0)], [wait(0)]]])
def test_scripts_that_ask_for_different_things_are_refused(scripts: list[list[Step]]) -> None:
    with pytest.raises(ValueError, match=r"collective \d"):
        replay(scripts, {0: busy(1.0), 1: busy(1.0)})


def test_what_goes_on_behind_is_waited_for_by_what_settles() -> None:
    """Two pushes of which each has the disk at work for 10 s, and a call that waits for the disk."""
    script = [ask(0), ask(1, 1.0), wait(0), wait(1), ask(2, 0.5), wait(2)]
    disk = (Use("disk", 10.0),)
    transfers = {number: Transfer((Use("link", 2.0),), behind=disk) for number in (0, 1)}
    assert replay([script], {**transfers, 2: Transfer(())}) == [4.5]
    assert replay([script], {**transfers, 2: Transfer((), settles=True)}) == [20.0]
    both = Transfer((Use("link", 2.0),), behind=(Use("reads", 10.0), Use("writes", 3.0)))
    assert replay([script], {0: both, 1: both, 2: Transfer((), settles=True)}) == [23.0]
    late = Transfer((Use("link", 20.0),), behind=both.behind)  # written when it is there
    assert replay([[ask(0), ask(1), wait(1)]], {0: late, 1: Transfer((), settles=True)}) == [23.0]
