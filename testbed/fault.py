"""`testbed fault`: sets loss, duplication, reordering and corruption on links, through the daemon."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.client import environment

if TYPE_CHECKING:
    from testbed.messages.links import FaultStatus


_RATES = ("loss", "duplicate", "reorder", "corrupt")
_COUNTERS = ("seen", "lost", "duplicated", "held", "released", "corrupted")


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py)."""
    from testbed.api.links import FaultControl
    from testbed.client.runtime import Runtime

    arguments = _parser().parse_args(argv)
    control = FaultControl(Runtime.meant(arguments.name))
    if arguments.action == "set":
        given = {name: getattr(arguments, name) for name in (*_RATES, "distance", "seed")}
        faults = control.set(*arguments.link, direction=arguments.direction, prefix="--", **given)
    else:
        faults = control.clear(*arguments.link) if arguments.action == "clear" else control.now()
    if arguments.json:
        print(json.dumps(faults, indent=2))
    else:
        from testbed.messages.coding import decode
        from testbed.messages.links import FaultStatus

        print(table(decode(tuple[FaultStatus, ...], faults, "faults")))
    return 0


def _parser() -> argparse.ArgumentParser:
    from testbed.client.runtime import add_name_option

    parser = environment.Parser(
        prog="testbed fault", description="Lose, duplicate, reorder and corrupt frames on links."
    )
    common = environment.Parser(add_help=False, argument_default=argparse.SUPPRESS)
    for either in (parser, common):  # before the action and after it
        add_name_option(either)
        either.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(name=None)
    actions = parser.add_subparsers(dest="action", required=True, metavar="set|list|clear")
    setting = actions.add_parser(
        "set",
        parents=[common],
        help="set the fault of links, in place of an earlier one",
        description="Set the fault of links, in place of an earlier one; counters start again from 0. "
        "Links have the names of `testbed status --json`.",
    )
    setting.add_argument(
        "link",
        nargs="+",
        metavar="LINK",
        help="a host's link (u1h1), an optical port's (u1o1), a ToR's to its pod switch (u1r1), or a unit's "
        "to the core (u1c); all: every link that has a rate",
    )
    setting.add_argument(
        "--direction",
        default="both",
        metavar="up|down|both",
        help="the direction of the frames: up is from host to ToR to optical switch (both)",
    )
    for name, what in zip(
        _RATES, ("lost", "sent twice", "sent later", "sent with one bit flipped"), strict=True
    ):
        setting.add_argument(f"--{name}", metavar="RATE", help=f"share of frames {what}, like 0.1%%")
    setting.add_argument(
        "--distance", type=int, metavar="N", help="send a reordered frame N frames later (50)"
    )
    setting.add_argument(
        "--seed", type=int, metavar="N", help="the seed of the draws: the same seed, the same faults (1)"
    )
    actions.add_parser("list", parents=[common], help="show the faults that are set, with their counters")
    clearing = actions.add_parser("clear", parents=[common], help="clear the faults of links, or all faults")
    clearing.add_argument(
        "link", nargs="*", metavar="LINK", help="a link, as with set; without one, or with all: every link"
    )
    return parser


def words(fault: FaultStatus) -> str:
    """Describe the fault of a direction's frames."""
    rates = [f"{name} {100 * getattr(fault, name):g}%" for name in _RATES if getattr(fault, name)]
    rates += [f"by {fault.distance}"] if fault.reorder else []
    return ", ".join(rates)


def table(faults: Sequence[FaultStatus]) -> str:
    """Format the faults, a direction a line, with their counters since they were set."""
    if not faults:
        return "no faults are set"
    lines = [f"{'link':<8} {'':<5}" + "".join(f"{name:>11}" for name in _COUNTERS) + "  fault"]
    for fault in faults:
        counts = "".join(f"{fault.counters[name]:>11}" for name in _COUNTERS)
        lines.append(f"{fault.link:<8} {fault.direction:<5}{counts}  {words(fault)}, seed {fault.seed}")
    return "\n".join(lines)


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
