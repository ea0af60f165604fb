"""`testbed circuits`: the optical switch's circuits, plans, requests and history, from the controller's
socket.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from testbed.client import environment, rpc, runtime
from testbed.errors import RequestError

ANSWER_TIMEOUT_S = 200.0  # a dark time is at most two minutes as configured, and comes on top of the work


def main(argv: list[str]) -> int:
    """Return the exit code; see testbed/errors.py."""
    parser = argparse.ArgumentParser(
        prog="testbed circuits",
        description="Show, plan and set the circuits of the optical switch.",
    )
    parser.add_argument("--name", default=runtime.DEFAULT_NAME, help="of the testbed (default)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=("list", "plan", "request", "history"),
        help="list: those that are lit; plan: those that would serve the pairs; request: set these; "
        "history: each change with its dark time (list)",
    )
    parser.add_argument(
        "demand",
        nargs="*",
        metavar="UNIT-UNIT",
        help="with plan and request: units to connect, such as u1-u3",
    )
    arguments = parser.parse_intermixed_args(argv)
    demands = [_pair(text) for text in arguments.demand]
    if bool(demands) != (arguments.action in ("plan", "request")):
        raise RequestError(
            f"circuits {arguments.action}: plan and request take pairs of units like u1-u3, list and history "
            f"none"
        )
    operation = {"list": "circuits"}.get(arguments.action, arguments.action)
    here = runtime.Runtime.of(arguments.name)
    here.require_alive()
    extra: dict[str, Any] = {"demands": demands} if demands else {}
    answer = rpc.call(here.controller_socket, operation, timeout_s=ANSWER_TIMEOUT_S, **extra)
    print(json.dumps(answer, indent=2) if arguments.json else "\n".join(_lines(arguments.action, answer)))
    return 0


def _pair(text: str) -> list[str]:
    units = text.split("-")
    if len(units) != 2:
        raise RequestError(f"demand {text}: a pair of units like u1-u3 is accepted")
    return units


def _lines(action: str, answer: Any) -> list[str]:
    if action == "list":
        return [f"{a} - {b}" for a, b in answer["circuits"]] + [f"{port} is dark" for port in answer["dark"]]
    if action == "plan":
        return [f"{name}: {_shown(answer[name])}" for name in ("target", "removed", "added")]
    events = answer if action == "history" else [answer] if answer else []
    return [_event(event) for event in events] or ["nothing changed"]


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
