"""`testbed exec`: one command in a host of a running testbed."""

from __future__ import annotations

import os
import sys

from testbed.client import environment


def main(argv: list[str]) -> int:
    """The command's exit code, 128 and a signal's number where one ended it; else see testbed/errors.py."""
    from testbed.attach import client
    from testbed.client.runtime import DEFAULT_NAME, Runtime
    from testbed.errors import RequestError

    parser = environment.Parser(
        prog="testbed exec",
        usage="testbed exec [-h] [--name NAME] HOST [-- COMMAND [ARGUMENT...]]",
        description="Run a command in a host, as the user who asks, with the standard input, output and "
        "error, the signals, and the exit code of this one; without a command, a shell.",
    )
    parser.add_argument("--name", default=DEFAULT_NAME, help="of the testbed (default)")
    parser.add_argument("host", metavar="HOST", help="as `testbed status` names it, such as u1h1")
    own, separator, command = _parted(argv)
    options = parser.parse_args(own)
    if separator and not command:
        raise RequestError("--: a command is to follow")
    runtime = Runtime.of(options.name)
    runtime.require_alive()
    try:
        cwd = os.getcwd()
    except OSError as error:
        raise RequestError(f"the working folder: {error.strerror}") from error
    wanted = command or [os.environ.get("SHELL") or "/bin/sh"]
    code, failure = client.attended(runtime.socket, options.host, wanted, cwd, os.environ)
    if failure is not None:
        print(f"testbed exec: {options.host}: {failure}", file=sys.stderr)
    return code


def _parted(argv: list[str]) -> tuple[list[str], bool, list[str]]:
    """This command's own arguments, whether there was a `--`, and the other command."""
    at = argv.index("--") if "--" in argv else len(argv)
    return argv[:at], at < len(argv), argv[at + 1 :]


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
