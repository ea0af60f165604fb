"""The gate's lanes, as far as they need no root: who is let in beside whom, the order of files, options."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from xdist.remote import Producer

from tests import gate, lanes

WAIT_S = 60
BEFORE_S = 0.3  # for what must not come about


class Guest(threading.Thread):
    """A test that is let in, says so, and stays until it is asked to leave."""

    def __init__(self, folder: Path, alone: bool) -> None:
        super().__init__(daemon=True)
        self._room, self._alone = lanes.Room(folder), alone
        self.is_in, self._may_leave = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with self._room.entered(self._alone):
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


def test_tests_that_measure_come_first_and_those_without_root_last() -> None:
    def item(file: str, name: str, *marks: str) -> Any:
        return SimpleNamespace(
            path=Path(file), name=name, get_closest_marker=lambda mark: {*marks} & {mark} or None
        )

    items = [
        item("unit", "a"),
        item("testbeds", "b", "privileged"),
        item("rates", "c", "privileged"),
        item("rates", "d", "privileged", "alone"),
        item("unit 2", "e"),
    ]
    assert [each.name for each in lanes.in_order(items)] == ["d", "b", "c", "a", "e"]


class Hand:
    """A lane that is dealt work: notes what it got, and is done with it when it is told to."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.got: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, tests: list[int]) -> None:
        self.got += tests

    def shutdown(self) -> None:
        self.shutting_down = True


def test_the_first_lane_is_alone_and_the_last_takes_from_the_end(tmp_path: Path) -> None:
    files = {"rates": ["alone", "beside"], "testbeds": ["1", "2", "3"], "ends": ["1"], "pure": [*"1234"]}
    tests = [f"{file}.py::{test}" for file, names in files.items() for test in names]
    (tmp_path / "alone.json").write_text(json.dumps(tests[:1]))
    config: Any = SimpleNamespace(
        getvalue=lambda name: ["popen"] * 3 if name == "tx" else None,
        option=SimpleNamespace(loadscopereorder=False, debug=False),
    )
    deal = lanes.Deal(config, Producer("deal", enabled=False), tmp_path)
    hands = {name: Hand(name) for name in ("gw2", "gw0", "gw1")}  # in the order in which they were ready
    for hand in hands.values():
        deal.add_node(cast(Any, hand))
        deal.add_node_collection(cast(Any, hand), tests)
    deal.schedule()
    dealt = {name: [tests[each] for each in hand.got] for name, hand in sorted(hands.items())}
    assert dealt == {
        "gw0": ["rates.py::alone", "testbeds.py::1", "testbeds.py::2", "testbeds.py::3"],
        "gw1": ["rates.py::beside", "ends.py::1"],
        "gw2": ["pure.py::1", "pure.py::2", "pure.py::3", "pure.py::4"],
    }


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
