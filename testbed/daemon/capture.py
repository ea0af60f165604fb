"""The daemon's request `capture`: checks what is asked, and writes the frames of a link into a file of the
user's. The frames come from testbed/emulation/capture.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

from testbed.client.caller import Caller
from testbed.emulation import capture
from testbed.errors import RequestError, TestbedError
from testbed.jobs.request import absolute
from testbed.jobs.user_files import UserFiles
from testbed.topology.fields import shown
from testbed.topology.model import Topology

MOST_FRAMES, MOST_SECONDS = 1_000_000, 3600.0


def answer(
    topology: Topology,
    caller: Caller,
    request: Mapping[str, Any],
    emit: Callable[[dict[str, Any]], None],
    stop: Callable[[], bool],
    files: UserFiles,
) -> dict[str, Any]:
    """Answer the daemon's request `capture`: write the file that it names, as `caller`."""
    wire = capture.link(topology, str(request.get("link")))
    count, seconds = request.get("count"), request.get("seconds")
    if not isinstance(count, int) or not 1 <= count <= MOST_FRAMES:
        raise RequestError(f"--count {shown(count)}: 1 to {MOST_FRAMES} frames are accepted")
    if not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        raise RequestError(
            f"--seconds {shown(seconds)}: more than 0, and at most {MOST_SECONDS:g}, is accepted"
        )
    path = absolute(request.get("output"), "--output")
    with capture.Tap(wire) as tap, _file(path, caller, files) as file:
        emit({"capturing": wire.name})
        try:
            done = tap.capture(partial(_write_whole, file), count, seconds, stop)
        except OSError as error:
            raise TestbedError(
                f"write {path}: {error.strerror}; it has the frames until then, {file.tell()} bytes"
            ) from error
    ends = ("from the ToR", "to it") if wire.a.namespace is None else (f"from {wire.name}", "to it")
    return {**asdict(done), "from": ends[0], "to": ends[1]}


@contextlib.contextmanager
def _file(path: Path, caller: Caller, files: UserFiles) -> Iterator[FileIO]:
    """Open and empty the file, which is the user's; locked while it is written, for whoever waits until it is
    whole.
    """
    fd = files.open_output(path, caller)
    with FileIO(fd, "wb") as file:  # without a buffer, whose rest would be written once more at the end
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RequestError(f"--output {path}: another capture is writing it") from None
        os.ftruncate(fd, 0)
        yield file


def _write_whole(file: FileIO, data: bytes) -> None:
    """Append all of it, or nothing. Raises OSError."""
    begun = file.tell()
    try:
        while data:
            data = data[file.write(data) :]
    except OSError:
        file.seek(begun)
        file.truncate()
        raise
