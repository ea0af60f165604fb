"""The observation of a job: faults on its links, other traffic, and a controller that is away."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.aggregation.system import Layout
from testbed.emulation.ports import PortWatch
from testbed.errors import TestbedError
from testbed.jobs.observation import Observation, Observed, faults_in_words
from testbed.jobs.surroundings import Surroundings
from testbed.local.counters import KernelCounters
from testbed.machine.links import LinkDelay, LinkDisturbance, LinkFault
from testbed.messages.coding import as_json
from testbed.messages.controller import NetworkLight
from testbed.messages.verdict import JobVerdict
from testbed.telemetry.sampler import Sampler
from testbed.telemetry.samples import Recording
from testbed.topology.load import parse
from testbed.topology.model import Topology
from testbed.wire.transports import GLOO
from tests.limits import CALL_S
from tests.unit.recordings import made
from tests.unit.test_bound import ACROSS, ALONE_S, MTU, Neighbours


def two_units(engine: str = "xdp") -> Topology:
    return parse({"units": [{"hosts": 1, "engine": engine}, {"hosts": 1}]}, "made up")


def test_faults_in_words_by_link_and_direction() -> None:
    states = [
        LinkDisturbance("u1h1", "up", LinkFault(loss=0.1)),
        LinkDisturbance("u1h1", "both ways", LinkDelay(5.0)),
    ]
    assert faults_in_words(states) == [
        ("u1h1", "u1h1 up loss 10%"),
        ("u1h1", "u1h1 both ways delay 5 ms"),
    ]


def test_a_fault_that_another_replaced_is_told_as_well() -> None:
    delays = [LinkDisturbance("u1h1", "both ways", LinkDelay(ms)) for ms in (5.0, 20.0, 5.0)]
    assert [text for _, text in faults_in_words(delays)] == [
        "u1h1 both ways delay 5 ms",
        "u1h1 both ways delay 20 ms",
    ]


def test_a_controller_that_is_away_is_said_and_not_passed_over() -> None:
    def away(op: str, **_: object) -> object:
        raise TestbedError("the controller is away")

    around = Surroundings("h", two_units(), away, list, KernelCounters())
    scene = around.look([])
    network = around.network(scene, scene)
    assert network.unknown == "the controller is away"
    assert network.stretches == ()


@dataclass(frozen=True)
class Counted:
    """A link's counters, as the fabric has them."""

    bytes_ab: int = 0
    bytes_ba: int = 0
    rate_mbps: float | None = 100.0
    drops: int = 0
    device_drops: int = 0
    backlog_bytes: int = 0
    is_up: bool = True


class Hosts:
    """A fabric on which nothing else happens. `sent`: by link, its bytes of the job's life, each way."""

    def __init__(self, sent: Mapping[str, int]) -> None:
        self._sent, self._looks = sent, 0
        self.faults: Sequence[LinkDisturbance] = ()

    def statistics(self, queues_only: bool = False) -> Mapping[str, Any]:
        self._looks += 1
        ended = self._looks > 1
        return {name: Counted(count * ended, count * ended) for name, count in self._sent.items()}

    def gone_links(self) -> Mapping[str, str]:
        return {}

    def unsent(self, hosts: Sequence[str]) -> Mapping[str, int]:
        return dict.fromkeys(hosts, 0)

    def fault_states(self) -> Sequence[LinkDisturbance]:
        return self.faults

    def ended_faults(self, since_s: float) -> Sequence[LinkDisturbance]:
        return ()

    def ever_by_hand(self) -> Collection[str]:
        return ()

    def watch_ports(self, hosts: Sequence[str], signs: Sequence[bytes]) -> PortWatch:
        return PortWatch({host: Path(__file__) for host in hosts}, signs)  # no process is in it


class Recorded(Sampler):
    """A sampler that has a made-up recording."""

    def __init__(self, recording: Recording) -> None:
        self._made = recording

    @contextlib.contextmanager
    def recording(self) -> Iterator[Recording]:
        yield self._made

    def recent(self, seconds: float) -> Recording | None:
        return self._made


def outlook(
    recording: Recording,
    hosts: Sequence[str] = ("u1h1", "u1h2"),
    flows: Sequence[Sequence[Any]] = (),
    faults: Sequence[LinkDisturbance] = (),
) -> JobVerdict:
    """Return the verdict on the last seconds of a job at these hosts, after whose begin there were these
    flows and faults.
    """
    looks: list[int] = []

    def controller(op: str, **_: object) -> Any:
        if op == "history":
            return []
        looks.append(1)
        light = {"circuits": [], "timetables": [], "crossings": {}, "last_event": 0, "links": []}
        return {**light, "flows": flows if len(looks) > 1 else []}

    around = Surroundings(
        "h", parse({"units": [{"hosts": 2}]}, "made up"), controller, list, KernelCounters()
    )
    layout = Layout("inc", tuple((1, int(host[-1])) for host in hosts), GLOO)
    fabric = Hosts(dict.fromkeys(recording.names, 0))
    with Observation(Recorded(recording), fabric, fabric, hosts, MTU, around) as observation:
        fabric.faults = faults
        seen = observation.outlook(layout, 1)
        assert observation.outlook(layout, 1) is not None
        assert len(looks) == 2, "one looks around at most every few seconds, however many ask"
    assert seen is not None
    return seen


def test_the_verdict_so_far_is_by_how_full_the_links_are() -> None:
    full = outlook(made([0.2] * 50, [0.97] * 50))
    half = outlook(made([0.9] * 50, [0.5] * 50))
    assert full.trustworthy is True
    assert (half.trustworthy, half.reasons[0].name) == (False, "machine_bound")
    assert outlook(made([0.1] * 50, [0.0] * 50)).trustworthy is None
    elsewhere = outlook(made([0.2] * 50, [0.97] * 50, drops=9), ["u1h2"])
    assert "queue_drops" not in [note.name for note in elsewhere.notes], "those are of another's link"


def test_the_verdict_so_far_knows_what_happened() -> None:
    recording = made([0.2] * 50, [0.97] * 50)
    crowded = outlook(recording, flows=[["10.0.1.1", "10.0.1.2", 17, 5001, 20_000_000]])
    assert [reason.name for reason in crowded.reasons] == ["other_traffic"]
    faults = [LinkDisturbance("u1h1", "up", LinkFault(loss=0.1))]
    assert "faults" in [note.name for note in outlook(recording, faults=faults).notes]


def test_who_asks_while_another_waits_for_the_controller_is_answered() -> None:
    asked, answers = threading.Event(), threading.Event()

    def controller(op: str, **_: object) -> Any:
        asked.set()
        assert answers.wait(CALL_S)
        return [] if op == "history" else as_json(NetworkLight((), (), {}, (), 0, ()))

    around = Surroundings("h", two_units(), controller, list, KernelCounters())
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(around.lately, lambda _: [])
        try:
            assert asked.wait(CALL_S)
            assert around.lately(lambda _: []) == ()
        finally:
            answers.set()
        assert len(first.result()) == 1


def test_a_job_that_nobody_looks_around_for_has_no_verdict_yet() -> None:
    recording = made([0.2] * 50, [0.97] * 50)
    machine = Hosts({"u1h1": 0})
    with Observation(Recorded(recording), machine, machine, ("u1h1",), MTU) as observation:
        assert observation.outlook(Layout("inc", ((1, 1),), GLOO), 1) is None


def report(
    world: Neighbours,
    flows: Sequence[Sequence[Any]] | None,
    sees_sums: bool = True,
    engine: str = "xdp",
) -> Observed:
    """Return what is observed of a job of workers at u1h1 and u2h1, beside which there were these flows;
    None: the controller was away.
    """
    looks: list[int] = []

    def controller(op: str, **_: object) -> Any:
        if flows is None:
            raise TestbedError("the controller is away")
        if op == "history":
            return []
        looks.append(1)
        light = {
            "circuits": [("u1o1", "u2o1")],
            "timetables": [],
            "crossings": {},
            "last_event": 0,
            "links": [],
        }
        return {**light, "flows": flows if len(looks) > 1 else []}

    recording = world.recording()
    last = recording.samples[-1].links
    assert last is not None
    sent = {name: int(row[0]) for name, row in zip(recording.names, last.values, strict=True)}
    around = Surroundings("h", two_units(engine), controller, list, KernelCounters())
    layout = Layout("ring", ((1, 1), (2, 1)), GLOO, demands=((1, 2),))
    machine = Hosts(sent)
    with Observation(Recorded(recording), machine, machine, ("u1h1", "u2h1"), MTU, around) as observation:
        pass
    left = [world.timeline() if sees_sums else None] * 2
    return observation.report(left, ACROSS, None, False, layout=layout, job=1)


@pytest.mark.parametrize("sees_sums", [True, False])
def test_other_traffic_between_the_jobs_own_hosts_makes_no_result_trustworthy(sees_sums: bool) -> None:
    """It takes half of the optical link, and fills it with the job's; the machine adds nothing."""
    world = Neighbours(2 * ALONE_S, 0.5, 0.5, {}, rounds=40)
    flows = [["10.0.1.1", "10.0.2.1", 17, 5001, 20_000_000]]
    seen = report(world, flows, sees_sums)
    assert seen.bound is not None
    assert seen.bound.coarse != sees_sums
    assert seen.verdict.trustworthy is False, seen.verdict.line
    assert [reason.name for reason in seen.verdict.reasons] == ["other_traffic"]
    assert {each.link for each in seen.other_traffic} == {"u1h1", "u2h1", "u1o1", "u2o1"}


@pytest.mark.parametrize("goal", ["10.0.2.77", "10.0.2.254"])
def test_what_is_sent_to_no_host_of_a_unit_is_on_the_links_to_it(goal: str) -> None:
    """It is for a host that is not there, or for the unit's switch."""
    seen = report(Neighbours(2 * ALONE_S, 0.5, 0.5, {}, rounds=40), [["10.0.1.1", goal, 17, 9, 20_000_000]])
    assert {each.link for each in seen.other_traffic} == {"u1h1", "u1o1", "u2o1"}
    assert seen.verdict.trustworthy is False, seen.verdict.line
    far = report(Neighbours(ALONE_S, 0.0, 0.0, {}, rounds=40), [["10.0.1.1", "9.9.9.9", 17, 9, 20_000_000]])
    assert far.other_traffic == ()


@pytest.mark.parametrize(
    ("flows", "engine", "why"),
    [(None, "xdp", "the controller is away"), ([], "bmv2", "units with engine: bmv2 count none")],
)
def test_where_other_traffic_is_not_known_it_is_not_taken_for_the_jobs(
    flows: list[Any] | None, engine: str, why: str
) -> None:
    world = Neighbours(2 * ALONE_S, 0.5, 0.5, {}, rounds=40)
    assert report(world, []).verdict.trustworthy, "what no flow has is the job's"
    seen = report(world, flows, engine=engine)
    assert seen.verdict.trustworthy is False, seen.verdict.line
    alone = report(Neighbours(ALONE_S, 0.0, 0.0, {}, rounds=40), flows, engine=engine)
    assert alone.verdict.trustworthy, alone.verdict.line
    coarse = report(world, flows, False, engine)
    assert [reason.name for reason in coarse.verdict.reasons] == ["traffic_unknown"]
    assert coarse.verdict.line.endswith(why)
