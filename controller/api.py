"""The controller's requests, as docs/interfaces.md lists them: convert JSON to calls of `Conductor`, and
results to JSON.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from controller.conductor import Conductor
from controller.decide import pairs
from controller.flows import port_numbers
from controller.records import ChangeRecord
from testbed.client.rpc import Emit, Peer
from testbed.errors import RequestError
from testbed.ocs.timetable import as_data, parse
from testbed.topology.addresses import CORE_BRIDGE, CORE_DPID, OXC_DPID, Dpid, tor_name, tor_named
from testbed.topology.units import Unit, UnitPair, unit_named

LASTING = ("turned",)  # this request waits for a change


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request as received: the operation, and the arguments of all operations, unchecked."""

    op: str
    after: object = 0
    circuits: object = None
    demands: object = None
    instead_of: object = None
    links: object = None
    members: object = None
    other_than: object = None
    root: object = None
    schedule: object = None
    unit: object = None
    up: object = None

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> _Request:
        """Read a request from JSON data; unknown keys are ignored."""
        return cls(**{name: data[name] for name in _ARGUMENTS if name in data})


_ARGUMENTS = tuple(each.name for each in fields(_Request))


class Api:
    """A handler for `testbed.client.rpc.serve`."""

    def __init__(self, conductor: Conductor, library: str) -> None:
        self._conductor = conductor
        self._operations: dict[str, Callable[[_Request], object]] = {
            "library": lambda request: library,
            "ready": lambda request: conductor.state.is_ready,
            "lacks": lambda request: conductor.state.lacks,
            "known": lambda request: conductor.state.circuits is not None,
            "circuits": lambda request: self._circuits(),
            "history": self._changes,
            "plan": self._plan,
            "apply": lambda request: _written(conductor.apply(_circuits(request.circuits))),
            "exchange": self._exchange,
            "request": lambda request: _written(conductor.request(_demands(request.demands))),
            "schedule": self._schedule,
            "unschedule": lambda request: conductor.leave(),
            "crossings": lambda request: self._crossings(),
            "light": lambda request: self._light(),
            "linked": self._linked,
            "turned": lambda request: conductor.turned(_number("other_than", request.other_than)),
            "routes": lambda request: conductor.state.routes(),
            "resettle": lambda request: conductor.resettle(_switch(request.unit)),
            "unsettled": lambda request: [
                tor_name(dpid) for dpid in conductor.state.unsettled if dpid != OXC_DPID
            ],
            "tree": lambda request: conductor.tree(unit_named(request.root), _units(request.members)),
        }

    def __call__(self, request: dict[str, Any], peer: Peer, emit: Emit, disconnected: threading.Event) -> Any:
        asked = _Request.read(request)
        operation = self._operations.get(asked.op)
        if operation is None:
            raise RequestError(f"op {asked.op}: unknown; {', '.join(self._operations)} are accepted")
        return operation(asked)

    def _circuits(self) -> object:
        state = self._conductor.state
        table = self._conductor.timetable()
        kept = {"schedule": as_data(table)} if table else {}
        return {
            "circuits": pairs(state.circuits or ()),
            "dark": self._conductor.dark(),
            "failed_locks": state.failed_locks,
            "down": sorted(state.down),
            **kept,
        }

    def _exchange(self, request: _Request) -> object:
        wanted, expected = _circuits(request.circuits), _circuits(request.instead_of)
        is_done, record = self._conductor.exchange(wanted, expected)
        return {"is_done": is_done, "event": _written(record)}

    def _changes(self, request: _Request) -> object:
        after = _number("after", request.after)
        return [record.as_data() for record in self._conductor.state.history if record.id > after]

    def _schedule(self, request: _Request) -> object:
        table = parse(request.schedule, self._conductor.state.premises.topology.planes)
        self._conductor.keep(table)
        return as_data(table)

    def _linked(self, request: _Request) -> object:
        links, is_up = request.links, request.up
        if not isinstance(links, list) or not all(isinstance(name, str) for name in links):
            raise RequestError(f"links: {links}; a list of links like [u1o1, u2c] is accepted")
        if not isinstance(is_up, bool):
            raise RequestError(f"up: {is_up}; true or false is accepted")
        self._conductor.set_by_hand(links, is_up)
        return None

    def _crossings(self) -> object:
        counted = self._conductor.crossings()
        names = port_numbers(self._conductor.state.premises.ports)
        return {
            names[number]: {"lit": lit, "dark": dark, "unlit": unlit}
            for number, (lit, dark, unlit) in counted.items()
            if number in names
        }

    def _light(self) -> object:
        """Return the data from which the network during a job is reconstructed
        (testbed/telemetry/network.py).
        """
        runs = [
            {"schedule": as_data(run.table), "began_ns": run.began_ns, "ended_ns": run.ended_ns}
            for run in self._conductor.timetables()
        ]
        state = self._conductor.state
        return {
            "circuits": pairs(state.circuits or ()),
            "timetables": runs,
            "crossings": self._crossings(),
            "flows": self._conductor.flows(),
            "last_event": max((record.id for record in state.history), default=0),
            "links": [
                {"at_ns": at_ns, "down": sorted(down)} for at_ns, down in self._conductor.link_changes()
            ],
        }

    def _plan(self, request: _Request) -> object:
        plan = self._conductor.state.plan(_demands(request.demands))
        return {"target": pairs(plan.target), "removed": pairs(plan.removed), "added": pairs(plan.added)}


def _written(record: ChangeRecord | None) -> object:
    return record and record.as_data()


def _demands(demands: object) -> list[UnitPair]:
    if not isinstance(demands, list) or not all(
        isinstance(pair, list) and len(pair) == 2 for pair in demands
    ):
        raise RequestError(f"demands: {demands}; a list of pairs of units like [u1, u3] is accepted")
    return [(unit_named(a), unit_named(b)) for a, b in demands]


def _circuits(circuits: object) -> list[list[str]]:
    if not isinstance(circuits, list) or not all(
        isinstance(c, list) and all(isinstance(p, str) for p in c) for c in circuits
    ):
        raise RequestError(
            f"circuits: {circuits}; a list of pairs of optical ports like [u1o1, u2o1] is accepted"
        )
    return circuits


def _number(key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise RequestError(f"{key}: {value!r}; a whole number is accepted")
    return value


def _switch(name: object) -> Dpid:
    return CORE_DPID if name == CORE_BRIDGE else tor_named(name)


def _units(names: object) -> list[Unit]:
    if not isinstance(names, list):
        raise RequestError(f"members: {names}; a list of units like [u1, u3] is accepted")
    return [unit_named(name) for name in names]
