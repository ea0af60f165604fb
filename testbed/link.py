"""`testbed link`: sets links' rates and delays, and takes them down or up, at run time, through the
daemon.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.client import environment

if TYPE_CHECKING:
    from testbed.messages.links import LinkSetting

LINKS_HELP = (
    "a host's link (u1h1), an optical port's (u1o1), a ToR's to its pod switch (u1r1), or a unit's to the "
    "core (u1c); u1: all of that unit's links; all: every link that has a rate"
)


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py)."""
    from testbed.api.links import LinkControl
    from testbed.client.runtime import Runtime

    arguments = _parser().parse_args(argv)
    control = LinkControl(Runtime.meant(arguments.name))
    if arguments.action == "set":
        links = control.set(
            *arguments.link,
            rate_mbps=arguments.rate,
            up=arguments.up,
            delay=arguments.delay,
            jitter=arguments.jitter,
        )
    else:
        links = control.reset(*arguments.link) if arguments.action == "reset" else control.now()
    if arguments.json:
        print(json.dumps(links, indent=2))
    else:
        from testbed.messages.coding import decode
        from testbed.messages.links import LinkSetting

        print(table(decode(tuple[LinkSetting, ...], links, "links")))
    return 0


def _parser() -> argparse.ArgumentParser:
    from testbed.client.runtime import add_name_option

    parser = environment.Parser(
        prog="testbed link",
        description="Set the rate and delay of links while the testbed runs, or take them down or up. Each "
        "setting is read back.",
    )
    common = environment.Parser(add_help=False, argument_default=argparse.SUPPRESS)
    for either in (parser, common):  # before the action and after it
        add_name_option(either)
        either.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(name=None)
    actions = parser.add_subparsers(dest="action", required=True, metavar="set|reset|list")
    setting = actions.add_parser(
        "set",
        parents=[common],
        help="set the rate or the delay of links, or take them down or up",
        description="Set the rate or the delay of links, in both directions, or take them down or up. "
        "Running jobs go on, and their verdicts take it into account.",
    )
    setting.add_argument("link", nargs="+", metavar="LINK", help=LINKS_HELP)
    setting.add_argument(
        "--rate", type=float, metavar="MBPS", help="the emulated rate in Mb/s, as in `testbed status`"
    )
    setting.add_argument(
        "--delay",
        metavar="TIME",
        help="delay each frame by TIME, like 5ms, in each direction, before it waits for the link's rate; "
        "0ms: no delay",
    )
    setting.add_argument(
        "--jitter",
        metavar="TIME",
        help="make each frame's delay up to TIME longer or shorter, at random: frames overtake others",
    )
    light = setting.add_mutually_exclusive_group()
    light.add_argument(
        "--down",
        dest="up",
        action="store_false",
        default=None,
        help="take carrier away; frames in it are lost",
    )
    light.add_argument("--up", dest="up", action="store_true", help="carry frames again")
    resetting = actions.add_parser(
        "reset",
        parents=[common],
        help="restore links: the configuration's rates and delays, up",
    )
    resetting.add_argument("link", nargs="+", metavar="LINK", help=LINKS_HELP)
    actions.add_parser(
        "list", parents=[common], help="show the links that have a rate, with their state in the kernel"
    )
    return parser


def table(links: Sequence[LinkSetting]) -> str:
    """Format the links, one a line, with the configured rate if it differs."""
    if not links:
        return "this testbed has no link with a rate"
    return "\n".join(f"{link.link:<8} {_words(link)}" for link in links)


def _words(link: LinkSetting) -> str:
    rate, configured = link.rate_mbps or 0.0, link.configured_mbps
    other = "" if rate == configured else f" (configured {configured:g})"
    jitter = f", {link.jitter_ms:g} ms more or less" if link.jitter_ms else ""
    delay = f", delays {link.delay_ms:g} ms each way{jitter}" if link.delay_ms else ""
    return f"{rate:>8g} Mb/s{other}{delay}" + ("" if link.up else ", down")


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
