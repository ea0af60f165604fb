"""ALEPH's clustering: what an instance and a clustering are, and ours against the optimum and M-WCHA."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import RequestError
from testbed.systems.aleph import domination, fastest, mwcha, optimum
from testbed.systems.aleph.domination import Domination
from testbed.systems.aleph.model import Clustering, Instance, capacities, clustering_of, shares
from tests.examples import examples
from tests.unit.aleph_instances import PAPER, instance, paired


def test_the_testbed_of_section_6_3_is_clustered_as_the_paper_says() -> None:
    clustering = fastest.cluster(PAPER)
    sizes = {head: len(members) for head, members in clustering.clusters.items()}
    assert sizes == {0: 2, 1: 1, 2: 1}
    assert len(clustering.direct) == 1
    assert len(clustering.contributors) == 4
    assert clustering.time(PAPER) == pytest.approx(1 / 10)  # 4 vectors at 40, and 1 at 10, take the same


def test_times_are_those_of_table_1() -> None:
    rates = (10.0, 10.0, 10.0, 30.0)
    asked = Instance(rates, capacities(rates), (20.0,))
    assert 4.2 * Clustering((0, 1, 2, 3)).time(asked) == pytest.approx(0.84)
    assert 4.2 * fastest.cluster(asked).time(asked) == pytest.approx(0.42)
    assert fastest.cluster(asked).clusters.keys() == {3}


def test_capacities_are_what_rates_carry_beside_their_own() -> None:
    assert capacities((30.0, 20.0, 10.0)) == (2, 1, 0)
    assert capacities((0.3, 0.2, 0.1)) == (2, 1, 0)  # 0.3 / 0.1 is 2.9999999999999996
    assert capacities((math.inf, 10.0, 10.0)) == (2, 0, 0)


def test_shares_are_as_the_servers_rates() -> None:
    assert shares((10.0, 30.0)) == (0.25, 0.75)
    assert shares((10.0, math.inf)) == (0.0, 1.0)
    two = Instance((10.0,) * 4, (3,) * 4, (10.0, 30.0))
    assert Clustering((0, 1, 2, 3)).time(two) == pytest.approx(0.1)  # 4 vectors, of which 30 carries three


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Instance((10.0, 0.0), (0, 0), (10.0,)), "worker 1: a rate of 0; a rate above 0 is accepted"),
        (lambda: Instance((10.0,), (0,), (0.0,)), "parameter server 0: a rate of 0"),
        (lambda: Instance((10.0,), (0,), ()), "at least one worker and one parameter server"),
        (lambda: Instance((10.0,), (0, 1), (1.0,)), "2 capacities of 1 workers"),
        (lambda: Instance((10.0,), (-1,), (1.0,)), "worker 0: a capacity of -1"),
        (
            lambda: Instance((1.0, 1.0), (1, 1), (1.0,), (frozenset({1}), frozenset())),
            "worker 0: a neighbour 1; another worker that has it as a neighbour, too, is accepted",
        ),
        (lambda: Clustering((1, 0)), "worker 0: a head 1, which is no head"),
        (
            lambda: clustering_of(3, {0: (1, 2)}).check(Instance((1.0,) * 3, (1,) * 3, (1.0,))),
            "worker 0: heads 2; its capacity is 1",
        ),
        (
            lambda: fastest.cluster(Instance((1.0,) * 9, (2,) * 9, (1.0,), None, 2)),
            "no clustering of 9 workers: heads of these capacities leave 3 contributors at least, and the "
            "parameter server takes 2",
        ),
        (
            lambda: optimum.fewest(Instance((1.0,) * 9, (2,) * 9, (1.0,), None, 2)),
            "no clustering of 9 workers",
        ),
    ],
)
def test_what_cannot_be_is_told_in_one_line(make: object, message: str) -> None:
    with pytest.raises(RequestError, match=message.replace("(", r"\(")) as error:
        make()  # type: ignore[operator]
    assert "\n" not in str(error.value)


def test_as_few_contributors_as_the_servers_take_is_met() -> None:
    tight = Instance((1.0,) * 9, (2,) * 9, (1.0,), None, 3)
    clustering = fastest.cluster(tight)
    clustering.check(tight)
    assert len(clustering.contributors) == 3


@pytest.mark.parametrize("most", [None, 8])
@pytest.mark.parametrize("shape", [{}, {"racks": 3}, {"joined": 0.15}, {"joined": 0.4}])
def test_ours_is_near_the_optimum_and_never_behind_m_wcha(shape: dict[str, float], most: int | None) -> None:
    above = []
    for seed in range(6):
        asked = instance(20, (0.0, 0.1, 0.2, 0.3)[seed % 4], seed, most=most, **shape)  # type: ignore[arg-type]
        ours = fastest.cluster(asked)
        ours.check(asked)
        best = optimum.least_time(asked, time_limit_s=60.0)
        assert best.proven
        assert ours.time(asked) >= best.value * (1 - 1e-9)
        above.append(ours.time(asked) / best.value)
        for number in range(5):
            theirs = mwcha.cluster(asked, random.Random(number))
            assert theirs.time(asked) >= ours.time(asked) * (1 - 1e-9)
    assert sum(above) / len(above) <= 1.05
    if not shape or "racks" in shape:
        assert max(above) == pytest.approx(1.0)  # there it is one


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 14), st.integers(0, 10**6), st.sampled_from([None, 0, 3, 20]), st.booleans())
def test_ours_is_a_clustering_whatever_the_instance(
    size: int, seed: int, most: int | None, racks: bool
) -> None:
    shape = {"racks": 2} if racks else {"joined": 0.3}
    asked = instance(size, 0.3, seed, most=most, server=1.0 + seed % 40, **shape)
    clustering = fastest.cluster(asked)
    clustering.check(asked)
    assert clustering == fastest.cluster(asked)
    assert clustering.time(asked) <= Clustering(tuple(range(size))).time(asked) * (1 + 1e-9)


def test_unlimited_rates_are_no_trouble() -> None:
    for rates, server in (((math.inf,) * 4, math.inf), ((math.inf, 10.0, 10.0, 10.0), 10.0)):
        free = Instance(rates, capacities(rates), (server,))
        fastest.cluster(free).check(free)
        assert mwcha.cluster(free, random.Random(1)).time(free) >= fastest.cluster(free).time(free)


@pytest.mark.parametrize(
    "make",
    [
        lambda: instance(10_000, 0.3, 1),
        lambda: paired(10_000, 0.3, 100_000),
        lambda: paired(10_000, 0.3, 100_000, 8),
    ],
    ids=["anybody", "pairs", "pairs, drawn"],
)
def test_ten_thousand_workers_are_clustered_soon(make: Callable[[], Instance]) -> None:
    asked = make()
    began = time.process_time()
    fastest.cluster(asked).check(asked)
    assert time.process_time() - began < 10.0  # a second, on a machine that is not busy


def fewest(asked: Instance, room: Sequence[int]) -> int:
    """Return the fewest contributors of all clusterings in which heads have no more members than room."""
    assert asked.neighbours is not None
    choices = [[worker, *sorted(near)] for worker, near in enumerate(asked.neighbours)]
    counts = []
    for heads in itertools.product(*choices):
        members = Counter(head for worker, head in enumerate(heads) if head != worker)
        if all(heads[head] == head and count <= room[head] for head, count in members.items()):
            counts.append(asked.size - members.total())
    return min(counts)


@pytest.mark.parametrize("budget", [0, domination.ALL_VISITS])
@pytest.mark.parametrize("seed", range(12))
def test_what_is_found_is_no_better_than_the_fewest_and_only_falls_with_room(
    seed: int, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domination, "ALL_VISITS", budget)
    asked = instance(6, 0.3, seed, joined=0.6, most=3)
    search = Domination(asked, tuple(range(asked.size)))
    before = asked.size
    rooms = [np.minimum(asked.capacities, most) for most in range(4)]
    for room in (rooms[0], rooms[3], rooms[1], rooms[2], rooms[3]):
        least = fewest(asked, room.tolist())
        assert search.least(room) <= least <= search.contributors(room, least)
        if budget:
            assert search.contributors(room, least) == least
    for room in rooms:
        assert search.contributors(room, before) <= before
        before = search.contributors(room)


def test_no_search_is_made_where_another_groups_clusters_have_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two groups, each a ring of six of whom each can head one: three contributors, and a bound of three."""
    near = [frozenset({(at + 1) % 6, (at - 1) % 6}) for at in range(6)]
    both = tuple(near) + tuple(frozenset(other + 6 for other in each) for each in near)
    searched: list[float] = []
    improved = domination._improved

    def counted(state: Any, wanted: float, visits: int) -> Any:
        if state.matched < wanted:
            searched.append(wanted)
        return improved(state, wanted, visits)

    monkeypatch.setattr(domination, "_improved", counted)
    room = (1,) * 12
    for server in (0.1, 1.0, 3.0):
        asked = Instance((1.0,) * 12, room, (server,), both)
        assert len(fastest.cluster(asked).contributors) == 6
    assert searched == []
