"""A live figure's runs outlive a command that is cut, and what it says before it spends minutes."""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reproductions import live
from reproductions.aleph.live import example
from testbed import reproduce
from testbed.errors import TestbedError
from testbed.figures import finished_runs, machine_load
from testbed.plugins.papers import figures_of, papers
from tests.unit import test_aleph_live

ROOT = Path(__file__).resolve().parents[2]
LIVE = [(paper, name) for paper, all_ in papers().items() for name, each in all_.items() if each.on_testbed]


@dataclass(frozen=True, slots=True)
class Kept:
    ms: float
    pair: tuple[int, int]


def test_what_is_done_is_kept_until_the_end(tmp_path: Path) -> None:
    made: list[int] = []

    def measure() -> Kept:
        made.append(1)
        return Kept(1.5, (1, 2))

    folder = tmp_path / "fig.runs"
    assert finished_runs.begin(folder, "a stamp") == 0
    first = finished_runs.row(folder, "one", Kept, measure)
    assert finished_runs.row(folder, "one", Kept, measure) == first == Kept(1.5, (1, 2))
    assert len(made) == 1
    assert finished_runs.begin(folder, "a stamp") == 1
    assert finished_runs.begin(folder, "another stamp") == 0, "other options or other code: all anew"
    finished_runs.row(folder, "one", Kept, measure)
    assert len(made) == 2
    finished_runs.end(folder)
    assert finished_runs.begin(folder, "another stamp") == 0


def test_a_row_of_another_form_is_measured_again_and_none_such_is_kept(tmp_path: Path) -> None:
    finished_runs.begin(tmp_path, "a stamp")
    finished_runs.keep(tmp_path, "one", {"ms": 1.5})  # as an earlier version kept it
    right = Kept(2.5, (3, 4))
    assert finished_runs.row(tmp_path, "one", Kept, lambda: right) == right
    assert finished_runs.row(tmp_path, "one", Kept, lambda: Kept(9.0, (9, 9))) == right
    wrong: Any = {"ms": "long"}
    for _ in range(2):
        with pytest.raises(TestbedError, match="the run two"):
            finished_runs.row(tmp_path, "two", Kept, lambda: wrong)
    assert finished_runs.row(tmp_path, "two", Kept, lambda: right) == right


def test_a_line_that_was_cut_is_no_run(tmp_path: Path) -> None:
    finished_runs.begin(tmp_path, "a stamp")
    finished_runs.keep(tmp_path, "one", {"ms": 1.0})
    with (tmp_path / finished_runs.FILE).open("a") as file:
        file.write('{"name": "two", "ro')
    assert finished_runs.begin(tmp_path, "a stamp") == 1
    finished_runs.keep(tmp_path, "two", {"ms": 2.0})
    assert finished_runs.begin(tmp_path, "a stamp") == 2, "the next row has a line of its own"


def test_a_row_that_was_cut_at_its_very_end_is_a_run(tmp_path: Path) -> None:
    finished_runs.begin(tmp_path, "a stamp")
    finished_runs.keep(tmp_path, "one", {"ms": 1.0})
    file = tmp_path / finished_runs.FILE
    file.write_text(file.read_text().removesuffix("\n"))
    assert finished_runs.begin(tmp_path, "a stamp") == 1
    finished_runs.keep(tmp_path, "two", {"ms": 2.0})
    assert finished_runs.begin(tmp_path, "a stamp") == 2


def test_the_stamp_is_of_options_and_source() -> None:
    stamps = {finished_runs.stamp({"iterations": number}, ROOT) for number in (1, 2, 2)}
    assert len(stamps) == 2


def test_a_command_that_was_cut_goes_on_behind_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    @contextlib.contextmanager
    def up(*_: object) -> Iterator[None]:
        yield None

    def run(_: object, way: Any, *__: object) -> example.ExampleRow:
        tried.append(way.sync)
        if len(tried) == 3:
            raise KeyboardInterrupt
        return test_aleph_live.example_row(way.sync, 1.0)

    monkeypatch.setattr(live, "testbed", up)
    monkeypatch.setattr(example, "_row", run)
    finished_runs.begin(tmp_path, "a stamp")
    with pytest.raises(KeyboardInterrupt):
        example.measure(200, 3, tmp_path, lambda _: None)
    rows = example.measure(200, 3, tmp_path, lambda _: None)
    assert tried == ["ps", "ring", "aleph", "aleph"]
    assert [row.way for row in rows] == ["ps", "ring", "aleph"]


def test_every_figure_on_a_testbed_keeps_its_runs() -> None:
    """Each function that brings a testbed up for runs has them by `finished_runs`."""
    figures = 0
    for path in sorted((ROOT / "reproductions").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                text = ast.unparse(node)
                if "live.testbed(" in text or "session.run(" in text:
                    figures += 1
                    assert "finished_runs.row(" in text or "finished_runs.keep(" in text, (
                        f"{path}: {node.name}"
                    )
    assert figures >= 9


@pytest.mark.parametrize(("paper", "name"), LIVE)
@pytest.mark.parametrize("quick", [False, True])
def test_a_figure_says_how_long_it_takes(paper: str, name: str, quick: bool) -> None:
    figure = figures_of(paper)[name]
    parser = argparse.ArgumentParser()
    figure.options(parser)
    options = parser.parse_args(["--quick"] if quick else [])
    figure.check(options)
    assert 1 < figure.lasts_s(options) < 5 * 3600  # type: ignore[attr-defined]


def test_what_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine_load, "others", lambda: (0.45, 0.2))
    options = argparse.Namespace(iterations=12, out=tmp_path)
    folder = tmp_path / "table1.runs"
    reproduce._announce(figures_of("aleph")["table1"], options, folder)
    said = capsys.readouterr().err
    assert "table1: 1 minute or more\n" in said
    assert "the machine is busy: others use 45% of" in said
    assert "20% by the hypervisor; with 10% or less its runs can be trusted" in said
    finished_runs.keep(folder, "ps", {"way": "ps"})
    monkeypatch.setattr(machine_load, "others", lambda: (0.05, 0.0))
    reproduce._announce(figures_of("aleph")["table1"], options, folder)
    said = capsys.readouterr().err
    assert "the machine is quiet: others use 5% of" in said
    assert "1 runs of an earlier try are there" in said
    assert json.loads((folder / finished_runs.FILE).read_text().splitlines()[1])["name"] == "ps"
