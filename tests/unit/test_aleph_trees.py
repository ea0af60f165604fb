"""ALEPH's clusterings as trees of places."""

from __future__ import annotations

import pytest

from testbed.aggregation.site import Rack, Site
from testbed.errors import RequestError
from testbed.systems.aleph import fastest, trees
from testbed.systems.aleph.model import Clustering, Instance
from testbed.systems.aleph.system import Aleph
from testbed.topology.places import Host, at_host
from testbed.topology.units import Unit
from tests.unit.aleph_instances import PAPER

WORKERS: list[Host] = [(Unit(1), number) for number in range(1, 9)]
SERVERS: list[Host] = [(Unit(2), 1), (Unit(2), 2)]


def test_heads_sum_at_their_hosts_and_the_server_sums_heads() -> None:
    clustering = fastest.cluster(PAPER)
    forest = trees.forest(clustering, WORKERS, SERVERS[:1], (40.0,))
    (only,) = forest.trees
    assert only.top.place == at_host(SERVERS[0])
    assert only.top.workers == clustering.direct
    assert {node.place: node.workers for node in only.top.below} == {
        at_host(WORKERS[head]): tuple(sorted((head, *members)))
        for head, members in clustering.clusters.items()
    }


def test_hosts_that_are_spared_head_nobody() -> None:
    racks = (Rack(Unit(1), "gpu", 4, (40.0, 30.0, 10.0, 10.0)), Rack(Unit(2), "cpu", 1, (20.0,)))
    heads = []
    for spared in (set(), {WORKERS[0]}, {WORKERS[0], WORKERS[1]}):
        site = Site(racks, frozenset(), frozenset(), spared=frozenset(spared))
        forest = Aleph().lay_out(WORKERS[:4], site).forest
        assert forest is not None
        heads.append([node.place for node in forest.trees[0].top.below])
        assert sorted(forest.trees[0].top.ranks()) == [0, 1, 2, 3]
    assert heads == [[at_host(WORKERS[0])], [at_host(WORKERS[1])], []]


def test_several_servers_have_shares_by_their_rates() -> None:
    forest = trees.forest(Clustering((0, 0, 2)), WORKERS[:3], SERVERS, (10.0, 30.0))
    assert forest.fractions() == (0.25, 0.75)
    assert [tree.top.place for tree in forest.trees] == [at_host(server) for server in SERVERS]
    assert forest.trees[0].top.below == forest.trees[1].top.below


@pytest.mark.parametrize(
    ("workers", "servers", "message"),
    [
        (
            [(1, 1), (1, 1), (1, 2)],
            SERVERS,
            "worker 0 and worker 1 are both on u1h1; each, and so each head, needs a host",
        ),
        ([(1, 1), (1, 2), (2, 1)], SERVERS, "worker 2 and parameter server 0 are both on u2h1"),
        ([(1, 1), (1, 2), (1, 1)], SERVERS, "worker 0 and worker 2 are both on u1h1"),
        ([(1, 1), (1, 2)], SERVERS, "a clustering of 4 workers; there are 2"),
    ],
)
def test_two_on_one_host_are_told_in_one_line(workers: list[Host], servers: list[Host], message: str) -> None:
    workers = [*workers, (Unit(1), 9)] if len(workers) == 3 else workers
    with pytest.raises(RequestError, match=message) as error:
        trees.forest(Clustering((0, 0, 2, 2)), workers, servers, (10.0, 10.0))
    assert "\n" not in str(error.value)


def test_an_instance_without_rates_is_none() -> None:
    with pytest.raises(RequestError, match="at least one worker"):
        Instance((), (), (1.0,))
