"""The frames of one link, in a pcap file or passed on as they come."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict, cast

from testbed.client import rpc
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.messages.coding import decode
from testbed.messages.events import LinkTapped

COUNT, SECONDS = 10_000, 10.0
MOST = {"count": 1_000_000, "seconds": 3600.0}  # what a testbed accepts
STDOUT = "-"  # in the place of a file

# `from` is a word of Python's, so that a class cannot have it
CapturedFrames = TypedDict(
    "CapturedFrames",
    {
        "link": str,
        "file": str,
        "forward": int,
        "backward": int,
        "missed": int,
        "seconds": float,
        "from": str,
        "to": str,
    },
)


OnTap = Callable[[LinkTapped, int | None], None]  # gets the pipe to read frames from, with STDOUT


def capture(
    runtime: Runtime, caller: Caller, link: str, output: str, count: int, seconds: float, on_tap: OnTap
) -> CapturedFrames:
    """Write the frames of a link to a file, or pass them on to `on_tap` (STDOUT). Return how many
    there were each way, and how many more it was too slow for. Who is interrupted finds the file whole.
    """
    runtime.require_alive()
    file = output if output == STDOUT else str(Path(output).absolute())
    asked = {"link": link, "output": file, "count": count, "seconds": seconds, "uid": caller.uid}

    def on_event(data: dict[str, Any], fd: int | None) -> None:
        on_tap(decode(LinkTapped, data, "event"), fd)

    try:
        frames = rpc.call(runtime.socket, "capture", on_event=on_event, timeout_s=None, **asked)
    except KeyboardInterrupt:
        if file != STDOUT:
            await_whole(Path(file))
        raise
    return cast(CapturedFrames, {"link": link, "file": file, **frames})


def await_whole(file: Path) -> None:
    """Wait until the daemon, which notices soon that nobody waits, has written the last frame."""
    with contextlib.suppress(OSError), file.open("rb") as written:
        fcntl.flock(written, fcntl.LOCK_SH)
