"""The queue as `testbed status` shows it."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from testbed.api import state
from testbed.client import runtime
from testbed.errors import TestbedError
from testbed.messages.coding import decode
from testbed.messages.queue import QueueStatus
from testbed.messages.status import NOT_ANSWERING, SilentStatus, UnwrittenStatus
from testbed.status import line, page, queue_lines, said
from tests.unit import page_world
from tests.unit.page_world import queue, queued


def test_the_queue_in_full() -> None:
    running: dict[str, Any] = {
        "mode": "ps",
        "rate_gbps": 20.0,
        "progress": 0.25,
        "hosts": ["u1h1", "u1h2"],
        "ps_host": "u3h1",
    }
    schedule = queue(
        queued(1, "over", "ended"),
        queued(2, "vgg-1", "running", started_s=10.0, **running),
        queued(3, "vgg-2", "queued"),
        queued(4, "later", "coming"),
        policy="inc-tw",
        slot=14,
        slot_s=1.0,
        seconds=14.5,
        reconfigured_connections=3,
        reconfigurations=2,
        overruns=1,
        policy_failures=0,
        complaints=[
            "slot 9: policy inc-tw had no decision when its time was over; the last decision stays in force"
        ],
    )
    assert queue_lines(decode(QueueStatus, schedule, "queue")) == [
        "  queue       policy inc-tw, slot 14 of 1 s; 4 jobs, 1 ended, 1 to come",
        "              3 connections set up in 2 reconfigurations; 1 slots overrun, 0 without a valid "
        "decision",
        "  attention   slot 9: policy inc-tw had no decision when its time was over; the last decision "
        "stays in force",
        "",
        "    job name             state      mode    Gb/s  done       s  hosts",
        "      2 vgg-1            running    ps        20   25%     4.5  u1h1 u1h2, ps on u3h1",
        "      3 vgg-2            queued     -          0    0%    11.5  -",
    ]


def test_a_testbed_that_has_just_begun_has_no_pid_yet() -> None:
    begun = UnwrittenStatus(
        name="new", pid=None, units=(), hosts=(), circuits=(), jobs=(), state="starting", error="no socket"
    )
    assert page(begun) == "testbed new: starting"
    assert line(begun).split() == ["new", "starting", "pid", "-", "0", "hosts,", "0", "jobs"]
    other = line(page_world.read(page_world.status()))
    assert line(begun).index(" pid ") == other.index(" pid ")
    assert line(begun).index("0 hosts") == other.index("5 hosts")


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Have three testbeds run, of which the second is of a version that counts processes by name."""
    names = ["one", "strange", "three"]

    def call(path: Path, op: str, **_: Any) -> Any:
        name = path.parent.name
        return page_world.status(name=name, pid="many" if name == "strange" else 7)

    def of(name: str) -> page_world.LivingRuntime:
        return page_world.LivingRuntime(name, tmp_path / name)

    monkeypatch.setattr(runtime, "running", lambda: names)
    monkeypatch.setattr(runtime.Runtime, "of", of)
    monkeypatch.setattr(page_world.LivingRuntime, "last_words", lambda self: None)
    monkeypatch.setattr(state.status, "__defaults__", (call,))
    return names


STRANGE = "testbed strange: status: not as this version has it: Expected `int`, got `str` - at `$.pid`"


def test_a_testbed_that_is_not_to_be_read_hides_no_other(
    several: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text, answered = said(Namespace(name=None, json=False))
    first, second, third = text.splitlines()
    assert [first.split()[0], second.split()[0]] == ["one", "three"]
    assert (third, answered) == (STRANGE, False)
    text, answered = said(Namespace(name=None, json=True))
    assert [each["name"] for each in json.loads(text)] == ["one", "three"]
    assert (capsys.readouterr().err, answered) == (f"{STRANGE}\n", False)
    del several[0]
    text, _ = said(Namespace(name=None, json=True))
    assert [each["name"] for each in json.loads(text)] == ["three"], "a list, as of several"
    with pytest.raises(TestbedError, match=f"^{re.escape(STRANGE)}$"):
        said(Namespace(name="strange", json=False))


def test_a_testbed_that_does_not_answer_says_why() -> None:
    silent = SilentStatus(
        name="default",
        pid=7,
        user="me",
        configuration="three",
        state=NOT_ANSWERING,
        units=(),
        hosts=(),
        circuits=(),
        jobs=(),
        error="status: no answer in 10 s",
    )
    assert page(silent) == "testbed default: not answering, pid 7: status: no answer in 10 s"
