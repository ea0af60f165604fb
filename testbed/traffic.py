"""`testbed traffic`: sends the flows of a file between hosts of a running testbed, and reports their
completion times.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.client import environment

if TYPE_CHECKING:
    from testbed.messages.traffic import TrafficResult


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py): 0 also if flows did not finish."""
    from testbed.api.traffic import DRAIN_S, SECONDS, carry_out, planned
    from testbed.client.caller import Caller
    from testbed.client.runtime import Runtime, add_name_option
    from testbed.messages.coding import as_json
    from testbed.records.recorder import Asked, add_options, recording, store_of

    parser = environment.Parser(
        prog="testbed traffic",
        description="Send the flows of a file between hosts, as background load or alone, and report their "
        "completion times. Ctrl-C ends it.",
    )
    add_name_option(parser)
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help=f"start flows for S seconds ({SECONDS:g})"
    )
    parser.add_argument(
        "--drain",
        type=float,
        default=DRAIN_S,
        metavar="S",
        help=f"then wait up to S seconds for flows that have not finished ({DRAIN_S:g})",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the draws (1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_options(parser)
    parser.add_argument("file", type=Path, metavar="FILE.yaml", help="the generators: docs/traffic.md")
    options = parser.parse_args(argv)
    caller, runtime = Caller.of_this_process(), Runtime.meant(options.name)
    plan = planned(runtime, caller, options.file, options.seconds, options.seed, options.drain)
    print(
        f"testbed traffic: {len(plan.flows)} flows between {len(plan.hosts)} hosts in {plan.seconds:g} s",
        file=sys.stderr,
        flush=True,
    )
    asked = Asked("traffic", argv, vars(options), [("traffic", options.file)], runtime)
    with recording(asked, store_of(options, caller), caller) as record, record.run() as run:
        result = carry_out(runtime, caller, plan)
        run.take(result)
    print(json.dumps(as_json(result), indent=2) if options.json else table(result))
    return 0


def table(result: TrafficResult) -> str:
    """Format a result as lines for people."""
    from testbed.records.traffic_table import traffic_lines

    return "\n".join(traffic_lines(result))


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
