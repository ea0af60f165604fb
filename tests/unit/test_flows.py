"""Background traffic, decided: which flows a file asks for, and what their outcomes come to."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import RequestError
from testbed.flows.coflow_trace import Coflow
from testbed.flows.generators import Generator, TrafficReader
from testbed.flows.link_limits import LinkLimits, emulated_bytes
from testbed.flows.schedule import MOST_FLOWS, TrafficFlow, arrivals_per_s, asked_mbps, due_until, flows_of
from testbed.flows.sizes import NAMED, SizeDistribution, fixed, read_sizes
from testbed.flows.summary import (
    FlowOutcome,
    FlowRecord,
    MachineFacts,
    generator_traffic,
    lateness,
    quantile,
    remarks,
    too_fast,
    verdict,
)
from testbed.records.traffic_table import traffic_lines
from testbed.topology import load
from tests.unit.results import traffic as result_of_traffic

RATES: dict[str, float | None] = {f"u{unit}h{host}": 100.0 for unit in (1, 2) for host in (1, 2, 3)}
TRACE = (Coflow(1, 500.0, (0, 7), ((1, 4.0), (6, 1.0))), Coflow(2, 90000.0, (0,), ((1, 1.0),)))


def read(*generators: dict[str, Any], rates: dict[str, float | None] = RATES) -> tuple[Generator, ...]:
    named = {"server": "u1h2", **{host: host for host in rates}}
    return TrafficReader(rates, named, Path("/a"), lambda path: TRACE).read(list(generators), "f.yaml")


def flows(*generators: dict[str, Any], seconds: float = 10.0, seed: int = 1) -> tuple[TrafficFlow, ...]:
    return flows_of(read(*generators), RATES, seconds, seed)


POISSON = {"kind": "poisson", "load": 0.3, "sizes": "hadoop"}
INCAST = {"kind": "incast", "to": "u1h1", "from": ["u1h2", "u2h1"], "bytes": 5000, "every_ms": 250}
CONSTANT = {"kind": "constant", "from": "u1h1", "to": "Server", "rate_mbps": 3}
COFLOWS = {"kind": "coflows", "trace": "t.txt", "time_scale": 2, "bytes_scale": 0.5}


# ---- sizes ----


@pytest.mark.parametrize("name", NAMED)
def test_a_named_distribution_draws_its_mean(name: str) -> None:
    random, sizes = Random(7), NAMED[name]
    assert [share for _, share in sizes.points] == sorted(share for _, share in sizes.points)
    drawn = [sizes.draw(random) for _ in range(100_000)]
    assert math.fsum(drawn) / len(drawn) == pytest.approx(sizes.mean_bytes, rel=0.05)
    assert max(drawn) <= sizes.points[-1][0]


def test_means_are_those_of_the_papers_points() -> None:
    """pFabric's data mining has a mean of 5116 packets."""
    assert NAMED["datamining"].mean_bytes / 1460 == pytest.approx(5116, abs=1)
    assert fixed(5).mean_bytes == 5
    assert SizeDistribution(((0, 0), (10, 0.5), (10, 0.5), (30, 1))).mean_bytes == 12.5


def test_a_step_is_drawn_as_often_as_it_says() -> None:
    sizes, random = read_sizes([[3, 0.25], [8, 0.25], [8, 1]], "s"), Random(1)
    drawn = [sizes.draw(random) for _ in range(4000)]
    assert set(drawn) == {3, 8}
    assert drawn.count(3) == pytest.approx(1000, abs=100)


@pytest.mark.parametrize(
    "raw", ["web", 0, True, [], [[1, 0.5]], [[5, 0.5], [1, 1]], [[1, 1, 1]], [[0, 1]], None, {}]
)
def test_other_sizes_are_refused(raw: Any) -> None:
    with pytest.raises(RequestError, match=r"^at\.sizes: .*accepted$"):
        read_sizes(raw, "at.sizes")


# ---- flows ----


def test_the_same_seed_has_the_same_flows_and_another_generator_changes_none() -> None:
    alone = flows(POISSON)
    assert alone == flows(POISSON)
    assert alone != flows(POISSON, seed=2)
    assert [each for each in flows(POISSON, INCAST) if each.generator == 0] == list(alone)


@settings(max_examples=20, deadline=None)
@given(load=st.floats(0.05, 0.9), seed=st.integers(0, 1000))
def test_the_load_is_honoured(load: float, seed: int) -> None:
    """The bytes of fixed flows are the load of six links of 100 Mb/s, within six deviations."""
    size, seconds = 100_000, 20.0
    drawn = flows({**POISSON, "load": load, "sizes": size}, seconds=seconds, seed=seed)
    expected = load * 600e6 / 8 / size * seconds
    assert abs(len(drawn) - expected) < 6 * math.sqrt(expected)
    assert all(each.sender != each.to and 0 <= each.start_s < seconds for each in drawn)
    assert list(drawn) == sorted(drawn, key=lambda flow: flow.start_s)


def test_senders_share_a_load_by_their_rates() -> None:
    rates: dict[str, float | None] = {"u1h1": 300.0, "u1h2": 100.0}
    (generator,) = read({**POISSON, "sizes": 10_000}, rates=rates)
    drawn = flows_of([generator], rates, 10.0, 1)
    share = sum(each.sender == "u1h1" for each in drawn) / len(drawn)
    assert share == pytest.approx(0.75, abs=0.03)
    assert asked_mbps(generator, rates) == pytest.approx(120)


def test_a_matrix_has_its_weights_and_a_permutation_one_receiver_each() -> None:
    matrix = [["u1h1", "u2h1", 3], ["u1h2", "u2h1", 1]]
    drawn = flows({"kind": "poisson", "flows_per_s": 200, "sizes": 10, "matrix": matrix})
    assert {(each.sender, each.to) for each in drawn} == {("u1h1", "u2h1"), ("u1h2", "u2h1")}
    assert sum(each.sender == "u1h1" for each in drawn) / len(drawn) == pytest.approx(0.75, abs=0.05)
    turned = flows({"kind": "poisson", "flows_per_s": 200, "sizes": 10, "matrix": "permutation"})
    pairs = {(each.sender, each.to) for each in turned}
    assert len(pairs) == len({to for _, to in pairs}) == len(RATES)


def test_the_load_of_a_matrix_is_that_of_its_senders() -> None:
    (generator,) = read({**POISSON, "sizes": 1000, "matrix": [["u1h1", "u1h2", 1], ["u1h1", "u1h3", 1]]})
    assert arrivals_per_s(generator, RATES) == pytest.approx(0.3 * 100e6 / 8 / 1000)


def test_an_incast_has_rounds() -> None:
    drawn = flows(INCAST, seconds=0.6)
    assert [(each.start_s, each.sender, each.to, each.size, each.group) for each in drawn] == [
        (start_s, sender, "u1h1", 5000, turn)
        for turn, start_s in enumerate((0.0, 0.25, 0.5))
        for sender in ("u1h2", "u2h1")
    ]


def test_coflows_have_a_flow_from_each_mapper_and_scales() -> None:
    """Rack 7 is host 1, rack 6 host 0: of the second reducer only the mapper in rack 7 is elsewhere."""
    assert [(each.start_s, each.sender, each.to, each.size) for each in flows(COFLOWS)] == [
        (1.0, "u1h1", "u1h2", 1_000_000),
        (1.0, "u1h2", "u1h1", 250_000),
    ]


def test_a_stream_lasts_as_long_as_the_traffic() -> None:
    assert flows(CONSTANT) == (TrafficFlow(0.0, "u1h1", "u1h2", 3_750_000, 0, 3.0),)


def test_each_flow_has_its_generators_mark() -> None:
    marked = flows({**CONSTANT, "dscp": 8}, {**POISSON, "dscp": 1}, POISSON)
    assert {(flow.generator, flow.dscp) for flow in marked} == {(0, 8), (1, 1), (2, 0)}


def test_of_traffic_that_ended_early_only_what_was_due_counts() -> None:
    early = due_until(flows(INCAST, CONSTANT, seconds=10.0), 0.4)
    assert sorted((each.start_s, each.size) for each in early) == [
        *((0.0, 5000), (0.0, 5000), (0.0, 150_000)),
        *((0.25, 5000), (0.25, 5000)),
    ]


def test_too_many_flows_and_none_are_refused() -> None:
    with pytest.raises(RequestError, match=f"^more than {MOST_FLOWS} flows in 10 s"):
        flows({**POISSON, "sizes": 1})
    with pytest.raises(RequestError, match=r"^no flow starts within 0\.5 s"):
        flows(COFLOWS, seconds=0.5)


@pytest.mark.parametrize(
    ("generator", "says"),
    [
        ({"kind": "x"}, r"\[0\].kind: x; poisson, incast, coflows, constant are accepted"),
        ({"kind": ["x"]}, r"\[0\].kind: \[x\]; poisson"),
        ({}, r"\[0\].kind: \{\}; poisson"),
        ({**POISSON, "lod": 1}, r"\[0\].lod: 1; unknown key; did you mean load"),
        ({**POISSON, "flows_per_s": 1}, "load or flows_per_s is accepted, one of the two"),
        ({"kind": "poisson", "load": 0.5}, r"\[0\].sizes: missing"),
        ({**POISSON, "load": float("nan")}, r"load: nan; a number from 1e-06 to 1 is accepted"),
        ({**POISSON, "rate_mbps": 1}, "rate_mbps: it is accepted with transport: udp"),
        ({**POISSON, "transport": "udp"}, r"rate_mbps: missing"),
        ({**POISSON, "transport": "sctp"}, "transport: sctp; tcp, udp are accepted"),
        ({**POISSON, "hosts": ["u1h1"]}, "hosts: u1h1; two or more are accepted"),
        ({**POISSON, "hosts": ["u1h1", "u9h1"]}, "hosts: u9h1; no such host; there are u1h1, u1h2"),
        ({**POISSON, "matrix": "ring"}, "matrix: ring; uniform, permutation or"),
        ({**POISSON, "matrix": [["u1h1", "u1h1", 1]]}, r"matrix\[0\]: u1h1 to itself"),
        ({**POISSON, "matrix": [["u1h1", "u1h2", 0]]}, "matrix: .*; uniform, permutation or"),
        ({**INCAST, "from": ["u1h1"]}, "u1h1 to itself; two hosts are accepted"),
        ({**INCAST, "from": "u1h2"}, "from: u1h2; a list of hosts is accepted"),
        ({**INCAST, "every_ms": 0}, "every_ms: 0; a number from 0.1"),
        ({**COFLOWS, "trace": 3}, "trace: 3; the name of a file is accepted"),
        ({**COFLOWS, "hosts": "u1h1"}, "hosts: u1h1; a list of hosts is accepted"),
        ({**CONSTANT, "rate_mbps": "fast"}, "rate_mbps: fast; a number from 0.001"),
        ({**CONSTANT, "dscp": 64}, "dscp: 64; a whole number from 0 to 63 is accepted"),
        ({**POISSON, "dscp": True}, "dscp: True; a whole number from 0 to 63 is accepted"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(generator: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match=says) as error:
        read(generator)
    assert str(error.value).startswith("f.yaml: [0]")
    assert "\n" not in str(error.value)


def test_a_file_is_a_list_and_a_load_needs_a_rate() -> None:
    with pytest.raises(RequestError, match=r"^f\.yaml: \[\]; a list of 1 to 64 generators"):
        read()
    with pytest.raises(RequestError, match=r"load: the link of u1h2 has no rate; flows_per_s is accepted"):
        read(POISSON, rates={"u1h1": 100.0, "u1h2": None})


# ---- the time that links allow ----

TWO = """
units: [{hosts: [{rate_mbps: 100}, {rate_mbps: 50, name: slow}]}, {hosts: 1}]
host_rate_mbps: 100
optical_rate_mbps: 40
optical_ports: 1
scale: 10
mtu: 1500
links: {u1h1: {delay: 5ms}}
"""


@pytest.fixture
def limits(tmp_path: Path) -> LinkLimits:
    (tmp_path / "two.yaml").write_text(TWO)
    return LinkLimits(load.load(tmp_path / "two.yaml"))


def test_the_narrowest_link_and_its_delays_are_the_least_time(limits: LinkLimits) -> None:
    assert limits.rates_mbps == {"u1h1": 100.0, "u1h2": 50.0, "u2h1": 100.0}
    assert limits.names["slow"] == "u1h2"
    payload, packet = 1448, 1514
    assert limits.between("u1h2", "u1h1").ideal_s(1448 * 10, None) == pytest.approx(packet * 8 / 5e6 + 0.010)
    assert limits.between("u1h2", "u2h1").ideal_s(payload * 100, None) == pytest.approx(10 * packet * 8 / 4e6)
    assert limits.between("u1h2", "u2h1").ideal_s(1000, 2.0) == pytest.approx(100 * 8 / 2e5)
    assert (emulated_bytes(3, 10), emulated_bytes(30, 10)) == (1, 3)


# ---- outcomes ----


def record(start_s: float, ended_s: float | None, **changes: Any) -> FlowRecord:
    flow = {"size": 50_000, "generator": 0, "group": None, **changes.pop("flow", {})}
    outcome = {"started_s": start_s, "ended_s": ended_s, "in_time_bytes": 500, **changes}
    return FlowRecord(TrafficFlow(start_s, "u1h1", "u1h2", **flow), FlowOutcome(**outcome), 0.010)


def test_flows_are_summed_up() -> None:
    records = [
        record(0.0, 0.020),
        record(0.0, 0.040, flow={"size": 20_000_000}),
        record(0.0, None, error="Connection refused"),
        record(0.0, None),
    ]
    summed = generator_traffic(read(POISSON), records, RATES, 2.0, 100)
    assert (summed.flows, summed.finished, summed.failed, summed.unfinished) == (4, 2, 1, 1)
    assert summed.failures == {"Connection refused": 1}
    assert summed.offered_mbps == pytest.approx((20_000_000 + 3 * 50_000) * 8 / 2e6)
    assert summed.carried_mbps == pytest.approx(4 * 500 * 100 * 8 / 2e6)
    assert summed.asked_mbps == pytest.approx(180)
    assert (summed.times.count, summed.times.median_ms, summed.times.max_ms) == (2, 20.0, 40.0)
    assert (summed.times.median_slowdown, summed.times.p99_slowdown) == (2.0, 4.0)
    assert {name: times.count for name, times in summed.sizes.items()} == {"small": 1, "large": 1}
    assert (summed.groups, summed.datagrams) == (None, None)


def test_a_group_ends_with_its_last_flow_and_only_if_all_end() -> None:
    records = [
        record(0.0, 0.020, flow={"group": 0}),
        record(0.0, 0.050, flow={"group": 0}),
        record(1.0, 1.010, flow={"group": 1}),
        record(1.0, None, flow={"group": 1}),
    ]
    groups = generator_traffic(read(INCAST), records, RATES, 2.0, 1).groups
    assert groups is not None
    assert (groups.count, groups.max_ms, groups.median_slowdown) == (1, 50.0, None)


def test_a_stream_counts_its_datagrams_and_has_no_time() -> None:
    stream = record(0.0, 9.9, flow={"rate_mbps": 3.0}, sent=100, received=97, again=2)
    summed = generator_traffic(read(CONSTANT), [stream], RATES, 10.0, 1)
    assert summed.datagrams is not None
    assert (summed.datagrams.sent, summed.datagrams.lost, summed.datagrams.again) == (100, 3, 2)
    assert summed.times.count == 0
    assert too_fast(read(CONSTANT), [stream]) == 0


def test_what_started_late_is_counted_but_a_stream() -> None:
    records = [
        record(0.0, 1.0, started_s=0.04),  # within a twentieth of its time
        record(0.0, 0.02, started_s=0.002),
        record(0.0, None, started_s=None),
        record(0.0, None, started_s=None, flow={"generator": 1}),
    ]
    late = lateness(read(POISSON, CONSTANT), records, 3.0)
    assert (late.late, late.share, late.worst_ms) == (2, round(2 / 3, 6), 3000.0)


GOOD = MachineFacts(0.3, 0, 1.0)


@pytest.mark.parametrize(
    ("late", "facts", "fast", "says"),
    [
        (0, GOOD, 0.0, "verdict: trustworthy: 0.0% of flows started late, processors 30% busy"),
        (1, GOOD, 0.0, "not trustworthy, because 100% of flows started late, by up to 500 ms"),
        (0, GOOD, 0.2, "because 20% of flows took less time than their links allow"),
        (0, MachineFacts(0.95, 0, 1.0), 0.0, "because this machine's processors were 95% busy"),
        (0, MachineFacts(0.3, 7, 1.0), 0.0, "because 7 datagrams were lost at receivers that read too"),
        (0, MachineFacts(0.3, 0, 0.8), 0.0, "because 80% of the datagrams were sent"),
    ],
)
def test_a_machine_that_is_too_slow_is_in_the_verdict(
    late: int, facts: MachineFacts, fast: float, says: str
) -> None:
    records = [record(0.0, 1.0, started_s=0.5 if late else 0.0)]
    is_trustworthy, line = verdict(lateness(read(POISSON), records, 2.0), facts, fast)
    assert says in line
    assert is_trustworthy is ("not trustworthy" not in line)


def test_a_reader_is_told_what_numbers_do_not_say() -> None:
    records = [record(0.0, 0.005), record(0.0, None, error="Connection refused")]
    total = generator_traffic(read(POISSON), records, RATES, 1.0, 10)
    notes = remarks(records, total, too_fast(read(POISSON), records), 1, 10)
    assert [note.partition(":")[0] for note in notes] == [
        "1 of 2 flows took less than 90% of the time that their links allow",
        "1 of 2 flows are less than one packet at scale 10",
        "0.08 of 0.8 Mb/s offered were carried within the duration",
        "1 flows failed",
    ]


def test_quantiles_are_values_that_were_measured() -> None:
    assert quantile([], 0.5) is None
    assert [quantile([1.0, 2.0, 3.0, 4.0], share) for share in (0.0, 0.5, 0.51, 0.99, 1.0)] == [1, 2, 3, 4, 4]


def test_a_result_is_a_table() -> None:
    lines = traffic_lines(result_of_traffic())
    assert lines[1].split()[:4] == ["0", "incast", "3", "2"]
    assert lines[-1].startswith("verdict: ")
