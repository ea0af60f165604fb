"""`testbed down`: asks a testbed to end, sees it gone, and ends it by force when it does not go."""

from __future__ import annotations

import json
import sys

from testbed.client import environment


def main(argv: list[str]) -> int:
    """Return the exit code; see testbed/errors.py."""
    from testbed.api.down import DEAD, end
    from testbed.client.runtime import Runtime, add_name_option

    does = "End a testbed and all that runs on it; remove what one that died has left."
    parser = environment.Parser(prog="testbed down", description=does)
    add_name_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)
    runtime = Runtime.meant(arguments.name, or_dead=True)
    down = end(runtime, lambda text: print(f"testbed down: {text}", file=sys.stderr))
    became = "is down" if down["state"] != DEAD else "had died; what it left is removed"
    print(json.dumps(down) if arguments.json else f"testbed {runtime.name!r} {became}")
    return 0


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
