"""`testbed reproduce rotor`: its timetables and bounds; what is said of the papers, shown, drawn and asked.
Made-up runs, no testbed.
"""

from __future__ import annotations

import argparse
import io
import itertools
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import networkx as nx
import pytest
from rich.console import Console

from reproductions.reports import LoadVerdict
from reproductions.rotor import FIGURES, bounds, measuring, timetables
from reproductions.rotor.bounds import Demand
from reproductions.rotor.latency import claims as of_latency
from reproductions.rotor.latency import setting
from reproductions.rotor.latency.runs import LatencyReport, LatencyRow
from reproductions.rotor.throughput import claims as of_throughput
from reproductions.rotor.throughput.demands import DEMANDS, ROUTINGS, bound, senders, wanted
from reproductions.rotor.throughput.runs import LIT, RotationReport, RotationRow
from reproductions.verdicts import AGREES, DIFFERS
from testbed.errors import RequestError, TestbedError
from testbed.flows.coflow_trace import load as load_trace
from testbed.flows.generators import TrafficReader
from testbed.messages.coding import plain
from testbed.messages.verdict import Reason
from testbed.ocs.timetable import parse
from testbed.topology.load import load
from tests.unit import results

TRUSTED = LoadVerdict(True, ())


# ---- timetables ----


@pytest.mark.parametrize("units", timetables.UNITS)
def test_a_rotation_joins_each_two_units_once_and_each_unit_always(units: int) -> None:
    rotation = timetables.round_robin(units)
    joined = [tuple(sorted(pair)) for matching in rotation for pair in matching]
    assert sorted(joined) == [*itertools.combinations(range(1, units + 1), 2)]
    for matching in rotation:
        assert sorted(unit for pair in matching for unit in pair) == [*range(1, units + 1)]


@pytest.mark.parametrize("units", timetables.UNITS)
def test_rotornets_units_meet_equally_long(units: int) -> None:
    timetable = timetables.rotornet(units, 10.0, 1.0, "vlb")
    assert parse(timetable, None).routing == "vlb"
    for a, b in itertools.combinations(range(1, units + 1), 2):
        assert timetables.lit_share(timetable, a, b) == pytest.approx(0.9 / (units - 1))


@pytest.mark.parametrize("units", timetables.OPERA_UNITS)
def test_operas_units_meet_equally_long_and_are_always_all_joined(units: int) -> None:
    timetable = timetables.opera(units, 10.0, 1.0, "opera")
    assert parse(timetable, None).guard_ns == 0
    ports = timetables.OPERA_PORTS
    for a, b in itertools.combinations(range(1, units + 1), 2):
        share = timetables.lit_share(timetable, a, b)
        assert share == pytest.approx(ports * setting.LIT / (units - 1))
    for number, matching in enumerate(timetable["matchings"]):
        assert timetables.is_joined(units, matching["circuits"])
        pairs = [tuple(sorted(end[:2] for end in circuit)) for circuit in matching["circuits"]]
        assert len(pairs) == len(set(pairs)), "ports have different matchings"
        assert len(pairs) == (ports - (number % 2 == 0)) * units // 2, "one port is absent at a time"


def test_circuits_that_change_are_dark_for_the_guard_and_others_are_not() -> None:
    stays, changes = ["u1o1", "u2o1"], ["u3o1", "u4o1"]
    matchings = [{"start_ms": 0.0, "circuits": [stays, changes]}, {"start_ms": 5.0, "circuits": [stays]}]
    timetable = {"period_ms": 10.0, "guard_ms": 1.0, "matchings": matchings}
    assert timetables.lit_share(timetable, 2, 1) == 1.0
    assert timetables.lit_share(timetable, 3, 4) == pytest.approx(0.4)
    assert not timetables.is_joined(4, matchings[0]["circuits"])


def test_the_time_by_direct_circuits_is_the_wait_and_the_light_that_bytes_need() -> None:
    matchings = [{"start_ms": 0.0, "circuits": [["u1o1", "u2o1"]]}, {"start_ms": 2.0, "circuits": []}]
    timetable = {"period_ms": 10.0, "guard_ms": 0.0, "matchings": matchings}
    # a fifth of all moments waits for nothing; the wait of the others is even from 8 ms down to 0
    assert timetables.median_direct_ms(timetable, 2, 0.0) == pytest.approx(3.0, abs=0.1)
    # a fifth takes 20 ms, the others from 20 ms down to 12
    assert timetables.median_direct_ms(timetable, 2, 4.0) == pytest.approx(17.0, abs=0.1)


def test_hops_are_those_of_the_shortest_way() -> None:
    assert timetables.mean_hops(timetables.opera(6, 10.0, 1.0, "opera"), 6) == pytest.approx(1.44)


# ---- bounds ----


def _by_trial(demand: Demand, share: float, step: float) -> float:
    """Return the best of all detours of three units in steps: each pair has one."""
    best, pairs = 0.0, [*itertools.permutations((1, 2, 3), 2)]
    choices = [
        [step * count for count in range(int(min(share, demand.get(pair, 0.0)) / step) + 1)] for pair in pairs
    ]
    for amounts in itertools.product(*choices):
        load = dict.fromkeys(pairs, 0.0)
        for (sender, goal), amount in zip(pairs, amounts, strict=True):
            by = 6 - sender - goal
            load[sender, by] += amount
            load[by, goal] += amount
        if max(load.values()) <= share + 1e-9:
            direct = (
                min(demand.get(pair, 0.0) - amount, share - load[pair])
                for pair, amount in zip(pairs, amounts, strict=True)
            )
            best = max(best, sum(amounts) + sum(direct))
    return best


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_with_one_detour_is_the_best_of_all_trials(seed: int) -> None:
    draw = Random(seed)
    pairs = draw.sample([*itertools.permutations((1, 2, 3), 2)], draw.randint(1, 6))
    demand = {pair: draw.choice((0.25, 0.5, 1.0, 1.5)) for pair in pairs}
    assert bounds.two_hops(demand, 0.5, 3) == pytest.approx(_by_trial(demand, 0.5, 0.125))


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_of_any_hops_is_the_greatest_flow_to_one_goal(seed: int) -> None:
    draw, graph = Random(seed), nx.DiGraph()
    for pair in itertools.permutations(range(1, 6), 2):
        graph.add_edge(*pair, capacity=0.2)
    demand = {(sender, 5): draw.uniform(0, 0.6) for sender in range(1, 5)}
    for (sender, _), share in demand.items():
        graph.add_edge("all", sender, capacity=share)
    assert bounds.any_hops(demand, 0.2, 5) == pytest.approx(nx.maximum_flow_value(graph, "all", 5))


@pytest.mark.parametrize("units", timetables.UNITS)
def test_bounds_of_known_demands(units: int) -> None:
    share = 0.9 / (units - 1)
    for name, make in DEMANDS.items():
        demand = make(units)
        assert wanted(demand) == pytest.approx(1.0)
        received: dict[int, float] = {}
        for (_, goal), amount in demand.items():
            received[goal] = received.get(goal, 0.0) + amount
        assert max(received.values()) <= 1 + 1e-9, "a packet switch carries all of it"
        direct, vlb, hoho = (bound(demand, routing, units, 0.9) for routing in ROUTINGS)
        assert direct <= vlb + 1e-9 <= hoho + 2e-9, name
        assert 0.5 * 0.95 <= vlb <= 1, name
    assert bound(DEMANDS["uniform"](units), "vlb", units, 0.9) == pytest.approx(0.9)
    permutation = DEMANDS["permutation"](units)
    assert bound(permutation, "direct", units, 0.9) == pytest.approx(share)
    assert bound(permutation, "vlb", units, 0.9) == pytest.approx(share * units / 2)
    assert senders(DEMANDS["few"](units)) == units // 4


# ---- the traffic ----


def test_both_networks_and_their_traffic_are_accepted(tmp_path: Path) -> None:
    for ports in (1, timetables.OPERA_PORTS):
        file = tmp_path / f"{ports}.yaml"
        file.write_text(measuring.network(8, ports, 10.0))
        topology = load(file)
        assert len(topology.units) == 8
    rates = {f"u{unit}h1": 60.0 for unit in range(1, 9)}
    reader = TrafficReader(rates, {}, tmp_path, load_trace)
    short, bulk = (reader.read(setting.traffic(8, mbps), "traffic") for mbps in (0.0, 14.0))
    assert (len(short), len(bulk)) == (3, 59)
    assert sum(getattr(each, "rate_mbps", None) or 0.0 for each in bulk) == pytest.approx(8 * 14)


def test_flows_are_bound_by_their_bytes_and_by_the_wait_for_direct_circuits() -> None:
    assert setting.wire_ms(10) == pytest.approx((10_000 + 7 * 66) * 8 / 1e3 / setting.PORT_MBPS)
    by_routing = [setting.bound_ms(8, routing, 10) for routing in ("opera", "at-once", "direct")]
    assert by_routing[0] == by_routing[1] == setting.wire_ms(10)
    assert by_routing[2] > by_routing[0] + 5


@pytest.mark.parametrize(
    ("missed", "reached", "trustworthy", "names"),
    [
        (0.001, 5.0, True, []),
        (0.03, 5.0, True, ["late"]),
        (0.001, 5.2, True, ["beyond"]),
        (0.0, 5.0, False, ["traffic"]),
    ],
)
def test_a_run_that_the_machine_could_have_shaped_is_not_trusted(
    missed: float, reached: float, trustworthy: bool, names: list[str]
) -> None:
    result = replace(results.traffic(), trustworthy=trustworthy)
    verdict = measuring.verdict(measuring.TrafficRun(result, missed), reached, 5.0)
    assert [reason.name for reason in verdict.reasons] == names
    assert verdict.trustworthy is not bool(names)


class MadeUpTestbed:
    """A testbed whose queues hold packets for so many looks after the traffic, and that notes its calls."""

    def __init__(self, looks: int) -> None:
        self.looks, self.calls, self.circuits = looks, list[str](), self

    def schedule(self, timetable: Any) -> None:
        self.calls.append("schedule")

    def unschedule(self) -> None:
        self.calls.append("unschedule")

    def traffic(self, *_: Any, **__: Any) -> Any:
        self.calls.append("traffic")
        return results.traffic()

    def queues(self) -> list[dict[str, int]]:
        self.calls.append("queues")
        if "traffic" not in self.calls:
            return [{"sent": 100, "missed": 5, "waiting": 0}]
        self.looks -= 1
        return [{"sent": 200, "missed": 5, "waiting": 0}, {"sent": 100, "missed": 2, "waiting": self.looks}]


def test_a_timetable_ends_when_no_packet_waits_and_only_its_own_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measuring.time, "sleep", lambda _: None)
    testbed: Any = MadeUpTestbed(3)
    run = measuring.carried(testbed, {}, [], 1.0, 1.0)
    assert testbed.calls == ["queues", "schedule", "traffic", *3 * ["queues"], "unschedule"]
    assert run.missed == pytest.approx(2 / 200)


def test_packets_that_wait_for_ever_end_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "EMPTY_S", -1.0)
    testbed: Any = MadeUpTestbed(10)
    with pytest.raises(TestbedError, match=r"^9 packets still wait -1 s after the traffic's end$"):
        measuring.carried(testbed, {}, [], 1.0, 1.0)
    assert testbed.calls[-1] == "unschedule"


# ---- claims, tables, pictures ----


def throughput_row(demand: str, routing: str, mbps: float) -> RotationRow:
    most = 9.7 * bound(DEMANDS[demand](8), routing, 8, LIT)
    return RotationRow(demand, routing, mbps, most, 9.7, 0.001, TRUSTED)


THROUGHPUT = [
    throughput_row("uniform", "direct", 8.6),
    throughput_row("uniform", "vlb", 8.5),
    throughput_row("permutation", "direct", 1.24),
    throughput_row("permutation", "vlb", 4.9),
    throughput_row("permutation", "hoho", 3.4),
]


def latency_row(routing: str, bulk: bool, median_ms: float, carried: float = 14.0) -> LatencyRow:
    medians = [median_ms, 5 * median_ms, 50 * median_ms]
    return LatencyRow(
        routing=routing,
        median_ms=medians,
        p99_ms=[3 * each for each in medians],
        bound_ms=[0.85, 8.4, 83.7],
        finished=[1.0, 1.0, 0.98],
        offered_mbps=14.5 if bulk else 0.0,
        carried_mbps=carried if bulk else 0.0,
        missed=0.001,
        verdict=TRUSTED,
    )


LATENCY = [
    latency_row("opera", False, 2.0),
    latency_row("opera", True, 2.5),
    latency_row("direct", False, 9.0),
    latency_row("direct", True, 11.0),
    latency_row("at-once", False, 2.0),
    latency_row("at-once", True, 5.0, carried=10.0),
]


def report_of(name: str) -> dict[str, Any]:
    """Return a figure's report without its stamp, as JSON."""
    report: RotationReport | LatencyReport
    if name == "throughput":
        report = RotationReport(1, 8, 5.0, THROUGHPUT)
    else:
        report = LatencyReport(1, 8, 20.0, 0.6, setting.SIZES_KB, LATENCY)
    return {key: value for key, value in plain(report).items() if key not in ("claims", "live")}


def test_the_claims_on_throughput_agree_with_good_runs_and_differ_from_bad_ones() -> None:
    findings = of_throughput.of(THROUGHPUT, 8)
    assert [finding.verdict for finding in findings] == [AGREES] * 4
    rows = [replace(row, carried_mbps=row.carried_mbps / 3) for row in THROUGHPUT]
    assert {finding.verdict for finding in of_throughput.of(rows, 8)} == {DIFFERS}


def test_the_claims_on_latency_agree_with_good_runs_and_differ_from_bad_ones() -> None:
    assert [finding.verdict for finding in of_latency.of(LATENCY)] == [AGREES] * 8
    slow = [replace(row, median_ms=[99.0, 999.0, 9999.0], p99_ms=[999.0] * 3) for row in LATENCY[:2]]
    rows = [slow[0], replace(slow[1], carried_mbps=5.0), *LATENCY[2:]]
    assert {finding.verdict for finding in of_latency.of(rows)} == {DIFFERS}
    assert of_latency.of(LATENCY[2:4]) == [], "without Opera's runs nothing is said of it"


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.name))
def test_a_report_is_shown_with_the_reasons_of_runs_that_do_not_count(figure: Any, tmp_path: Path) -> None:
    report = {**report_of(figure.name), "figure": figure.name, "claims": []}
    report["rows"][1]["verdict"] = plain(LoadVerdict(False, [Reason("late", "late packets [1]")]))
    console = Console(file=io.StringIO(), width=200, color_system=None)
    figure.show(report, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"{len(report['rows']) - 1} of {len(report['rows'])} runs trustworthy" in text
    assert "late packets [1]" in text
    figure.draw(report, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("throughput", ["--units", "5"], "--units 5: 4, 6, 8 are accepted"),
        (
            "throughput",
            ["--demands", "skew"],
            "--demands skew: accepted are uniform, skewed, permutation, few",
        ),
        ("throughput", ["--routings", "opera"], "--routings opera: accepted are direct, vlb, hoho"),
        ("latency", ["--units", "4"], "--units 4: 6, 8 are accepted"),
        ("latency", ["--bulk", "2"], "--bulk 2.0: 0.05 to 1 are accepted"),
    ],
)
def test_options_that_are_refused(name: str, words: list[str], message: str) -> None:
    figure = next(figure for figure in FIGURES if figure.name == name)
    parser = argparse.ArgumentParser()
    figure.options(parser)
    with pytest.raises(RequestError) as caught:
        figure.check(parser.parse_args(words))
    assert str(caught.value) == message


def test_how_long_the_figures_take() -> None:
    for figure in FIGURES:
        parser = argparse.ArgumentParser()
        figure.options(parser)
        for words in ([], ["--quick"]):
            options = parser.parse_args(words)
            figure.check(options)
            assert 20 < figure.lasts_s(options) < 300
