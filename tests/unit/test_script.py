"""`testbed script`: what a file may say, and that each step is done when it is due and recorded."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from testbed import script
from testbed.errors import RequestError
from testbed.messages.script import DoneStep
from testbed.script import ScriptStep, carried_out, parse


def test_steps_come_in_the_order_of_their_times() -> None:
    data = [
        {"at": 7, "do": ["link set u1h1 --up", "fault clear"]},
        {"at": 0.5, "do": "circuits clear --force"},
    ]
    assert parse(data, "f") == [
        ScriptStep(0.5, ("circuits", "clear", "--force")),
        ScriptStep(7.0, ("link", "set", "u1h1", "--up")),
        ScriptStep(7.0, ("fault", "clear")),
    ]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "f: None; a list of steps like"),
        ([], "f: \\[\\]; a list of steps like"),
        ([{"at": 1}], "f: \\[0\\]: .*; a step has the keys at and do"),
        ([{"at": 1, "do": "fault clear"}, {"at": -1, "do": "fault clear"}], "f: \\[1\\].at: -1; 0 to 86400"),
        ([{"at": True, "do": "fault clear"}], "\\[0\\].at: True; 0 to"),
        ([{"at": float("nan"), "do": "fault clear"}], "\\[0\\].at: nan; 0 to"),
        (
            [{"at": 1, "do": "run x.py"}],
            "\\[0\\].do: run x.py; a command out of link, fault, circuits, cancel",
        ),
        ([{"at": 1, "do": 7}], "\\[0\\].do: 7; a command out of"),
        ([{"at": 1, "do": "link 'set"}], "\\[0\\].do: link 'set: No closing quotation"),
        ([{"at": 1, "do": "link list --name x"}], "the script's own --name says which testbed"),
    ],
)
def test_files_that_are_refused(data: Any, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        parse(data, "f")


def test_each_is_done_when_it_is_due_or_behind_the_one_before_and_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, did = [100.0], list[tuple[float, str]]()

    def run(words: tuple[str, ...], name: str) -> int:
        did.append((now[0] - 100, f"{name} {' '.join(words)}"))
        now[0] += 3.0 if words[0] == "fault" else 0.0
        print("said")
        print("complained", file=sys.stderr)
        return 2 if words[0] == "cancel" else 0

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(script, "_run", run)
    steps = [
        ScriptStep(1, ("link",)),
        ScriptStep(5, ("fault",)),
        ScriptStep(6, ("cancel",)),
        ScriptStep(9, ("circuits",)),
    ]
    seen: list[DoneStep] = []
    record = carried_out(steps, "t", seen.append, lambda: now[0], sleep)
    assert did == [(1, "t link"), (5, "t fault"), (8, "t cancel"), (9, "t circuits")]
    assert seen == record
    assert [(each.at_s, each.began_s, each.did_s) for each in record[1:3]] == [(5, 5, 8), (6, 8, 8)]
    assert [each.exit_code for each in record] == [0, 0, 2, 0]
    assert (record[0].output, record[0].error) == ("said", "complained")


def test_a_step_that_argparse_refuses_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert script._run(("link", "cut"), "nobodys") == 2
    assert "cut: set, reset, list are accepted" in capsys.readouterr().err
