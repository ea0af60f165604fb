"""BMv2 switches that end, with switches in memory: started again, how often, and their routes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.client import rpc
from testbed.daemon.network import start_again
from testbed.dataplanes.bmv2 import tors as module
from testbed.dataplanes.bmv2.tors import RESTARTS, Tors
from testbed.errors import TestbedError
from testbed.topology.load import parse
from testbed.topology.model import Topology


class ModelSwitch:
    """`fails`: how many of its next starts do."""

    def __init__(self) -> None:
        self.how: str | None = None
        self.fails = self.asked = 0

    def ended(self) -> str | None:
        return self.how

    def verdicts(self) -> dict[str, int]:
        self.asked += 1
        return {}

    def restart(self) -> None:
        if self.fails:
            self.fails -= 1
            self.how = "exit code 1: no"
            raise TestbedError("start u1's simple_switch: exit code 1: no")
        self.how = None


class ModelPlaces:
    def restart(self, unit: int, restart: Callable[[], None]) -> dict[int, int]:
        restart()
        return {7: 3}


class ModelController:
    """Stands in for the socket: which units it finds unsettled, and whether it can set their routes."""

    def __init__(self) -> None:
        self.unsettled: list[str] = []
        self.resettled: list[str] = []
        self.away = self.refuses = False

    def call(self, path: Path, op: str, *, timeout_s: float, unit: str = "") -> Any:
        if self.away or (self.refuses and op == "resettle"):
            raise TestbedError(f"{op}: no")
        if op == "unsettled":
            return self.unsettled
        self.resettled.append(unit)
        return None


def topology() -> Topology:
    return parse({"units": [{"hosts": 1, "engine": "bmv2"}, {"hosts": 1}]}, "mixed")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Tors, ModelSwitch, ModelController]:
    monkeypatch.setattr(module, "program_of", lambda topology: None)
    monkeypatch.setattr(Tors, "_let_frames_arrive", lambda self, unit: None)
    monkeypatch.setattr(module.time, "monotonic", lambda: 1000.0)  # probes come by time
    switches, switch, controller = (
        Tors(topology(), tmp_path, lambda *_: None),
        ModelSwitch(),
        ModelController(),
    )
    monkeypatch.setattr(rpc, "call", controller.call)
    switches.by_dpid[1] = switch  # type: ignore[assignment]
    return switches, switch, controller


def test_a_start_that_fails_is_one_attempt_and_made_again(
    world: tuple[Tors, ModelSwitch, ModelController],
) -> None:
    switches, switch, _ = world
    places: Any = ModelPlaces()
    switch.how, switch.fails = "signal 9", 2
    assert switches.any_ended()
    assert start_again(switches, places) == []
    assert start_again(switches, places) == []
    (restart,) = start_again(switches, places)
    assert (restart.count, restart.jobs) == (3, {7: 3})
    assert start_again(switches, places) == []
    assert not switches.any_ended()


def test_after_all_attempts_the_end_gives_their_number(
    world: tuple[Tors, ModelSwitch, ModelController],
) -> None:
    switches, switch, _ = world
    places: Any = ModelPlaces()
    switch.how, switch.fails = "signal 9", RESTARTS
    for _ in range(RESTARTS):
        assert start_again(switches, places) == []
    with pytest.raises(TestbedError, match=f"exit code 1: no.*started again {RESTARTS} times"):
        start_again(switches, places)


def test_ends_that_are_far_apart_are_no_reason_to_stop(
    world: tuple[Tors, ModelSwitch, ModelController], monkeypatch: pytest.MonkeyPatch
) -> None:
    switches, switch, _ = world
    places: Any = ModelPlaces()
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    for count in range(1, 2 * RESTARTS):
        switch.how = "signal 9"
        (restart,) = start_again(switches, places)
        assert restart.count == count
        now[0] += module.RESTARTS_WITHIN_S / RESTARTS


def test_each_is_asked_now_and_then_whether_it_answers(
    world: tuple[Tors, ModelSwitch, ModelController], monkeypatch: pytest.MonkeyPatch
) -> None:
    switches, switch, _ = world
    places: Any = ModelPlaces()
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    start_again(switches, places)
    assert switch.asked == 0
    now[0] += module.PROBE_S + 0.1
    for _ in range(3):
        start_again(switches, places)
    assert switch.asked == 1


def test_a_start_that_fails_with_the_switch_there_is_raised(
    world: tuple[Tors, ModelSwitch, ModelController], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Tors, unit: object) -> None:
        raise TestbedError("u1-h1: no such device")

    switches, switch, _ = world
    monkeypatch.setattr(Tors, "_let_frames_arrive", refuse)
    switch.how = "signal 9"
    with pytest.raises(TestbedError, match="no such device"):
        start_again(switches, ModelPlaces())  # type: ignore[arg-type]


def test_routes_are_set_again_until_they_are(world: tuple[Tors, ModelSwitch, ModelController]) -> None:
    switches, switch, controller = world
    switch.how = "signal 9"
    start_again(switches, ModelPlaces())  # type: ignore[arg-type]
    controller.away = True
    switches.resettle(Path())
    controller.away, controller.refuses = False, True
    switches.resettle(Path())
    assert switch.asked == 1, "whether it is the switch"
    controller.refuses = False
    switches.resettle(Path())
    switches.resettle(Path())
    assert controller.resettled == ["u1"]
    controller.unsettled = ["u2"]
    switches.resettle(Path())
    assert controller.resettled == ["u1", "u2"]
