"""`testbed cancel`: ends jobs that `testbed submit` queued, waiting or running."""

from __future__ import annotations

import json

from testbed.client import environment


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py)."""
    from testbed.api.submitting import cancel
    from testbed.client.caller import Caller
    from testbed.client.runtime import Runtime, add_name_option
    from testbed.errors import RequestError

    parser = environment.Parser(prog="testbed cancel", description="End queued jobs, waiting or running.")
    add_name_option(parser)
    parser.add_argument("--all", action="store_true", help="end all jobs that this user queued")
    parser.add_argument(
        "jobs", nargs="*", type=int, metavar="JOB", help="a job's number, as `testbed status` shows it"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    if options.all == bool(options.jobs):
        raise RequestError("numbers of jobs, or --all: one of the two is needed")
    caller = Caller.of_this_process()
    cancelled = cancel(Runtime.meant(options.name), caller, options.jobs, "testbed cancel")
    if options.json:
        print(json.dumps({"cancelled": cancelled}))
        return 0
    print(f"cancelled: {', '.join(map(str, cancelled)) or 'none; they had ended'}")
    return 0


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
