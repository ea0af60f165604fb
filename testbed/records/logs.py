"""The logs of a run: copy them into its record (of a long one, the beginning and the end), and find the
exception at the end of the log that a failure names.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

MOST_BYTES = 8 << 20
"""The most bytes of a log's beginning in a record; LAST_BYTES of its end are kept in addition."""
LAST_BYTES = 64 << 10
_EARLIER_S = 1.0  # how far a file system's clock may be behind
_NAMED = re.compile(r"\(log: (?P<log>/.+?)\)")  # as testbed/jobs/processes.py ends a failure
_RANK = re.compile(r"\[rank\d+\]: ?")  # torch puts it before each line of an exception
_HEAD = "Traceback (most recent call last):"
_SYNTAX = re.compile(r"(Syntax|Indentation|Tab)Error: ")  # has no traceback
_BEHIND = re.compile(r"\[|frame #|Exception raised from |C\+\+ ")  # what torch adds to a message
_MOST_LINES, _MOST_OF_MESSAGE = 12, 4


def copy(folder: Path, target: Path, since: float) -> None:
    """Copy the logs in a folder that were written since that time. Raises OSError."""
    for log in sorted(folder.glob("*.log")):
        if log.is_file() and log.stat().st_mtime >= since - _EARLIER_S:
            target.mkdir(parents=True, exist_ok=True)
            _copy(log, target / log.name)


def _copy(log: Path, target: Path) -> None:
    with log.open("rb") as source, target.open("wb") as kept:
        size = os.fstat(source.fileno()).st_size
        if size <= MOST_BYTES + LAST_BYTES:
            shutil.copyfileobj(source, kept)
            return
        kept.write(source.read(MOST_BYTES))
        kept.write(f"\n... {size - MOST_BYTES - LAST_BYTES} bytes are left out here ...\n".encode())
        source.seek(-LAST_BYTES, os.SEEK_END)
        shutil.copyfileobj(source, kept)


def named(failure: str) -> Path | None:
    """Return the log that a failure names, of the worker that failed first; None if it names none."""
    match = _NAMED.search(failure)
    return Path(match["log"]) if match else None


def exception_of(failure: str) -> list[str]:
    """Return the end of the last traceback in the log that a failure names: at most 12 lines, the exception
    last. Empty if there is no log, or no exception in its last 64 KiB.
    """
    log = named(failure)
    try:
        with open(log or os.devnull, "rb") as source:
            source.seek(max(0, os.fstat(source.fileno()).st_size - LAST_BYTES))
            return last_exception(source.read().decode(errors="replace"))
    except OSError:
        return []


def last_exception(text: str) -> list[str]:
    """Return the end of the last traceback in a text, at most 12 lines, without torch's marks of ranks and
    its own stack.
    """
    lines = [_RANK.sub("", line, count=1) for line in text.splitlines()]
    begins = [at for at, line in enumerate(lines) if line == _HEAD or _SYNTAX.match(line)]
    if not begins:
        return []
    begin = end = begins[-1]
    if lines[begin] == _HEAD:
        end += 1
        while end < len(lines) and lines[end][:1] in ("", " "):
            end += 1
    else:
        while begin and lines[begin - 1].startswith(" "):
            begin -= 1
    message = lines[end : end + _MOST_OF_MESSAGE]
    rest = [at for at, line in enumerate(message) if at and (not line or _BEHIND.match(line))]
    return (lines[begin:end] + message[: rest[0] if rest else None])[-_MOST_LINES:]
