"""`testbed circuits`: the optical switch's circuits, plans, requests and history, from the controller's
socket.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from testbed.client import environment, rpc, runtime
from testbed.client.caller import Caller
from testbed.errors import RequestError

ANSWER_TIMEOUT_S = 200.0  # a dark time is at most two minutes as configured, and comes on top of the work

ACTIONS = {
    "list": "those that are lit",
    "plan": "those that would serve the pairs",
    "request": "set these",
    "set": "exactly these circuits, and no others",
    "clear": "no circuits at all",
    "reset": "the configuration's circuits",
    "history": "each change with its dark time",
    "schedule": "matchings that take turns by the clock, as a file says",
    "unschedule": "end that",
    "crossings": "frames that crossed and that were lost, by port",
}
BY_HAND = ("request", "set", "clear", "reset")  # by the daemon, which knows whose circuits they are
_MEANINGS = "; ".join(f"{action}: {meaning}" for action, meaning in ACTIONS.items())


def main(argv: list[str]) -> int:
    """Return the exit code; see testbed/errors.py."""
    parser = argparse.ArgumentParser(
        prog="testbed circuits",
        description="Show, plan and set the circuits of the optical switch.",
    )
    parser.add_argument("--name", default=runtime.DEFAULT_NAME, help="of the testbed (default)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("action", nargs="?", default="list", choices=ACTIONS, help=f"{_MEANINGS} (list)")
    parser.add_argument(
        "rest",
        nargs="*",
        metavar="UNIT-UNIT|PORT-PORT|FILE",
        help="with plan and request: units to connect, such as u1-u3; with set: optical ports, such as "
        "u1o1-u2o1; with schedule: a YAML file",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="take circuits from running jobs, too (request, set, clear, reset)",
    )
    arguments = parser.parse_intermixed_args(argv)
    extra = _extra(arguments.action, arguments.rest)
    if arguments.force and arguments.action not in BY_HAND:
        raise RequestError(f"circuits {arguments.action}: --force is accepted with {', '.join(BY_HAND)}")
    here = runtime.Runtime.of(arguments.name)
    here.require_alive()
    rpc.require_answer(here.controller_socket, "the controller")
    if arguments.action in BY_HAND:
        answer = _by_hand(here, arguments.action, arguments.force, extra)
    else:
        operation = {"list": "circuits"}.get(arguments.action, arguments.action)
        answer = rpc.call(here.controller_socket, operation, timeout_s=ANSWER_TIMEOUT_S, **extra)
    print(json.dumps(answer, indent=2) if arguments.json else "\n".join(_lines(arguments.action, answer)))
    return 0


def _by_hand(here: runtime.Runtime, action: str, force: bool, extra: dict[str, Any]) -> Any:
    """Return the event, None where nothing had to change; of jobs that lost circuits by it, say so."""
    asked = {"action": action, "force": force, **extra}
    answer = rpc.call(here.socket, "circuits", timeout_s=ANSWER_TIMEOUT_S, **asked)
    for job in answer["lost"]:
        lost = _shown(job["circuits"])
        cut = (
            f", and is cut off: {', '.join('-'.join(pair) for pair in job['cut_off'])}"
            if job["cut_off"]
            else ""
        )
        print(f"testbed circuits: job {job['job']} lost {lost}{cut}", file=sys.stderr)
    return answer["event"]


def _extra(action: str, rest: list[str]) -> dict[str, Any]:
    """Return what goes with a request."""
    if action in ("plan", "request"):
        if not rest:
            raise RequestError(f"circuits {action}: pairs of units like u1-u3 are accepted")
        return {"demands": [_pair(text) for text in rest]}
    if action == "set":
        if not rest:
            raise RequestError("circuits set: pairs of optical ports like u1o1-u2o1 are accepted")
        return {"circuits": [_ports(text) for text in rest]}
    if action == "schedule":
        if len(rest) != 1:
            raise RequestError(f"circuits schedule: {len(rest)} files; one YAML file is accepted")
        return {"schedule": _timetable(Path(rest[0]))}
    if rest:
        raise RequestError(
            f"circuits {action}: {rest[0]}; nothing is accepted behind it, pairs of units like u1-u3 behind "
            f"plan and request, of ports like u1o1-u2o1 behind set"
        )
    return {}


def _timetable(path: Path) -> Any:
    """Return what the caller wrote: read as the caller, and found to be a timetable before it is sent."""
    from testbed.ocs.timetable import parse
    from testbed.topology.fields import read_yaml

    with Caller.of_this_process().acting():
        data = read_yaml(path)
    try:
        parse(data, None)  # which ports there are the controller knows
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None
    return data


def _pair(text: str) -> list[str]:
    units = text.split("-")
    if len(units) != 2:
        raise RequestError(f"demand {text}: a pair of units like u1-u3 is accepted")
    return units


def _ports(text: str) -> list[str]:
    ends = text.split("-")
    if len(ends) != 2:
        raise RequestError(f"circuit {text}: a pair of optical ports like u1o1-u2o1 is accepted")
    return ends


def _lines(action: str, answer: Any) -> list[str]:
    if action == "list":
        lines = [f"{a} - {b}" for a, b in answer["circuits"]]
        lines += [f"{port} is dark" for port in answer["dark"]]
        return _schedule(answer["schedule"]) + lines if "schedule" in answer else lines
    if action == "schedule":
        return _schedule(answer)
    if action == "unschedule":
        return ["circuits are as they were before the schedule"]
    if action == "crossings":
        return [
            f"{port}: {counts['lit']} crossed, {counts['dark']} lost in the dark, {counts['unlit']} "
            f"without a circuit"
            for port, counts in answer.items()
        ]
    if action == "plan":
        return [f"{name}: {_shown(answer[name])}" for name in ("target", "removed", "added")]
    events = answer if action == "history" else [answer] if answer else []
    return [_event(event) for event in events] or ["nothing changed"]


def _schedule(schedule: dict[str, Any]) -> list[str]:
    head = f"every {schedule['period_ms']:g} ms, each dark for {schedule['guard_ms']:g} ms first:"
    return [head] + [
        f"from {matching['start_ms']:g} ms: {_shown(matching['circuits'])}"
        for matching in schedule["matchings"]
    ]


def _event(event: dict[str, Any]) -> str:
    measured = "no new circuit" if event["measured_ms"] is None else f"measured {event['measured_ms']:.3f} ms"
    return (
        f"{event['id']}: dark {event['asked_ms']:.3f} ms asked, {measured}; "
        f"removed {_shown(event['removed'])}; added {_shown(event['added'])}"
    )


def _shown(circuits: list[list[str]]) -> str:
    return ", ".join(f"{a}-{b}" for a, b in circuits) or "none"


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
