"""The controller's answers read into the types that other processes have of them, with nothing lost."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from controller.history import History
from controller.records import ChangeRecord
from testbed.messages.coding import as_json, decode
from testbed.messages.controller import (
    CircuitsExchanged,
    CircuitTargets,
    CrossedFrames,
    LitCircuits,
    NetworkLight,
    ReconfigurationEvent,
)
from testbed.messages.timetable import TimetableStatus
from tests.unit.model_switches import ModelPlane
from tests.unit.test_controller import connected
from tests.unit.test_timetable import asked, described


class CountingPlane(ModelPlane):
    def crossings(self) -> dict[int, tuple[int, int, int]]:
        return {1: (5, 3, 2)}

    def flows(self) -> dict[tuple[str, str, int, int], int]:
        return {("10.0.1.1", "10.0.2.1", 6, 5001): 97}


def read(kind: Any, answer: Any) -> Any:
    """Read an answer into a type. The type must have all that the answer has, in the same order."""
    message = decode(kind, answer, "answer")
    assert json.dumps(as_json(message)) == json.dumps(answer)
    return message


def test_every_answer_reads_into_its_type_with_nothing_lost(tmp_path: Path) -> None:
    conductor, _ = connected(tmp_path, CountingPlane())
    planned = read(CircuitTargets, asked(conductor, "plan", demands=[["u1", "u3"]]))
    event = read(ReconfigurationEvent, asked(conductor, "request", demands=[["u1", "u3"]]))
    assert (planned.removed, planned.added) == (event.removed, event.added)
    assert asked(conductor, "request", demands=[["u1", "u3"]]) is None
    moved = read(ReconfigurationEvent, asked(conductor, "apply", circuits=[list(planned.target[0])]))
    assert moved.removed == planned.target[1:]
    stale = {"circuits": [], "instead_of": [list(pair) for pair in planned.target]}
    assert read(CircuitsExchanged, asked(conductor, "exchange", **stale)) == CircuitsExchanged(False, None)
    nothing = {"circuits": [list(planned.target[0])], "instead_of": [list(planned.target[0])]}
    assert read(CircuitsExchanged, asked(conductor, "exchange", **nothing)) == CircuitsExchanged(True, None)
    assert len(read(LitCircuits, asked(conductor, "circuits")).circuits) == 1
    read(TimetableStatus, asked(conductor, "schedule", schedule=described()))
    assert read(LitCircuits, asked(conductor, "circuits")).timetable
    asked(conductor, "unschedule")
    assert not read(LitCircuits, asked(conductor, "circuits")).timetable
    *changes, ending = read(tuple[ReconfigurationEvent, ...], asked(conductor, "history"))
    assert (changes, ending.relit) == ([event, moved], planned.target[:1])
    assert read(tuple[ReconfigurationEvent, ...], asked(conductor, "history", after=2)) == (ending,)
    light = read(NetworkLight, asked(conductor, "light"))
    assert (light.last_event, len(light.timetables), len(light.flows)) == (3, 1, 1)
    crossed = read(dict[str, CrossedFrames], asked(conductor, "crossings"))
    assert list(crossed.values()) == [CrossedFrames(lit=5, dark=3, unlit=2)]
    assert light.crossings == crossed


def test_a_record_has_the_fields_that_others_read_in_their_order() -> None:
    written, read_ = (
        [each.name for each in dataclasses.fields(kind)] for kind in (ChangeRecord, ReconfigurationEvent)
    )
    assert written == read_


@pytest.mark.parametrize("left_out", [(), ("circuits_ms",), ("failed_locks", "relit")])
def test_a_record_of_an_earlier_version_is_answered_as_it_was_written(left_out: tuple[str, ...]) -> None:
    full = ChangeRecord(
        id=7, time=1.5, circuits_ms={"u1o1-u2o1": 2.0}, failed_locks={"u1o1": 1}, relit=(("u1o1", "u2o1"),)
    )
    written = {name: each for name, each in full.as_data().items() if name not in left_out}
    line = json.dumps(written)
    record = ChangeRecord.read({**json.loads(line), "of_a_later_version": 1})
    assert json.dumps(record.as_data()) == line
    read(ReconfigurationEvent, json.loads(line))


def test_a_line_that_is_no_change_is_left_out_of_the_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"id": 1}\n[]\n{"id": 2, "time": null}\n{"id": 3, "added": [["u1o1"]]}\n{"id": 4}\n{"id')
    assert [record.id for record in History(path).read()] == [1, 4]
