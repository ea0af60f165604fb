"""The decision who is a permanent straggler, and what follows, on standings that are made up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from testbed.aggregation.forest import Node
from testbed.systems.trio.absences import Absences
from testbed.systems.trio.counts import AbsenceStatus
from testbed.systems.trio.leaving import Departure, Leaving
from testbed.systems.trio.standing import TreeStanding, beyond
from testbed.topology.places import switch
from testbed.wire.mapping import FIRST_VOTE

TOP, RACK = switch(1), switch(2)
FLAT = Node(TOP, (0, 1, 2))
DEEP = Node(TOP, (0, 1), (Node(RACK, (2, 3)),))
WINDOW = (8, 2)


def at(block: int) -> tuple[int, int]:
    return block % 2**32, (FIRST_VOTE + block) % 2**32


def standing(
    reached: dict[int, int], lacked: tuple[int, ...] = (), out: tuple[int, ...] = ()
) -> TreeStanding:
    bits = [sum(1 << source for source in sources) for sources in (lacked, out)]
    return TreeStanding(bits[0], bits[1], {source: at(block) for source, block in reached.items()}, 100)


def test_a_worker_from_which_nothing_came_in_so_many_looks_leaves() -> None:
    leaving = Leaving(FLAT, 3, WINDOW)
    for look in range(3):
        assert leaving.look({TOP: standing({0: look, 1: look, 2: 5}, (2,))})[0].leave == {}
    orders, departures = leaving.look({TOP: standing({0: 9, 1: 9, 2: 5}, (2,))})
    assert orders.leave == {TOP: 0b100}
    assert departures == [Departure(2, TOP, False, 100, (2,), 3)]
    assert leaving.look({TOP: standing({0: 9, 1: 9, 2: 5}, (2,), (2,))})[1] == []
    _, back = leaving.look({TOP: standing({0: 9, 1: 9, 2: 9})})
    assert back == [Departure(2, TOP, True, 100, (2,))]


def test_whatever_comes_from_it_makes_it_a_temporary_one_again() -> None:
    leaving = Leaving(FLAT, 2, WINDOW)
    for block in range(20):  # missed in all looks, but every second one something came from it
        orders, _ = leaving.look({TOP: standing({0: block, 1: block, 2: block // 2}, (2,))})
        assert orders.leave == {}


def test_where_nothing_waits_nobody_is_missed() -> None:
    """All compute: a look without a block that waited in vain is no event, and takes none back."""
    leaving = Leaving(FLAT, 2, WINDOW)
    quiet, missed = standing({0: 1, 1: 1, 2: 1}), standing({0: 1, 1: 1, 2: 1}, (2,))
    for seen in (quiet, quiet, quiet, missed, quiet, quiet):
        assert leaving.look({TOP: seen})[0].leave == {}
    assert leaving.look({TOP: missed})[0].leave == {TOP: 0b100}


def test_the_last_one_does_not_leave() -> None:
    leaving = Leaving(FLAT, 1, WINDOW)
    everybody = standing({0: 1, 1: 1, 2: 1}, (0, 1, 2))
    leaving.look({TOP: everybody})
    assert leaving.look({TOP: everybody})[0].leave == {TOP: 0b011}
    assert leaving.look({TOP: standing({0: 1, 1: 1, 2: 1}, (2,), (0, 1))})[0].leave == {}


def test_a_place_that_has_no_sources_left_leaves_the_one_above() -> None:
    leaving = Leaving(DEEP, 1, WINDOW)
    seen = {TOP: standing({0: 1, 1: 1, 2: 1}), RACK: standing({2: 1, 3: 1}, (2,))}
    leaving.look(seen)
    assert leaving.look(seen)[0].leave == {RACK: 0b0100}
    seen = {TOP: standing({0: 1, 1: 1, 2: 1}), RACK: standing({2: 1, 3: 1}, (3,), (2,))}
    orders, departures = leaving.look(seen)
    assert orders.leave == {RACK: 0b1000, TOP: 0b0100}
    assert {(each.source, each.at, each.workers) for each in departures} == {
        (3, RACK, (3,)),
        (RACK, TOP, (2, 3)),
    }


def test_the_last_source_of_the_top_stays_though_it_is_a_place_below() -> None:
    top = Node(TOP, (), (Node(RACK, (0, 1)),))
    leaving = Leaving(top, 1, WINDOW)
    seen = {TOP: standing({0: 1}, (0,)), RACK: standing({0: 1, 1: 1}, (0, 1))}
    leaving.look(seen)
    assert leaving.look(seen)[0].leave == {RACK: 0b01}


def test_a_place_is_as_far_as_those_below_it_and_floors_follow() -> None:
    """A worker that is out sends nothing up, though it takes results: the place above must know that."""
    leaving = Leaving(DEEP, 5, WINDOW)
    seen = {TOP: standing({0: 90, 1: 91, 2: 10}, out=(2,)), RACK: standing({2: 40, 3: 50})}
    orders, _ = leaving.look(seen)
    assert orders.heard == {(TOP, 2): at(40)}
    assert orders.floors == {
        RACK: ((40 - 8), FIRST_VOTE + 40 - 2),
        TOP: ((40 - 8), FIRST_VOTE + 40 - 2),
    }


@given(
    st.integers(0, 2**32 - 1),
    st.dictionaries(st.integers(0, 2), st.integers(0, 10_000), min_size=3, max_size=3),
    st.sets(st.integers(0, 2)),
    st.lists(st.sets(st.integers(0, 2)), max_size=8),
)
def test_floors_hold_for_everybody_and_somebody_stays(
    first: int, ahead: dict[int, int], out: set[int], lacked: list[set[int]]
) -> None:
    """No floor is beyond what a source has, whether it left or not; and numbers come round."""
    leaving, gone = Leaving(FLAT, 2, WINDOW), set(out) if len(out) < 3 else set()
    for those in lacked:
        reached = {source: first + block for source, block in ahead.items()}
        orders, _ = leaving.look({TOP: standing(reached, tuple(those), tuple(gone))})
        for source, block in reached.items():
            data, votes = orders.floors[TOP]
            assert beyond(data, (block - WINDOW[0]) % 2**32) <= 0, source
            assert beyond(votes, (FIRST_VOTE + block - WINDOW[1]) % 2**32) <= 0, source
        left = {source for source in range(3) if orders.leave.get(TOP, 0) >> source & 1}
        assert not left & gone
        gone |= left
        assert len(gone) < 3


def test_who_left_and_until_when_is_kept_account_of() -> None:
    absences = Absences()
    (line,) = absences.add([Departure(2, TOP, False, 100, (2,), 3)], 1.0)
    assert line == "worker 2 left u1 after 3 looks in vain: sums go on without it until it is back"
    assert absences.out() == {2}
    (line,) = absences.add([Departure(2, TOP, True, 160, (2,))], 3.5)
    assert line == "worker 2 is back at u1 after 2.50 s; 60 blocks and votes went on without it"
    assert absences.out() == set()
    (row,) = absences.status()
    assert row == AbsenceStatus("worker 2", (2,), "u1", events=3, left_s=1.0, back_s=3.5, blocks=60)
