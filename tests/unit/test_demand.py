"""The bytes and frames that links must carry for a collective."""

from __future__ import annotations

import pytest

from testbed.aggregation.forest import Forest, Node, Tree, below_top
from testbed.telemetry.demand import (
    DOWN,
    UP,
    Traffic,
    between,
    crossing,
    frame_bytes,
    needs,
    pushed_frames,
    tail,
    tcp_framing,
)
from testbed.telemetry.timelines import BESIDE, CALLED, PULLED, PUSHED, Collective
from testbed.topology.places import at_host, switch
from testbed.wire.spec import LANES
from testbed.wire.transports import GLOO, OWNED, PACKETS, SERVER
from tests.forests import p4inc

MTU = 1500
HOSTS = ("u1h1", "u1h2")
IN_ONE_UNIT = Traffic(PACKETS, HOSTS, None, MTU, p4inc([(1, 1), (1, 2)]))


def test_a_gradient_packet_is_a_full_frame() -> None:
    assert frame_bytes(LANES) == 1514
    assert frame_bytes(101) == 14 + 28 + 32 + 4 * 101
    assert pushed_frames(Collective(4 * 360 * 7, True, 1), 4, LANES) == 8  # a vote and seven fragments
    assert pushed_frames(Collective(4 * 360 * 7 + 4, True, 1), 4, LANES) == 9
    assert pushed_frames(Collective(4 * 360 * 44, True, 1), 4, LANES) == 1 + 44
    assert pushed_frames(Collective(4 * 360 * 45, True, 1), 4, LANES) == 2 + 45
    assert (
        pushed_frames(Collective(4 * 60, True, 1), 4, LANES) == 1
    )  # the vote carries all four workers' values


def test_bytes_by_kind_of_synchronisation() -> None:
    hosts, size = ("u1h1", "u1h2", "u2h1", "u2h2"), 1_440_000

    def by_link(transport: str, ps_host: str | None, forest: Forest | None = None) -> dict[str, float]:
        traffic = Traffic(transport, hosts, ps_host, MTU, forest)
        return {need.link: need.bytes for need in needs(traffic, Collective(size, True, 1))}

    framed = 1023 * 1514
    workers = [(1, 1), (1, 2), (2, 1), (2, 2)]
    once = {f"{host} {way}": framed for host in hosts for way in (UP, DOWN)}
    assert by_link(PACKETS, None, Forest(tuple(workers), (below_top(workers, switch(1)),))) == once
    across = by_link(PACKETS, "u3h1", p4inc(workers, (3, 1)))
    assert (across["u3h1 down"], across["u3h1 up"]) == (
        2 * framed,
        framed,
    )  # a partial sum of each unit; one result
    tcp = size * 1514 / 1448
    assert set(by_link(GLOO, None).values()) == {1.5 * tcp}
    at_server = by_link(SERVER, "u3h1")
    assert (at_server["u1h1 up"], at_server["u3h1 up"], at_server["u3h1 down"]) == (tcp, 4 * tcp, 4 * tcp)


def test_bytes_are_those_of_the_job_s_own_lanes() -> None:
    forest, size = p4inc([(1, 1), (1, 2)]), 4 * 101 * 997
    few = Traffic(PACKETS, HOSTS, None, MTU, forest, 101)
    assert {need.bytes for need in needs(few, Collective(size, True, 1))} == {1025 * (14 + 28 + 32 + 4 * 101)}
    carried = Collective(4 * 60, True, 1)  # by a vote of 360 lanes, but not of 101
    assert [needs(traffic, carried)[0].bytes for traffic in (few, IN_ONE_UNIT)] == [2 * 478, 1514]


def test_bytes_of_hosts_in_a_chain() -> None:
    """Each link carries what one vector is, but the first one's: it sends none up, and hears none but by
    itself.
    """
    workers = ((1, 1), (1, 2), (2, 1))
    chain = Node(at_host((1, 1)), (0,), (Node(at_host((1, 2)), (1,), (Node(at_host((2, 1)), (2,)),)),))
    traffic = Traffic(PACKETS, ("u1h1", "u1h2", "u2h1"), None, MTU, Forest(workers, (Tree(chain),)))
    links: dict[str, float] = {}
    for need in needs(traffic, Collective(1_440_000, True, 1)):
        links[need.link] = links.get(need.link, 0.0) + need.bytes / (1023 * 1514)
    assert links == {
        "u1h1 down": 1, "u1h1 up": 1, "u1h2 down": 2, "u1h2 up": 1, "u2h1 down": 1, "u2h1 up": 1,
    }  # fmt: skip


def test_bytes_of_copies_by_heads() -> None:
    """A head's link carries its members' once each way, and once more what it sends up and gets."""
    workers = ((1, 1), (1, 2), (1, 3), (2, 1))
    head = Node(at_host((1, 1)), (0, 1, 3))
    forest = Forest(workers, (Tree(Node(at_host((3, 1)), (2,), (head,)), relayed=True),))
    traffic = Traffic(PACKETS, ("u1h1", "u1h2", "u1h3", "u2h1"), "u3h1", MTU, forest)
    links: dict[str, float] = {}
    for need in needs(traffic, Collective(1_440_000, True, 1)):
        links[need.link] = links.get(need.link, 0.0) + need.bytes / (1023 * 1514)
    expected = {"u1h1": 3, "u1h2": 1, "u1h3": 1, "u2h1": 1, "u3h1": 2}
    assert links == {f"{host} {way}": count for host, count in expected.items() for way in (UP, DOWN)}
    crossed = crossing(traffic, Collective(1_440_000, True, 1))
    frames = {key: count / (1023 * 1514) for key, count in crossed.items()}
    counts = {"u1": 3, "u2": 1, "u3": 2}
    assert frames == {(unit, way): count for unit, count in counts.items() for way in (UP, DOWN)}
    assert traffic.held == {"u1h1", "u1h2", "u1h3", "u2h1", "u3h1"}


def test_a_servers_last_chunks_come_down_when_all_has_gone_up() -> None:
    after = tail(Traffic(SERVER, HOSTS, "u1h3", MTU), Collective(128 * 4 * 4096, True, 1))
    assert after is not None
    assert after.bytes == pytest.approx(2 * 4 * 4096 * tcp_framing(MTU))
    assert tail(IN_ONE_UNIT, Collective(4096, True, 1)) is None


def test_bytes_that_must_cross_a_units_optical_links() -> None:
    hosts, size = ("u1h1", "u1h2", "u2h1", "u2h2"), 1_440_000
    collective, framed, tcp = Collective(size, True, 1), 1023 * 1514, size * 1514 / 1448

    def across(
        transport: str, ps_host: str | None, forest: Forest | None = None
    ) -> dict[tuple[str, str], float]:
        return crossing(Traffic(transport, hosts, ps_host, MTU, forest), collective)

    workers = [(1, 1), (1, 2), (2, 1), (2, 2)]

    both = [(unit, way) for unit in ("u1", "u2") for way in (UP, DOWN)]
    assert across(GLOO, None) == pytest.approx(dict.fromkeys(both, 1.5 * tcp))
    by_ps = across(PACKETS, "u3h1", p4inc(workers, (3, 1)))
    assert by_ps == dict.fromkeys([*both, ("u3", UP)], framed) | {("u3", DOWN): 2 * framed}
    on_top = Forest(tuple(workers), (below_top(workers, switch(1)),))
    assert across(PACKETS, None, on_top) == dict.fromkeys(both, framed)
    assert across(SERVER, "u1h3") == pytest.approx(
        {("u2", UP): 2 * tcp, ("u2", DOWN): 2 * tcp, ("u1", UP): 2 * tcp, ("u1", DOWN): 2 * tcp}
    )
    assert crossing(IN_ONE_UNIT, collective) == {}
    assert crossing(Traffic(GLOO, hosts, None, MTU), Collective(size, False, 1)) == {}


def test_a_tree_with_an_owner_carries_each_kind_one_way() -> None:
    """Parameters down to units of two workers and of one, gradients up: once a link, without votes."""
    below = (Node(switch(1), (0, 1)), Node(switch(2), (2,)))
    forest = Forest(((1, 1), (1, 2), (2, 1)), (Tree(Node(switch(3), (), below), owner=(3, 1)),))
    hosts = ("u1h1", "u1h2", "u2h1")
    traffic = Traffic(OWNED, hosts, "u3h1", MTU, forest)
    size, framed = 4 * 360 * 7, 7 * 1514

    def by_link(kind: int) -> dict[str, float]:
        return {need.link: need.bytes for need in needs(traffic, Collective(size, kind, 1))}

    assert by_link(PULLED) == {"u3h1 up": framed} | {f"{host} down": framed for host in hosts}
    assert by_link(PUSHED) == {"u3h1 down": framed} | {f"{host} up": framed for host in hosts}
    assert by_link(CALLED) == {}
    assert set(by_link(BESIDE)) == {f"{host} down" for host in hosts}
    up = {("u1", UP): framed, ("u2", UP): framed, ("u3", DOWN): 2 * framed}
    down = {("u1", DOWN): framed, ("u2", DOWN): framed, ("u3", UP): 2 * framed}
    assert crossing(traffic, Collective(size, PUSHED, 1)) == up
    assert crossing(traffic, Collective(size, PULLED, 1)) == down
    assert crossing(traffic, Collective(0, CALLED, 1)) == {}


def test_a_process_beside_a_ring_is_no_server_of_it() -> None:
    """A system's own process has a host of the job's, and the sums go by gloo's ring all the same."""
    workers, total = ("u1h1", "u2h1"), Collective(128 * 4 * 4096, True, 1)
    ring, beside = Traffic(GLOO, workers, None, MTU), Traffic(GLOO, workers, "u3h1", MTU)
    assert needs(beside, total) == needs(ring, total)
    assert crossing(beside, total) == crossing(ring, total)
    assert between(beside, total) == between(ring, total)
    assert "u3h1" in beside.held
