"""`testbed exec`: runs one command in a host of a running testbed."""

from __future__ import annotations

import argparse
import os
import sys

from testbed.client import environment


def main(argv: list[str]) -> int:
    """Return the command's exit code, 128 plus the signal's number if a signal ended it; else see
    testbed/errors.py.
    """
    from testbed.client.runtime import Runtime, add_name_option
    from testbed.client.terminal_text import line
    from testbed.errors import RequestError
    from testbed.host_commands import client

    parser = environment.Parser(
        prog="testbed exec",
        usage="testbed exec [-h] [--name NAME] HOST [COMMAND [ARGUMENT...]]",
        description="Run a command in a host, as the user who types this. It has this command's standard "
        "input, output and error, signals, and exit code. Without a command, run a shell.",
    )
    add_name_option(parser)
    parser.add_argument("host", metavar="HOST", help="as `testbed status` names it, such as u1h1")
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="everything after HOST; a `--` before it is dropped",
    )
    options = parser.parse_args(argv)
    if options.command and options.command[0].startswith("-") and options.command[0] != "--":
        raise RequestError(f"{options.command[0]}: options of testbed exec are accepted before HOST")
    command = options.command[options.command[:1] == ["--"] :]
    if not command and argv[-1] == "--":
        raise RequestError("--: a command is to follow")
    runtime = Runtime.meant(options.name)
    runtime.require_alive()
    try:
        cwd = os.getcwd()
    except OSError as error:
        raise RequestError(f"the working folder: {error.strerror}") from error
    wanted = command or [os.environ.get("SHELL") or "/bin/sh"]
    code, failure = client.attended(runtime.socket, options.host, wanted, cwd, os.environ)
    if failure is not None:
        print(f"testbed exec: {line(f'{options.host}: {failure}')}", file=sys.stderr)
    return code


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
