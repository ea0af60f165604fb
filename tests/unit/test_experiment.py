"""The one shape of a paper's figure: what its declared options accept, complete and refuse, and that every
figure of every paper has it.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reproductions.claims import timed
from reproductions.experiment import QUICK, Chart, Experiment, ExperimentOption, words_of
from reproductions.reports import FigureReport
from reproductions.verdicts import AGREES
from testbed.errors import RequestError, TestbedError
from testbed.plugins.papers import papers
from testbed.reproduce import _described

COUNT = ExperimentOption("most-jobs", "jobs", usual=7, quick=2, accepted=(1, 11))
RATE = ExperimentOption("rate", "a rate", float, "R", usual=2.5, accepted=(0.5, math.inf))
SET = ExperimentOption("set", "settings", str, "NAME=VALUE", repeated=True)
SEEN: list[tuple[Any, ...]] = []


@dataclass(frozen=True, slots=True)
class MadeUpReport(FigureReport):
    rows: tuple[str, ...]


def experiment(*declared: ExperimentOption) -> Experiment[MadeUpReport]:
    return Experiment(
        name="fig0",
        on_testbed=False,
        about="Does nothing.",
        declared=declared,
        rows=lambda figure, options, out: MadeUpReport((figure, f"{options.rate:g}", str(out))),
        findings=lambda figure, report: [timed(figure, "3", str(len(report.rows)), AGREES)],
        chart=lambda: Chart(
            MadeUpReport,
            lambda report, console: SEEN.append(("shown", report)),
            lambda report, path: SEEN.append(("drawn", path)),
        ),
        complete=lambda figure, options: SEEN.append((figure, vars(options).copy())),
        estimate_s=lambda figure, options: options.most_jobs * 3.0,
    )


def asked(*words: str) -> argparse.Namespace:
    its = experiment(QUICK, COUNT, RATE, SET)
    parser = argparse.ArgumentParser()
    its.options(parser)
    options = parser.parse_args(words)
    its.check(options)
    return options


@pytest.mark.parametrize(
    ("words", "jobs", "rate", "settings"),
    [
        ((), 7, 2.5, []),
        (("--quick",), 2, 2.5, []),
        (("--quick", "--most-jobs", "7"), 7, 2.5, []),
        (("--most-jobs", "11", "--rate", "1e9"), 11, 1e9, []),
        (("--most-jobs", "1", "--rate", "0.5", "--set", "a=1", "--set", "b=2"), 1, 0.5, ["a=1", "b=2"]),
    ],
)
def test_options_have_their_defaults_or_what_was_asked(
    words: tuple[str, ...], jobs: int, rate: float, settings: list[str]
) -> None:
    options = asked(*words)
    assert (options.most_jobs, options.rate, options.set) == (jobs, rate, settings)
    name, completed = SEEN.pop()
    assert (name, completed["most_jobs"]) == ("fig0", jobs), "it is completed when each has its default"
    assert experiment().lasts_s(options) == 3.0 * jobs


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--most-jobs", "0"), "--most-jobs 0: 1 to 11 are accepted"),
        (("--most-jobs", "12"), "--most-jobs 12: 1 to 11 are accepted"),
        (("--rate", "0.4"), "--rate 0.4: at least 0.5 is accepted"),
        (("--rate", "nan"), "--rate nan: at least 0.5 is accepted"),
    ],
)
def test_what_is_out_of_range_is_a_line_and_is_not_completed(words: tuple[str, ...], line: str) -> None:
    SEEN.clear()
    with pytest.raises(RequestError) as error:
        asked(*words)
    assert (str(error.value), SEEN) == (line, [])


def test_the_four_parts_are_given_the_figures_name(tmp_path: Path) -> None:
    its, options = experiment(RATE), argparse.Namespace(rate=3.0)
    report = its.run(options, tmp_path)
    rows = ("fig0", "3", str(tmp_path))
    assert {key: tuple(value) for key, value in report.items()} == {"rows": rows}, "it has no stamp yet"
    claims = its.claims(report)
    assert claims == [{"text": "fig0", "paper": "3", "ours": "3", "verdict": AGREES}]
    SEEN.clear()
    stamped = {**report, "figure": "fig0", "live": False, "took_s": 1.5, "claims": claims, "more": None}
    its.show(stamped, None)  # type: ignore[arg-type]
    its.draw(stamped, tmp_path / "fig0.png")
    read = MadeUpReport(rows, figure="fig0", took_s=1.5, claims=SEEN[0][1].claims)
    assert [("shown", read), ("drawn", tmp_path / "fig0.png")] == SEEN
    assert [finding.ours for finding in read.claims] == ["3"]
    with pytest.raises(TestbedError, match="the report of fig0: not as this version has it"):
        its.claims({"rows": 3})
    assert _described(its) == "Does nothing."


def test_words_of_a_list_are_accepted_each_once() -> None:
    assert words_of("models", " b, a,b", ("a", "b")) == ["b", "a"]
    for text, word in (("a,c", "c"), (",", ","), ("", "")):
        with pytest.raises(RequestError, match=rf"^--models {word}: accepted are a, b$"):
            words_of("models", text, ("a", "b"))


def test_every_figure_of_a_paper_has_the_one_shape() -> None:
    figures = [figure for paper in papers().values() for figure in paper.values()]
    assert len(figures) > 40
    assert [figure.name for figure in figures if not isinstance(figure, Experiment)] == []
    live = [figure for figure in figures if isinstance(figure, Experiment) and figure.on_testbed]
    assert all(figure.estimate_s is not None for figure in live)
