"""The traffic on a job's links that is not the job's, by protocol and port."""

from __future__ import annotations

import pytest

from testbed.telemetry.traffic import OthersTraffic, grown, others

NAMES = {f"10.0.{unit}.{host}": f"u{unit}h{host}" for unit in (1, 2, 3) for host in (1, 2, 3)}
OWN = {"u1h1", "u2h1"}
MB = 1_000_000


def crossed(
    source: str, goal: str, protocol: int = 17, port: int = 5001, held: tuple[str, ...] = ()
) -> list[OthersTraffic]:
    flows = {(source, goal, protocol, port): MB}
    return others(flows, NAMES, OWN, {29501}, held, {"u1": "u1o1", "u2": "u2o1"})


@pytest.mark.parametrize(
    ("source", "goal", "links"),
    [
        ("10.0.1.2", "10.0.1.1", ["u1h1"]),
        ("10.0.1.1", "10.0.1.2", ["u1h1"]),
        ("10.0.1.2", "10.0.1.3", []),
        ("10.0.3.1", "10.0.3.2", []),
        ("10.0.1.2", "10.0.2.2", ["u1o1", "u2o1"]),
        ("10.0.3.1", "10.0.2.1", ["u2h1", "u2o1"]),
        ("9.9.9.9", "10.0.2.1", []),
    ],
)
def test_traffic_is_on_the_links_that_it_crossed(source: str, goal: str, links: list[str]) -> None:
    assert crossed(source, goal) == [OthersTraffic(link, 17, 5001, MB) for link in links]


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


def test_other_jobs_traffic_is_theirs() -> None:
    assert crossed("10.0.1.2", "10.0.2.2", held=("u1h2", "u2h2")) == []
    assert crossed("10.0.1.2", "10.0.2.2", held=("u1h2",))


def test_a_few_packets_are_nobodys_traffic() -> None:
    assert others({("10.0.1.2", "10.0.1.1", 1, 0): 9_999}, NAMES, OWN, (), (), {}) == []


def test_flows_grow_between_two_looks() -> None:
    before = [["a", "b", 6, 80, 100], ["a", "c", 6, 80, 100], ["a", "d", 6, 80, 100]]
    after = [["a", "b", 6, 80, 130], ["a", "c", 6, 80, 100], ["a", "d", 6, 80, 7], ["a", "e", 1, 0, 5]]
    assert grown(before, after) == {("a", "b", 6, 80): 30, ("a", "d", 6, 80): 7, ("a", "e", 1, 0): 5}


def test_in_words() -> None:
    assert str(OthersTraffic("u3h1", 17, 5001, 156 * MB)) == "156 MB on u3h1 (UDP, port 5001)"
    assert str(OthersTraffic("u3h1", 1, 0, MB)) == "1 MB on u3h1 (ICMP)"
    assert str(OthersTraffic("u3h1", 47, 0, MB)) == "1 MB on u3h1 (IP protocol 47)"
