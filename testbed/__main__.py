"""`testbed COMMAND ...`: passes the arguments to `testbed.COMMAND.main`. Imports only the requested
command.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from testbed.client import completion, environment

COMMANDS = {
    "up": "bring a testbed up and keep it",
    "run": "run a training job on it",
    "submit": "queue training jobs; a policy schedules them",
    "cancel": "end queued jobs",
    "status": "show what runs on it",
    "web": "show it as a page in the browser, with metrics for Prometheus",
    "runs": "show, compare and remove the records of what was run",
    "circuits": "show, plan and set its optical circuits",
    "link": "set the rates of its links while it runs, or take them down",
    "script": "run link, fault, circuits and cancel commands at given times",
    "traffic": "send flows between its hosts, and time them",
    "fault": "lose, duplicate, reorder, corrupt frames on its links",
    "capture": "write the frames of one of its links to a pcap file",
    "exec": "run a command in one of its hosts, or a shell there",
    "shell": "open Mininet's prompt on it",
    "down": "end it",
    "cluster": "show how a system would group a job's workers below heads",
    "systems": "list the aggregation systems that sum gradients",
    "reproduce": "run a published figure again, beside the paper's",
    "demo": "bring one up, train with each system, report, end it",
    "doctor": "test the features of this host, with a remedy for each lack",
}


def usage() -> str:
    commands = "\n".join(f"  {name:<10}{what}" for name, what in COMMANDS.items())
    more = "`testbed COMMAND --help` explains a command, `testbed --version` prints the version"
    return f"usage: testbed COMMAND [ARGUMENT...]\n\n{commands}\n\n{more}"


def main(argv: list[str] | None = None) -> int:
    """Run the command that the first argument names, and return its exit code. Without such a command, print
    the list of commands and return 2.
    """
    if completion.is_asked():
        completion.complete(COMMANDS, _main_of, {"RECORD": _records})
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] not in COMMANDS:
        return environment.exit_code("testbed", _without_command, arguments)
    name, *rest = arguments
    return environment.exit_code(f"testbed {name}", _main_of(name), rest)


def _without_command(arguments: list[str]) -> int:
    environment.say_whose_code()
    if arguments and arguments[0] == "--version":
        print(f"testbed {version()}")
        return 0
    if arguments and arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    if arguments:
        print(f"testbed: no command {arguments[0]!r}; accepted: {', '.join(COMMANDS)}", file=sys.stderr)
    else:
        print(usage(), file=sys.stderr)
    return 2


def _main_of(name: str) -> Callable[[list[str]], int]:
    def run(argv: list[str]) -> int:
        environment.say_whose_code()
        code: int = importlib.import_module(f"testbed.{name}").main(argv)
        return code

    return run


def _records(parsed_args: argparse.Namespace, **_: Any) -> Sequence[str]:
    """Return the words that name records, for shell completion."""
    from testbed.client.caller import Caller
    from testbed.records.store import LAST, Store

    store = Store.of(Caller.of_this_process(), parsed_args.records)
    return (*store.names(), LAST) if store else ()


def version() -> str:
    """Return the installed version, and for a checkout its commit."""
    from importlib import metadata

    from testbed.figures.document import commit

    revision = commit(environment.CHECKOUT)
    return metadata.version("optinc") + (f" ({revision})" if revision else "")


if __name__ == "__main__":
    environment.ensure()
    sys.exit(main())
