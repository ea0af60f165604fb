"""`testbed reproduce aleph table1|fig9|...|fig12`: what is said of the paper, shown, drawn and asked. Made-up
runs, no testbed.
"""

from __future__ import annotations

import argparse
import io
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reproductions.aleph.live import accuracy, example, training
from reproductions.aleph.live.accuracy import LearningReport, LearntRow
from reproductions.aleph.live.cores import CoreSamples, TakenCores
from reproductions.aleph.live.example import ExampleReport, ExampleRow
from reproductions.aleph.live.setting import ALEPH, PRINTED, PS, RING, WAYS, BoundOfRun
from reproductions.aleph.live.training import RoleMeans, TrainingReport, TrainingRow
from reproductions.live import trust
from reproductions.reports import FigureReport
from reproductions.verdicts import AGREES, DIFFERS, SIZE, TIE
from testbed.errors import RequestError
from testbed.messages.coding import UNSET, decode, plain
from testbed.messages.result import RunResult
from testbed.messages.verdict import JobVerdict
from testbed.plugins.papers import figures_of
from testbed.topology.load import load
from testbed.topology.model import Topology
from tests.unit import results

FIGURES = figures_of("aleph")
TRUSTED = JobVerdict(True, "verdict: trustworthy", (), ())


def of_run(ms: float, bound_ms: float) -> BoundOfRun:
    return BoundOfRun(bound_ms, ms, ms / bound_ms, TRUSTED)


def example_row(way: str, seconds: float) -> ExampleRow:
    titles = {each.sync: each.title for each in WAYS}
    bound = of_run(seconds * 1e3, seconds * 990)
    return ExampleRow(way, titles[way], seconds, example.PAPER_S[way], 0.0, *bound)


def training_row(model: str, way: str, ms: float, bound_ms: float) -> TrainingRow:
    roles = {
        name: RoleMeans(0.5 * rate / 1e3, 0.5, 0.1, 0.2, hosts)
        for rate, name, hosts in ((30e3, "Agg2", 1), (20e3, "Agg1", 2), (10e3, "worker", 5), (40e3, "PS", 1))
    }
    return TrainingRow(model, way, "none", ms, 0.0, 0.1, roles, None, 0.4, *of_run(ms, bound_ms))


def with_roles(row: TrainingRow, **changes: RoleMeans) -> TrainingRow:
    return replace(row, roles={**row.roles, **changes})


TRAINING = [
    training_row("vgg19", PS.sync, 840, 800),
    training_row("vgg19", RING.sync, 780, 760),
    training_row("vgg19", ALEPH.sync, 580, 570),
    training_row("vgg19", PRINTED.sync, 860, 850),
]
ACCURACY = [
    LearntRow(way.sync, way.title, [0.5, 0.9], [at_s, 2 * at_s], *of_run(10, 9))
    for way, at_s in ((PS, 4.0), (RING, 2.0), (ALEPH, 2.0))
]
EXAMPLE = [example_row(PS.sync, 0.88), example_row(RING.sync, 0.66), example_row(ALEPH.sync, 0.5)]
FIGURE_NAMES = ("table1", "fig9", "fig10", "fig11", "fig12")


def report_of(name: str) -> dict[str, Any]:
    """Return a report in JSON's form, as `testbed reproduce` has it."""
    made: FigureReport
    if name == "table1":
        made = ExampleReport(2, EXAMPLE, trust([row.verdict for row in EXAMPLE]), 400, 12)
    elif name == "fig12":
        made = LearningReport(2, ACCURACY, trust([row.verdict for row in ACCURACY]), 400, 7)
    else:
        made = TrainingReport(2, TRAINING, trust([row.verdict for row in TRAINING]), 400, 12)
    report = {**plain(made), "figure": name}
    return {**report, "claims": FIGURES[name].claims(report)}


def test_the_volume_is_the_papers_at_every_scale() -> None:
    for scale in (1, 400, 800, 2000):
        assert example.values(scale) * 32 * scale == pytest.approx(4.2e9, rel=1e-3)


def example_network(folder: Path, scale: int) -> Topology:
    file = folder / "example.yaml"
    file.write_text(example.example(scale))
    return load(file)


def test_the_network_is_the_papers(tmp_path: Path) -> None:
    topology = example_network(tmp_path, 800)
    rates = [host.rate_mbps for unit in topology.units for host in unit.unequal]
    assert rates == [10_000, 10_000, 10_000, 30_000, 20_000]


def test_a_time_agrees_within_five_in_a_hundred_either_way() -> None:
    rows = [example_row(ALEPH.sync, 0.42 * ratio) for ratio in (0.94, 0.96, 1.04, 1.06)]
    assert [claim.verdict for claim in example.claims(rows)] == [DIFFERS, AGREES, AGREES, DIFFERS]


def test_cuts_stand_beside_the_papers_and_what_links_allow() -> None:
    by = {claim.text: claim for claim in training.claims(TRAINING)}
    over_ps = by["vgg19: communication time, ALEPH, clustered by time below parameter server (BytePS)"]
    assert (over_ps.paper, over_ps.ours) == ("31%", "31.0% (links allow 28.7%)")
    assert over_ps.verdict == AGREES
    printed = by["vgg19: communication time, ALEPH, M-WCHA below ring (Horovod)"]
    assert printed.verdict == DIFFERS, "it took longer"
    use = by["vgg19: all workers' links carry, ALEPH, clustered by time above ring (Horovod)"]
    assert (use.paper, use.ours, use.verdict) == ("36%", "0%", TIE), "made up: all carry the same"
    assert len(by) == 9


def test_cores_stand_beside_the_papers_where_they_are_known() -> None:
    rows = [training_row("vgg19", way.sync, 800, 790) for way in WAYS]
    rows = [
        with_roles(row, Agg2=replace(row.roles["Agg2"], kernel_cores=0.52)) if row.way == ALEPH.sync else row
        for row in rows
    ]
    by = {claim.text: claim for claim in training.claims(rows) if "CPU time" in claim.text}
    more = by["vgg19: CPU time of Agg2, ALEPH, clustered by time above parameter server (BytePS)"]
    assert (more.paper, more.ours) == ("107%", "107% (0.620 and 0.300 cores)")
    assert more.verdict == AGREES
    less = by["vgg19: CPU time of worker, ALEPH, clustered by time below ring (Horovod)"]
    assert (less.paper, less.verdict) == ("11%", TIE)
    rows = [
        replace(
            row,
            cores_unknown="the kernel's threads are hidden",
            roles={
                name: replace(means, process_cores=UNSET, kernel_cores=UNSET)
                for name, means in row.roles.items()
            },
        )
        for row in rows
    ]
    assert not [claim for claim in training.claims(rows) if "CPU time" in claim.text]
    console = Console(file=io.StringIO(), width=200)
    made = TrainingReport(2, rows, trust([row.verdict for row in rows]), 400, 12)
    FIGURES["fig10"].show({**plain(made), "figure": "fig10"}, console)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "cores by role are not known: the kernel's threads are hidden" in said


def test_what_hosts_took_is_of_the_time_between_the_scripts_marks() -> None:
    """Samples are a second apart: 0.5 cores from the first on, and one more of the kernel from the second."""
    samples = CoreSamples(("u1h1",), None)
    for at, process, kernel in ((10.0, 1.0, 0.0), (11.0, 1.5, 0.0), (12.0, 2.0, 1.0), (13.0, 2.5, 2.0)):
        samples.add(at, [(process, kernel)])
    assert samples.between(11.0, 13.0) == {"u1h1": TakenCores(0.5, 1.0)}
    assert samples.between(10.5, 11.5) == {"u1h1": TakenCores(0.5, 0.5)}
    assert samples.between(9.0, 12.0) == "there are no samples of that time"
    samples.changed_s = 11.2
    assert samples.between(11.0, 13.0) == "a device came that no thread polled yet"
    assert isinstance(samples.between(11.3, 13.0), dict)


@pytest.mark.parametrize(("ms", "word"), [(840, TIE), (400, SIZE), (900, DIFFERS)])
def test_a_cut_of_another_size_or_none_is_said(ms: float, word: str) -> None:
    rows = [row for row in TRAINING if row.way != ALEPH.sync]
    rows.append(training_row("vgg19", ALEPH.sync, ms, 390))
    claim = next(each for each in training.claims(rows) if "time below parameter" in each.text)
    assert claim.verdict == word


def test_all_workers_carry_what_the_paper_adds_up() -> None:
    row = training_row("resnet50", ALEPH.sync, 120, 100)
    for name, gbps in (("worker", 6.6), ("Agg1", 13.1), ("Agg2", 20.1)):
        row = with_roles(row, **{name: replace(row.roles[name], gbps=gbps)})
    assert training.workers_gbps(row) == pytest.approx(79.3)
    rows = [row, training_row("resnet50", PRINTED.sync, 130, 110)]
    for way, gbps in ((PS, 4.2), (RING, 8.4)):
        theirs = training_row("resnet50", way.sync, 200, 190)
        slower = {name: replace(theirs.roles[name], gbps=gbps) for name in ("worker", "Agg1", "Agg2")}
        rows.append(with_roles(theirs, **slower))
    ours = {claim.text: claim.ours for claim in training.claims(rows)}
    said = "resnet50: all workers' links carry, ALEPH, clustered by time above "
    assert ours[said + "parameter server (BytePS)"] == "136%"
    assert ours[said + "ring (Horovod)"] == "18%", "of the paper's own rates; its text has 36 %"


def test_roles_are_told_by_rates(tmp_path: Path) -> None:
    class Up:
        topology = example_network(tmp_path, 100)

    links = [
        results.link("u1h1", 1_000_000, 500_000, rate_mbps=100.0),
        results.link("u1h2", 500_000, 500_000, rate_mbps=100.0),
        results.link("u1h4", 0, 3_000_000, rate_mbps=300.0),
        results.link("u1o1", 9_000_000_000, 9_000_000_000, rate_mbps=100.0),
    ]
    telemetry = {**results.TELEMETRY, "traffic_s": 2.0}
    result = decode(RunResult, results.result(links=links, telemetry=telemetry), "result")
    cores = {"u1h1": TakenCores(0.1, 0.1), "u1h2": TakenCores(0.2, 0.3), "u1h4": TakenCores(0.5, 1.5)}
    roles = training.roles(result, Up, cores)  # type: ignore[arg-type]
    assert set(roles) == {"worker", "Agg2"}
    assert astuple(roles["worker"]) == pytest.approx((0.3, 0.03, 0.15, 0.2, 2))
    assert astuple(roles["Agg2"]) == pytest.approx((1.2, 0.04, 0.5, 1.5, 1))


def test_who_has_learnt_less_when_aleph_is_done() -> None:
    over_ps, over_ring = accuracy.claims(ACCURACY)
    assert (over_ps.ours, over_ps.verdict) == ("90.0% against 50.0%", AGREES)
    assert over_ring.verdict == TIE
    assert accuracy.reached(ACCURACY[0], 3.9) == 0.0


@pytest.mark.parametrize("name", FIGURE_NAMES)
def test_reports_are_shown_and_drawn(name: str, tmp_path: Path) -> None:
    figure = FIGURES[name]
    report = report_of(name)
    console = Console(file=io.StringIO(), width=200)
    figure.show(report, console)
    figure.draw(report, tmp_path / "figure.png")
    assert "trustworthy" in console.file.getvalue()  # type: ignore[attr-defined]
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def options(name: str, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    FIGURES[name].options(parser)
    parsed = parser.parse_args(words)
    FIGURES[name].check(parsed)
    return parsed


def test_defaults_and_quick_ones() -> None:
    assert (options("table1").scale, options("table1").iterations) == (200, 12)
    assert options("fig11").models == list(training.MODELS)
    assert options("fig11", "--quick").models == ["resnet50"]
    assert options("fig12", "--quick").iterations == 2


@pytest.mark.parametrize(
    ("name", "words", "line"),
    [
        ("fig11", ("--models", "vgg11"), "--models vgg11: accepted are resnet50, vgg19, bert"),
        ("fig11", ("--models", ","), "--models ,: accepted are resnet50, vgg19, bert"),
        ("table1", ("--iterations", "2"), "--iterations 2: 3 to 10000 are accepted"),
        ("fig12", ("--scale", "0"), "--scale 0: 1 to 100000 are accepted"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(name: str, words: tuple[str, ...], line: str) -> None:
    with pytest.raises(RequestError, match="^" + line.replace(",", ",") + "$"):
        options(name, *words)
