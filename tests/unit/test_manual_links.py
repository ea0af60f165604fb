"""Links and circuits by hand, as far as they go without a network: what is accepted, what is said, what jobs
lose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from testbed import circuits as circuits_command
from testbed import link as command
from testbed.aggregation.system import Layout
from testbed.api.circuits import CircuitControl
from testbed.client.requests import CircuitsRequest, LinkRequest
from testbed.client.runtime import Runtime
from testbed.daemon import circuits, links
from testbed.emulation.links import WireEnd, WireSpec, WireStatistics
from testbed.emulation.manual_links import LinksByHand
from testbed.errors import HostError, RequestError, TestbedError
from testbed.machine.links import NO_DELAY, LinkDelay
from testbed.messages.coding import as_json
from testbed.messages.controller import CircuitsMade, JobCircuitLoss
from testbed.messages.jobs import NetworkUse
from testbed.messages.links import LinkSetting
from testbed.messages.status import CircuitUse
from testbed.ocs.circuits import circuit
from testbed.ocs.using import losing, used
from testbed.status import circuits_text, uses_lines
from testbed.topology import catalogue
from testbed.topology.units import checked_unit
from testbed.wire.transports import PACKETS
from tests.unit import page_world, results

TOPOLOGY = catalogue.ready("default")
RING = frozenset(circuit(*pair) for pair in TOPOLOGY.ocs.circuits)
U1, U2, U3, U4 = (checked_unit(number) for number in (1, 2, 3, 4))
UNITS = (U1, U2, U3, U4)


class Fabric:
    """Links that do as they are told: two of u1 with a rate, one of u2 without."""

    def __init__(self) -> None:
        rates = {"u1h1": 200.0, "u1o1": 100.0, "u2h1": None}
        specs = [
            WireSpec(name, WireEnd("a"), WireEnd("b"), rate_mbps, 10_000) for name, rate_mbps in rates.items()
        ]
        self.rates: dict[str, float | None] = dict(rates)
        self.down: set[str] = set()
        self.delayed: dict[str, LinkDelay] = {}
        self.has_netem = True
        self.hand = LinksByHand(cast(Any, self), specs, self.rates.update)
        self.told: list[tuple[tuple[str, ...], bool]] = []

    def tell(self, names: Sequence[str], is_up: bool) -> None:
        assert all((name in self.down) != is_up for name in names), "told before it is so"
        self.told.append((tuple(names), is_up))

    def set_links(self, names: Sequence[str], is_up: bool) -> None:
        self.down = self.down - set(names) if is_up else self.down | set(names)

    def set_delays(self, names: Sequence[str], delay: LinkDelay) -> None:
        if not self.has_netem:
            raise HostError("no netem")
        self.delayed = {**self.delayed, **dict.fromkeys(names, delay)}
        self.delayed = {name: delay for name, delay in self.delayed.items() if delay != NO_DELAY}

    def delays(self) -> dict[str, LinkDelay]:
        return self.delayed

    def statistics(self) -> dict[str, WireStatistics]:
        return {
            name: WireStatistics(rate, 0, 0, 0, 0, 0, 0, is_up=name not in self.down)
            for name, rate in self.rates.items()
        }


class Jobs:
    """Jobs that hear of rates; a policy decides on some."""

    def __init__(self, **decided: int) -> None:
        self.decided, self.heard = decided, 0

    def rates_of_policies(self) -> Mapping[str, int]:
        return self.decided

    def hear_rates(self) -> None:
        self.heard += 1


def asked(fabric: Fabric, jobs: Jobs | None = None, **request: Any) -> Any:
    asking = LinkRequest(**{"action": "set", **request})
    return links.answer(fabric.hand, cast(Any, jobs or Jobs()), asking, fabric.tell)


def test_links_are_set_read_back_and_reset() -> None:
    fabric, jobs = Fabric(), Jobs()
    (set_,) = asked(fabric, jobs, links=["u1h1"], rate_mbps=50, up=False)
    assert (set_.rate_mbps, set_.configured_mbps, set_.up) == (50, 200, False)
    assert (fabric.hand.rate_mbps("u1h1"), fabric.hand.rate_mbps("u1o1")) == (50, None)
    assert [each.link for each in asked(fabric, links=["u1"], up=True)] == ["u1h1", "u1o1"]
    assert not fabric.down
    assert [each.rate_mbps for each in asked(fabric, action="reset", links=["all"])] == [200, 100]
    down, up, reset = fabric.told
    assert (down, up, reset) == ((("u1h1",), False), (("u1h1", "u1o1"), True), (("u1h1", "u1o1"), True))
    assert fabric.hand.rate_mbps("u1h1") is None
    assert (set(fabric.hand.ever()), jobs.heard) == ({"u1h1", "u1o1"}, 1)


def test_a_reset_that_fails_is_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some links may be up; of the others, switches report that they have no carrier."""
    fabric = Fabric()
    asked(fabric, links=["u1o1"], up=False)

    def failing(names: Sequence[str]) -> None:
        fabric.set_links(["u1o1"], True)
        raise HostError("the rate of u1h1 was refused")

    monkeypatch.setattr(fabric.hand, "reset", failing)
    with pytest.raises(HostError, match="refused"):
        asked(fabric, action="reset", links=["all"])
    assert fabric.told[-1] == (("u1h1", "u1o1"), True)


def test_links_delay_and_are_reset() -> None:
    fabric = Fabric()
    (set_,) = asked(fabric, links=["u1h1"], delay="5ms", jitter="250us")
    assert (set_.delay_ms, set_.jitter_ms, set_.rate_mbps) == (5, 0.25, 200)
    assert command.table([set_]) == "u1h1          200 Mb/s, delays 5 ms each way, 0.25 ms more or less"
    asked(fabric, links=["all"], delay="0.1s")
    assert fabric.hand.delays() == dict.fromkeys(("u1h1", "u1o1"), LinkDelay(100))
    asked(fabric, links=["u1h1"], delay="0ms")
    assert list(fabric.hand.delays()) == ["u1o1"]
    assert [each.delay_ms for each in asked(fabric, action="reset", links=["all"])] == [0, 0]
    assert fabric.hand.ever() == {"u1h1", "u1o1"}


def test_delays_that_ended_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were replaced or taken away; not one that was set again as it was."""
    fabric, now_s = Fabric(), [10.0]
    monkeypatch.setattr("testbed.emulation.manual_links.time.monotonic", lambda: now_s[0])
    asked(fabric, links=["all"], delay="5ms")
    asked(fabric, links=["u1h1"], delay="5ms")
    assert fabric.hand.ended_delays(0.0) == []
    asked(fabric, links=["u1h1"], delay="20ms")
    now_s[0] = 12.0
    asked(fabric, action="reset", links=["all"])
    asked(fabric, links=["u1h1"], delay="0ms")
    assert fabric.hand.ended_delays(11.0) == [("u1h1", LinkDelay(20)), ("u1o1", LinkDelay(5))]
    assert fabric.hand.ended_delays(10.0)[0] == ("u1h1", LinkDelay(5))


def test_without_netem_nothing_else_is_set_either() -> None:
    fabric = Fabric()
    fabric.has_netem = False
    with pytest.raises(HostError, match="no netem"):
        asked(fabric, links=["u1h1"], delay="5ms", rate_mbps=50, up=False)
    assert (fabric.rates["u1h1"], fabric.down, fabric.hand.ever()) == (200, set(), frozenset())


def test_circuits_are_added_and_removed_beside_the_others() -> None:
    controller, ring = Controller(), [list(each.ports) for each in sorted(RING)]
    by_hand(controller, action="add", circuits=[["u2o2", "u4o1"]])
    by_hand(controller, action="remove", circuits=[["u4o1", "u3o2"]])
    kept = [pair for pair in ring if not {*pair} & {"u2o2", "u4o1"}]
    assert len(kept) == len(ring) - 2
    assert controller.applied == [
        sorted([*kept, ["u2o2", "u4o1"]]),
        [pair for pair in ring if pair != ["u3o2", "u4o1"]],
    ]


def test_circuits_that_others_change_meanwhile_stay_as_they_make_them() -> None:
    controller = Controller(stale=2)
    by_hand(controller, action="remove", circuits=[["u1o1", "u2o1"]], force=True)
    assert controller.applied == [controller.lit[1:]]
    assert len(controller.lit) == len(RING) - 2
    controller = Controller(stale=len(RING))
    with pytest.raises(RequestError, match="u1o1-u2o1 is not set; set are none"):
        by_hand(controller, action="remove", circuits=[["u1o1", "u2o1"]], force=True)

    def restless(operation: str, **_: Any) -> Any:
        return controller("circuits") if operation == "circuits" else {"is_done": False, "event": None}

    with pytest.raises(TestbedError, match="circuits clear: others changed circuits 20 times meanwhile"):
        circuits.answer(TOPOLOGY, lambda: {}, restless, CircuitsRequest(action="clear"))


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (
            {"links": ["u1h1", "u2h1"], "up": False},
            "link u2h1: it has no rate, and nothing that could be set",
        ),
        (
            {"links": ["u1h1", "u9h1"], "up": False},
            "link u9h1: there is none; accepted are u1h1, u1o1, a unit",
        ),
        ({"links": ["u2"], "up": False}, "u2: there is no link with a rate; units with links that have: u1"),
        (
            {"links": ["u1h1"]},
            "link set: what is to be set\\? accepted are --rate MBPS, --delay TIME, --up, --down",
        ),
        ({"links": ["u1h1"], "delay": "5"}, "--delay 5: a time like 200us, 5ms or 0.1s, up to 10s, is acc"),
        ({"links": ["u1h1"], "delay": 5}, "--delay 5: a time like"),
        ({"links": ["u1h1"], "delay": "-5ms"}, "--delay -5ms: a time like"),
        ({"links": ["u1h1"], "delay": "11s"}, "--delay 11s: a time like"),
        ({"links": ["u1h1"], "delay": "5ms", "jitter": "x"}, "--jitter x: a time like"),
        ({"links": ["u1h1"], "jitter": "5ms"}, "--jitter 5ms: it is accepted with --delay, and at most"),
        (
            {"links": ["u1h1"], "delay": "5ms", "jitter": "6ms"},
            "--jitter 6ms: at most the delay, 5ms, is acc",
        ),
        ({"links": ["u1h1"], "rate_mbps": 0}, "--rate 0: more than 0, and at most 400000, Mb/s"),
        ({"links": ["u1h1"], "rate_mbps": float("nan")}, "--rate nan: more than 0"),
        ({"links": ["u1h1"], "rate_mbps": True}, "--rate True: more than 0"),
        ({"links": ["u1h1"], "up": "no"}, "up: no; true or false is accepted"),
        ({"links": []}, "links: \\[\\]; a list of names is accepted"),
        ({"action": "cut", "links": ["u1h1"]}, "link cut: accepted are set, reset, list"),
    ],
)
def test_what_is_refused_changes_nothing(request_: dict[str, Any], says: str) -> None:
    fabric = Fabric()
    with pytest.raises(RequestError, match=says):
        asked(fabric, **request_)
    assert (fabric.rates["u1h1"], fabric.down, fabric.hand.ever()) == (200, set(), frozenset())


def test_a_rate_that_a_policy_decides_on_is_not_set_by_hand_but_the_link_may_be_down() -> None:
    fabric, jobs = Fabric(), Jobs(u1h1=7)
    with pytest.raises(
        RequestError, match="link u1h1: the policy of job 7 decides on its rate while it runs"
    ):
        asked(fabric, jobs, links=["u1"], rate_mbps=50)
    assert fabric.rates["u1o1"] == 100
    asked(fabric, jobs, links=["u1h1"], up=False)
    asked(fabric, jobs, action="reset", links=["all"])
    assert not fabric.down


def test_links_as_they_are_shown() -> None:
    link = LinkSetting("u1h1", 50.0, 200.0, None, up=False, delay_ms=0.0, jitter_ms=0.0)
    assert command.table([link]) == "u1h1           50 Mb/s (configured 200), down"
    assert command.table([replace(link, rate_mbps=200.0, up=True)]) == "u1h1          200 Mb/s"
    assert command.table([]) == "this testbed has no link with a rate"


# ---------------------------------------------------------------- circuits


def test_the_circuits_that_pairs_use_go_through_other_units_and_are_all_of_parallel_ones() -> None:
    """The default ring is u1-u2-u3-u4-u1."""
    by_job = used(RING, UNITS, {1: [(U1, U2)], 2: [(U1, U3)], 3: [], 4: [(U2, U2)]})
    assert by_job[1] == {circuit("u1o1", "u2o1")}
    assert by_job[2] == {circuit("u1o1", "u2o1"), circuit("u2o2", "u3o1")}
    assert by_job[3] == by_job[4] == frozenset()
    parallel = {circuit("u1o1", "u2o1"), circuit("u1o2", "u2o2")}
    assert used(parallel, UNITS, {1: [(U1, U2)], 2: [(U1, U4)]}) == {1: parallel, 2: frozenset()}


def test_jobs_lose_what_they_use_and_are_cut_off_only_where_no_way_is_left() -> None:
    first = circuit("u1o1", "u2o1")
    lost = losing(RING, RING - {first}, UNITS, {1: [(U1, U2)], 2: [(U3, U4)]})
    assert lost == {1: (frozenset({first}), [])}, "there is the way round"
    gone, cut = losing(RING, (), UNITS, {2: [(U3, U4)]})[2]
    assert (gone, cut) == (frozenset({circuit("u3o2", "u4o1")}), [(U3, U4)])
    assert not losing(RING, RING | {circuit("u1o3", "u2o3")}, UNITS, {1: [(U1, U2)]})


class Controller:
    """One that makes what it is told, and plans what it was made with. The first `stale` exchanges come when
    others have taken a circuit.
    """

    def __init__(self, planned: Sequence[Sequence[str]] = (), stale: int = 0) -> None:
        self.planned, self.applied, self.stale = planned, list[Any](), stale
        self.lit = [list(each.ports) for each in sorted(RING)]

    def __call__(self, operation: str, **arguments: Any) -> Any:
        if operation == "circuits":
            return {"circuits": self.lit, "dark": [], "failed_locks": {}, "down": []}
        if operation == "plan":
            return {"target": self.planned, "removed": [], "added": []}
        assert operation == "exchange"
        if self.stale:
            self.stale -= 1
            self.lit = self.lit[:-1]
        if arguments["instead_of"] != self.lit:
            return {"is_done": False, "event": None}
        self.applied.append(arguments["circuits"])
        return {"is_done": True, "event": results.event(1)}


LAYOUTS = {3: Layout("inc", ((U1, 1), (U2, 1)), PACKETS, demands=((U1, U2),))}


def by_hand(controller: Controller, **request: Any) -> Any:
    return circuits.answer(TOPOLOGY, lambda: LAYOUTS, controller, CircuitsRequest(**request))


@pytest.mark.parametrize(
    "request_",
    [
        {"action": "clear"},
        {"action": "set", "circuits": [["u1o1", "u3o1"]]},
        {"action": "request", "demands": [["u1", "u3"]]},
    ],
)
def test_a_job_s_circuits_are_taken_by_force_alone(request_: dict[str, Any]) -> None:
    controller = Controller(planned=[["u1o1", "u3o1"]])
    with pytest.raises(
        RequestError, match="job 3 loses u1o1-u2o1, which cuts off u1 from u2; --force takes them"
    ):
        by_hand(controller, **request_)
    assert not controller.applied
    answer = by_hand(controller, **request_, force=True)
    assert answer.lost == (JobCircuitLoss(3, (("u1o1", "u2o1"),), (("u1", "u2"),)),)
    assert controller.applied == [[] if request_["action"] == "clear" else [["u1o1", "u3o1"]]]


def test_what_takes_no_job_s_circuits_is_done_at_once() -> None:
    controller = Controller()
    assert by_hand(controller, action="reset") == CircuitsMade(results.read_event(1), ())
    by_hand(controller, action="set", circuits=[["u2o1", "u1o1"]])
    assert controller.applied == [[list(each.ports) for each in sorted(RING)], [["u1o1", "u2o1"]]]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"action": "set", "circuits": []}, "circuits: \\[\\]; a list of pairs of optical ports like"),
        ({"action": "set", "circuits": [["u1o1", 2]]}, "a list of pairs of optical ports like"),
        ({"action": "set", "circuits": [["u1o1", "u9o1"]]}, "no optical port u9o1; there are u1o1"),
        ({"action": "set", "circuits": [["u1o1", "u2o1"], ["u1o1", "u3o1"]]}, "u1o1 is in another circuit"),
        ({"action": "remove", "circuits": [["u1o1", "u3o1"]]}, "u1o1-u3o1 is not set; set are u1o1-u2o1, "),
        ({"action": "add"}, "circuits: None; a list of pairs of optical ports like"),
        (
            {"action": "swap"},
            "circuits swap: accepted are request, set, add, remove, clear, reset, schedule, unschedule",
        ),
        ({"action": "clear", "force": 1}, "force: 1; true or false is accepted"),
    ],
)
def test_circuits_that_are_refused(request_: dict[str, Any], says: str) -> None:
    controller = Controller()
    with pytest.raises(RequestError, match=says):
        by_hand(controller, **request_)
    assert not controller.applied


@pytest.mark.parametrize(
    ("action", "rest", "says"),
    [
        ("set", [], "circuits set: pairs of optical ports like u1o1-u2o1 are accepted"),
        ("add", [], "circuits add: pairs of optical ports like u1o1-u2o1 are accepted"),
        ("set", ["u1o1"], "circuit u1o1: a pair of optical ports like u1o1-u2o1 is accepted"),
        ("clear", ["u1"], "circuits clear: u1; nothing is accepted behind it"),
    ],
)
def test_words_that_the_command_refuses(action: str, rest: list[str], says: str) -> None:
    control = CircuitControl(Runtime.of("never-started"))
    with pytest.raises(RequestError, match=says):
        circuits_command._answer(control, action, rest, force=False)


def test_status_says_who_uses_what() -> None:
    lit = [["u1o1", "u2o1"], ["u3o2", "u4o1"]]
    of_jobs, of_circuits = circuits.uses(TOPOLOGY, lit, LAYOUTS)
    assert of_jobs[3] == NetworkUse((("u1o1", "u2o1"),), ("u1h1", "u2h1", "u1o1", "u2o1"), ())
    assert of_circuits == (CircuitUse(("u1o1", "u2o1"), (3,)), CircuitUse(("u3o2", "u4o1"), ()))
    testbed = page_world.read(page_world.status(circuits=lit, circuit_jobs=as_json(of_circuits), dark=[]))
    assert circuits_text(testbed) == "u1o1-u2o1 (job 3), u3o2-u4o1"
    assert uses_lines(of_jobs[3]) == ["uses circuits u1o1-u2o1; links u1h1 u2h1 u1o1 u2o1"]
    assert circuits.uses(TOPOLOGY, None, LAYOUTS)[0][3].circuits == ()
