"""The standard output and error of a command: each line leaves as soon as it is printed, and a command whose
reader has closed a pipe (`testbed status | head -1`) ends without a word. Imports the standard library alone.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys

UNREAD = 128 + signal.SIGPIPE  # the exit code by which shells tell of a program that this signal ended


class _Readers:
    """The readers of this process's output, for as long as it lives."""

    gone = False


def print_at_once() -> None:
    """Write each printed line at once, into a file or a pipe as on a terminal: a command that lives on has
    said what it said.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def flush() -> None:
    """Write what was printed so far. Raises BrokenPipeError where nobody reads it."""
    if sys.stdout is not None:  # it was closed before Python began
        sys.stdout.flush()


def reader_has_gone() -> bool:
    """Return whether a reader of the standard output or error has gone, and discard from now on what is
    printed there.
    """
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None and _is_without_reader(stream.fileno()):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())  # also for the interpreter, which flushes once more at its exit
            os.close(nowhere)
            _Readers.gone = True
    return _Readers.gone


def code_as_read(code: int) -> int:
    """Return the exit code of a command that came to `code`: UNREAD where a reader of its output has gone."""
    return UNREAD if _Readers.gone else code


def _is_without_reader(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
