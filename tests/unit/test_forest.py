"""Forests: what is none is refused in one line, and what must hold for any that is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.aggregation.forest import Forest, Node, Tree, below_top
from testbed.errors import RequestError
from testbed.jobs.forest_names import summing_trees
from testbed.messages.jobs import SummingNode, SummingTree
from testbed.topology.places import Host, Place, at_host, switch

HOSTS: tuple[Host, ...] = ((1, 1), (1, 2), (2, 1))


def forest_of(*tops: Node, workers: tuple[Host, ...] = HOSTS, weight: float = 1.0) -> Forest:
    return Forest(workers, tuple(Tree(top, weight) for top in tops))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Forest(HOSTS, ()), "a forest of 0 trees; 1 to 256 are accepted"),
        (lambda: Forest((), (Tree(Node(switch(1))),)), "a forest of 0 workers; a place takes up to 64"),
        (
            lambda: forest_of(Node(switch(1), tuple(range(65))), workers=tuple((1, h) for h in range(1, 66))),
            "a forest of 65 workers; a place takes up to 64",
        ),
        (lambda: forest_of(Node(switch(1), (0, 1)), workers=((1, 1), (1, 1))), "two workers on one host"),
        (lambda: forest_of(Node(switch(1), (0, 1))), "tree 0: worker 2 contributes 0 times, not once"),
        (lambda: forest_of(Node(switch(1), (0, 1, 2, 1))), "tree 0: worker 1 contributes 2 times, not once"),
        (lambda: forest_of(Node(switch(1), (0, 1, 2, 3))), "tree 0: worker 3; there are 0 to 2"),
        (
            lambda: forest_of(Node(switch(1), (0, 1, 2), (Node(switch(2)),))),
            "tree 0: nothing contributes to u2",
        ),
        (
            lambda: forest_of(Node(switch(1), (0,), (Node(switch(1), (1, 2)),))),
            "tree 0: u1 is in it 2 times; a place sums once",
        ),
        (
            lambda: forest_of(Node(switch(1), (0, 1, 2)), weight=0.0),
            "tree 0: a weight of 0.0; a number above 0",
        ),
        (lambda: forest_of(Node(switch(1), (0, 1, 2)), weight=float("nan")), "tree 0: a weight of nan"),
    ],
)
def test_what_is_no_forest_is_refused_in_one_line(make: object, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        make()  # type: ignore[operator]


def relayed(*tops: Node, workers: tuple[Host, ...] = HOSTS) -> Forest:
    return Forest(workers, tuple(Tree(top, relayed=True) for top in tops))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: relayed(Node(switch(1), (0, 1, 2))), "tree 0: u1 relays results; hosts alone are accepted"),
        (
            lambda: Forest(HOSTS, (Tree(Node(at_host((3, 1)), (0, 1, 2)), owner=(3, 1), relayed=True),)),
            "tree 0: relayed to an owner",
        ),
        (
            lambda: relayed(Node(at_host((3, 1)), (0,), (Node(at_host((1, 1)), (1, 2)),))),
            "tree 0: worker 0 is on u1h1, which relays results, and contributes to u3h1; to its own host is",
        ),
    ],
)
def test_what_no_host_can_relay_is_refused_in_one_line(make: object, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        make()  # type: ignore[operator]


def owned(top: Node, owner: Host) -> Forest:
    return Forest(HOSTS, (Tree(top, owner=owner),))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Forest(HOSTS, (Tree(Node(switch(3), (0, 1, 2)), owner=(3, 1)),) * 2),
            "tree 0 has an owner; a job's only tree is accepted to have one",
        ),
        (lambda: owned(Node(switch(1), (0, 1, 2)), (1, 1)), "tree 0: its owner u1h1 is a worker, too"),
        (
            lambda: owned(Node(switch(3), (), (Node(at_host((1, 3)), (0, 1, 2)),)), (3, 1)),
            "tree 0 has an owner, and u1h3 sums; switches alone are accepted",
        ),
        (
            lambda: owned(Node(switch(1), (0, 1, 2)), (3, 1)),
            "tree 0: its owner is u3h1, and u1 is its top; the owner's switch is accepted",
        ),
    ],
)
def test_what_no_owner_can_have_is_refused_in_one_line(make: object, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        make()  # type: ignore[operator]


def test_copies_count_for_what_meets_in_a_queue() -> None:
    """There leave a host as many as come to it; through one port of a unit may go what is for several of its
    hosts, on the way up and down alike.
    """
    workers: tuple[Host, ...] = ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3))
    heads = (Node(at_host((1, 1)), (0, 3, 4)), Node(at_host((1, 2)), (1, 5)))
    assert relayed(Node(at_host((3, 1)), (2,), heads), workers=workers).meeting() == 3
    alone = relayed(Node(at_host((1, 1)), (0, 1, 2)))
    assert alone.meeting() == 2
    assert relayed(Node(at_host((1, 1)), (0,)), workers=HOSTS[:1]).meeting() == 1


def test_a_forest_by_names() -> None:
    top = Node(switch(1), (0,), (Node(at_host((2, 1)), (1, 2)),))
    below = SummingNode("u2h1", ("u1h2", "u2h1"), ())
    assert summing_trees(forest_of(top, top))[1] == SummingTree(0.5, "u1", ("u1h1",), (below,))


def test_two_levels_below_a_host_and_below_a_switch() -> None:
    ps = below_top(HOSTS, at_host((3, 1)))
    assert [(node.place, node.workers) for node in ps.top.nodes()] == [
        (Place(3, 1), ()),
        (Place(1), (0, 1)),
        (Place(2), (2,)),
    ]
    assert Forest(HOSTS, (ps,)).demands() == ((1, 3), (2, 3))
    top = below_top(HOSTS, switch(1))
    assert [(node.place, node.workers) for node in top.top.nodes()] == [(Place(1), (0, 1)), (Place(2), (2,))]
    alone = below_top(HOSTS[:2], switch(1))
    assert list(alone.top.nodes()) == [Node(Place(1), (0, 1))]


def test_what_meets_in_a_queue() -> None:
    assert Forest(HOSTS, (below_top(HOSTS, at_host((3, 1))),)).meeting() == 2, "a partial sum of each unit"
    assert Forest(HOSTS, (below_top(HOSTS, switch(1)),)).meeting() == 1
    chain = Node(at_host((1, 1)), (0,), (Node(at_host((1, 2)), (1,), (Node(at_host((2, 1)), (2,)),)),))
    assert forest_of(chain).meeting() == 1, "what a host pushes to itself crosses no link"
    assert forest_of(Node(at_host((3, 1)), (0, 1, 2))).meeting() == 3


@st.composite
def forests(draw: st.DrawFn) -> Forest:
    count = draw(st.integers(1, 12))
    workers = draw(
        st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6)), min_size=count, max_size=count, unique=True)
    )
    trees = []
    for _ in range(draw(st.integers(1, 3))):
        places = [Place(unit, host) for unit in range(1, 6) for host in range(7)]
        chosen = draw(st.lists(st.sampled_from(places), min_size=1, max_size=count, unique=True))
        ranks = draw(st.permutations(range(count)))
        # each place has at least one worker of its own, so that none is empty whatever the shape
        own = [[rank] for rank in ranks[: len(chosen)]]
        for rank in ranks[len(chosen) :]:
            own[draw(st.integers(0, len(chosen) - 1))].append(rank)
        parent = [draw(st.integers(0, at - 1)) if at else -1 for at in range(len(chosen))]
        nodes: dict[int, Node] = {}
        for at in reversed(range(len(chosen))):
            below = tuple(nodes[child] for child in range(at + 1, len(chosen)) if parent[child] == at)
            nodes[at] = Node(chosen[at], tuple(own[at]), below)
        trees.append(Tree(nodes[0], draw(st.floats(0.1, 10))))
    return Forest(tuple(workers), tuple(trees))


@given(forests())
def test_in_any_tree_each_worker_is_summed_once_and_contributors_have_different_numbers(
    forest: Forest,
) -> None:
    for tree in forest.trees:
        assert tree.top.ranks() == list(range(len(forest.workers)))
        for node in tree.top.nodes():
            numbers = [*node.workers, *(child.number for child in node.below)]
            assert len(set(numbers)) == len(numbers)
            assert node.number == min(numbers)
        above = tree.top.above()
        for node in list(tree.top.nodes())[1:]:
            assert node in above[node.place].below
        for rank in range(len(forest.workers)):
            assert rank in tree.node_of(rank).workers


@given(forests())
def test_demands_join_all_units_of_a_tree_each_pair_once(forest: Forest) -> None:
    pairs = [frozenset(pair) for pair in forest.demands()]
    assert len(set(pairs)) == len(pairs)
    assert all(len(pair) == 2 for pair in pairs)
    for tree in forest.trees:
        joined = {tree.top.place.unit}
        while any(len(pair & joined) == 1 for pair in pairs):
            joined |= next(pair for pair in pairs if len(pair & joined) == 1)
        units = {node.place.unit for node in tree.top.nodes()} | {unit for unit, _ in forest.workers}
        assert units <= joined
