"""The daemon's request `capture`: check the request, and write the frames of a link to a user's file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from io import FileIO
from pathlib import Path

from testbed.client.caller import Caller
from testbed.client.requests import CaptureRequest
from testbed.client.rpc import Emit
from testbed.errors import RequestError, TestbedError
from testbed.jobs.request import absolute
from testbed.jobs.user_files import UserFiles
from testbed.machine.interface import LinkTap
from testbed.machine.links import Captured
from testbed.messages.coding import as_json
from testbed.messages.events import LinkTapped
from testbed.topology.fields import shown

STDOUT = "-"  # instead of a file: the client gets a pipe to read from
_TICK_S = 0.1
MOST_FRAMES, MOST_SECONDS = 1_000_000, 3600.0


def answer(
    tap_of: Callable[[str], LinkTap],
    caller: Caller,
    request: CaptureRequest,
    emit: Emit,
    stop: Callable[[], bool],
    files: UserFiles,
) -> dict[str, str | int | float]:
    """Capture the frames of a link into the file that the request names, opened as `caller`. `tap_of` is
    `Machine.tap`. RequestError for an invalid count, time or file.
    """
    tap = tap_of(str(request.link))
    count, seconds = request.count, request.seconds
    if not isinstance(count, int) or not 1 <= count <= MOST_FRAMES:
        raise RequestError(f"--count {shown(count)}: 1 to {MOST_FRAMES} frames are accepted")
    if not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        raise RequestError(
            f"--seconds {shown(seconds)}: more than 0, and at most {MOST_SECONDS:g}, is accepted"
        )
    if request.output == STDOUT:
        return {**asdict(_to_client(tap, count, seconds, emit, stop)), **_ends(tap)}
    path = absolute(request.output, "--output")
    with tap, _file(path, caller, files) as file:
        emit(as_json(LinkTapped(tap.link)))
        try:
            done = tap.capture(partial(_write_whole, file), count, seconds, stop)
        except OSError as error:
            raise TestbedError(
                f"write {path}: {error.strerror}; it has the frames until then, {file.tell()} bytes"
            ) from error
    return {**asdict(done), **_ends(tap)}


def _ends(tap: LinkTap) -> dict[str, str]:
    return {"from": "from the ToR" if tap.is_from_tor else f"from {tap.link}", "to": "to it"}


def _to_client(tap: LinkTap, count: int, seconds: float, emit: Emit, stop: Callable[[], bool]) -> Captured:
    """Write into a pipe that the client reads. A client that does not read delays only its own request, until
    the time is over or the client is gone; frames that find no room meanwhile are counted as missed.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    over = time.monotonic() + seconds

    def write(data: bytes) -> None:
        rest = memoryview(data)
        while rest and not is_over():
            if select.select([], [writer], [], _TICK_S)[1]:
                with contextlib.suppress(BlockingIOError):
                    rest = rest[os.write(writer, rest) :]

    def is_over() -> bool:
        return stop() or time.monotonic() > over

    try:
        with tap:
            os.set_blocking(reader, True)  # the client's end
            emit(as_json(LinkTapped(tap.link)), reader)
            os.close(reader)
            reader = -1
            try:
                return tap.capture(write, count, seconds, is_over)
            except BrokenPipeError:
                raise TestbedError(f"capture {tap.link}: nobody reads it any more") from None
    finally:
        os.close(writer)
        if reader >= 0:
            os.close(reader)


@contextlib.contextmanager
def _file(path: Path, caller: Caller, files: UserFiles) -> Iterator[FileIO]:
    """Open the user's file and truncate it. It stays locked while it is written, so that others can wait
    until it is complete.
    """
    fd = files.open_output(path, caller)
    with FileIO(fd, "wb") as file:  # unbuffered: a buffer's rest would be written again on closing
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RequestError(f"--output {path}: another capture is writing it") from None
        os.ftruncate(fd, 0)
        yield file


def _write_whole(file: FileIO, data: bytes) -> None:
    """Append all of the data, or nothing. Raises OSError."""
    begun = file.tell()
    try:
        while data:
            data = data[file.write(data) :]
    except OSError:
        file.seek(begun)
        file.truncate()
        raise
