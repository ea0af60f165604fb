"""A command's standard output and error: each line is written as soon as it is printed, and a command with a
closed output pipe (`testbed status | head -1`) ends without a message. Imports the standard library only.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys

UNREAD = 128 + signal.SIGPIPE  # a shell's exit code for a program that this signal ended


class _Readers:
    """The readers of this process's output: `gone` once one of them has closed it, for the rest of the
    process.
    """

    gone = False


def print_at_once() -> None:
    """Write each printed line at once, to a file or pipe as to a terminal, so that the output of a
    long-running command is complete at any time.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def flush() -> None:
    """Write all that was printed so far. Raises BrokenPipeError if the pipe has no reader."""
    if sys.stdout is not None:  # None: closed before Python began
        sys.stdout.flush()


def reader_has_gone() -> bool:
    """Return whether a reader of the standard output or error has gone; if so, discard further output
    there.
    """
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None and _is_without_reader(stream.fileno()):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())  # also for the interpreter, which flushes once more at its exit
            os.close(nowhere)
            _Readers.gone = True
    return _Readers.gone


def code_as_read(code: int) -> int:
    """Return the exit code `code`, or UNREAD if a reader of the output has gone."""
    return UNREAD if _Readers.gone else code


def _is_without_reader(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
