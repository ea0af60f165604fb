"""`testbed capture`: the frames of one link of a running testbed, both directions, as a pcap file."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import sys
from pathlib import Path
from typing import Any

from testbed.client import environment

COUNT, SECONDS = 10_000, 10.0


def main(argv: list[str]) -> int:
    """Return the exit code; see testbed/errors.py."""
    from testbed.client import rpc
    from testbed.client.caller import Caller
    from testbed.client.runtime import DEFAULT_NAME, Runtime

    parser = argparse.ArgumentParser(
        prog="testbed capture",
        description="Write the frames of one link to a pcap file: each once, when it leaves the link's "
        "queue. Ctrl-C ends it early; the file then holds what came by until then.",
    )
    kinds = "u1h1: that host's, u1o1: that optical port's, u1r1: that ToR's to its pod switch"
    parser.add_argument("link", metavar="LINK", help=kinds)
    parser.add_argument("--name", default=DEFAULT_NAME, help="of the testbed (default)")
    parser.add_argument("--output", type=Path, metavar="FILE.pcap", help="the file (LINK.pcap)")
    parser.add_argument(
        "--count", type=int, default=COUNT, metavar="N", help="end after so many frames (%(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help="end after so many seconds (%(default)g)"
    )
    options = parser.parse_args(argv)
    output = (options.output or Path(f"{options.link}.pcap")).absolute()
    runtime, caller = Runtime.of(options.name), Caller.of_this_process()
    runtime.require_alive()

    def on_event(event: dict[str, Any]) -> None:
        print(f"testbed capture: {event['capturing']}: to {output}", file=sys.stderr, flush=True)

    asked = {"link": options.link, "output": str(output), "count": options.count, "seconds": options.seconds}
    user = {"uid": caller.uid}
    try:
        frames = rpc.call(runtime.socket, "capture", on_event=on_event, timeout_s=None, **asked, **user)
    except KeyboardInterrupt:
        await_whole(output)
        raise
    missed = f", {frames['missed']} more missed: the machine is too busy" if frames["missed"] else ""
    count = frames["forward"] + frames["backward"]
    ways = f"{frames['forward']} {frames['from']}, {frames['backward']} {frames['to']}"
    print(f"{options.link}: {count} frames in {frames['seconds']:.1f} s ({ways}){missed}; {output}")
    return 0


def await_whole(file: Path) -> None:
    """Wait until the daemon, which notices soon that nobody waits, has written the last frame."""
    with contextlib.suppress(OSError), file.open("rb") as written:
        fcntl.flock(written, fcntl.LOCK_SH)


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
