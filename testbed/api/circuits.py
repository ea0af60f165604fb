"""The optical switch's circuits by hand: what they are, what would be, and what they are to be."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from testbed.client import rpc
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.errors import RequestError
from testbed.ocs.timetable import parse
from testbed.topology.yaml_text import read_yaml

ANSWER_TIMEOUT_S = 200.0  # a dark time is at most two minutes as configured, and comes on top of the work
BACK_S = 30.0  # for a controller that ended, and is started again
_LOOK_S = 0.1
Pair = str | Sequence[str]  # "u1-u3", or ("u1", "u3"): of units; of optical ports likewise


class CircuitsNow(TypedDict):
    """The circuits that are lit, the ports that are dark, and the matchings that take turns, if any do."""

    circuits: list[list[str]]
    dark: list[str]
    schedule: NotRequired[dict[str, Any]]


class PlannedCircuits(TypedDict):
    """The circuits that would be, and what would change for them."""

    target: list[list[str]]
    removed: list[list[str]]
    added: list[list[str]]


class Reconfiguration(TypedDict):
    """An event of the history: how long ports were to be dark, how long they were (None: no new circuit), and
    what changed. The end of a timetable changes nothing, and has the circuits that were lit anew.
    """

    id: int
    time: float  # in s, of the system's clock
    ports: list[str]
    asked_ms: float
    measured_ms: float | None
    removed: list[list[str]]
    added: list[list[str]]
    relit: NotRequired[list[list[str]]]


class LostCircuits(TypedDict):
    """The circuits that a running job lost, and the pairs of units that this cut off."""

    job: int
    circuits: list[list[str]]
    cut_off: list[list[str]]


class CircuitChange(TypedDict):
    """The event, None where nothing had to change, and the jobs that lost circuits by it."""

    event: Reconfiguration | None
    lost: list[LostCircuits]


class PortCrossings(TypedDict):
    """The frames of a port that crossed, that were lost in the dark, and for which no circuit was there."""

    lit: int
    dark: int
    unlit: int


class CircuitControl:
    """The circuits of a running testbed. Each call raises TestbedError where it cannot be done."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def now(self) -> CircuitsNow:
        """Return those that are lit."""
        now: CircuitsNow = self._ask("circuits")
        return now

    def plan(self, *demands: Pair) -> PlannedCircuits:
        """Return those that would serve these pairs of units."""
        planned: PlannedCircuits = self._ask("plan", demands=demands_of("plan", demands))
        return planned

    def request(self, *demands: Pair, force: bool = False) -> CircuitChange:
        """Set those that serve these pairs of units."""
        return self._set("request", force, demands=demands_of("request", demands))

    def set(self, *circuits: Pair, force: bool = False) -> CircuitChange:
        """Set exactly these, such as "u1o1-u2o1", and no others."""
        if not circuits:
            raise RequestError("circuits set: pairs of optical ports like u1o1-u2o1 are accepted")
        pairs = [_pair(each, "circuit", "optical ports like u1o1-u2o1") for each in circuits]
        return self._set("set", force, circuits=pairs)

    def clear(self, force: bool = False) -> CircuitChange:
        """Set none at all."""
        return self._set("clear", force)

    def reset(self, force: bool = False) -> CircuitChange:
        """Set the configuration's."""
        return self._set("reset", force)

    def history(self) -> list[Reconfiguration]:
        """Return each change so far, with its dark time."""
        return list(self._ask("history"))

    def schedule(self, timetable: Any) -> dict[str, Any]:
        """Have matchings take turns, as the content of a file (docs/configuration.md) or its path says;
        return what was taken of it.
        """
        if isinstance(timetable, str | Path):
            timetable = read_timetable(Path(timetable))
        else:
            parse(timetable, None)
        return dict(self._ask("schedule", schedule=timetable))

    def unschedule(self) -> None:
        """End that: circuits are as they were before."""
        self._ask("unschedule")

    def crossings(self) -> dict[str, PortCrossings]:
        """Return the frames that crossed and that were lost, by port."""
        return dict(self._ask("crossings"))

    def _ask(self, operation: str, **arguments: Any) -> Any:
        self._require()
        path = self._runtime.controller_socket
        return rpc.call(path, operation, timeout_s=ANSWER_TIMEOUT_S, **arguments)

    def _set(self, action: str, force: bool, **arguments: Any) -> CircuitChange:
        """Have the daemon set them, which knows whose circuits they are."""
        self._require()
        asked = {"action": action, "force": force, **arguments}
        change: CircuitChange = rpc.call(
            self._runtime.socket, "circuits", timeout_s=ANSWER_TIMEOUT_S, **asked
        )
        return change

    def _require(self) -> None:
        """Wait for a controller that is started again. Raises TestbedError that says why the testbed died,
        where it dies meanwhile.
        """
        deadline = time.monotonic() + BACK_S
        while True:
            self._runtime.require_alive()
            try:
                rpc.require_answer(self._runtime.controller_socket, "the controller")
            except rpc.AbsentError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_S)
            else:
                return


def read_timetable(path: Path) -> Any:
    """Return what the caller wrote: read as the caller, and seen to be a timetable before it is sent."""
    with Caller.of_this_process().acting():
        data = read_yaml(path)
    try:
        parse(data, None)  # which ports there are the controller knows
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None
    return data


def demands_of(action: str, pairs: Sequence[Pair]) -> list[list[str]]:
    """Return the pairs of units. RequestError where one is none, or there is none."""
    if not pairs:
        raise RequestError(f"circuits {action}: pairs of units like u1-u3 are accepted")
    return [_pair(each, "demand", "units like u1-u3") for each in pairs]


def _pair(pair: Pair, what: str, accepted: str) -> list[str]:
    ends = pair.split("-") if isinstance(pair, str) else [str(end) for end in pair]
    if len(ends) != 2:
        shown = pair if isinstance(pair, str) else ", ".join(ends)
        raise RequestError(f"{what} {shown}: a pair of {accepted} is accepted")
    return ends
