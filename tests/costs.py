"""A pytest plugin, `-p tests.costs`, for tests that cost much CPU time.

`--costs FILE` writes the CPU seconds of each test that took COSTLY_S or more, including its fixtures and
child processes; `--but FILE` deselects the tests in such a file. Tests marked `text` are never written: they
cost seconds each, and are wanted in every run. `ByFile` prints the gate's time by file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

COSTLY_S = 0.5
FILES = 15  # rows of the gate's table


def read(file: Path) -> dict[str, float]:
    """Return the tests of a file that this plugin wrote, with their CPU seconds."""
    seconds: dict[str, float] = json.loads(file.read_text())
    return seconds


class Costs:
    """A plugin that records the CPU seconds of a session's tests."""

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
    """The number of tests of a file, and the wall seconds of a lane and CPU seconds that they and their
    fixtures took.
    """

    items: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0


class ByFile:
    """A pytest plugin that prints the files that take longest. Each lane measures; the process that prints
    adds up. CPU time excludes a testbed's processes that ended without being pytest's children.
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
        cost.cpu_s += getattr(report, "cpu_s", 0.0)  # missing if the lane died during the test

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("dearest files: tests, wall s, CPU s", "-")
        for line in self.lines():
            terminalreporter.line(line)

    def lines(self) -> list[str]:
        """Return a line for each of the files that take longest, longest first, and one for all files."""
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
    """Return the CPU time of this process and of its children that have ended."""
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
