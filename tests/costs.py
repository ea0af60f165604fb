"""A plugin of pytest, `-p tests.costs`, for tests that cost much processor time.

`--costs FILE` writes the seconds, by test, of those that took COSTLY_S or more, their fixtures and child
processes included; `--but FILE` leaves out the tests of such a file. Checks of text, marked so, are none:
they cost seconds each, and are wanted wherever tests are run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

COSTLY_S = 0.5


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
