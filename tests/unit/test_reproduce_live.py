"""`testbed reproduce p4inc fig5|fig6|fig7`: what is predicted, what is said of the paper, and what is asked.
Made-up runs, no testbed.
"""

from __future__ import annotations

import argparse
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from reproductions.example_jobs import LayersResult
from reproductions.p4inc.live import ahead, figure, plots, prediction, queue, setting, tables
from reproductions.p4inc.live.claims import (
    CLAIMS,
    TRENDS,
    connections,
    held,
    reduction,
    verdict,
)
from reproductions.p4inc.live.model import JobKind, Pace, buckets, first_iteration_s, iteration_s
from reproductions.p4inc.live.prediction import Asked, Given, Queue, predict
from reproductions.p4inc.live.report import (
    Costs,
    GainFinding,
    JobTraining,
    MeanErrors,
    QueuePrediction,
    QueueReport,
    QueueRow,
    Reductions,
    SimulatedQueue,
    TrendFinding,
)
from reproductions.p4inc.live.throughput import (
    CASES,
    PAPER,
    ThroughputReport,
    ThroughputRow,
    claims,
    larger_gains,
    ratio,
)
from reproductions.reports import Trust
from reproductions.verdicts import AGREES, DIFFERS, SIZE, TIE, Tally
from testbed import reproduce
from testbed.aggregation.site import Rack
from testbed.errors import RequestError, TestbedError
from testbed.messages.coding import as_json, decode, plain
from testbed.messages.verdict import JobVerdict
from testbed.plugins.papers import figures_of
from testbed.queue import submission
from testbed.scheduling.live import limits_of
from testbed.scheduling.model import Decision, Job, State
from testbed.systems.p4inc.policies import catalogue
from testbed.systems.p4inc.simulator.fluid import simulate
from testbed.topology.load import parse
from tests.unit import results
from workloads import models

TOPOLOGY = parse(setting.configuration(400, 40.0, 2), "made up")
LIMITS = limits_of(TOPOLOGY, 1.0, 10.0, {"xdp": "sum", "bmv2": "sum"})
RACKS = [Rack(unit.index, unit.kind, unit.hosts) for unit in TOPOLOGY.units]

# ------------------------------------------------------------------ an iteration


@pytest.mark.parametrize("model", models.MODELS)
def test_buckets_hold_all_gradients_in_the_order_of_backward(model: str) -> None:
    parts = buckets(JobKind(model, 5))
    assert math.fsum(share for _, share in parts) == pytest.approx(1)
    times = [at_s for at_s, _ in parts]
    assert times == sorted(times)
    forward_s = models.profile("gtx1080ti", model).forward_ms / 1e3
    assert forward_s < times[0] <= times[-1] == pytest.approx(JobKind(model, 5).compute_s)


@pytest.mark.needs("torch")
def test_buckets_are_those_that_ddp_makes() -> None:
    import torch

    sizes = [size for layer in models.layers("vgg16") for size in layer.scaled(400).tensors]
    tensors = [torch.empty(size) for size in reversed(sizes)]
    made, _ = torch.distributed._compute_bucket_assignment_by_size(
        tensors, [int(models.BUCKET_MIB / 400 * (1 << 20))]
    )
    bytes_ = [sum(4 * tensors[at].numel() for at in bucket) for bucket in made]
    shares = [each / sum(bytes_) for each in bytes_]
    assert shares == pytest.approx([share for _, share in buckets(JobKind("vgg16", 5))], rel=0.01)


def test_an_iteration_computes_hides_and_waits() -> None:
    idle = JobKind("vgg16", 5, profile="none")
    assert iteration_s(idle, 4.0, 40.0) == pytest.approx(0.1), "nothing to compute: the volume at its rate"
    kind = JobKind("vgg16", 5)
    assert iteration_s(kind, 4.0, 1e9) == pytest.approx(kind.compute_s), "nothing to wait for"
    (first_s, _), *_ = buckets(kind)
    assert iteration_s(kind, 4.0, 1.0) == pytest.approx(first_s + 4.0), (
        "from the first bucket on the link is never idle"
    )


@given(st.sampled_from(models.MODELS), st.floats(0.01, 50), st.floats(0.1, 100), st.floats(1, 10))
def test_a_higher_rate_never_takes_longer(model: str, volume: float, rate_gbps: float, more: float) -> None:
    kind = JobKind(model, 5)
    slow, fast = (iteration_s(kind, volume, rate) for rate in (rate_gbps, rate_gbps * more))
    least = max(kind.compute_s, volume / rate_gbps)
    assert fast <= slow * (1 + 1e-12)
    assert least <= slow <= kind.compute_s + volume / rate_gbps + 1e-9


def test_a_first_iteration_hides_nothing() -> None:
    kind = JobKind("vgg16", 5)
    pace = Pace(kind, 4.0)
    once = kind.compute_s + 0.1
    assert pace.until_s(0.0, 4.0, 40.0) == pytest.approx(once)
    assert pace.until_s(0.0, 20.0, 40.0) == pytest.approx(once + 4 * iteration_s(kind, 4.0, 40.0))
    assert pace.until_s(4.0, 20.0, 40.0) == pytest.approx(4 * iteration_s(kind, 4.0, 40.0))


@given(st.sampled_from(models.MODELS), st.floats(0, 9), st.floats(0, 9), st.floats(0.1, 100))
def test_after_so_long_what_is_left_takes_so_much_less(
    model: str, sent: float, more: float, rate_gbps: float
) -> None:
    pace = Pace(JobKind(model, 5), 3.0)
    total = 20.0
    seconds = pace.until_s(sent, sent + more, rate_gbps)
    assert pace.after(sent, seconds, rate_gbps) == pytest.approx(sent + more)
    assert pace.until_s(sent, total, rate_gbps) == pytest.approx(
        seconds + pace.until_s(sent + more, total, rate_gbps)
    )


# ------------------------------------------------------------------ a queue


PLAIN = Pace(JobKind("vgg16", 5, profile="none"), 1.0)


def local(id_: int, gigabits: float, arrival: int = 0, workers: int = 4, unit: int = 0) -> Job:
    return Job(id_, ((unit, workers),), 2, gigabits, 0.0, arrival)


def test_jobs_end_within_a_slot_and_free_what_they_held_from_the_next() -> None:
    forecast = predict(
        LIMITS, Given([local(1, 50.0), local(2, 50.0, 2)]), catalogue.make("inc-fcfs", 1), {}, PLAIN
    )
    assert forecast.started_s == {1: 0.0, 2: 2.0}
    assert forecast.ended_s == pytest.approx({1: 1.25, 2: 3.25}), "40 Gb/s each"
    assert (forecast.connections, forecast.inc) == (0, {1: 0, 2: 0})


def test_without_inc_there_is_the_servers_link_and_a_circuit_to_light() -> None:
    forecast = predict(LIMITS, Given([local(1, 10.0)]), catalogue.make("noinc-fcfs", 1), {}, PLAIN)
    assert forecast.connections == 1
    assert forecast.ended_s[1] == pytest.approx(1.0 + LIMITS.reconfiguration_s), (
        "a quarter of 40 Gb/s, and the dark time"
    )


def test_what_ends_while_circuits_are_dark_ends_at_the_rate_it_had() -> None:
    class Raises:
        """10 Gb/s first; 20, and a new circuit, from the next slot on."""

        name = "raises"

        def decide(self, state: State) -> Decision:
            return Decision({1: 20.0 if state.slot else 10.0}, {1: 0}, {(0, 1): 1} if state.slot else {})

    left = 5 * LIMITS.reconfiguration_s  # of the 10 Gb that a dark time would take twice over
    forecast = predict(LIMITS, Given([local(1, 10.0 + left)]), Raises(), {}, PLAIN)
    assert forecast.ended_s[1] == pytest.approx(1.0 + left / 10.0)


def test_a_job_that_computes_sends_less_than_its_rate() -> None:
    kind = JobKind("resnet50", 10)
    volume = kind.volume_gigabits(TOPOLOGY)
    pace = queue.pace(kind, TOPOLOGY)
    forecast = predict(LIMITS, Given([local(1, 10 * volume)]), catalogue.make("inc-tw", 1), {}, pace)
    # TW gives no more than ends it within the slot, or all of it
    assert forecast.ended_s[1] >= 10 * kind.compute_s
    assert (
        forecast.ended_s[1]
        <= first_iteration_s(kind, volume, 10.0) + 9 * iteration_s(kind, volume, 10.0) + 1e-9
    )


@pytest.mark.parametrize("scheme", figure.SCHEMES)
def test_without_computing_it_is_the_fluid_simulator(scheme: str) -> None:
    jobs = [local(n, 25.0 + 7 * n, n // 2, 2 + 2 * (n % 2), n % 2) for n in range(6)]
    ports = ahead.initial_ports(TOPOLOGY)
    mine = predict(LIMITS, Given(jobs), catalogue.make(scheme, 1), ports, PLAIN)
    fluid = simulate(LIMITS, jobs, catalogue.make(scheme, 1), ports)
    assert mine.connections == fluid.reconfigured_connections
    # which counts whole slots
    assert {job: math.ceil(at_s - 1e-9) for job, at_s in mine.ended_s.items()} == pytest.approx(
        fluid.finish_s
    )


def test_who_finds_no_hosts_waits_for_them_in_the_order_of_arrival() -> None:
    asked = [Asked(n, 0.1 * n, 4, 40.0, f"1/place/{n}") for n in (1, 2, 3)]
    forecast = predict(LIMITS, Queue(RACKS, asked, 0.1, 0.5), catalogue.make("inc-fcfs", 1), {}, PLAIN)
    # placed at 1 s, ready 0.4 s later, seen in slot 2, done in one second; hosts free half a second later, at
    # slot 4
    assert forecast.arrival == {1: 2, 2: 2, 3: 5}
    assert forecast.ended_s == pytest.approx({1: 3.0, 2: 3.0, 3: 6.0})


def test_jobs_that_would_wait_for_ever_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "_MOST_SLOTS", 20)
    across = Job(1, ((0, 1), (1, 1)), 2, 1.0, 0.0, 0)
    one_port = replace(LIMITS, ports=(1,) * 4)
    with pytest.raises(TestbedError, match=r"noinc-fcfs: 1 jobs are not done after 20 slots"):
        predict(one_port, Given([across]), catalogue.make("noinc-fcfs", 1), {}, PLAIN)


def test_the_paper_s_numbers_of_jobs_are_simulated() -> None:
    kinds = [JobKind("resnet50", 5), JobKind("vgg16", 5)]
    rows = list(ahead.rows(TOPOLOGY, kinds, (10, 20), (1, 2), setting.FOUR, 1.0))
    assert len(rows) == 2 * 2 * 2 * 4
    assert rows == list(ahead.rows(TOPOLOGY, kinds, (10, 20), (1, 2), setting.FOUR, 1.0))
    totals = {(r.model, r.jobs, r.seed, r.scheme): r.total_jct_s for r in rows}
    assert all(totals[m, n, s, "inc-fcfs"] <= totals[m, n, s, "noinc-fcfs"] for m, n, s, _ in totals)
    trial = queue.LiveTrial(kinds[0], "inc-tw", 10, 1)
    assert 8 < ahead.lasts_s(TOPOLOGY, trial, 1.0) < 60, "ten jobs, one a second"


# ------------------------------------------------------------------ what is asked


def test_jobs_are_the_same_for_all_schemes_and_come_at_the_rate_asked() -> None:
    asked = queue.demands(2000, 1, 0.5)
    assert asked[:40] == queue.demands(40, 1, 0.5), "more jobs begin with the same ones"
    assert asked != queue.demands(2000, 2, 0.5)
    assert asked[-1][0] / 2000 == pytest.approx(0.5, rel=0.1)
    counts = [workers for _, workers in asked]
    assert set(counts) == {2, 4}
    assert 900 < counts.count(2) < 1100


def test_what_is_submitted_is_what_submit_accepts() -> None:
    trial = queue.LiveTrial(JobKind("vgg16", 12), "inc-tw", 3, 7)
    asked = queue.demands(3, 7, 1.0)
    wanted = submission.parse(as_json(queue.submission(trial, TOPOLOGY, 1.0, Path("/somewhere"), asked)))
    assert (wanted.policy, wanted.seed, wanted.slot_s, len(wanted.jobs)) == ("inc-tw", 7, 1.0, 3)
    assert [(job.arrival_s, job.workers) for job in wanted.jobs] == [
        (pytest.approx(at), n) for at, n in asked
    ]
    assert all(job.limit_s is not None and job.limit_s > 12 * 2 for job in wanted.jobs)
    assert len({job.arguments[-1] for job in wanted.jobs}) == 3, "each writes a file of its own"


BAD = {
    "--models vgg99": r"--models vgg99: accepted are resnet50",
    "--models ,": r"--models: one or more of",
    "--iterations 4": r"--iterations 4: 5 to 10000",
    "--scale 0": r"--scale 0: 1 to 100000",
    "--schemes inc-tw-norecon": r"--schemes inc-tw-norecon: accepted are noinc-fcfs",
    "--jobs six": r"--jobs six: numbers such as 6,10",
    "--jobs 6,0": r"--jobs 6,0: numbers from 1 to 1000",
    "--runs 0": r"--runs 0: 1 to 1000",
    "--ports 1": r"--ports 1: 2 to 64",
    "--inc -1": r"--inc -1: 0 to 64",
    "--optical-gbps nan": r"--optical-gbps nan: 1 to 400",
    "--slot 0.1": r"--slot 0\.1: 0\.5 to 60",
}


@pytest.mark.parametrize("words", BAD)
def test_bad_options_are_said_in_a_line(words: str) -> None:
    with pytest.raises(RequestError, match=f"^{BAD[words]}"):
        reproduce.main(["p4inc", "fig7", *words.split()])


def test_a_folder_that_cannot_be_made_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.delenv("SUDO_UID", raising=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match=r"--out .*file/out: Not a directory; a folder that"):
        reproduce.main(["p4inc", "fig5", "--out", str(tmp_path / "file" / "out")])


def completed(name: str, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    fig = figures_of("p4inc")[name]
    fig.options(parser)
    options = parser.parse_args(words)
    fig.check(options)
    return options


def test_quick_leaves_what_was_said() -> None:
    options = completed("fig6", "--quick", "--jobs", "2", "--schemes", "inc-tw,inc-tw")
    assert (options.jobs, options.runs, options.schemes, options.models) == ([2], 1, ["inc-tw"], ["resnet50"])
    assert options.iterations == figure.QUICK_ITERATIONS
    assert completed("fig5", "--quick").models == ["vgg16", "vgg19"]


# ------------------------------------------------------------------ what is said of the paper


def training(predicted_s: float) -> JobTraining:
    return JobTraining(
        id=1,
        workers=2,
        mode="inc",
        training_s=10.0,
        predicted_s=predicted_s,
        waiting_s=0.5,
        predicted_waiting_s=0.5,
        late_ms=1.0,
        error_over_bound=0.1,
    )


def row(model: str, scheme: str, jct_s: float, connections: int, seed: int = 1, jobs: int = 6) -> QueueRow:
    return QueueRow(
        model=model,
        scheme=scheme,
        jobs=jobs,
        seed=seed,
        total_jct_s=jct_s,
        total_jct_less_start_ups_s=jct_s - 1,
        connections=connections,
        reconfigurations=1,
        inc_jobs=0,
        ct_bti_s=3.0,
        start_up_s=0.5,
        policy_s_max=0.01,
        overruns=0,
        late_slots=0,
        complaints=(),
        trust=Trust(1, 2, {"saturated": 1}),
        per_job=[training(9.0), training(11.0)],
        predicted=QueuePrediction(connections, MeanErrors(0.0, 0.1), 0.8 * jct_s, connections + 1),
    )


ROWS = [
    *(row("vgg16", "noinc-fcfs", 100.0, 10, seed) for seed in (1, 2)),
    *(row("vgg16", "noinc-tw", jct_s, 5, seed) for seed, jct_s in ((1, 85.0), (2, 90.0))),
    *(row("vgg16", "inc-fcfs", 40.0, 6, seed) for seed in (1, 2)),
    *(row("vgg16", "inc-tw", 41.0, 3, seed) for seed in (1, 2)),
]


def test_reductions_of_means_and_their_verdicts() -> None:
    by_text = {
        (claim.model, claim.text): claim for claim in tables.claims(ROWS) if isinstance(claim, GainFinding)
    }
    tw = by_text["vgg16", "total JCT, noINC-TW below noINC-FCFS"]
    assert tw.ours.total_jct_s == pytest.approx(0.125)
    assert tw.verdict == AGREES
    inc = by_text["vgg16", "total JCT, INC-FCFS below noINC-FCFS"]
    assert inc.ours == Reductions(
        total_jct_s=pytest.approx(0.6), total_jct_less_start_ups_s=pytest.approx(1 - 39 / 99)
    )
    assert inc.verdict == SIZE
    assert by_text["vgg16", "total JCT, INC-TW below INC-FCFS"].verdict == TIE
    assert by_text["resnet50", "total JCT, INC-TW below INC-FCFS"].verdict is None, "nothing was run"
    assert by_text[None, "connections set up, TW below FCFS"].ours == Reductions(
        connections=pytest.approx(0.5)
    )


def test_near_the_paper_and_no_reduction_is_no_agreement() -> None:
    shares = (-0.06, -0.04, 0.04, 0.06, 0.10, 0.14, 0.15, None)
    assert [verdict(share, 0.12) for share in shares] == [DIFFERS, TIE, TIE, SIZE, AGREES, AGREES, SIZE, None]


def test_nothing_to_set_up_is_no_reduction() -> None:
    rows = [row("vgg16", scheme, 1.0, 0) for scheme in setting.FOUR]
    assert reduction(rows, CLAIMS[-1], connections) is None


def test_trends_count_the_points_at_which_they_hold() -> None:
    rows = [*ROWS, *(row("resnet50", scheme, 50.0, 2) for scheme in setting.FOUR)]
    fewest, second, inc, shortest = TRENDS
    assert held(rows, fewest) == Tally(1, 1, 2), "equal is a tie"
    assert held(rows, second) == Tally(1, 1, 2)
    assert held(rows, inc) == Tally(1, 1, 2)
    assert held(rows, shortest) == Tally(0, 2, 2), "41 s and 40 s are level, by what runs differ"
    assert held([row for row in rows if row.scheme != "inc-fcfs"], shortest) == Tally(0, 0, 0)
    last = tables.claims(rows)[-1]
    assert isinstance(last, TrendFinding)
    assert (last.held, last.tied, last.of, last.verdict) == (0, 2, 2, TIE)


def test_a_trial_s_jobs_are_read_of_its_result() -> None:
    ended = results.read_submission(results.queued(1)).jobs[0]
    job = queue.TrainedJob(ended, LayersResult(40.0, 2.0, 50.0, (50.0,), 1.0, 3.0, (0.5,), 0.1))
    assert job.costs() == Costs(start_up_s=0.5, handling_s=0.5, leaving_s=0.5)
    assert job.less_start_up_s == 3.0
    with pytest.raises(TestbedError, match="job 1: it has no training_s: it has not trained to its end"):
        queue.TrainedJob(replace(ended, training_s=None), job.script).costs()


def test_errors_of_prediction_are_relative_to_what_was_measured() -> None:
    (first, *_) = tables.prediction(ROWS)
    assert (first.scheme, first.runs) == ("noinc-fcfs", 2)
    assert first.predicted_total_jct_s == pytest.approx(80)
    assert first.total_jct_error == MeanErrors(pytest.approx(-0.2), pytest.approx(0.2))
    assert first.training_error == MeanErrors(pytest.approx(0.0), pytest.approx(0.1))
    assert (first.connections, first.predicted_connections) == (10, 11)


def throughput(gains: dict[str, float]) -> list[ThroughputRow]:
    """Return rows of figure 5: each model's gain over the server, half as much again at 10 Gb/s; predicted 2
    and 3.
    """
    predicted = {"inc": 100.0, "ps": 200.0, "ring": 100.0, "ps-10g": 300.0}
    return [
        ThroughputRow(
            model=model,
            case=case.name,
            images_per_s=100 / {"ps": gain, "ps-10g": 1.5 * gain}.get(case.name, 1.0),
            iteration_ms=50,
            compute_ms=40.5,
            predicted_ms=predicted[case.name],
            late_ms=0.5,
            error_over_bound=0.1,
            verdict=decode(JobVerdict, results.TRUSTED, "a verdict"),
            fullest_link=0.9,
        )
        for model, gain in gains.items()
        for case in CASES
    ]


def test_gains_of_figure_5() -> None:
    rows = throughput({"resnet50": 1.5, "vgg16": 2.5, "vgg19": 1.01})
    by = {(claim.model, claim.over): claim for claim in claims(rows)}
    assert ratio(rows, "vgg16", "ps") == pytest.approx(2.5)
    assert by["resnet50", "ps"].verdict == AGREES
    assert by["vgg16", "ps-10g"].ours == pytest.approx(3.75)
    assert by["vgg16", "ps-10g"].predicted == pytest.approx(3)
    assert [by["vgg16", case].verdict for case in ("ps", "ps-10g")] == [SIZE, AGREES]
    assert by["vgg19", "ps"].verdict == TIE
    assert larger_gains(rows, "ps") is False
    assert larger_gains(throughput({"resnet50": 1.5, "vgg16": 2.5}), "ps") is True
    assert larger_gains(throughput({"vgg16": 2.5}), "ps") is None
    assert set(PAPER) == set(models.CLASSIFIERS)


def test_figure_5_is_read_as_it_was_written_printed_and_drawn(tmp_path: Path) -> None:
    rows = throughput({"resnet50": 1.5, "vgg16": 2.5})
    trust = Trust(3, 8, {"saturated": 5})
    report = ThroughputReport(1, rows, 5, 400, trust, claims(rows), "fig5", True)
    written = plain(report)
    again = decode(ThroughputReport, written, "figure 5")
    assert json.dumps(as_json(again)) == json.dumps(written)
    text = io.StringIO()
    tables.show_throughput(again, Console(file=text, width=140))
    for words in ("3 of 8 jobs trustworthy; not: saturated (5)", "1.50 (2.00)", "agrees"):
        assert words in text.getvalue()
    plots.draw_throughput(again, tmp_path / "it.png")
    assert (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")


def queue_report() -> QueueReport:
    return QueueReport(
        version=1,
        rows=ROWS,
        prediction=tables.prediction(ROWS),
        costs=Costs(0.1, 0.5, 0.7),
        ahead=SimulatedQueue(ROWS, tables.claims(ROWS)),
        trust=Trust(3, 8, {"saturated": 5}),
        iterations={"vgg16": 5},
        runs=2,
        slot_s=1.0,
        scale=400,
        optical_ports=2,
        optical_gbps=20.0,
        inc=4,
    )


def test_reports_are_printed_and_drawn(tmp_path: Path) -> None:
    written = plain(queue_report()) | {"figure": "fig6", "claims": plain(tables.claims(ROWS))}
    report = decode(QueueReport, written, "figure 6")
    text = io.StringIO()
    tables.show(report, Console(file=text, width=140))
    said = text.getvalue()
    assert "3 of 8 jobs trustworthy; not: saturated (5)" in said
    for words in ("-20.0%", "at 0 of 1", "INC-TW", "60.0%"):
        assert words in said
    plots.draw(report, tmp_path / "it.png")
    assert (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")
