"""The gate's lanes, as far as they need no root: who is let in beside whom, the order of files, options."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import gate, lanes

WAIT_S = 60
BEFORE_S = 0.3  # for what must not come about


class Guest(threading.Thread):
    """A test that is let in, says so, and stays until it is asked to leave."""

    def __init__(self, folder: Path, alone: bool) -> None:
        super().__init__(daemon=True)
        self._rooms, self._alone = lanes.Rooms(folder), alone
        self.is_in, self._may_leave = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with self._rooms.entered(self._alone):
            self.is_in.set()
            self._may_leave.wait(WAIT_S)

    def leave(self) -> None:
        self._may_leave.set()
        self.join(WAIT_S)


def test_tests_run_beside_each_other_but_for_those_that_are_alone(tmp_path: Path) -> None:
    first, second = Guest(tmp_path, False), Guest(tmp_path, False)
    assert first.is_in.wait(WAIT_S)
    assert second.is_in.wait(WAIT_S)
    measures = Guest(tmp_path, True)
    first.leave()
    assert not measures.is_in.wait(BEFORE_S), "the second is still there"
    second.leave()
    assert measures.is_in.wait(WAIT_S)
    other = Guest(tmp_path, True)
    assert not other.is_in.wait(BEFORE_S)
    measures.leave()
    assert other.is_in.wait(WAIT_S)
    other.leave()


def test_who_waits_to_be_alone_is_let_in_before_those_that_come_later(tmp_path: Path) -> None:
    """Or tests of another lane, one after the other, would keep it waiting to the end."""
    first = Guest(tmp_path, False)
    assert first.is_in.wait(WAIT_S)
    measures = Guest(tmp_path, True)
    assert not measures.is_in.wait(BEFORE_S)
    later = Guest(tmp_path, False)
    assert not later.is_in.wait(BEFORE_S)
    first.leave()
    assert measures.is_in.wait(WAIT_S)
    assert not later.is_in.is_set()
    measures.leave()
    assert later.is_in.wait(WAIT_S)
    later.leave()


def test_files_that_measure_come_first_and_those_without_root_last() -> None:
    def item(file: str, name: str, *marks: str) -> Any:
        return SimpleNamespace(path=Path(file), name=name, get_closest_marker=lambda mark: mark in marks)

    items = [
        item("unit", "a"),
        item("testbeds", "b", "privileged"),
        item("rates", "c", "privileged"),
        item("rates", "d", "privileged", "alone"),
        item("unit 2", "e"),
    ]
    assert [each.name for each in lanes.in_order(items)] == ["c", "d", "b", "a", "e"]


@pytest.mark.parametrize(("count", "options"), [(1, 0), (2, 7), (5, 7)])
def test_one_lane_is_pytest_itself(count: int, options: int) -> None:
    assert len(lanes.options(count)) == options


@pytest.mark.parametrize("setting", ["many", "0", "-1", "0.5", "2.5", "inf", "nan"])
def test_a_number_of_lanes_that_is_none_is_refused(
    setting: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(gate.LANES_VARIABLE, setting)
    assert gate.main([]) == 2
    assert (
        capsys.readouterr().err
        == f"gate: TESTBED_GATE_LANES={setting}: a whole number of lanes is accepted\n"
    )
