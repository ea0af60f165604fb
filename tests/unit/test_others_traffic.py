"""The traffic on a job's links that is not the job's, by protocol and port."""

from __future__ import annotations

import pytest

from testbed.messages.controller import NetworkLight
from testbed.messages.result import OthersTraffic
from testbed.telemetry.events import Happened
from testbed.telemetry.network import LitNetwork, network
from testbed.telemetry.traffic import Owner, SeenPorts, grown, others

NAMES = {f"10.0.{unit}.{host}": f"u{unit}h{host}" for unit in (1, 2, 3) for host in (1, 2, 3)}
OWN = {"u1h1", "u2h1"}
MB = 1_000_000
NONE = SeenPorts()


def joined(*circuits: tuple[str, str], has_core: bool = False) -> LitNetwork:
    """Return three units that these circuits join."""
    answer = NetworkLight(circuits, (), {}, (), 0, ())
    return network((1, 2, 3), has_core, answer, answer, (), 0.0, 0.0)


IN_A_ROW = joined(("u1o1", "u2o1"), ("u2o2", "u3o1"))
BY_WAY_OF_1 = joined(("u1o1", "u2o1"), ("u1o2", "u3o1"))


def crossed(
    source: str,
    goal: str,
    protocol: int = 17,
    port: int = 5001,
    held: tuple[str, ...] = (),
    by: LitNetwork = IN_A_ROW,
    links: tuple[str, ...] = ("u1h1", "u1o1", "u2h1", "u2o1"),
    seen: SeenPorts = NONE,
) -> list[OthersTraffic]:
    return others({(source, goal, protocol, port): MB}, NAMES, Owner(OWN, {29501}, seen), held, by, links)


@pytest.mark.parametrize(
    ("source", "goal", "links"),
    [
        ("10.0.1.2", "10.0.1.1", {"u1h1": 0}),
        ("10.0.1.1", "10.0.1.2", {"u1h1": MB}),
        ("10.0.1.2", "10.0.1.3", {}),
        ("10.0.3.1", "10.0.3.2", {}),
        ("10.0.1.2", "10.0.2.2", {"u1o1": MB, "u2o1": 0}),
        ("10.0.1.1", "10.0.2.1", {"u1h1": MB, "u1o1": MB, "u2h1": 0, "u2o1": 0}),
        ("10.0.3.1", "10.0.2.1", {"u2h1": 0}),
        ("9.9.9.9", "10.0.2.1", {}),
    ],
)
def test_traffic_is_on_the_links_that_it_crossed(source: str, goal: str, links: dict[str, int]) -> None:
    """And what of it went up: out of the host, or of the unit."""
    assert crossed(source, goal) == [OthersTraffic(link, 17, 5001, MB, up) for link, up in links.items()]


def test_traffic_that_passes_through_a_unit_is_on_the_circuits_that_it_took() -> None:
    passed = [(each.link, each.bytes_up) for each in crossed("10.0.3.1", "10.0.2.1", by=BY_WAY_OF_1)]
    assert passed == [("u1o1", 0), ("u2h1", 0), ("u2o1", 0)]


def test_traffic_is_on_the_circuit_to_its_goal_and_not_on_the_first_of_the_unit() -> None:
    """The job is in all three units, and so has both circuits of the first."""
    links = ("u1o1", "u1o2", "u2o1", "u3o1")
    by = joined(("u1o1", "u3o1"), ("u1o2", "u2o1"))
    assert [each.link for each in crossed("10.0.1.2", "10.0.2.2", by=by, links=links)] == ["u1o2", "u2o1"]
    both = joined(("u1o1", "u2o1"), ("u1o2", "u2o2"))  # in parallel: which of them is not known
    assert [each.link for each in crossed("10.0.1.2", "10.0.2.2", by=both, links=links)] == [
        "u1o1",
        "u1o2",
        "u2o1",
    ]


def test_traffic_over_the_core_and_between_racks_is_on_these_links() -> None:
    core = joined(has_core=True)
    links = ("u1h1", "u1c", "u2c", "u3c", "u1r1", "u1r2")
    over_core = crossed("10.0.1.2", "10.0.2.2", by=core, links=links)
    assert [(each.link, each.bytes_up) for each in over_core] == [("u1c", MB), ("u2c", 0)]
    names = {"10.1.1.1": "u1r1h1", "10.1.1.2": "u1r1h2", "10.2.1.1": "u1r2h1", "10.1.2.1": "u2r1h1"}

    def racks(source: str, goal: str) -> list[tuple[str, int]]:
        rows = others({(source, goal, 17, 5001): MB}, names, Owner(OWN, ()), (), core, links)
        return [(each.link, each.bytes_up) for each in rows]

    assert racks("10.1.1.1", "10.2.1.1") == [("u1r1", MB), ("u1r2", 0)], "within a pod"
    assert racks("10.1.1.1", "10.1.2.1") == [("u1c", MB), ("u1r1", MB), ("u2c", 0)]
    assert racks("10.1.1.1", "10.1.1.2") == []


def test_what_the_jobs_workers_say_to_each_other_is_the_jobs() -> None:
    assert crossed("10.0.1.1", "10.0.2.1", protocol=6, port=40_000) == [], "gloo's"
    assert crossed("10.0.1.1", "10.0.2.1", protocol=6, port=29_501) == [], "where its workers meet"
    assert [each.link for each in crossed("10.0.1.1", "10.0.2.1", protocol=6)] == [
        "u1h1",
        "u1o1",
        "u2h1",
        "u2o1",
    ]
    assert crossed("10.0.1.1", "10.0.1.2", protocol=6, port=40_000), "to a host that is not the job's"


def test_whose_a_port_was_seen_to_be_says_whose_its_traffic_is() -> None:
    """It is seen at either end, on any port: a script's own store, and a command beside it on a high port."""
    ends = ("10.0.1.1", "10.0.2.1")
    for own in ("u1h1", "u2h1"):
        assert crossed(*ends, protocol=6, port=5001, seen=SeenPorts(own={(own, 5001)})) == []
        assert crossed(*ends, protocol=6, port=40_000, seen=SeenPorts(others={(own, 40_000)}))
    assert crossed(*ends, protocol=6, port=5001, seen=SeenPorts(own={("u3h1", 5001)}))
    both = SeenPorts(own={("u2h1", 40_000)}, others={("u1h1", 40_000)})
    assert crossed(*ends, protocol=6, port=40_000, seen=both), "in doubt it is not the job's"
    assert crossed(*ends, port=5001, seen=SeenPorts(own={("u1h1", 5001)})), "UDP"
    assert crossed("10.0.1.1", "10.0.1.2", protocol=6, port=5001, seen=SeenPorts(own={("u1h1", 5001)}))


def test_other_jobs_traffic_is_theirs() -> None:
    assert crossed("10.0.1.2", "10.0.2.2", held=("u1h2", "u2h2")) == []
    assert crossed("10.0.1.2", "10.0.2.2", held=("u1h2",))


def test_a_few_packets_are_nobodys_traffic() -> None:
    assert (
        others({("10.0.1.2", "10.0.1.1", 1, 0): 9_999}, NAMES, Owner(OWN, ()), (), IN_A_ROW, ("u1h1",)) == []
    )


def test_flows_grow_between_two_looks() -> None:
    before = [("a", "b", 6, 80, 100), ("a", "c", 6, 80, 100), ("a", "d", 6, 80, 100)]
    after = [("a", "b", 6, 80, 130), ("a", "c", 6, 80, 100), ("a", "d", 6, 80, 7), ("a", "e", 1, 0, 5)]
    assert grown(before, after) == {("a", "b", 6, 80): 30, ("a", "d", 6, 80): 7, ("a", "e", 1, 0): 5}


def test_in_words() -> None:
    assert str(OthersTraffic("u3h1", 17, 5001, 156 * MB)) == "156 MB on u3h1 (UDP, port 5001)"
    assert str(OthersTraffic("u3h1", 1, 0, MB)) == "1 MB on u3h1 (ICMP)"
    assert str(OthersTraffic("u3h1", 47, 0, MB)) == "1 MB on u3h1 (IP protocol 47)"


def test_what_workers_sent_is_less_by_what_others_sent_from_their_hosts_alone() -> None:
    to, out = OthersTraffic("u1h1", 17, 5001, 5 * MB, 0), OthersTraffic("u2h1", 6, 5201, 3 * MB, 2 * MB)
    elsewhere = OthersTraffic("u1o1", 6, 5201, 3 * MB, 2 * MB)
    assert Happened(traffic=[to, out, elsewhere]).sent_from(OWN) == 2 * MB
