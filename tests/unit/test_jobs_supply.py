"""Admissions that fail while a switch is gone: which are made again, and until when."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from testbed.aggregation.grants import Group
from testbed.aggregation.packets import AS_USUAL
from testbed.aggregation.site import Rack, racks_of
from testbed.errors import RequestError, TestbedError
from testbed.jobs.held_hosts import Holdings
from testbed.jobs.supply import Share, Start, Supply, outliving_switches
from testbed.ocs.circuits import checked
from testbed.ocs.plan import plan_planes
from testbed.plugins.registry import find
from testbed.topology.load import parse
from tests.unit.test_admission import World


class Switches:
    """Switches as an engine tells of them: restarts so far at each look; the last goes on."""

    def __init__(self, *looks: int | None) -> None:
        self._looks = list(looks)

    def restarts(self) -> int | None:
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]


def attempts(*outcomes: str | TestbedError) -> tuple[Callable[[], str], Sequence[str | TestbedError]]:
    left = list(outcomes)

    def attempt() -> str:
        ending = left.pop(0)
        if isinstance(ending, TestbedError):
            raise ending
        return ending

    return attempt, left


ENDED = TestbedError("u1's simple_switch ended: signal 9")


def outlive(attempt: Callable[[], str], switches: Any, within_s: float = 10.0, given_up: bool = False) -> str:
    return outliving_switches(attempt, switches, lambda: given_up, within_s)


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param((0, None, None, 1), id="it ended meanwhile"),
        pytest.param((0, 1), id="it is back already"),
        pytest.param((None, None, None, 1), id="it was gone before"),
    ],
)
def test_an_admission_waits_for_a_switch_that_ended(looks: tuple[int | None, ...]) -> None:
    attempt, left = attempts(ENDED, "admitted")
    assert outlive(attempt, Switches(*looks)) == "admitted"
    assert not left


def test_what_failed_for_another_reason_is_not_tried_again() -> None:
    for error, switches in (
        (TestbedError("no light"), Switches(3)),
        (RequestError("no such unit"), Switches(0, 1)),
    ):
        attempt, left = attempts(error, "admitted")
        with pytest.raises(TestbedError, match=str(error)):
            outlive(attempt, switches)
        assert len(left) == 1


def test_a_switch_that_does_not_come_back_is_not_waited_for_longer_than_said() -> None:
    attempt, _ = attempts(ENDED)
    with pytest.raises(TestbedError, match="signal 9"):
        outlive(attempt, Switches(0, None), within_s=0.1)
    attempt, _ = attempts(ENDED)
    with pytest.raises(TestbedError, match="signal 9"):
        outlive(attempt, Switches(0, None), given_up=True)


def test_a_switch_that_ends_at_every_attempt_is_given_up() -> None:
    attempt, left = attempts(ENDED, ENDED, "admitted")
    with pytest.raises(TestbedError, match="signal 9"):
        outlive(attempt, Switches(0, 1, 1, 2), within_s=-1.0)
    assert len(left) == 2


# ---------------------------------------------------------------- groups of a job's workers


class Network:
    """Places in memory, and circuits between the units 1, 2 and 3."""

    def __init__(self) -> None:
        self.world = World(jobs=4)
        first = {"hosts": [{"rate_mbps": 8_000}, {}, {}]}
        topology = parse({"units": [first, *[{"hosts": 3}] * 2], "inc": {"jobs": 4}}, "test")
        self.rates: dict[str, float] = {}
        self.holdings = Holdings([Rack(unit.index, unit.kind, unit.hosts) for unit in topology.units])
        self.ports: dict[str, list[list[int]]] = {"1": [[1]], "2": [[1]], "3": [[1]]}
        self.by_hand: dict[str, float] = {}
        self.supply = Supply(topology, self, self.world.all, self.ask, self.holdings)

    def by_hand_mbps(self, link: str) -> float | None:
        return self.by_hand.get(link)

    def set_rates(self, rates_mbps: Mapping[str, float]) -> None:
        self.rates |= rates_mbps

    def ask(self, operation: str, **arguments: Any) -> Any:
        if operation == "circuits":
            return {
                "circuits": [["u1o1", "u3o1"], ["u2o1", "u3o2"]],
                "dark": [],
                "failed_locks": {},
                "down": [],
            }
        if operation == "tree":
            return self.ports
        assert operation == "request"
        return None

    def run(self, sync: str, *workers: tuple[int, int]) -> tuple[int, Share]:
        """Have a job run, and return its number."""
        site = self.supply.site()
        layout = self.supply.lay_out(find(sync), workers, site, AS_USUAL)
        held = self.holdings.take(layout)
        assert held is not None
        return held[0], self.supply.give(*held, Start(layout))


ACROSS = ((1, 1), (1, 2), (2, 1), (2, 2))


def test_each_link_has_its_own_rate_back_after_a_job() -> None:
    network = Network()
    layout = network.supply.lay_out(find("inc"), ((1, 1), (1, 2)), network.supply.site(), AS_USUAL)
    start = Start(layout, by_policy=True, rate_mbps=10.0)
    network.supply.give(1, 1, start)
    assert network.rates == {"u1h1": 10, "u1h2": 10}
    network.supply.take_back(1, start)
    assert network.rates == {"u1h1": 40, "u1h2": 200}


def test_a_link_has_the_rate_that_its_user_gave_it_after_a_job_and_workers_are_told_the_slowest() -> None:
    network = Network()
    layout = network.supply.lay_out(find("inc"), ((1, 1), (1, 2)), network.supply.site(), AS_USUAL)
    assert network.supply.slowest_by_hand(layout) is None
    network.by_hand["u1h2"] = 30.0
    assert network.supply.slowest_by_hand(layout) == 30
    network.by_hand["u1h2"] = 150.0
    assert network.supply.slowest_by_hand(layout) == 40
    start = Start(layout, by_policy=True, rate_mbps=10.0)
    network.supply.give(1, 1, start)
    network.supply.take_back(1, start)
    assert network.rates == {"u1h1": 40, "u1h2": 150}


@pytest.mark.parametrize("sync", ["inc", "switches"])
def test_a_group_is_laid_out_by_its_jobs_system_on_its_jobs_hosts(sync: str) -> None:
    network = Network()
    number, share = network.run(sync, *ACROSS)
    group = network.supply.give_group(number, share.layout, Group((1, 3), (40_001, 40_003)))
    assert group.forest.workers == ((1, 2), (2, 2))
    assert group.forest.hosts() <= share.layout.hosts()
    assert group.forest.trees[0].top.place == share.layout.forest.trees[0].top.place  # type: ignore[union-attr]
    assert network.world.tors[2].entries[number, group.first].workers == 0b1000
    assert share.admission is not None
    assert group.generation != share.admission.generation
    network.supply.take_group_back(group)
    assert list(network.world.tors[2].entries) == [(number, 0)]


def test_circuits_that_change_are_followed_by_groups() -> None:
    network = Network()
    number, share = network.run("inc", *ACROSS)
    group = network.supply.give_group(number, share.layout, Group((1, 3), (40_001, 40_003)))
    network.ports = {"1": [[2]], "2": [[1]], "3": [[1]]}
    network.supply.follow_circuits()
    for tree, receivers in ((0, ["u1-h1", "u1-h2"]), (group.first, ["u1-h2"])):
        assert network.world.tors[1].groups[number, tree] == [*receivers, "u1-o2"]


def test_a_job_whose_results_the_kernel_does_not_send_elsewhere_is_told_and_the_others_follow() -> None:
    network = Network()
    (first, _), (second, _) = network.run("inc", *ACROSS), network.run("inc", (1, 3), (2, 3))
    reroute, failures = network.world.all.reroute, dict[int, str]()

    def refused(number: int, *arguments: Any) -> None:
        if number == first:
            raise OSError(errno.ENOMEM, "update a map: Cannot allocate memory")
        reroute(number, *arguments)

    network.ports = {"1": [[2]], "2": [[1]], "3": [[1]]}
    with mock.patch.object(network.world.all, "reroute", refused):
        network.supply.follow_circuits(failures.__setitem__)
        assert failures == {
            first: "send results by the circuits that there are: update a map: Cannot allocate memory"
        }
        assert network.world.tors[1].groups[second, 0] == ["u1-h3", "u1-o2"]
        with pytest.raises(OSError, match="update a map"):
            network.supply.follow_circuits()


def test_generations_are_of_one_job_or_group_and_jobs_are_counted_without_gaps() -> None:
    network = Network()
    number, share = network.run("inc", (1, 1), (1, 2))
    pair = Group((0, 1), (40_000, 40_001))
    generations = [network.supply.give_group(number, share.layout, pair).generation for _ in range(3)]
    assert len({*generations, network.holdings.generation()}) == 4
    assert network.run("inc", (3, 1), (3, 2))[0] == 2


def test_a_users_own_system_lays_out_whole_jobs() -> None:
    network = Network()
    number, share = network.run("inc", (1, 1), (1, 2))
    own = replace(share.layout, system="mine.py:Mine")
    with pytest.raises(
        RequestError, match=r"^mine.py:Mine is a user's own system, which lays out whole jobs$"
    ):
        network.supply.give_group(number, own, Group((0, 1), (40_000, 40_001)))


def test_with_a_core_jobs_ask_for_the_circuits_that_there_are_ports_for() -> None:
    network = Network()
    units = [{"hosts": 2, "optical_ports": 1}, {"hosts": 2, "kind": "cpu"}, {"hosts": 2, "optical_ports": 0}]
    topology = parse({"units": units, "core": {}, "inc": {"jobs": 4}}, "cored")
    asked: list[Any] = []

    def ask(operation: str, **arguments: Any) -> Any:
        if operation == "request":
            asked.append(arguments["demands"])
            return None
        return network.ask(operation, **arguments)

    network.holdings = Holdings(racks_of(topology))  # a server is in u2
    network.supply = Supply(topology, network, network.world.all, ask, network.holdings)
    network.run("inc", (1, 1), (3, 1))
    assert asked == [[["u1", "u2"]]], "u3 has no port"
    network.run("inc", (1, 2), (3, 2))
    assert asked[1:] == asked[:1]


# ---------------------------------------------------------------- links that are down


class Dying(Network):
    """Four units in a ring of circuits, or three of one port with a core, whose links go down."""

    def __init__(self, circuits: list[list[str]], **topology: Any) -> None:
        super().__init__()
        self.topology = parse({"units": [{"hosts": 3}] * 4, "optical_ports": 2, **topology}, "test")
        racks = [Rack(unit.index, unit.kind, unit.hosts) for unit in self.topology.units]
        self.holdings = Holdings(racks)
        self.supply = Supply(self.topology, self, self.world.all, self.ask, self.holdings)
        self.circuits, self.down, self.requested = circuits, list[str](), list[list[list[str]]]()

    def ask(self, operation: str, **arguments: Any) -> Any:
        if operation == "circuits":
            return {"circuits": self.circuits, "dark": [], "failed_locks": {}, "down": self.down}
        pairs = [tuple(int(name[1:]) for name in pair) for pair in arguments["demands"]]
        topology = self.topology
        target = plan_planes(
            checked(self.circuits, topology.planes),
            pairs,  # type: ignore[arg-type]
            topology.ports,
            topology.planes,
            topology.core_link is not None,
            self.down,
        ).target
        planned = [list(each.ports) for each in sorted(target)]
        if operation == "plan":
            return {"target": planned, "removed": [], "added": []}
        assert operation == "request"
        self.requested.append(arguments["demands"])
        self.circuits = planned
        return None


def test_jobs_that_are_led_round_refuse_none() -> None:
    ring = [["u1o1", "u2o1"], ["u2o2", "u3o1"], ["u3o2", "u4o1"], ["u1o2", "u4o2"]]
    network = Dying(ring)
    network.run("ring", (2, 1), (3, 1))
    network.down = ["u2o2"]
    number, _ = network.run("ring", (1, 1), (2, 2))
    assert {*map(tuple, network.circuits)} >= {("u1o1", "u2o1"), ("u3o2", "u4o1"), ("u1o2", "u4o2")}
    layout = network.holdings.layouts()[number]
    network.supply.give(number, 2, Start(layout))  # it starts again
    assert len(network.requested) == 3


def test_a_job_without_a_way_is_refused_before_anything_changes() -> None:
    network = Dying([["u1o1", "u2o1"]], optical_ports=1, core={})
    network.down = ["u3c", "u3o1"]
    with pytest.raises(
        RequestError,
        match=r"^u3c, u3o1 are down: no way is left between u1 and u3, between which the job sends; units "
        r"with a way between them are accepted$",
    ):
        network.run("ring", (1, 1), (3, 1))
    assert not network.requested
    network.down = ["u3o1"]
    network.run("ring", (1, 2), (3, 2))
