"""`testbed cluster`: what it prints, and what it refuses, without starting anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.aggregation.site import declared_site
from testbed.cluster import main
from testbed.errors import RequestError
from testbed.systems.aleph.system import Aleph
from testbed.topology import catalogue
from testbed.topology.load import load
from testbed.topology.places import at_host


def report(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def methods(said: Any) -> dict[str, Any]:
    return {method["name"]: method for method in said["methods"]}


def test_the_papers_testbed_takes_what_its_rates_say(capsys: pytest.CaptureFixture[str]) -> None:
    said = report(capsys, "--config", "aleph", "--megabytes", "548", "--optimum")
    assert [worker["rate_mbps"] for worker in said["workers"]] == [30e3, 20e3, 20e3, *[10e3] * 5]
    assert [worker["capacity"] for worker in said["workers"]] == [2, 1, 1, 0, 0, 0, 0, 0]
    ms = {name: method["ms"] for name, method in methods(said).items()}
    vector_ms = 548 * 8 / 10e3 * 1e3 * said["framing"]
    assert 1.02 < said["framing"] < 1.10  # headers, and votes at most 4 % of the fragments
    for name in ("fastest", "unbound", "greedy", "least-time", "fewest"):
        assert ms[name] == pytest.approx(vector_ms), name  # of 10 Gb/s, and of 4 contributors at 40
    assert ms["none"] == pytest.approx(2 * vector_ms)
    assert ms["ring"] == pytest.approx(1.75 * vector_ms, rel=0.05)  # TCP's headers in place of ours
    assert vector_ms < ms["mwcha"] < ms["mwcha-printed"] < ms["none"]
    assert len(methods(said)["mwcha"]["runs_ms"]) == 20


def test_clusters_are_printed_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", "aleph"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "parameter server: u2h1 40 Gb/s"
    at = lines.index("fastest:")
    assert lines[at + 1 : at + 5] == [
        "  u1h1 heads u1h5 u1h6",
        "  u1h2 heads u1h7",
        "  u1h3 heads u1h8",
        "  by themselves: u1h4",
    ]


def test_equal_workers_may_head_only_where_rates_do_not_bind(capsys: pytest.CaptureFixture[str]) -> None:
    """The paper's capacities are 0 there, although the server is what takes longest."""
    by_name = methods(report(capsys, "--config", "pods"))
    assert by_name["fastest"]["ms"] == by_name["none"]["ms"]
    assert by_name["fastest"]["ms"] == pytest.approx(2 * by_name["unbound"]["ms"], abs=0.002)


@pytest.mark.parametrize("cpus", [0.1, 1, None])
def test_a_job_is_laid_out_as_the_table_says_whatever_cores_its_hosts_have(
    cpus: float | None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rates = (30_000, 20_000, 10_000, 10_000, 10_000)
    hosts = [{"rate_mbps": rate} | ({} if cpus is None else {"cpus": cpus}) for rate in rates]
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"units": [{"hosts": hosts}, {"kind": "cpu", "hosts": 1}]}))
    said = report(capsys, "--config", str(path))
    assert said["workers"][0]["capacity"] == 2
    workers = [(1, number) for number in range(1, 6)]
    layout = Aleph().lay_out(workers, declared_site(load(path)))
    assert layout.forest is not None
    (tree,) = layout.forest.trees
    rank_at = {at_host(host): rank for rank, host in enumerate(workers)}
    heads = [rank_at.get(tree.node_of(rank).place, rank) for rank in range(len(workers))]
    assert heads == methods(said)["fastest"]["head"]


def test_several_servers_share(capsys: pytest.CaptureFixture[str]) -> None:
    single = report(capsys, "--config", "eight", "--place", "u1:4", "--server", "u5h1")
    pair = report(capsys, "--config", "eight", "--place", "u1:4", "--server", "u5h1", "--server", "u5h2")
    alone, shared = methods(single)["none"], methods(pair)["none"]
    assert alone["server_ms"] == pytest.approx(2 * shared["server_ms"], abs=0.002)
    assert alone["ms"] == shared["ms"]  # both are behind the same circuit


def test_a_host_that_is_to_be_the_server_is_no_worker(capsys: pytest.CaptureFixture[str]) -> None:
    said = report(capsys, "--config", "rack", "--server", "u1h1")
    assert [worker["name"] for worker in said["workers"]] == ["u1h2", "u1h3", "u1h4"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--sync", "ring"], "--sync 'ring': it clusters no workers; accepted: aleph"),
        (["--server", "u9h1"], "--server u9h1: no such host; there are u1h1"),
        (["--server", "u3h1", "--server", "u3h1"], "both on u3h1; each, and so each head, needs a host"),
        (["--megabytes", "0"], "--megabytes 0: a number above 0 is accepted"),
        (["--place", "u1:9"], "u1 has 4 hosts"),
        (["--config", "gone.yaml"], "gone.yaml"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(RequestError, match=message) as error:
        main(argv)
    assert "\n" not in str(error.value)


def configuration(path: Path, hosts: Any) -> str:
    path.write_text(yaml.safe_dump({"units": [{"hosts": hosts}, {"kind": "cpu", "hosts": 1}], "scale": 1000}))
    return str(path)


def test_a_worker_of_rate_0_and_too_many_workers_are_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=r"units\[0\]\.hosts\[1\]\.rate_mbps: 0; a rate in Mb/s"):
        main(["--config", configuration(tmp_path / "zero.yaml", [{"rate_mbps": 10_000}, {"rate_mbps": 0}])])
    # equal rates let nobody head anybody, and a place takes the contributions of 64
    by_name = methods(report(capsys, "--config", configuration(tmp_path / "many.yaml", 65)))
    assert "leave 65 contributors at least" in by_name["fastest"]["failed"]
    assert by_name["unbound"]["contributors"] == 8


def test_the_configuration_is_the_papers() -> None:
    topology = catalogue.ready("aleph")
    rates = [topology.host(*host).rate_mbps for host in topology.hosts]
    assert rates == [30e3, 20e3, 20e3, *[10e3] * 5, 40e3]
    optical = topology.optical_link.rate_mbps
    assert optical is not None
    assert optical > sum(rate for rate in rates[:8] if rate) * 0.9  # nothing between hosts blocks
