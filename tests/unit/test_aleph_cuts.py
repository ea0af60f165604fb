"""ALEPH's clusters where circuits and pods' links are narrow: against every clustering, and on topologies."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.aggregation.site import Site, declared_site, racks_of
from testbed.cluster import main
from testbed.errors import RequestError
from testbed.systems.aleph import fastest, optimum
from testbed.systems.aleph.baselines import ring_time
from testbed.systems.aleph.model import Clustering, Cut, Instance, capacities
from testbed.systems.aleph.site import instance_at
from testbed.systems.aleph.system import Aleph
from testbed.telemetry.demand import Traffic, crossing, needs
from testbed.telemetry.timelines import SUMMED, Collective
from testbed.topology import addresses
from testbed.topology.load import parse
from tests.examples import examples

RATES = (10.0, 20.0, 40.0)


def drawn(seed: int) -> Instance:
    """Draw up to six workers in two or three units, with a server or two, and circuits of several rates."""
    draws = Random(seed)
    size, units = draws.randint(2, 6), draws.randint(2, 3)
    at = [draws.randrange(units) for _ in range(size)]
    servers = [draws.randrange(units) for _ in range(draws.randint(1, 2))]
    part = 1 / len(servers)
    rates = tuple(draws.choice(RATES) for _ in range(size))
    cuts = []
    for first, other in itertools.combinations(range(units), 2):
        sides = [frozenset(rank for rank in range(size) if at[rank] == unit) for unit in (first, other)]
        parts = [part * servers.count(unit) for unit in (first, other)]
        cuts.append(Cut(draws.choice((4.0, 10.0, 25.0)), sides[0], sides[1], *parts))
    room = capacities(rates) if draws.random() < 0.5 else (size - 1,) * size
    return Instance(rates, room, (draws.choice(RATES),) * len(servers), cuts=tuple(cuts))


def every(size: int) -> list[Clustering]:
    """Return all clusterings of so many workers."""
    known = []
    for head in itertools.product(range(size), repeat=size):
        if all(head[leader] == leader for leader in head):
            known.append(Clustering(head))
    return known


def crossing_time(instance: Instance, clustering: Clustering) -> float:
    """Return the time by counting each flow on its own, apart from the model's way."""
    up = [0.0] * instance.size
    over = [0.0] * len(instance.cuts)
    for worker, head in enumerate(clustering.head):
        up[worker] += 1
        if worker != head:
            up[head] += 1
        for number, cut in enumerate(instance.cuts):
            sides = ("ab"[worker in cut.other] if worker in cut.side | cut.other else "-") + (
                "ab"[head in cut.other] if head in cut.side | cut.other else "-"
            )
            over[number] += sides in ("ab", "ba")
            over[number] += {"aa": cut.other_servers, "bb": cut.servers}.get(sides, 0.0) * (worker == head)
    contributors = sum(worker == head for worker, head in enumerate(clustering.head))
    return max(
        *(load / rate for load, rate in zip(up, instance.rates, strict=True)),
        *(load / cut.rate for load, cut in zip(over, instance.cuts, strict=True)),
        contributors / sum(instance.servers),
    )


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10**6))
def test_ours_is_the_least_of_all_clusterings(seed: int) -> None:
    instance = drawn(seed)
    least, few = float("inf"), 0
    for clustering in every(instance.size):
        try:
            clustering.check(instance)
        except RequestError:
            continue
        time = crossing_time(instance, clustering)
        assert clustering.time(instance) == pytest.approx(time)
        if time < least * (1 - 1e-6):
            least, few = time, len(clustering.contributors)
        elif time < least * (1 + 1e-6):
            few = min(few, len(clustering.contributors))
    ours = fastest.cluster(instance)
    ours.check(instance)
    assert ours.time(instance) == pytest.approx(least, rel=1e-5)
    assert len(ours.contributors) == few
    assert optimum.least_time(instance).value == pytest.approx(least, rel=1e-5)


def test_a_ring_pays_for_each_crossing() -> None:
    cut = Cut(1.0, frozenset({0, 2}), frozenset({1, 3}))
    apart = Instance((10.0,) * 4, (0,) * 4, (10.0,), cuts=(cut,))
    assert ring_time(apart) == pytest.approx(1.5 * 2 / 1.0)  # two hops go over it each way


SLOW: dict[str, Any] = {
    "units": [
        {"kind": "gpu", "hosts": [{"rate_mbps": rate} for rate in (30_000, 20_000, 10_000, 10_000)]},
        {"kind": "cpu", "hosts": [{"rate_mbps": 40_000}]},
    ],
    "optical_rate_mbps": 10_000,
    "optical_ports": 1,
    "scale": 200,
}


def report(capsys: pytest.CaptureFixture[str], at: Path, asked: dict[str, Any]) -> dict[str, Any]:
    at.write_text(yaml.safe_dump(asked))
    assert main(["--config", str(at), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    return {method["name"]: method for method in said["methods"]}


def test_the_circuits_rate_is_in_the_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    slow = report(capsys, tmp_path / "slow.yaml", SLOW)
    fast = report(capsys, tmp_path / "fast.yaml", {**SLOW, "optical_rate_mbps": 40_000})
    two = {"optical_ports": 2, "ocs": {"circuits": [["u1o1", "u2o1"], ["u1o2", "u2o2"]]}}
    parallel = report(capsys, tmp_path / "two.yaml", {**SLOW, **two})
    assert slow["fastest"]["ms"] == pytest.approx(2 * fast["fastest"]["ms"], rel=1e-4)
    assert slow["none"]["ms"] == pytest.approx(4 * fast["none"]["ms"], rel=1e-4)
    assert slow["ring"]["ms"] == fast["ring"]["ms"] < slow["fastest"]["ms"]
    assert parallel["none"]["ms"] == pytest.approx(slow["none"]["ms"] / 2, rel=1e-4)


def test_a_job_is_laid_out_as_the_table_says() -> None:
    topology = parse({**SLOW, "units": [SLOW["units"][0], SLOW["units"][0], SLOW["units"][1]]}, "t")
    site = declared_site(topology)
    workers = [host for host in topology.hosts if host[0] in (1, 2)]
    instance = instance_at(site, workers, [(topology.units[2].index, 1)])
    assert {cut.rate for cut in instance.cuts} == {10_000.0}
    clustering = fastest.cluster(instance)
    assert clustering.time(instance) == pytest.approx(crossing_time(instance, clustering))


def test_a_pods_racks_have_a_cut_each() -> None:
    asked = {
        "units": [{"kind": "gpu", "racks": 2, "hosts": 2}, {"kind": "cpu", "hosts": 1}],
        "pod_rate_mbps": 4_000,
    }
    topology = parse(asked, "t")
    site = Site(racks_of(topology), frozenset(), frozenset())
    instance = instance_at(site, topology.units[0].members, [(topology.units[1].index, 1)])
    racks = [cut for cut in instance.cuts if cut.rate == 4_000]
    assert [(len(cut.side), len(cut.other), cut.servers, cut.other_servers) for cut in racks] == [
        (2, 2, 0.0, 1.0),
        (2, 2, 0.0, 1.0),
    ]


def test_a_method_that_fails_is_a_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    draws = Random(1)
    hosts = [{"rate_mbps": draws.choice((10_000, 20_000, 40_000, 80_000))} for _ in range(100)]
    asked = {"units": [{"kind": "gpu", "hosts": hosts}, {"kind": "cpu", "hosts": 2}]}
    by_name = report(capsys, tmp_path / "big.yaml", asked)
    assert "leave 100 contributors" in by_name["mwcha-printed"]["failed"]
    assert by_name["fastest"]["contributors"] < 64
    (tmp_path / "big.yaml").write_text(yaml.safe_dump(asked))
    assert main(["--config", str(tmp_path / "big.yaml")]) == 0
    assert "leave 100 contributors" in capsys.readouterr().out


def bound_ms(asked: dict[str, Any], megabytes: float) -> float:
    """Return the time of the fullest link of a job as `run` lays it out, by the verdict's formulas."""
    topology = parse(asked, "t")
    site = declared_site(topology)
    layout = Aleph().lay_out(topology.units[0].members, site)
    assert layout.server is not None
    names = tuple(addresses.host_name(*host) for host in layout.workers)
    traffic = Traffic(
        layout.transport, names, addresses.host_name(*layout.server), topology.mtu, layout.forest
    )
    collective = Collective(round(megabytes * 1e6 / topology.scale), SUMMED, 0)
    busy: dict[str, float] = {}
    for need in needs(traffic, collective):
        busy[need.link] = busy.get(need.link, 0.0) + need.bytes
    named = {addresses.host_name(*host): host for host in topology.hosts}
    times = []
    for link, carried in busy.items():
        mbps = topology.emulated_host_mbps(*named[link.partition(" ")[0]])
        assert mbps is not None
        times.append(carried * 8e-3 / mbps)
    for carried in crossing(traffic, collective).values():
        circuits = sum(site.joined_mbps.values()) / topology.scale  # there are two units
        times.append(carried * 8e-3 / circuits)
    return max(times)


def test_the_table_and_the_verdict_predict_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    draws, apart = Random(34), []
    for _ in range(50):
        ports = draws.randint(1, 2)
        asked = {
            "units": [
                {
                    "kind": "gpu",
                    "hosts": [
                        {"rate_mbps": draws.choice((10_000, 20_000, 30_000, 40_000))}
                        for _ in range(draws.randint(2, 8))
                    ],
                },
                {"kind": "cpu", "hosts": [{"rate_mbps": draws.choice((10_000, 40_000))}]},
            ],
            "optical_rate_mbps": draws.choice((5_000, 10_000, 40_000, 100_000)),
            "optical_ports": ports,
            "ocs": {"circuits": [[f"u1o{port}", f"u2o{port}"] for port in range(1, ports + 1)]},
            "mtu": draws.choice((1500, 3476, 9000)),
            "scale": draws.choice((100, 400)),
        }
        predicted = report(capsys, tmp_path / "drawn.yaml", asked)["fastest"]["ms"]
        apart.append(predicted / bound_ms(asked, 97.0))
    assert min(apart) > 0.97
    assert max(apart) < 1.03
