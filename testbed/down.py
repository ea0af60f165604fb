"""`testbed down`: requests a testbed's end, waits for it, and kills it if it does not end."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from testbed.client import environment


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py)."""
    from testbed.api.down import DEAD, end
    from testbed.client.runtime import Runtime, add_name_option

    does = "End a testbed and all that runs on it; remove the files of one that died."
    parser = environment.Parser(prog="testbed down", description=does)
    add_name_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)
    runtime = Runtime.meant(arguments.name, or_dead=True)
    down = end(runtime, lambda text: print(f"testbed down: {text}", file=sys.stderr))
    became = "is down" if down.state != DEAD else "had died; what it left is removed"
    print(json.dumps(asdict(down)) if arguments.json else f"testbed {runtime.name!r} {became}")
    return 0


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
