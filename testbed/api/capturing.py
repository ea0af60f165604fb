"""Capture a link's frames into a pcap file, or pass them on while they arrive."""

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
MOST_COUNT, MOST_SECONDS = 1_000_000, 3600.0  # the largest values that a testbed accepts
STDOUT = "-"  # as the file: standard output

# `from` is a keyword of Python, so a class cannot declare it as a field
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


OnTap = Callable[[LinkTapped, int | None], None]  # with STDOUT the second is the pipe to read frames from


def capture(
    runtime: Runtime, caller: Caller, link: str, output: str, count: int, seconds: float, on_tap: OnTap
) -> CapturedFrames:
    """Write a link's frames to a file or, with STDOUT, pass the pipe that carries them to `on_tap`. Return
    the number of frames in each direction and how many were missed because the capture was too slow. After an
    interrupt, wait until the file is complete, then raise it again.
    """
    runtime.require_alive()
    file = output if output == STDOUT else str(Path(output).absolute())
    asked = {"link": link, "output": file, "count": count, "seconds": seconds, "uid": caller.uid}

    def on_event(data: Any, fd: int | None) -> None:
        on_tap(decode(LinkTapped, data, "event"), fd)

    try:
        frames = rpc.call(runtime.socket, "capture", on_event=on_event, timeout_s=None, **asked)
    except KeyboardInterrupt:
        if file != STDOUT:
            await_whole(Path(file))
        raise
    return cast(CapturedFrames, {"link": link, "file": file, **frames})


def await_whole(file: Path) -> None:
    """Wait until the daemon, which soon notices that its client is gone, has written the last frame."""
    with contextlib.suppress(OSError), file.open("rb") as written:
        fcntl.flock(written, fcntl.LOCK_SH)
