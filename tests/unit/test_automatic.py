"""`--sync auto`: forecasts of systems over several networks, and the choice between them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from testbed.aggregation.admission import Places
from testbed.aggregation.packets import AS_USUAL, Packets
from testbed.aggregation.site import racks_of
from testbed.aggregation.system import Layout, System
from testbed.api.running import RunOptions
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.errors import RequestError, TestbedError
from testbed.jobs.attempt import traffic_of
from testbed.jobs.automatic import SIZE_BYTES, Automatic, Offer, chosen
from testbed.jobs.held_hosts import Holdings
from testbed.jobs.manager import Jobs, means_of
from testbed.jobs.request import JobRequest
from testbed.jobs.supply import Start, Supply
from testbed.jobs.user_files import UserFiles
from testbed.messages.automatic import AutomaticChoice
from testbed.messages.coding import plain
from testbed.ocs.circuits import Circuit, checked
from testbed.ocs.plan import plan_planes
from testbed.plugins import registry
from testbed.plugins.registry import find, programs
from testbed.queue.layouts import check_against
from testbed.queue.submission import parse as submitted
from testbed.systems.baselines.ring import Ring
from testbed.telemetry.bound import bound
from testbed.telemetry.counters import MachineReading
from testbed.telemetry.demand import Traffic
from testbed.telemetry.forecast import Forecast, Prospect, forecast
from testbed.telemetry.samples import LinkReading, Recording, Sample
from testbed.topology.addresses import tor_name
from testbed.topology.load import parse
from testbed.topology.places import Host
from testbed.topology.units import Unit
from testbed.wire.spec import LANES
from testbed.wire.transports import GLOO, PACKETS
from tests.machine import InMemory
from tests.processes import spawn
from tests.unit.results import read
from tests.unit.test_admission import Hosts, Switches, Tor
from tests.unit.test_bound import IN_ONE_UNIT, MTU, World

FRAMED = 1514 / (4 * LANES)  # bytes on a link per byte of gradients, votes aside
TCP = 1514 / 1448
ROTATION = {
    "period_ms": 10,
    "guard_ms": 0,
    "matchings": [
        {"start_ms": 0, "circuits": [["u1o1", "u2o1"]]},
        {"start_ms": 5, "circuits": [["u1o1", "u3o1"], ["u2o1", "u4o1"]]},
    ],
}


class Network:
    """A declared network whose circuits a plan would light; nothing of it runs."""

    def __init__(self, circuits: Sequence[tuple[str, str]] = (), schedule: Any = None, **keys: Any) -> None:
        self.topology = parse({"scale": 1, "inc": {"jobs": 2}, **keys}, "test")
        self.lit = checked(circuits, self.topology.planes)
        self.schedule = {} if schedule is None else {"schedule": schedule}
        self.by_hand: dict[str, float] = {}
        self.holdings = Holdings(racks_of(self.topology))
        calls: list[Any] = []
        tors = {dpid: Tor(tor_name(dpid), calls) for dpid in self.topology.switches}
        self.places = Places(self.topology, Switches(tors), Hosts(calls), threading.Lock(), programs())
        self.supply = Supply(self.topology, self, self.places, self.ask, self.holdings)
        self.calls = calls
        self.down: list[str] = []
        self.asked: list[str] = []

    def by_hand_mbps(self, link: str) -> float | None:
        return self.by_hand.get(link)

    def set_rates(self, rates_mbps: Mapping[str, float]) -> None:
        raise AssertionError(rates_mbps)

    def ask(self, operation: str, **arguments: Any) -> Any:
        self.asked.append(operation)
        ends = [list(each.ports) for each in sorted(self.lit)]
        if operation == "circuits":
            return {"circuits": ends, "dark": [], "failed_locks": {}, "down": self.down, **self.schedule}
        assert operation == "plan", "nothing is changed"
        pairs = [(Unit(int(a[1:])), Unit(int(b[1:]))) for a, b in arguments["demands"]]
        topology = self.topology
        has_core = topology.core_link is not None
        network = (topology.ports, topology.planes, has_core, self.down)
        target = plan_planes(self.lit, pairs, *network).target
        return {"target": [list(each.ports) for each in sorted(target)], "removed": [], "added": []}

    def choose(self, *workers: Host, packets: Packets = AS_USUAL, by_policy: bool = False) -> Layout:
        def lay_out(system: System, workers: Sequence[Host], site: Any) -> Layout:
            return self.supply.lay_out(system, workers, site, packets)

        def bounds(layout: Layout) -> Forecast:
            return self.supply.forecast(layout, packets, SIZE_BYTES, by_policy)

        return Automatic(lay_out, bounds).lay_out(workers, self.supply.site())

    def hold(self, sync: str, *workers: Host) -> None:
        layout = self.supply.lay_out(find(sync), workers, self.supply.site(), AS_USUAL)
        assert self.holdings.take(layout) is not None


def bounds_ms(layout: Layout) -> dict[str, float]:
    assert layout.automatic is not None
    assert layout.automatic.system == layout.system
    return dict(layout.automatic.bounds_ms)


def ms_at(mbps: float, vectors: float, framing: float) -> Any:
    return pytest.approx(SIZE_BYTES * vectors * framing * 8e-3 / mbps, rel=0.025)  # with its votes


def units(count: int, hosts: int = 3, **keys: Any) -> list[dict[str, Any]]:
    return [{"hosts": hosts, **keys} for _ in range(count)]


LINKS = {"host_rate_mbps": 1000, "optical_rate_mbps": 1000}
ACROSS = ((1, 1), (1, 2), (2, 1), (2, 2))


# ---------------------------------------------------------------- networks


def test_in_one_rack_switches_are_fastest_and_inc_is_preferred_of_equal_ones() -> None:
    layout = Network(units=units(1, 5), **LINKS).choose((1, 1), (1, 2), (1, 3))
    assert layout.system == "inc"
    assert layout.automatic is not None
    assert set(layout.automatic.refused) == {"aleph-mwcha", "luwu", "trio"}
    allowed = bounds_ms(layout)
    assert allowed["inc"] == allowed["switches"] == ms_at(1000, 1, FRAMED)
    assert allowed["ring"] == ms_at(1000, 4 / 3, TCP)
    assert allowed["ps"] == ms_at(1000, 3, TCP)
    assert layout.automatic.line == (
        "auto: inc, 86 ms for 10 MB at least; switches 86, ring 112, ps 253, aleph 258, aleph-servers 258"
    )


def test_over_one_circuit_of_two_units_sums_at_switches_need_it_once() -> None:
    network = Network(units=units(2, optical_ports=1), **LINKS)
    layout = network.choose(*ACROSS)
    assert layout.system == "switches", "of inc a host's link carries two partial sums"
    allowed = bounds_ms(layout)
    assert allowed["switches"] == ms_at(1000, 1, FRAMED)
    assert allowed["inc"] == ms_at(1000, 2, FRAMED)
    assert allowed["ring"] == ms_at(1000, 1.5, TCP)
    assert not network.holdings.layouts()
    assert not network.places.occupancy()
    assert not network.calls
    assert set(network.asked) == {"circuits", "plan"}


def test_the_circuit_is_what_bounds_if_it_is_slow_and_then_inc_is_preferred() -> None:
    keys = {**LINKS, "optical_rate_mbps": 100}
    layout = Network(units=units(2, optical_ports=1), **keys).choose(*ACROSS)
    assert layout.system == "inc"
    allowed = bounds_ms(layout)
    assert allowed["inc"] == allowed["switches"] == ms_at(100, 1, FRAMED)
    assert allowed["ps"] == ms_at(100, 2, TCP)


def test_in_a_ring_of_four_units_sums_that_need_more_ports_are_refused_and_say_so() -> None:
    around = [("u1o2", "u2o1"), ("u2o2", "u3o1"), ("u3o2", "u4o1"), ("u4o2", "u1o1")]
    network = Network(around, units=units(4, optical_ports=2), **LINKS)
    layout = network.choose((1, 1), (2, 1), (3, 1), (4, 1))
    assert layout.system == "ring"
    assert layout.automatic is not None
    assert bounds_ms(layout)["ring"] == ms_at(1000, 1.5, TCP)
    assert "optical port" in layout.automatic.refused["switches"]
    assert "; not " in layout.automatic.line


def test_while_a_timetable_runs_all_systems_are_bounded_by_their_share_of_the_light() -> None:
    keys = {**LINKS, "units": units(4), "ocs": {"calendar_packets": 100}}
    layout = Network(schedule=ROTATION, **keys).choose(*ACROSS)
    assert layout.system == "inc"
    assert layout.automatic is not None
    allowed = bounds_ms(layout)
    assert allowed["inc"] == allowed["switches"] == ms_at(500, 1, FRAMED)
    assert allowed["ring"] == ms_at(500, 1.5, TCP)
    assert allowed["ps"] == ms_at(500, 2, TCP)


def test_a_circuit_of_every_matching_counts_in_full() -> None:
    matchings = [{"start_ms": start_ms, "circuits": [["u1o1", "u2o1"]]} for start_ms in (0, 5)]
    always = {**ROTATION, "matchings": matchings}
    keys = {**LINKS, "units": units(2), "optical_rate_mbps": 200, "ocs": {"calendar_packets": 100}}
    assert bounds_ms(Network(schedule=always, **keys).choose(*ACROSS))["ring"] == ms_at(200, 1.5, TCP)


def test_units_without_circuits_are_joined_by_a_core_at_its_rate() -> None:
    keys = {**LINKS, "core": {"rate_mbps": 100}}
    layout = Network(units=units(2, optical_ports=0), **keys).choose(*ACROSS)
    assert layout.system == "inc"
    assert bounds_ms(layout)["ring"] == ms_at(100, 1.5, TCP)
    assert bounds_ms(layout)["switches"] == ms_at(100, 1, FRAMED)


def test_in_a_pod_the_links_of_racks_count() -> None:
    keys = {**LINKS, "pod_rate_mbps": 50}
    layout = Network(units=[{"racks": 2, "hosts": 3}], **keys).choose((1, 257), (1, 258), (1, 513))
    allowed = bounds_ms(layout)
    assert allowed["inc"] == allowed["switches"] == ms_at(50, 1, FRAMED)
    assert allowed["ring"] == ms_at(50, 4 / 3, TCP)


def test_a_slow_link_of_a_parameter_server_counts_and_one_set_by_hand() -> None:
    first, second = {"hosts": [{"rate_mbps": 1000}, {"rate_mbps": 1000}, {"rate_mbps": 10}]}, {"hosts": 2}
    network = Network(units=[first, {**second, "optical_ports": 1}], **LINKS)
    allowed = bounds_ms(network.choose((1, 1), (1, 2)))
    assert allowed["inc"] == ms_at(1000, 1, FRAMED)
    slow = network.choose(*ACROSS)
    assert slow.system == "switches"
    assert bounds_ms(slow)["ps"] == ms_at(10, 4, TCP)
    network.by_hand["u1h2"] = 20.0
    assert bounds_ms(network.choose((1, 1), (1, 2)))["inc"] == ms_at(20, 1, FRAMED)


def test_other_jobs_on_the_same_circuits_leave_a_fair_share() -> None:
    keys = {**LINKS, "optical_rate_mbps": 100}
    network = Network(units=units(2, 4, optical_ports=1), **keys)
    network.hold("ring", (1, 3), (2, 3))
    assert bounds_ms(network.choose(*ACROSS))["switches"] == ms_at(50, 1, FRAMED)


def test_places_without_room_are_refused_and_hold_nothing() -> None:
    network = Network(units=units(1, 8), **LINKS)
    for number in (1, 2):
        workers = ((1, 2 * number + 1), (1, 2 * number + 2))
        network.hold("switches", *workers)
        layout = network.holdings.layouts()[number]
        network.supply.give(number, number, Start(layout))
    before = network.places.occupancy()
    layout = network.choose((1, 1), (1, 2))
    assert layout.system == "ring"
    assert layout.automatic is not None
    assert layout.automatic.refused["inc"].startswith("u1: it sums for 2 jobs at most")
    assert "; not inc, switches (u1: it sums" in layout.automatic.line
    assert network.places.occupancy() == before


def test_a_queued_job_counts_with_the_circuits_that_its_policy_lights() -> None:
    network = Network(units=units(2, optical_ports=1), **LINKS)
    with network.supply.left_to_policy():
        assert network.choose(*ACROSS, by_policy=True).system == "switches"
        with pytest.raises(RequestError, match=r"^--sync auto: no system .*; ring: the circuits are the sch"):
            network.choose(*ACROSS)


def test_a_queued_jobs_circuits_are_lit_in_turn_if_its_policy_can_rotate_them() -> None:
    network = Network(units=units(4, optical_ports=1), **LINKS)
    with network.supply.left_to_policy():
        layout = network.choose((1, 1), (2, 1), (3, 1), (4, 1), by_policy=True)
    assert bounds_ms(layout)["ring"] == ms_at(1000 / 2, 1.5, TCP), "each pair has half of the time"


@pytest.mark.parametrize("by_policy", [False, True])
def test_planes_do_not_matter_to_a_queued_job(by_policy: bool) -> None:
    keys = {"optical_ports": {"ours": 1, "theirs": 1}, "ocs": {"planes": {"ours": {}, "theirs": {}}}}
    network = Network(units=units(2), **LINKS, **keys)
    with network.supply.left_to_policy() if by_policy else contextlib.nullcontext():
        assert network.choose(*ACROSS, by_policy=by_policy).system == "switches"


def test_links_that_are_down_carry_nothing() -> None:
    slow = {"host_rate_mbps": 1000, "optical_rate_mbps": 100}
    two = Network([("u1o1", "u2o1"), ("u1o2", "u2o2")], units=units(2, optical_ports=2), **slow)
    assert bounds_ms(two.choose((1, 1), (2, 1)))["ring"] == ms_at(200, 1, TCP)
    two.down = ["u2o2"]
    assert bounds_ms(two.choose((1, 1), (2, 1)))["ring"] == ms_at(100, 1, TCP)
    core = {**LINKS, "optical_ports": 1, "core": {"rate_mbps": 50}}
    three = Network([("u1o1", "u2o1")], units=units(3), **core)
    three.hold("ring", (1, 2), (2, 2))
    assert three.choose((1, 1), (3, 1)).automatic is not None
    three.down = ["u3c"]
    assert bounds_ms(three.choose((1, 1), (3, 1)))["ring"] == ms_at(1000, 1, TCP), "by a circuit of its own"


def test_a_controller_that_is_away_is_no_reason_for_another_system() -> None:
    network = Network(units=units(2, optical_ports=1), **LINKS)
    ask = network.supply._controller

    def away(operation: str, **arguments: Any) -> Any:
        if operation == "plan":
            raise TestbedError("the controller is not running")
        return ask(operation, **arguments)

    with (
        mock.patch.object(network.supply, "_controller", away),
        pytest.raises(TestbedError, match=r"^the controller is not running$"),
    ):
        network.choose(*ACROSS)


def test_fewer_lanes_leave_the_systems_that_have_packets() -> None:
    layout = Network(units=units(1, 5), **LINKS).choose((1, 1), (1, 2), packets=Packets(lanes=64))
    assert {"inc", "switches"} <= set(bounds_ms(layout)) <= {"aleph", "aleph-servers", "inc", "switches"}


def test_links_without_rates_bound_nothing() -> None:
    network = Network(units=units(1), host_rate_mbps="unshaped")
    layout = network.choose((1, 1), (1, 2))
    assert layout.system == "inc"
    assert layout.automatic is not None
    assert layout.automatic.line == "auto: inc, which no link holds up"


def test_a_job_with_its_server_somewhere_gets_a_system_that_has_one(tmp_path: Path) -> None:
    """As `testbed run --ps u2 --sync auto`: of the systems with a server, the one with the least bound."""
    topology = parse({"units": units(2), "scale": 1, **LINKS}, "test")
    network = Network(units=units(2), **LINKS)
    means = means_of(
        Runtime("t", tmp_path), topology, InMemory(topology), network.ask, network.places, UserFiles(spawn)
    )
    data = {"script": "x.py", "arguments": [], "cwd": "/", "environ": {}, "sync": "auto", "server_at": "u2"}
    request = JobRequest.parse(data, Caller.of_this_process())
    layout = Jobs(means)._lay_out_for(request, [(Unit(1), 1), (Unit(1), 2)], frozenset())
    assert (layout.system, layout.server) == ("ps", (2, 1))
    assert layout.automatic is not None
    assert layout.automatic.refused["ring"] == (
        "--ps u2: with --sync ring and these workers there is no server to place"
    )


def test_a_submission_needs_one_system_that_can_sum_and_a_queued_job_says_its_choice() -> None:
    topology = parse({"units": units(2), "scale": 1, **LINKS}, "test")
    job = {"script": "x.py", "place": "u1:2,u2:1", "sync": "auto", "iterations": 1, "megabytes": 1}
    check_against(submitted({"jobs": [job]}), topology)
    with pytest.raises(RequestError, match=r"lanes 900: 64 to 360"):
        check_against(submitted({"jobs": [{**job, "lanes": 900}]}), topology)


def test_no_system_may_have_the_name_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    class Usurper(Ring):
        name = "auto"

    package = SimpleNamespace(__name__="testbed.systems.usurper", SYSTEMS=(Usurper(),))
    monkeypatch.setattr(registry, "_packages", lambda: (package,))
    with pytest.raises(TestbedError, match=r"^system 'auto' in testbed.systems.usurper: the name stands"):
        registry.systems.__wrapped__()


# ---------------------------------------------------------------- the choice


def candidate(name: str, ms: float, hosts: int = 2) -> Offer:
    return Offer(Layout(name, tuple((1, host + 1) for host in range(hosts)), PACKETS), Forecast(ms))


def test_the_least_bound_wins_and_equal_ones_go_by_a_fixed_order() -> None:
    assert chosen([candidate("b", 10), candidate("a", 11)], {}, "x").system == "b"
    assert chosen([candidate("x", 10.09), candidate("a", 10)], {}, "x").system == "x"
    assert chosen([candidate("x", 10.11), candidate("a", 10)], {}, "x").system == "a"
    assert chosen([candidate("b", 10, 2), candidate("a", 10, 3)], {}, "x").system == "b"
    assert chosen([candidate("b", 10), candidate("a", 10.05)], {}, "x").system == "a"


def test_a_choice_is_one_line_and_no_candidate_is_an_error_with_each_reason() -> None:
    layout = chosen([candidate("ring", 63.4), candidate("switches", 4.27)], {"a": "no", "b": "no"}, "inc")
    assert layout.automatic is not None
    assert layout.automatic.line == "auto: switches, 4.3 ms for 10 MB at least; ring 63; not a, b (no)"
    assert list(layout.automatic.bounds_ms) == ["switches", "ring"]
    with pytest.raises(RequestError, match=r"^--sync auto: no system can sum this job: inc: no p; ps: no h$"):
        chosen([], {"inc": "no p", "ps": "no h"}, "inc")


# ---------------------------------------------------------------- the verdict's own bound


def test_a_forecast_is_the_bound_of_a_job_that_only_sums() -> None:
    world = World(computing_s=0.0, first_s=0.0)
    later = world.bound()
    assert later is not None
    rates = {"u1h1": 100.0, "u1h2": 100.0}
    foreseen = forecast(IN_ONE_UNIT, world.size_bytes, Prospect(rates, (Unit(1),)))
    assert foreseen.bound_ms == pytest.approx(later.bound_ms)
    assert foreseen.link in ("u1h1 up", "u1h1 down")


def test_a_forecast_over_a_circuit_is_the_bound_by_that_circuit_s_counters() -> None:
    """The counters are those that a ring of two units leaves: one and a half vectors each way, whole."""
    hosts = ("u1h1", "u1h2", "u2h1", "u2h2")
    traffic, size_bytes, rounds = Traffic(GLOO, hosts, None, MTU), 1_440_000, 20
    rates = {name: 100.0 for name in hosts} | {"u1o1": 30.0, "u2o1": 30.0}
    lit = frozenset({Circuit("u1o1", "u2o1")})
    foreseen = forecast(traffic, size_bytes, Prospect(rates, (Unit(1), Unit(2)), lit))
    took_s = foreseen.bound_ms / 1e3
    names = tuple(rates)
    recording = Recording(0.1, names, tuple(rates.values()), 1e9)
    crossed = 1.5 * size_bytes * TCP
    began_s, timelines = 50.0, []
    for _ in hosts:
        rows, sums = [], []
        for at in range(rounds):
            asked, ready = (round((began_s + turn * took_s) * 1e9) for turn in (at, at + 1))
            rows += [[0, at, asked, 0, 0], [1, at, asked, 0, 0], [2, at, ready, 0, 0]]
            sums.append([size_bytes, 1, ready])
        timelines.append({"timeline": {"sums": sums, "rows": rows}})
    for at in range(200):
        now_s = began_s + at * 0.1
        values = np.zeros((len(names), 4), np.int64)
        values[4:, :2] = round(min(at * 0.1 / took_s, rounds) * crossed)
        reading = LinkReading(now_s, now_s, values)
        machine = MachineReading(np.zeros((2, 4)), np.zeros((2, 2)), 0.0)
        recording.samples.append(Sample(now_s, None, machine, reading, {}))
    later = bound(recording, timelines, traffic, {})
    assert later is not None
    assert foreseen.bound_ms == pytest.approx(later.bound_ms, rel=0.01)
    assert foreseen.link.partition(" ")[0] in later.link


def test_a_result_s_copies_cross_each_circuit_once_on_the_way_through_other_units() -> None:
    """The sum of u1's switch goes to u2, and through it to u3."""
    workers = ((1, 1), (2, 1), (3, 1))
    layout = find("switches").lay_out(workers, Network(units=units(3), **LINKS).supply.site())
    rates = {"u1o1": 10.0, "u2o1": 10.0, "u2o2": 10.0, "u3o1": 10.0}
    lit = frozenset({Circuit("u1o1", "u2o1"), Circuit("u2o2", "u3o1")})
    foreseen = forecast(
        traffic_of(layout, MTU, None), SIZE_BYTES, Prospect(rates, (Unit(1), Unit(2), Unit(3)), lit)
    )
    assert foreseen.bound_ms == ms_at(10, 2, FRAMED), "two partial sums go up to u1, one result comes down"
    assert foreseen.link in ("u1o1 down", "u2o1 up")


def test_repeated_runs_are_of_the_system_that_summed_the_first() -> None:
    """By the choice, or in its place: places had no room."""
    options = RunOptions("x.py", (), "auto")
    assert options.repeated([]) == options
    first = read()
    assert options.repeated([first]) == options
    choice = AutomaticChoice("switches", SIZE_BYTES, {"switches": 1.0}, {}, "auto: switches")
    for system in ("switches", "ring"):
        later = options.repeated([replace(first, sync=system, automatic=choice), first])
        assert later == replace(options, sync=system)


def test_what_a_result_says_of_a_choice() -> None:
    layout = Network(units=units(1), **LINKS).choose((1, 1), (1, 2))
    assert plain(layout.automatic)["size_bytes"] == SIZE_BYTES
