"""Faults on links, as far as they go without a link: what is accepted, room for frames held, how they are
shown.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, cast

import pytest

from testbed import fault as command
from testbed import status
from testbed.api.links import share as read_share
from testbed.client.requests import FaultRequest
from testbed.daemon.faults import answer
from testbed.emulation.faults import LinkFaults, _Stage
from testbed.errors import RequestError
from testbed.machine.links import MAX_DISTANCE, LinkDisturbance, LinkFault
from testbed.messages.links import FaultStatus


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"loss": 1.5}, "loss: 150 %; 0 to 100 % is accepted"),
        ({"corrupt": -0.1}, "corrupt: -10 %; 0 to 100 %"),
        ({"loss": float("nan")}, "loss: nan %; 0 to 100 %"),
        ({"duplicate": "1%"}, "duplicate: '1%'; 0 to 100 %"),
        ({"loss": True}, "loss: "),
        ({}, "no fault: a rate above 0 of loss, duplicate, reorder, corrupt is needed"),
        (
            {"reorder": 0.1, "distance": 0},
            f"distance: 0; a whole number from 1 to {MAX_DISTANCE} is accepted",
        ),
        ({"reorder": 0.1, "distance": MAX_DISTANCE + 1}, "distance: 10001; "),
        ({"reorder": 0.1, "distance": 2.5}, "distance: 2.5; a whole number"),
        ({"loss": 0.1, "seed": -1}, "seed: -1; a whole number"),
    ],
)
def test_a_wrong_fault_is_refused_in_one_line(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError) as caught:
        LinkFault(**wrong)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "share"), [("1%", 0.01), ("0.01%", 0.0001), ("100%", 1.0), ("0%", 0.0), ("1e-3%", 0.00001)]
)
def test_rates_are_percentages(text: str, share: float) -> None:
    assert read_share("loss", text) == pytest.approx(share, rel=1e-12)


class Links:
    """The faults of links without a network, by the names of those that have a rate."""

    def __init__(self, *shaped: str) -> None:
        self.shaped_links, self.faulty = shaped, list[str]()

    def shaped(self) -> list[str]:
        return list(self.shaped_links)

    def require(self, link: str) -> None:
        if link not in self.shaped_links:
            raise RequestError(f"link {link}: there is none")

    def set(self, link: str, fault: LinkFault, direction: str) -> None:
        self.faulty.append(f"{link} {fault.loss:g} {direction}")

    def states(self) -> list[str]:
        return self.faulty


@pytest.mark.parametrize(
    ("links", "faulty"),
    [
        (["all"], ["u1h1 0.1 up", "u1o1 0.1 up", "u10h1 0.1 up"]),
        (["u1o1"], ["u1o1 0.1 up"]),
        (["u1"], ["u1h1 0.1 up", "u1o1 0.1 up"]),
        (["u1h1", "u1"], ["u1h1 0.1 up", "u1o1 0.1 up"]),
    ],
)
def test_all_and_a_unit_are_every_link_of_theirs_that_has_a_rate(links: list[str], faulty: list[str]) -> None:
    request = {"action": "set", "links": links, "fault": {"loss": 0.1}, "direction": "up"}
    assert answer(cast(Any, Links("u1h1", "u1o1", "u10h1")), FaultRequest(**request)) == faulty


@pytest.mark.parametrize(
    ("shaped", "links", "says"),
    [
        ((), ["all"], "all: this testbed has no link with a rate"),
        (("u1h1",), ["u1h1", "u2"], "u2: there is no link with a rate; units with links that have: u1"),
        (("u1h1",), [], "fault set: links, and a fault"),
        (("u1h1",), None, "fault set: links, and a fault"),
    ],
)
def test_links_that_there_are_not_are_refused_and_nothing_is_set(
    shaped: tuple[str, ...], links: list[str] | None, says: str
) -> None:
    faults = Links(*shaped)
    with pytest.raises(RequestError, match=says):
        answer(cast(Any, faults), FaultRequest(action="set", links=links, fault={"loss": 0.1}))
    assert faults.faulty == []


def test_room_for_frames_held() -> None:
    assert LinkFault(loss=0.1).cells == 0
    assert LinkFault(reorder=1.0, distance=50).cells == 51, "never more than are held at once"
    assert LinkFault(reorder=0.01, distance=50).cells == 13
    assert LinkFault(reorder=0.5, distance=MAX_DISTANCE).cells < 6000


def test_what_is_shown() -> None:
    counters = {name: 7 for name in ("seen", "lost", "duplicated", "held", "released", "corrupted")}
    fault = FaultStatus("u1h1", "up", 0.0001, 0.0, 0.01, 0.0, distance=50, seed=3, counters=counters)
    assert command.words(fault) == "loss 0.01%, reorder 1%, by 50"
    assert command.table([]) == "no faults are set"
    header, line = command.table([fault]).splitlines()
    assert header.split()[:3] == ["link", "seen", "lost"]
    assert line.endswith("loss 0.01%, reorder 1%, by 50, seed 3")
    assert status.faults_text([fault]) == ("on u1h1: 7 lost, 7 duplicated, 7 held, 7 corrupted")


def test_a_fault_that_ended_is_remembered_with_its_time() -> None:
    faults = object.__new__(LinkFaults)
    faults._lock, faults._ended = threading.Lock(), deque()
    faults._stages = {("u1h1", "up"): _Stage(LinkFault(loss=0.1), 7)}
    before_s = time.monotonic()
    assert faults.ended(before_s) == []
    faults._note_end(("u1h1", "up"))
    assert faults.ended(before_s) == [LinkDisturbance("u1h1", "up", LinkFault(loss=0.1))]
    assert faults.ended(time.monotonic() + 1) == []
