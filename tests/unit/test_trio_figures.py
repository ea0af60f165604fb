"""`testbed reproduce trio fig13`: what is said of the paper, shown, drawn and asked. Made-up runs, no
testbed.
"""

from __future__ import annotations

import argparse
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reproductions.live import trust
from reproductions.trio.slow import iterations, tables
from reproductions.trio.slow.figure import EXPERIMENTS
from reproductions.trio.slow.iterations import SlowReport, SlowRow
from reproductions.trio.slow.setting import (
    SWITCHML,
    SWITCHML_64,
    TRIO,
    WORKERS,
    ComparedWay,
    network,
)
from reproductions.verdicts import AGREES, DIFFERS, SIZE, TIE
from testbed.errors import RequestError
from testbed.messages.coding import decode, plain
from testbed.messages.verdict import JobVerdict
from testbed.topology.load import load
from testbed.wire.stragglers import SlowWorkers

(FIGURE,) = EXPERIMENTS


def row(way: ComparedWay, p: float, ms: float, expected_ms: float, model: str = "resnet50") -> SlowRow:
    aged = way is TRIO and p > 0
    return SlowRow(
        model=model,
        way=way.key,
        p=p,
        iteration_ms=ms,
        by_worker_ms=[ms] * WORKERS,
        compute_ms=190.0,
        expected_ms=expected_ms,
        replayed_ms=ms * 1.01,
        delays=0,
        blocks=200 if way is TRIO else None,
        without=({"0": 30, "5": 50, "u1r1": 90} if aged else {}) if way is TRIO else None,
        error_over_bound=0.5,
        retransmits=0,
        verdict=JobVerdict(True, "verdict: trustworthy", (), ()),
    )


def of_ratio(trio_ms: float, expected_ms: float = 330.0) -> list[SlowRow]:
    return [
        row(SWITCHML, 0.0, 220, 220),
        row(TRIO, 0.0, 222, 220),
        row(SWITCHML, 0.16, 600, 610),
        row(TRIO, 0.16, trio_ms, expected_ms),
    ]


ROWS = of_ratio(340)


def report_of(rows: list[SlowRow]) -> dict[str, Any]:
    """Return the report of these runs in JSON's form, as `testbed reproduce` has it."""
    sums = trust([each.verdict for each in rows])
    report = {"figure": "fig13", **plain(SlowReport(1, rows, sums, scale=1000, iterations=40, seed=1))}
    return {**report, "claims": FIGURE.claims(report)}


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    FIGURE.options(parser)
    parsed = parser.parse_args(words)
    FIGURE.check(parsed)
    return parsed


@pytest.mark.parametrize(
    ("trio_ms", "word"), [(340, AGREES), (300, AGREES), (500, SIZE), (601, TIE), (640, DIFFERS)]
)
def test_a_ratio_agrees_that_is_the_papers_or_more(trio_ms: float, word: str) -> None:
    claim = iterations.claims(of_ratio(trio_ms))[0]
    assert claim.paper == "1.72"
    assert claim.ours == f"{600 / trio_ms:.2f} (expected 1.85)"
    assert claim.verdict == word


def test_how_near_to_ideal_and_how_right_the_model_is() -> None:
    ratio, ideal, over_seeds, of_seed = iterations.claims(ROWS)
    assert ideal.ours == "1.55 (SwitchML 2.73)"
    assert ideal.verdict == DIFFERS
    assert (over_seeds.ours, over_seeds.verdict) == ("-2.9%", AGREES)
    assert (of_seed.ours, of_seed.verdict) == ("+1.0%", AGREES)
    assert iterations.claims(of_ratio(340, 400))[2].verdict == DIFFERS
    assert ratio.text == "resnet50: SwitchML's iteration over Trio-ML's at p = 16%"


def test_the_papers_ratios_are_of_its_probability_alone() -> None:
    rows = [replace(each, p=each.p / 2) for each in ROWS]
    assert not any("over Trio-ML's" in claim.text for claim in iterations.claims(rows))


def test_what_is_expected_is_that_of_the_way() -> None:
    pattern = SlowWorkers(0.16, 1)
    waits, ages = (iterations.predicted(way, pattern, 40, 217.0) for way in (SWITCHML, TRIO))
    assert waits == pytest.approx((2.84, 2.72), abs=0.2)
    assert ages == pytest.approx((1.67, 1.57), abs=0.15)
    nobody_slow = SlowWorkers(0.0)
    assert iterations.predicted(TRIO, nobody_slow, 40, 217.0) == pytest.approx((1.0, 1.0))


def test_the_network_is_the_papers(tmp_path: Path) -> None:
    file = tmp_path / "trio.yaml"
    file.write_text(network(1000))
    topology = load(file)
    assert sum(unit.racks * unit.hosts for unit in topology.units) == WORKERS
    assert topology.inc.jobs == 2, "of 1,024 slots: a pool of 512"


def test_the_share_of_blocks_is_of_the_worker_that_most_went_without() -> None:
    assert tables.lacking(ROWS[3].blocks, ROWS[3].without) == "25% at most", "racks are no workers"
    assert tables.lacking(ROWS[2].blocks, ROWS[2].without) == ""


@pytest.mark.parametrize("models", [["resnet50"], ["resnet50", "vgg11", "densenet161"]])
def test_reports_are_shown_and_drawn(models: list[str], tmp_path: Path) -> None:
    report = report_of([replace(each, model=model) for model in models for each in ROWS])
    console = Console(file=io.StringIO(), width=200)
    FIGURE.show(report, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(model in shown for model in models)
    assert f"{4 * len(models)} of {4 * len(models)} runs trustworthy" in shown
    times = "1.76" if len(models) == 1 else "1.76 to 1.76"
    assert (
        tables.headline(decode(SlowReport, report, "report"))
        == f"At p = 16% SwitchML's iterations take {times} times as long as Trio-ML's"
    )
    FIGURE.draw(report, tmp_path / "fig13.png")
    assert (tmp_path / "fig13.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_usual() -> None:
    asked = options()
    assert (asked.iterations, asked.p, len(asked.models)) == (40, [0.0, 0.04, 0.08, 0.16], 3)
    assert iterations.count(asked.models, asked.p) == 27, "of each model SwitchML-64 once"
    quick = options("--quick", "--p", "0.16,0.16")
    assert (quick.iterations, quick.p, quick.models) == (8, [0.0, 0.16], ["resnet50"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--iterations", "1"], "--iterations 1: 2 to 10000 are accepted"),
        (["--scale", "0"], "--scale 0: 1 to 100000 are accepted"),
        (["--seed", "-1"], "--seed -1: 0 to 4294967295 are accepted"),
        (["--models", "vgg16"], "--models vgg16: accepted are resnet50, vgg11, densenet161"),
        (["--models", ","], "--models ,: accepted are"),
        (["--p", "0.1,2"], "--p 0.1,2: 2; numbers from 0 to 1 are accepted"),
        (["--p", "nan"], "--p nan: nan; numbers"),
        (["--p", ""], "--p : nothing; numbers"),
        (["--p", "0"], "--p 0: one at least is to be more than 0"),
    ],
)
def test_what_cannot_be_asked_is_one_line(words: list[str], said: str) -> None:
    with pytest.raises(RequestError, match=f"^{said}"):
        options(*words)


@pytest.mark.parametrize(("small_ms", "word"), [(900, AGREES), (610, TIE), (400, DIFFERS)])
def test_switchml_64_stands_beside_switchml_256(small_ms: float, word: str) -> None:
    rows = [*ROWS, row(SWITCHML_64, 0.16, small_ms, 610)]
    (claim,) = [each for each in iterations.claims(rows) if "SwitchML-64" in each.text]
    assert (claim.ours, claim.verdict) == (f"{small_ms / 600:.2f}", word)
