"""`testbed script`: carries out fault, link and circuit commands at given times, each through its own
command.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.client import environment

if TYPE_CHECKING:
    from testbed.messages.script import DoneStep

COMMANDS = ("link", "fault", "circuits", "cancel")  # the commands that a step may run
MOST_S = 86_400.0


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """A command, and when it is due, in seconds after the script's start."""

    at_s: float
    words: tuple[str, ...]


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py): 0 only if every step was done."""
    from testbed.api.files import STDOUT, check_result
    from testbed.client.caller import Caller
    from testbed.client.runtime import Runtime, add_name_option
    from testbed.errors import TestbedError
    from testbed.messages.coding import as_json
    from testbed.messages.script import ScriptResult
    from testbed.records.recorder import Asked, add_options, recording, store_of
    from testbed.topology.yaml_text import read_yaml

    parser = environment.Parser(
        prog="testbed script",
        description="Carry out the steps of a file, each at its time: link, fault, circuits and cancel "
        "commands. A step that fails is reported, and the others are still done.",
    )
    add_name_option(parser)
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the steps with their times and output there; -: on stdout",
    )
    add_options(parser)
    parser.add_argument("file", type=Path, metavar="FILE.yaml", help="the steps: docs/faults.md")
    options = parser.parse_args(argv)
    caller = Caller.of_this_process()
    with caller.acting():
        steps = parse(read_yaml(options.file), str(options.file))
    check_result(caller, options.json)
    runtime = Runtime.meant(options.name)
    runtime.require_alive()
    asked = Asked("script", argv, vars(options), [("steps", options.file)], runtime)
    with recording(asked, store_of(options, caller), caller) as record:
        done = ScriptResult(str(options.file), runtime.name, time.time(), ())

        def tell(step: DoneStep) -> None:
            nonlocal done
            done = replace(done, steps=(*done.steps, step))
            run.take(done)
            run.keep()
            text = f": {step.error}" if step.error else ""
            words = f"{step.did_s:7.2f} s  {step.command}{text}"
            print(f"testbed script: {words}", file=sys.stderr, flush=True)

        with record.run() as run:
            carried_out(steps, runtime.name, tell)
        text = json.dumps(as_json(done), indent=2)
        if options.json == STDOUT:
            print(text)
        elif options.json:
            with caller.acting():
                options.json.write_text(text + "\n")
        failed = [step for step in done.steps if step.exit_code]
        if failed:
            raise TestbedError(
                f"{len(failed)} of {len(steps)} steps failed, the first of them {failed[0].command!r}: "
                f"{failed[0].error or failed[0].output}"
            )
    return 0


def parse(data: Any, path: str) -> list[ScriptStep]:
    """Parse the steps of a file, and sort them by time. Raises RequestError with the faulty entry."""
    from testbed.errors import RequestError
    from testbed.topology.fields import shown

    if not isinstance(data, list) or not data:
        raise RequestError(
            f"{path}: {shown(data)}; a list of steps like {{at: 5, do: link set u1h1 --down}} is accepted"
        )
    steps = []
    for number, entry in enumerate(data):
        where = f"{path}: [{number}]"
        if not isinstance(entry, dict) or entry.keys() != {"at", "do"}:
            raise RequestError(f"{where}: {shown(entry)}; a step has the keys at and do")
        at_s = entry["at"]
        if isinstance(at_s, bool) or not isinstance(at_s, int | float) or not 0 <= at_s <= MOST_S:
            raise RequestError(f"{where}.at: {shown(at_s)}; 0 to {MOST_S:g} seconds are accepted")
        for text in entry["do"] if isinstance(entry["do"], list) else [entry["do"]]:
            steps.append(ScriptStep(float(at_s), _words(text, f"{where}.do")))
    return sorted(steps, key=lambda step: step.at_s)


def _words(text: Any, where: str) -> tuple[str, ...]:
    from testbed.errors import RequestError
    from testbed.topology.fields import shown

    try:
        words = shlex.split(text) if isinstance(text, str) else []
    except ValueError as error:
        raise RequestError(f"{where}: {shown(text)}: {error}") from error
    if not words or words[0] not in COMMANDS:
        raise RequestError(f"{where}: {shown(text)}; a command out of {', '.join(COMMANDS)} is accepted")
    if "--name" in words:
        raise RequestError(f"{where}: {shown(text)}; the script's own --name says which testbed")
    return tuple(words)


def carried_out(
    steps: list[ScriptStep],
    name: str,
    tell: Callable[[DoneStep], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[DoneStep]:
    """Carry out each step when it is due, or at once if its time has passed. Return the steps with their
    times (due, started, done, in s from the start), exit codes and output; pass each to `tell` when it is
    done.
    """
    from testbed.messages.script import DoneStep

    began, record = clock(), []
    for step in steps:
        sleep(max(0.0, began + step.at_s - clock()))
        began_s = clock() - began
        output, complaints = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(complaints):
            code = _run(step.words, name)
        done = DoneStep(
            at_s=step.at_s,
            began_s=round(began_s, 4),
            did_s=round(clock() - began, 4),
            command=shlex.join(step.words),
            exit_code=code,
            output=output.getvalue().strip(),
            error=complaints.getvalue().strip(),
        )
        record.append(done)
        tell(done)
    return record


def _run(words: tuple[str, ...], name: str) -> int:
    from testbed import cancel, circuits, fault, link

    command, *rest = words
    run = {"link": link.main, "fault": fault.main, "circuits": circuits.main, "cancel": cancel.main}[command]
    try:
        return environment.exit_code(f"testbed {command}", run, [*rest, "--name", name])
    except SystemExit as error:  # from argparse, which has printed the reason
        return error.code if isinstance(error.code, int) else 2


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
