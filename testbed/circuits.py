"""`testbed circuits`: shows, plans and sets the optical switch's circuits, and prints their history. The
controller's socket answers; changes go through the daemon.

In a worker, `testbed.circuits.during` and `testbed.circuits.ask` ask for circuits for the time of a block
(docs/library.md).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from testbed.client import environment, runtime
from testbed.errors import RequestError

if TYPE_CHECKING:
    from testbed.api.circuits import CircuitChange, CircuitControl
    from testbed.messages.controller import ReconfigurationEvent
    from testbed.messages.links import CalendarStatus
    from testbed.messages.timetable import TimetableStatus
    from workloads.circuits import Asked as Asked
    from workloads.circuits import CircuitsRefusedError as CircuitsRefusedError
    from workloads.circuits import Light as Light
    from workloads.circuits import ask as ask
    from workloads.circuits import during as during

ACTIONS = {
    "list": "show the lit circuits",
    "plan": "show the circuits that would serve pairs of units",
    "request": "set up circuits that serve pairs of units",
    "set": "set up exactly these circuits, and clear all others",
    "add": "set up circuits, in the place of those that have one of their ports",
    "remove": "clear circuits, and leave the others",
    "clear": "clear all circuits",
    "reset": "set up the configuration's circuits",
    "history": "show each change with its dark time",
    "schedule": "start the timetable in a file",
    "unschedule": "end the timetable",
    "crossings": "count the frames that crossed or were lost, by port",
    "queues": "count the frames that waited for their slot, by units",
}
BY_HAND = ("request", "set", "add", "remove", "clear", "reset", "schedule", "unschedule")
"""Through the daemon, which knows which jobs use the circuits."""
PORTS = ("set", "add", "remove")  # whose words are pairs of optical ports
_MEANINGS = "; ".join(f"{action}: {meaning}" for action, meaning in ACTIONS.items())
IN_WORKERS = ("Asked", "CircuitsRefusedError", "Light", "ask", "during")


def __getattr__(name: str) -> Any:
    """Return what a worker uses, which is loaded on first use."""
    if name in IN_WORKERS:
        from workloads import circuits

        return getattr(circuits, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py)."""
    from testbed.api.circuits import CircuitControl

    parser = environment.Parser(
        prog="testbed circuits",
        description="Show, plan and set the circuits of the optical switch.",
    )
    runtime.add_name_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("action", nargs="?", default="list", choices=ACTIONS, help=f"{_MEANINGS} (list)")
    parser.add_argument(
        "rest",
        nargs="*",
        metavar="UNIT-UNIT|PORT-PORT|FILE",
        help="with plan and request: units to connect, such as u1-u3; with set, add and remove: "
        "optical ports, such as u1o1-u2o1; with schedule: a YAML file",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help=f"also take circuits from running jobs, or hinder them ({', '.join(BY_HAND)})",
    )
    arguments = parser.parse_intermixed_args(argv)
    if arguments.force and arguments.action not in BY_HAND:
        raise RequestError(f"circuits {arguments.action}: --force is accepted with {', '.join(BY_HAND)}")
    control = CircuitControl(runtime.Runtime.meant(arguments.name))
    answer = _answer(control, arguments.action, arguments.rest, arguments.force)
    print(json.dumps(answer, indent=2) if arguments.json else "\n".join(_lines(arguments.action, answer)))
    return 0


def _answer(control: CircuitControl, action: str, rest: list[str], force: bool) -> Any:
    """Carry out an action, and return its answer: for a change its event, None if nothing had to change.
    Prints the jobs that lost circuits by it. Raises RequestError for too many or too few words after the
    action.
    """
    if action == "schedule" and len(rest) != 1:
        raise RequestError(f"circuits schedule: {len(rest)} files; one YAML file is accepted")
    if rest and action not in ("plan", "request", "schedule", *PORTS):
        raise RequestError(
            f"circuits {action}: {rest[0]}; nothing is accepted behind it, pairs of units like u1-u3 behind "
            f"plan and request, of ports like u1o1-u2o1 behind {', '.join(PORTS)}"
        )
    if action == "schedule":
        return control.schedule(rest[0], force)
    if action == "unschedule":
        return control.unschedule(force)
    if action not in BY_HAND:
        return getattr(control, "now" if action == "list" else action)(*rest)
    ask: Callable[..., CircuitChange] = getattr(control, action)
    change = ask(*rest, force=force)
    if not change["lost"]:
        return change["event"]
    from testbed.messages.coding import decode
    from testbed.messages.controller import CircuitsMade

    for loss in decode(CircuitsMade, change, "circuits").lost:
        cut = ", ".join("-".join(pair) for pair in loss.cut_off)
        lost = f"lost {_shown(loss.circuits)}{f', and is cut off: {cut}' if cut else ''}"
        print(f"testbed circuits: job {loss.job} {lost}", file=sys.stderr)
    return change["event"]


def _lines(action: str, answer: Any) -> list[str]:
    from testbed.messages.coding import decode
    from testbed.messages.controller import CircuitTargets, CrossedFrames, LitCircuits, ReconfigurationEvent
    from testbed.messages.links import CalendarStatus
    from testbed.messages.timetable import TimetableBegun

    if action == "list":
        now = decode(LitCircuits, answer, "circuits")
        lines = [f"{a} - {b}" for a, b in now.circuits]
        lines += [f"{port} is dark" for port in now.dark]
        lines += [f"{link} is down: nothing crosses it, and routes lead round it" for link in now.down]
        return _schedule(now.timetable) + lines if now.timetable else lines
    if action == "schedule":
        begun = decode(TimetableBegun, answer, "schedule")
        return [*_schedule(begun), *(f"note: {note}" for note in begun.notes)]
    if action == "unschedule":
        return ["circuits are as they were before the schedule"]
    if action == "crossings":
        return [
            f"{port}: {frames.lit} crossed, {frames.dark} lost in the dark, {frames.unlit} without a circuit"
            for port, frames in decode(dict[str, CrossedFrames], answer, "crossings").items()
        ]
    if action == "queues":
        queues = decode(tuple[CalendarStatus, ...], answer, "queues")
        return [_queue(each) for each in queues] or ["no frame waited for a slot"]
    if action == "plan":
        plan = decode(CircuitTargets, answer, "plan")
        planned = {"target": plan.target, "removed": plan.removed, "added": plan.added}
        return [f"{name}: {_shown(circuits)}" for name, circuits in planned.items()]
    events = answer if action == "history" else [answer] if answer else []
    changes = decode(tuple[ReconfigurationEvent, ...], events, "history")
    return [_event(event) for event in changes] or ["nothing changed"]


def _queue(queue: CalendarStatus) -> str:
    counts = f"{queue.waiting} wait, {queue.sent} were sent after {queue.longest_ms:g} ms at most"
    lost = {
        "found no room": queue.dropped,
        "were for a unit that no matching leads to": queue.unlit,
        "were marked": queue.marked,
        "missed a slot and waited again": queue.missed,
    }
    more = [f"{count} {what}" for what, count in lost.items() if count]
    return f"{queue.unit} to {queue.goal}: {', '.join([counts, *more])}"


def _schedule(table: TimetableStatus) -> list[str]:
    from testbed.wire.places import AT_ONCE

    by = "" if table.routing == AT_ONCE else f", routing {table.routing}"
    head = f"every {table.period_ms:g} ms, each dark for {table.guard_ms:g} ms first{by}:"
    matchings = [f"from {each.start_ms:g} ms: {_shown(each.circuits)}" for each in table.matchings]
    return [head, *matchings]


def _event(event: ReconfigurationEvent) -> str:
    measured = "no new circuit" if event.measured_ms is None else f"measured {event.measured_ms:.3f} ms"
    return (
        f"{event.id}: dark {event.asked_ms:.3f} ms asked, {measured}; "
        f"removed {_shown(event.removed)}; added {_shown(event.added)}{_locks(event)}"
    )


def _locks(event: ReconfigurationEvent) -> str:
    """Describe failed attempts to lock, and each circuit's dark time if they differed; otherwise empty."""
    from testbed.messages.coding import UnsetType

    counts = {} if isinstance(event.failed_locks, UnsetType) else event.failed_locks
    times_ms = {} if isinstance(event.circuits_ms, UnsetType) else event.circuits_ms
    failed = ", ".join(f"{port} {count}" for port, count in counts.items())
    times = ", ".join(f"{name} {ms:.3f} ms" for name, ms in times_ms.items())
    return (f"; attempts to lock that failed: {failed}" if failed else "") + (f"; {times}" if times else "")


def _shown(circuits: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{a}-{b}" for a, b in circuits) or "none"


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
