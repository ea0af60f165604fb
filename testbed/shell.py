"""`testbed shell`: opens Mininet's own prompt on a running testbed."""

from __future__ import annotations

import os
import sys

from testbed.client import environment


def main(argv: list[str]) -> int:
    """Return 0 after a prompt; after a script, the code of its first failed command; otherwise see
    testbed/errors.py.
    """
    from testbed.client.runtime import Runtime, add_name_option
    from testbed.client.terminal_text import raw
    from testbed.errors import HostError

    parser = environment.Parser(
        prog="testbed shell",
        description="Open Mininet's prompt on a testbed: u1h1 ping u2h1, pingall, dump, links, "
        "py net.get('u1h1').IP(), help. "
        "Commands run in hosts as the user who types them.",
    )
    add_name_option(parser)
    parser.add_argument(
        "-c",
        dest="commands",
        action="append",
        metavar="COMMAND",
        help="run this, without a prompt; may be repeated",
    )
    options = parser.parse_args(argv)
    sys.stdout = raw(sys.stdout)  # not cleaned: the output is that of the user's own commands
    runtime = Runtime.meant(options.name)
    runtime.require_alive()
    try:
        from testbed.emulation import prompt
    except ImportError as error:
        raise HostError(f"Mininet: {error}; install Debian's package mininet") from error
    return prompt.converse(runtime, options.commands or (None if os.isatty(0) else sys.stdin))


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
