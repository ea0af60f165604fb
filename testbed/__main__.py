"""`testbed COMMAND ...`: hands the arguments to `testbed.COMMAND.main`. Imports a command only when it is
asked for.
"""

from __future__ import annotations

import importlib
import sys

from testbed.client import environment

COMMANDS = {
    "up": "bring a testbed up and keep it",
    "run": "run a training job on it",
    "submit": "queue training jobs; a policy schedules them",
    "cancel": "end queued jobs",
    "status": "what runs on it",
    "circuits": "its optical circuits: show, plan, set",
    "fault": "lose, duplicate, reorder, corrupt frames on its links",
    "capture": "the frames of one of its links, as a pcap file",
    "exec": "one command in one of its hosts, or a shell there",
    "shell": "Mininet's prompt on it",
    "down": "end it",
    "systems": "the aggregation systems that jobs are summed by",
    "reproduce": "a published figure, run again, beside the paper's",
    "demo": "up, train with each kind of synchronisation, report, down",
    "doctor": "what this host can do, and the remedy for each lack",
}


def usage() -> str:
    commands = "\n".join(f"  {name:<10}{what}" for name, what in COMMANDS.items())
    return f"usage: testbed COMMAND [ARGUMENT...]\n\n{commands}\n\ntestbed COMMAND --help says more of one"


def main(argv: list[str] | None = None) -> int:
    """The exit code of the command named by the first argument; 2 and the list of commands when there is none
    such.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    if not arguments or arguments[0] not in COMMANDS:
        if arguments:
            print(f"testbed: no command {arguments[0]!r}; accepted: {', '.join(COMMANDS)}", file=sys.stderr)
        else:
            print(usage(), file=sys.stderr)
        return 2
    name, *rest = arguments

    def run(argv: list[str]) -> int:
        code: int = importlib.import_module(f"testbed.{name}").main(argv)
        return code

    return environment.exit_code(f"testbed {name}", run, rest)


if __name__ == "__main__":
    environment.ensure()
    sys.exit(main())
