"""A plugin of pytest, `-p tests.costs`, for tests that cost much processor time.

`--costs FILE` writes the seconds, by test, of those that took COSTLY_S or more, their fixtures and child
processes included; `--but FILE` leaves out the tests of such a file. Checks of text, marked so, are none:
they cost seconds each, and are wanted wherever tests are run. `ByFile` is the gate's: its time by file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

COSTLY_S = 0.5
FILES = 15  # that the gate's table names


def read(file: Path) -> dict[str, float]:
    """Return the tests of a file that this plugin wrote, each with its seconds."""
    seconds: dict[str, float] = json.loads(file.read_text())
    return seconds


class Costs:
    """The tests of a session, each with its seconds."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = spent_s()
        try:
            return (yield)
        finally:
            if not item.get_closest_marker("text"):
                self._seconds[item.nodeid] = spent_s() - before

    def pytest_sessionfinish(self) -> None:
        costly = {test: round(seconds, 1) for test, seconds in self._seconds.items() if seconds >= COSTLY_S}
        self._file.write_text(json.dumps(costly, indent=1, sort_keys=True) + "\n")


@dataclass(slots=True)
class FileCost:
    """The tests of a file, and the seconds of a lane and of processors that they and their fixtures took."""

    items: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0


class ByFile:
    """A plugin of pytest: prints the dearest files. Each lane measures; the process that prints adds up.

    A testbed's processes that ended as no child of pytest's are not in the processor time.
    """

    def __init__(self) -> None:
        self._files: dict[str, FileCost] = {}
        self._spent_s = 0.0

    def pytest_runtest_logstart(self) -> None:
        self._spent_s = spent_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before, self._spent_s = self._spent_s, spent_s()
        report.cpu_s = self._spent_s - before
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cost = self._files.setdefault(report.nodeid.split("::")[0], FileCost())
        cost.items += report.when == "setup"
        cost.wall_s += report.duration
        cost.cpu_s += getattr(report, "cpu_s", 0.0)  # none of a lane that died under its test

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("dearest files: tests, wall s, CPU s", "-")
        for line in self.lines():
            terminalreporter.line(line)

    def lines(self) -> list[str]:
        """Return a line for each of the dearest files, dearest first, and one for all files."""
        dearest = sorted(self._files.items(), key=lambda each: each[1].wall_s, reverse=True)[:FILES]
        costs = self._files.values()
        whole = FileCost(
            sum(cost.items for cost in costs),
            sum(cost.wall_s for cost in costs),
            sum(cost.cpu_s for cost in costs),
        )
        return [
            f"{cost.items:5} {cost.wall_s:7.1f} {cost.cpu_s:7.1f}  {file}"
            for file, cost in (*dearest, (f"all {len(costs)} files", whole))
        ]


def spent_s() -> float:
    """Return the processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", type=Path, help="write here which tests took half a second or more")
    parser.addoption("--but", type=Path, help="leave out the tests of a file that --costs wrote")


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("--costs"):
        config.pluginmanager.register(Costs(file), "costs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if file := config.getoption("--but"):
        costly = read(file)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in costly])
        items[:] = [item for item in items if item.nodeid not in costly]
