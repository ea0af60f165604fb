"""No figure has a verdict word or a headline from runs that are not trustworthy: every live figure of every
paper, with made-up runs.
"""

from __future__ import annotations

import argparse
import ast
import copy
import io
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from reproductions import verdicts
from reproductions.aleph.micro.report import MicroReport
from reproductions.claims import Finding
from reproductions.claims import tally as statements
from reproductions.live import trust
from reproductions.p4inc.live import tables
from reproductions.p4inc.live.report import SimulatedQueue
from testbed.aggregation.figure import Figure
from testbed.errors import TestbedError
from testbed.figures import verdict_gate
from testbed.messages.coding import as_json, decode, plain
from testbed.messages.verdict import JobVerdict
from testbed.plugins.papers import figures_of, papers
from testbed.report import layout
from tests.unit import (
    results,
    test_aleph_live,
    test_aleph_micro,
    test_luwu_live,
    test_reproduce_live,
    test_rotor,
    test_trio_accuracy,
    test_trio_figures,
    test_trio_packets,
)

Report = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
GOOD = results.TRUSTED
BAD = {**GOOD, "trustworthy": False, "reasons": [{"name": "busy", "text": "others used the cores"}]}


def _micro(name: str) -> Report:
    report = plain(_micro_report(name))
    return {key: value for key, value in report.items() if key not in ("claims", "live")}


def _micro_report(name: str) -> MicroReport[Any]:
    row, report = test_aleph_micro.row, test_aleph_micro.report
    if name == "fig6":
        points = [row("xdp-native", 5.0, offered=0.5, asked_per_s=1.0, per_s=1.0)]
        points += [replace(points[0], offered=0.9, load=0.95, loss=0.001)]
        return report(name, points)
    if name == "fig7":
        return report(
            name,
            [
                test_aleph_micro.timed(case, rate, us)
                for case, us in (("xdp", 100.0), ("tcp", 200.0))
                for rate in (1.0, 1e5)
            ],
        )
    cases = (("xdp-native", 17.0), ("xdp-generic", 12.0), ("tcp", 1.6))
    if name == "fig8":
        return report(name, [test_aleph_micro.copied(case, rate) for case, rate in cases])
    return report(name, [row(case, rate, target_gbps=None) for case, rate in cases])


def _p4inc(name: str) -> Report:
    if name == "fig5":
        rows = test_reproduce_live.throughput({"resnet50": 1.5, "vgg16": 2.5})
        return {"version": 1, "rows": plain(rows), "iterations": 5, "scale": 400}
    nothing_simulated = SimulatedQueue((), tables.claims(()))
    report: Report = plain(replace(test_reproduce_live.queue_report(), ahead=nothing_simulated))
    del report["trust"]
    return report


SAMPLES: Mapping[str, Callable[[str], Report]] = {
    **{f"aleph {name}": test_aleph_live.report_of for name in test_aleph_live.FIGURE_NAMES},
    **{f"aleph {name}": _micro for name in test_aleph_micro.NAMES},
    **{f"luwu {name}": test_luwu_live.report_of for name in test_luwu_live.PLANS},
    **{f"p4inc {name}": _p4inc for name in ("fig5", "fig6", "fig7")},
    **{f"rotor {name}": test_rotor.report_of for name in ("throughput", "latency")},
    "trio fig12": lambda _: test_trio_accuracy.report_of(test_trio_accuracy.rows()),
    "trio fig13": lambda _: test_trio_figures.report_of(test_trio_figures.ROWS),
    **{f"trio {name}": test_trio_packets.report_of for name in test_trio_packets.PLANS},
}
"""A live figure's made-up report. One that has none fails `test_every_live_figure_is_tried`."""
LIVE = [
    f"{paper} {figure.name}"
    for paper, figures in papers().items()
    for figure in figures.values()
    if figure.on_testbed
]


def reported(name: str, verdict: Mapping[str, Any], bad: int | None = None) -> tuple[Figure, Report]:
    """Return a figure, and its report as the command makes it, its runs (or but the `bad`th) so judged."""
    paper, figure_name = name.split()
    report = copy.deepcopy(SAMPLES[name](figure_name))
    report |= {"figure": figure_name, "live": True}
    for number, row in enumerate(report["rows"]):
        its = verdict if bad is None or number == bad else GOOD
        if "trust" in row:
            row["trust"] = {"trustworthy": int(its["trustworthy"]), "of": 1, "reasons": {}}
            row.pop("verdict", None)
        else:
            row["verdict"] = dict(its)
        row.pop("run", None)
    verdict_gate.numbered(report)
    if "trust" not in report and paper not in ("rotor", "trio"):
        good = sum(verdict_gate.JudgedRow.of(row).is_trusted for row in report["rows"])
        report["trust"] = {"trustworthy": good, "of": len(report["rows"]), "reasons": {}}
    figure = figures_of(paper)[figure_name]
    report["claims"] = verdict_gate.claims(figure, report)
    return figure, report


def shown(figure: Figure, report: Report) -> str:
    console = Console(file=io.StringIO(), width=240, color_system=None)
    figure.show(report, console)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.fixture
def titles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Headlines that are put over pictures, which are drawn and not written."""
    from matplotlib.figure import Figure as Picture

    seen: list[str] = []
    monkeypatch.setattr(layout, "headline", lambda _, finding, detail: seen.append(f"{finding}\n{detail}"))
    monkeypatch.setattr(Picture, "savefig", lambda _, draft, **__: Path(draft).touch())
    return seen


def test_every_live_figure_is_tried() -> None:
    assert sorted(SAMPLES) == sorted(LIVE)


@pytest.mark.parametrize("name", LIVE)
def test_untrustworthy_runs_give_no_word_and_no_headline(
    name: str, tmp_path: Path, titles: list[str]
) -> None:
    figure, report = reported(name, BAD)
    timed = [claim for claim in report["claims"] if not claim.get("untimed")]
    assert {claim["verdict"] for claim in timed} <= {verdict_gate.UNJUDGED, None}
    text = shown(figure, report)
    if len(timed) == len(report["claims"]):
        assert [word for word in verdicts.WORDS if re.search(rf"\b{word}\b", text)] == []
    figure.draw(report, tmp_path / "picture.png")
    (title,) = titles
    assert title.startswith(f"{figure.name}: no headline, for ")
    if len(timed) == len(report["claims"]):
        assert "statements agree" not in title


@pytest.mark.parametrize("name", LIVE)
def test_trustworthy_runs_give_both(name: str, tmp_path: Path, titles: list[str]) -> None:
    figure, report = reported(name, GOOD)
    assert verdict_gate.UNJUDGED not in {claim["verdict"] for claim in report["claims"]}
    assert any(claim["verdict"] in verdicts.WORDS for claim in report["claims"])
    figure.draw(report, tmp_path / "picture.png")
    assert "no headline" not in titles[0]


@pytest.mark.parametrize("name", LIVE)
def test_each_run_that_a_claim_reads_is_one_that_it_rests_on(name: str) -> None:
    """Change a run's numbers: a claim that says otherwise must have named the run."""
    figure, report = reported(name, GOOD)
    for number in range(len(report["rows"])):
        other = copy.deepcopy(report)
        _change(other["rows"][number])
        after = {_named(claim): claim["verdict"] for claim in figure.claims(other)}
        for before in figure.claims(report):
            if before["verdict"] != after.get(_named(before)) and not before.get("untimed"):
                runs = before.get("runs")
                assert runs is None or number in runs, before


TRIALS = 1000
COUNTS = ("connections", "peak_bytes", "iteration_ms")
KNOBS = ("p", "offered", "asked_per_s", "disk_mb_s", "timeout_ms", "load")


def _named(claim: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(claim.get(key) for key in ("text", "model", "over"))


def _change(row: dict[str, Any]) -> None:
    for key, value in row.items():
        if isinstance(value, float) and key not in KNOBS:
            row[key] = 3 * value
        elif isinstance(value, list) and value and all(isinstance(each, float) for each in value):
            row[key] = [3 * each for each in value]
        elif isinstance(value, dict) and key != "verdict":
            _change(value)


def test_statements_are_counted_of_those_that_are_judged() -> None:
    def tally(*words: str | None) -> str:
        return statements([Finding("", "1", "", word) for word in words])

    assert tally("agrees", "differs") == "1 of 2 statements agree"
    assert tally("agrees", verdict_gate.UNJUDGED, None) == "1 of 1 statements agree, 2 are not judged"
    assert tally(verdict_gate.UNJUDGED) == "no statement is judged"
    assert statements([Finding("", "not said", "", "differs")]) == "no statement is judged"


def test_one_run_takes_the_words_of_those_claims_that_rest_on_it() -> None:
    _, report = reported("aleph table1", BAD, bad=1)
    words = [claim["verdict"] for claim in report["claims"]]
    assert [word == verdict_gate.UNJUDGED for word in words] == [False, True, False]


def test_a_run_that_says_nothing_of_trust_has_none() -> None:
    both = [decode(JobVerdict, verdict, "verdict") for verdict in (GOOD, BAD)]
    for row in ({}, {"trust": {"trustworthy": 0, "of": 0}}, {"trust": as_json(trust(both))}):
        assert not verdict_gate.JudgedRow.of(row).is_trusted


def test_a_live_figure_without_runs_has_no_word() -> None:
    class Mine:
        name, on_testbed = "mine", True

        def claims(self, report: Any) -> list[dict[str, Any]]:
            return [{"text": "", "paper": "", "ours": "", "verdict": "agrees"}]

    (claim,) = verdict_gate.claims(Mine(), {"live": True})  # type: ignore[arg-type]
    assert claim["verdict"] == verdict_gate.UNJUDGED
    (claim,) = verdict_gate.claims(Mine(), {"live": False})  # type: ignore[arg-type]
    assert claim["verdict"] == "agrees", "a simulation has no machine's noise"


def test_what_needs_no_trust_is_one_of_few_kinds() -> None:
    class Mine:
        name, on_testbed = "mine", True

        def claims(self, report: Any) -> list[dict[str, Any]]:
            return [{"verdict": "agrees", "untimed": "seconds"}]

    with pytest.raises(TestbedError, match="untimed: 'seconds'; accepted are bytes of memory"):
        verdict_gate.claims(Mine(), {"live": True})  # type: ignore[arg-type]


def test_pictures_of_papers_have_their_headline_from_the_gate() -> None:
    """Nothing of the reproductions takes the function that prints any headline."""
    for path in sorted((ROOT / "reproductions").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("testbed.report"):
                assert "headline" not in {alias.name for alias in node.names}, path
            if isinstance(node, ast.Attribute):
                assert node.attr != "suptitle", path


def _predicted(name: str) -> tuple[Figure, Report]:
    figure = figures_of("luwu")[name]
    parser = argparse.ArgumentParser()
    figure.options(parser)
    options = parser.parse_args([])
    figure.check(options)
    return figure, {"figure": name, **figure.run(options, Path("/nonexistent"))}


PREDICTED = [f"luwu {name}" for name, figure in figures_of("luwu").items() if not figure.on_testbed]


@pytest.mark.parametrize("name", [*LIVE, *PREDICTED])
def test_every_claim_can_fail(name: str) -> None:
    """Change the numbers of runs: each claim says otherwise for some change."""
    figure, report = _predicted(name.split()[1]) if name in PREDICTED else reported(name, GOOD)
    stuck = {_named(claim): claim["verdict"] for claim in figure.claims(report) if claim["verdict"]}
    for other in _changed(report):
        for claim in figure.claims(other):
            if stuck.get(_named(claim), claim["verdict"]) != claim["verdict"]:
                del stuck[_named(claim)]
        if not stuck:
            break
    assert stuck == {}


def _changed(report: Report) -> Iterator[Report]:
    """Yield the report with its numbers multiplied, each by a factor of its own."""
    draw = random.Random(1)
    for _ in range(TRIALS):
        other = copy.deepcopy(report)
        for row in other["rows"]:
            _scale(row, draw)
        yield other


def _scale(row: dict[str, Any], draw: random.Random) -> None:
    for key, value in row.items():
        factor = draw.choice((1.0, 100 ** draw.uniform(-1, 1)))
        if key in ("model", "system") and "disks_hold" in row:
            row[key] = draw.choice((value, "1.3B", "13B")) if key == "model" else value
        elif (isinstance(value, float) or key in COUNTS) and value is not None and key not in KNOBS:
            row[key] = value * factor or draw.choice((0.0, 0.5))
        elif isinstance(value, list) and value and all(isinstance(each, float) for each in value):
            middle = len(value) // 2
            end = draw.choice((slice(0, middle), slice(middle, None), slice(None)))
            row[key] = [*value[: end.start or 0], *(each * factor for each in value[end])]
            row[key] += value[len(row[key]) :]
        elif isinstance(value, dict) and key != "verdict":
            _scale(value, draw)


def test_rows_as_json_has_them_are_judged_too() -> None:
    """A user's own figure hands such on."""
    rows = [{"run": 3, "verdict": {"trustworthy": True}}, {"run": [4, 5], "verdict": None}]
    assert verdict_gate.runs_of(rows) == [3, 4, 5]
    report: Any = SimpleNamespace(figure="mine", live=True)
    assert verdict_gate.title(report, "found", rows[:1]) == "found"
    assert verdict_gate.title(report, "found", rows).startswith("mine: no headline, for 1 of 2 runs")
