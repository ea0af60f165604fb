"""The circuits of the optical switch, controlled by hand: read, planned, set, or scheduled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from testbed.client import rpc
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.errors import RequestError
from testbed.ocs.timetable import parse, with_hops
from testbed.plugins.user_class import is_users
from testbed.topology.yaml_text import read_yaml

ANSWER_TIMEOUT_S = 200.0  # the longest dark time that can be configured is 120 s; the rest is for the work
BACK_S = 30.0  # how long to wait for a controller that ended and is started again
_LOOK_S = 0.1
Pair = str | Sequence[str]  # two units, as "u1-u3" or ("u1", "u3"), or two optical ports likewise


class CircuitsNow(TypedDict):
    """The circuits that are lit, the ports that are dark, the links that are down, and the timetable, if one
    runs.
    """

    circuits: list[list[str]]
    dark: list[str]
    down: list[str]
    schedule: NotRequired[dict[str, Any]]


class PlannedCircuits(TypedDict):
    """The circuits that would be set, and the changes from the present ones."""

    target: list[list[str]]
    removed: list[list[str]]
    added: list[list[str]]


class Reconfiguration(TypedDict):
    """An event of the history: the requested dark time, the measured one (None: no circuit was set up, or no
    light came), and the circuits that changed. The end of a timetable changes none and lists in `relit` the
    circuits that are lit again.
    """

    id: int
    time: float  # in s, by the system's clock
    ports: list[str]
    asked_ms: float
    measured_ms: float | None
    removed: list[list[str]]
    added: list[list[str]]
    relit: NotRequired[list[list[str]]]


class LostCircuits(TypedDict):
    """The circuits that a running job lost, and the pairs of units that now have no path."""

    job: int
    circuits: list[list[str]]
    cut_off: list[list[str]]


class CircuitChange(TypedDict):
    """The event (None: nothing had to change), and the jobs that lost circuits by it."""

    event: Reconfiguration | None
    lost: list[LostCircuits]


class PortCrossings(TypedDict):
    """A port's frames: how many crossed, how many were lost in dark time, and how many met no circuit."""

    lit: int
    dark: int
    unlit: int


class CircuitControl:
    """The circuits of a running testbed. Each call raises TestbedError if it cannot be carried out."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def now(self) -> CircuitsNow:
        """Return the circuits that are lit, the dark ports, and the timetable, if one runs."""
        now: CircuitsNow = self._ask("circuits")
        return now

    def plan(self, *demands: Pair) -> PlannedCircuits:
        """Plan the circuits that would serve these pairs of units; change nothing."""
        planned: PlannedCircuits = self._ask("plan", demands=demands_of("plan", demands))
        return planned

    def request(self, *demands: Pair, force: bool = False) -> CircuitChange:
        """Set up the circuits that serve these pairs of units."""
        return self._set("request", force, demands=demands_of("request", demands))

    def set(self, *circuits: Pair, force: bool = False) -> CircuitChange:
        """Set up exactly these circuits, such as "u1o1-u2o1", and clear all others."""
        return self._set("set", force, circuits=circuits_of("set", circuits))

    def add(self, *circuits: Pair, force: bool = False) -> CircuitChange:
        """Set up these circuits, in the place of those that have one of their ports; leave the others."""
        return self._set("add", force, circuits=circuits_of("add", circuits))

    def remove(self, *circuits: Pair, force: bool = False) -> CircuitChange:
        """Clear these circuits, and leave the others."""
        return self._set("remove", force, circuits=circuits_of("remove", circuits))

    def clear(self, force: bool = False) -> CircuitChange:
        """Clear all circuits."""
        return self._set("clear", force)

    def reset(self, force: bool = False) -> CircuitChange:
        """Set up the circuits of the configuration."""
        return self._set("reset", force)

    def history(self) -> list[Reconfiguration]:
        """Return all reconfigurations so far, with their dark times."""
        return list(self._ask("history"))

    def schedule(self, timetable: Any, force: bool = False) -> dict[str, Any]:
        """Start a timetable, given as the content of a file (docs/configuration.md) or as its path. Return
        the timetable as the controller accepted it. A `routing` that is a class of yours is asked here, by
        this process. Raises RequestError if it hinders a running job, unless `force` is set.
        """
        if isinstance(timetable, str | Path):
            timetable = read_timetable(Path(timetable))
        return dict(self._set("schedule", force, schedule=_with_routing(timetable)))

    def unschedule(self, force: bool = False) -> None:
        """Stop the timetable, and light the circuits that were set before it. Raises RequestError if these do
        not join the units of a running job, unless `force` is set.
        """
        self._set("unschedule", force)

    def crossings(self) -> dict[str, PortCrossings]:
        """Return the counts of frames that crossed or were lost, by port."""
        return dict(self._ask("crossings"))

    def queues(self) -> list[dict[str, Any]]:
        """Return the counts of the calendar queues that ever had a frame (`CalendarStatus`)."""
        self._runtime.require_alive()
        status = rpc.call(self._runtime.socket, "status", timeout_s=ANSWER_TIMEOUT_S)
        return list(status["calendar"])

    def _ask(self, operation: str, **arguments: Any) -> Any:
        self._require()
        path = self._runtime.controller_socket
        return rpc.call(path, operation, timeout_s=ANSWER_TIMEOUT_S, **arguments)

    def _set(self, action: str, force: bool, **arguments: Any) -> CircuitChange:
        """Set circuits through the daemon, which knows which jobs use them."""
        self._require()
        asked = {"action": action, "force": force, **arguments}
        change: CircuitChange = rpc.call(
            self._runtime.socket, "circuits", timeout_s=ANSWER_TIMEOUT_S, **asked
        )
        return change

    def _require(self) -> None:
        """Wait up to BACK_S for a controller that is started again. Raises AbsentError after that, or
        TestbedError with the reason if the testbed dies meanwhile.
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
    """Read a timetable file as the caller, and check its form before it is sent. Raises RequestError."""
    with Caller.of_this_process().acting():
        data = read_yaml(path)
    try:
        parse(data, None)  # only the controller knows which ports exist
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None
    return data


def demands_of(action: str, pairs: Sequence[Pair]) -> list[list[str]]:
    """Split pairs of units. Raises RequestError if a pair is malformed or there is none."""
    if not pairs:
        raise RequestError(f"circuits {action}: pairs of units like u1-u3 are accepted")
    return [_pair(each, "demand", "units like u1-u3") for each in pairs]


def _with_routing(data: Any) -> Any:
    """Check a timetable, and add the hops of a user's routing."""
    table = parse(data, None)
    if not is_users(table.routing):
        return data
    from testbed.plugins.routing import hops_of

    return with_hops(data, hops_of(table))


def circuits_of(action: str, pairs: Sequence[Pair]) -> list[list[str]]:
    """Split pairs of optical ports. Raises RequestError if a pair is malformed or there is none."""
    if not pairs:
        raise RequestError(f"circuits {action}: pairs of optical ports like u1o1-u2o1 are accepted")
    return [_pair(each, "circuit", "optical ports like u1o1-u2o1") for each in pairs]


def _pair(pair: Pair, what: str, accepted: str) -> list[str]:
    ends = pair.split("-") if isinstance(pair, str) else [str(end) for end in pair]
    if len(ends) != 2:
        text = pair if isinstance(pair, str) else ", ".join(ends)
        raise RequestError(f"{what} {text}: a pair of {accepted} is accepted")
    return ends
