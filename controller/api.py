"""The controller's requests, as docs/interfaces.md lists them. Turns JSON into calls of `Conductor` and
back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from controller.conductor import Conductor
from controller.decide import pairs
from controller.flows import port_numbers
from testbed.client.rpc import Emit, Peer
from testbed.errors import RequestError
from testbed.ocs.timetable import as_data, parse
from testbed.topology.addresses import CORE_BRIDGE, CORE_DPID, OXC_DPID, Dpid, tor_name, tor_named
from testbed.topology.units import Unit, UnitPair, unit_named

LASTING = ("turned",)  # the request that waits for a change


class Api:
    """A handler for `testbed.client.rpc.serve`."""

    def __init__(self, conductor: Conductor, library: str) -> None:
        self._conductor = conductor
        self._operations: dict[str, Callable[[dict[str, Any]], Any]] = {
            "library": lambda request: library,
            "ready": lambda request: conductor.state.is_ready,
            "lacks": lambda request: list(conductor.state.lacks),
            "known": lambda request: conductor.state.circuits is not None,
            "circuits": self._circuits,
            "history": self._changes,
            "plan": self._plan,
            "apply": lambda request: conductor.apply(_circuits(request)),
            "request": lambda request: conductor.request(_demands(request)),
            "schedule": self._schedule,
            "unschedule": lambda request: conductor.leave(),
            "crossings": self._crossings,
            "light": self._light,
            "turned": lambda request: conductor.turned(_number(request, "other_than")),
            "routes": lambda request: conductor.state.routes(),
            "resettle": lambda request: conductor.resettle(_switch(request.get("unit"))),
            "unsettled": lambda request: [
                tor_name(dpid) for dpid in conductor.state.unsettled if dpid != OXC_DPID
            ],
            "tree": lambda request: conductor.state.tree(
                unit_named(request.get("root")), _units(request.get("members"))
            ),
        }

    def __call__(self, request: dict[str, Any], peer: Peer, emit: Emit, disconnected: threading.Event) -> Any:
        operation = self._operations.get(request["op"])
        if operation is None:
            raise RequestError(f"op {request['op']}: unknown; {', '.join(self._operations)} are accepted")
        return operation(request)

    def _circuits(self, request: dict[str, Any]) -> dict[str, Any]:
        state = self._conductor.state
        table = self._conductor.timetable()
        kept = {"schedule": as_data(table)} if table else {}
        return {
            "circuits": pairs(state.circuits or ()),
            "dark": list(self._conductor.dark()),
            "failed_locks": state.failed_locks,
            **kept,
        }

    def _changes(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        after = _number(request, "after") if "after" in request else 0
        return [event for event in self._conductor.state.history if event["id"] > after]

    def _schedule(self, request: dict[str, Any]) -> dict[str, Any]:
        table = parse(request.get("schedule"), self._conductor.state.premises.topology.planes)
        self._conductor.keep(table)
        return as_data(table)

    def _crossings(self, request: dict[str, Any]) -> dict[str, dict[str, int]]:
        counted = self._conductor.crossings()
        names = port_numbers(self._conductor.state.premises.ports)
        return {
            names[number]: {"lit": lit, "dark": dark, "unlit": unlit}
            for number, (lit, dark, unlit) in counted.items()
            if number in names
        }

    def _light(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return what the network over a job's time is made of (testbed/telemetry/network.py)."""
        runs = [
            {"schedule": as_data(run.table), "began_ns": run.began_ns, "ended_ns": run.ended_ns}
            for run in self._conductor.timetables()
        ]
        state = self._conductor.state
        return {
            "circuits": pairs(state.circuits or ()),
            "timetables": runs,
            "crossings": self._crossings(request),
            "flows": self._conductor.flows(),
            "last_event": max((event["id"] for event in state.history), default=0),
        }

    def _plan(self, request: dict[str, Any]) -> dict[str, Any]:
        plan = self._conductor.state.plan(_demands(request))
        return {"target": pairs(plan.target), "removed": pairs(plan.removed), "added": pairs(plan.added)}


def _demands(request: dict[str, Any]) -> list[UnitPair]:
    demands = request.get("demands")
    if not isinstance(demands, list) or not all(
        isinstance(pair, list) and len(pair) == 2 for pair in demands
    ):
        raise RequestError(f"demands: {demands}; a list of pairs of units like [u1, u3] is accepted")
    return [(unit_named(a), unit_named(b)) for a, b in demands]


def _circuits(request: dict[str, Any]) -> list[list[str]]:
    circuits = request.get("circuits")
    if not isinstance(circuits, list) or not all(
        isinstance(c, list) and all(isinstance(p, str) for p in c) for c in circuits
    ):
        raise RequestError(
            f"circuits: {circuits}; a list of pairs of optical ports like [u1o1, u2o1] is accepted"
        )
    return circuits


def _number(request: dict[str, Any], key: str) -> int:
    value = request.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise RequestError(f"{key}: {value!r}; a whole number is accepted")
    return value


def _switch(name: Any) -> Dpid:
    return CORE_DPID if name == CORE_BRIDGE else tor_named(name)


def _units(names: Any) -> list[Unit]:
    if not isinstance(names, list):
        raise RequestError(f"members: {names}; a list of units like [u1, u3] is accepted")
    return [unit_named(name) for name in names]
