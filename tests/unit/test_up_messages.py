"""The messages of a testbed that comes up are the lines that they were, and read back as they were sent."""

from __future__ import annotations

import io
import json

import pytest

from testbed.client.screen import Screen
from testbed.client.up_messages import (
    DaemonReady,
    EndedInOrder,
    NetworkSummary,
    UpFailure,
    UpMessage,
    UpNote,
    UpPhase,
    UpReady,
    as_line,
    of_line,
)

SUMMARY = NetworkSummary(4, 12, (("u1o1", "u2o1"),), "netdev")
READY = b'"ready": {"units": 4, "hosts": 12, "circuits": [["u1o1", "u2o1"]], "datapath": "netdev"}'
UP = UpReady(SUMMARY, "one", 7, "alice", "rack", True)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (UpPhase("links", 3, 9), b'{"phase": "links", "done": 3, "total": 9}\n'),
        (UpNote("gr\u00f6\u00dfer"), b'{"note": "gr\\u00f6\\u00dfer"}\n'),
        (UpFailure("no memory", 3), b'{"error": "no memory", "exit_code": 3}\n'),
        (EndedInOrder(True), b'{"ended": true}\n'),
        (DaemonReady(SUMMARY), b"{" + READY + b"}\n"),
        (
            UP,
            b"{" + READY + b', "name": "one", "pid": 7, "user": "alice", "configuration": "rack", '
            b'"detached": true}\n',
        ),
    ],
)
def test_a_message_is_this_line_and_reads_back(message: UpMessage, line: bytes) -> None:
    assert as_line(message) == line
    assert of_line(line) == message


def test_json_of_what_is_up_has_these_keys_in_this_order() -> None:
    stream = io.StringIO()
    Screen(io.StringIO(), stream).show(UP)
    described = json.loads(stream.getvalue())
    assert described.pop("took_s") >= 0
    assert list(described.items()) == [
        ("name", "one"),
        ("pid", 7),
        ("user", "alice"),
        ("configuration", "rack"),
        ("detached", True),
        ("state", "ready"),
        ("units", 4),
        ("hosts", 12),
        ("circuits", [["u1o1", "u2o1"]]),
        ("datapath", "netdev"),
    ]
