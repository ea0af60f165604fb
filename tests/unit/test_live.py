"""The live experiment's arithmetic: an iteration's time, predictions against cases done by hand, reductions, the jobs file."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import RequestError
from testbed.jobs import submission
from testbed.jobs.placement import Rack
from testbed.reproduction import live, live_claims, live_fabric, live_queue, live_report, live_throughput
from testbed.reproduction.live_model import Kind, buckets, iteration_s
from testbed.reproduction.live_prediction import Asked, Given, Queue, fluid_seconds, predict
from testbed.scheduling import catalogue
from testbed.scheduling.model import Fabric, Job
from testbed.topology.load import parse
from workloads import models

FABRIC = Fabric.uniform(4, 2, 4, 40.0, host_gbps=40.0, ps_gbps=40.0, reconfiguration_s=0.02)
NO_COMPUTING = Kind("vgg16", 1, profile="none")


def test_buckets_are_in_the_order_of_backward_and_have_all_bytes() -> None:
    kind = Kind("vgg16", 1)
    found = buckets(kind)
    assert sum(share for _, share in found) == pytest.approx(1)
    assert [there for there, _ in found] == sorted(there for there, _ in found)
    # fc8 and fc7 fill the first, fc6 the second; the last is there when all is computed
    fc8, fc7, fc6 = (layer.parameters for layer in reversed(models.layers("vgg16")[-3:]))
    assert found[0][1] * models.parameters("vgg16") == pytest.approx(fc8 + fc7, abs=4096)
    assert found[1][1] * models.parameters("vgg16") == pytest.approx(fc6, abs=4096)
    assert found[-1][0] == pytest.approx(kind.compute_s)


def test_an_iteration_is_communication_where_nothing_is_computed_and_computing_where_links_are_fast() -> None:
    assert iteration_s(NO_COMPUTING, 4.0, 8.0) == pytest.approx(0.5)
    assert iteration_s(Kind("resnet50", 1), 0.8, 1e6) == pytest.approx(0.2024, rel=1e-3)


def test_an_iteration_by_hand() -> None:
    kind = Kind("vgg16", 1)
    found = buckets(kind)
    # at 1 Gb/s the link never rests from the first bucket on
    assert iteration_s(kind, 4.5, 1.0) == pytest.approx(found[0][0] + 4.5)
    # in between, what the last buckets still take is what shows
    last_there, last_share = found[-1]
    assert iteration_s(kind, 4.5, 40.0) == pytest.approx(last_there + last_share * 4.5 / 40)


@pytest.mark.parametrize("model", models.MODELS)
def test_less_rate_never_makes_it_faster(model: str) -> None:
    times = [iteration_s(Kind(model, 1), models.gigabits(model), rate) for rate in (40, 20, 10, 5, 1)]
    assert times == sorted(times)
    assert times[0] >= Kind(model, 1).compute_s


def test_a_job_alone_is_predicted_to_the_second() -> None:
    job = Job(7, ((0, 2),), 2, 100.0, arrival=3)
    local = predict(FABRIC, Given([job]), catalogue.make("inc-fcfs"), {}, lambda _, rate: rate / 2)
    assert local.started_s == {7: 3.0}
    assert local.ended_s[7] == pytest.approx(3 + 100 / 20)  # at 40 Gb/s, half of it lost to computing
    assert local.connections == 0
    # its PS is in another unit: 20 Gb/s each, and the circuit is dark for 0.02 s
    far = predict(FABRIC, Given([job]), catalogue.make("noinc-fcfs"), {}, lambda _, rate: rate / 2)
    assert far.ended_s[7] == pytest.approx(3.02 + 100 / 10)
    assert far.connections == 1
    assert fluid_seconds(FABRIC, job, 0) == pytest.approx(2.5)
    assert fluid_seconds(FABRIC, job, None) == pytest.approx(5)


def test_jobs_wait_for_hosts_and_for_their_processes() -> None:
    racks = [Rack(1, "gpu", 2), Rack(2, "cpu", 2)]
    asked = [Asked(number, 0.0, 2, 40.0, f"seed/{number}") for number in (1, 2)]
    fabric = Fabric.uniform(2, 2, 4, 40.0, host_gbps=40.0, ps_gbps=40.0)
    queue = Queue(racks, asked, start_up_s=1.0, handling_s=0.5)
    found = predict(fabric, queue, catalogue.make("inc-fcfs"), {}, lambda _, rate: rate)
    # placed at 0, ready at 2, trained until 3; its hosts are free at 3.5, seen at 4
    assert found.started_s == {1: 2.0, 2: 6.0}
    assert found.ended_s == {1: pytest.approx(3.0), 2: pytest.approx(7.0)}


def test_demands_are_the_same_whatever_the_scheme() -> None:
    few, many = live_queue.demands(6, 1, 1.0), live_queue.demands(10, 1, 1.0)
    assert many[:6] == few
    assert {workers for _, workers in many} == {2, 4}
    assert live_queue.demands(6, 2, 1.0) != few
    assert [at for at, _ in live_queue.demands(6, 1, 2.0)] == pytest.approx([2 * at for at, _ in few])


def test_the_jobs_file_is_one_that_submit_takes(tmp_path: Path) -> None:
    topology = parse(live_fabric.configuration(), "fig7")
    point = live_queue.Point(Kind("resnet50", 25), "inc-tw", 3, 1)
    data = live_queue.submission(point, topology, 1.0, tmp_path, live_queue.demands(3, 1, 1.0))
    parsed = submission.parse(data)
    submission.check_against(parsed, topology)
    assert [job.workers for job in parsed.jobs] == [workers for _, workers in live_queue.demands(3, 1, 1.0)]
    assert parsed.jobs[0].megabytes == pytest.approx(models.parameters("resnet50", live_fabric.SCALE) * 4e-6)
    assert "--iterations 25" in " ".join(parsed.jobs[0].arguments)


def _row(model: str, scheme: str, jct: float, connections: int = 0) -> dict[str, object]:
    found = {live_claims.JCT: jct, live_claims.LESS: jct - 10, live_claims.CONNECTIONS: connections}
    return {"model": model, "scheme": scheme, "jobs": 6, "seed": 1, **found}


def test_reductions_are_those_of_means() -> None:
    rows = [_row("vgg16", "noinc-fcfs", 110, 4), _row("vgg16", "noinc-fcfs", 90, 6), _row("vgg16", "inc-fcfs", 60, 1)]
    found = {(claim["model"], claim["text"]): claim["ours"] for claim in live_report.claims(rows)}
    ours = found["vgg16", "total JCT, INC-FCFS below noINC-FCFS"]
    assert ours == {live_claims.JCT: pytest.approx(0.4), live_claims.LESS: pytest.approx(1 - 50 / 90)}
    assert found["vgg16", "total JCT, INC-TW below noINC-TW"] == {live_claims.JCT: None, live_claims.LESS: None}
    assert found[None, "connections set up, INC below noINC"] == {live_claims.CONNECTIONS: pytest.approx(0.8)}


def test_cases_of_figure_5() -> None:
    assert {case.name: case.rate_gbps for case in live_throughput.CASES} == {
        "inc": 40,
        "ps": 20,
        "ring": 40,
        "ps-10g": 5,
    }
    rows = [
        {"model": "vgg16", "case": "inc", "images_per_s": 250.0, "predicted_ms": 260.0},
        {"model": "vgg16", "case": "ps", "images_per_s": 125.0, "predicted_ms": 390.0},
    ]
    assert live_throughput.ratio(rows, "vgg16", "ps") == 2
    assert live_throughput.ratio(rows, "vgg16", "ps", "predicted_ms") == 1.5


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--models", "vgg99"], r"--models vgg99: accepted are resnet50"),
        (["--schemes", "inc-lifo"], r"--schemes inc-lifo: accepted are noinc-fcfs"),
        (["--runs", "0"], r"--runs 0: at least 1"),
        (["--slot", "0.1"], r"--slot 0.1: 0.5 to 60"),
        (["--jobs", "0"], r"--jobs, --models and --schemes each need"),
    ],
)
def test_wrong_requests_are_named(words: list[str], told: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=told):
        live.main("fig7", ["--out", str(tmp_path), *words])
