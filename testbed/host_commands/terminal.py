"""The terminal of a user who runs a command in a host, and the pseudo-terminal that the command gets.

A command cannot use its user's own terminal: that belongs to the session of a shell outside, whose signals
and job control do not reach it. So it gets a pseudo-terminal, whose other end is relayed here, as ssh does.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import termios
import tty
from typing import Any, Self

_PIECE_BYTES = 1 << 16
_HUNG_UP = errno.EIO, errno.ENXIO, errno.ENOTTY  # errors of a terminal that is gone, or of something else
STANDARD = (0, 1, 2)


class Terminal:
    """A pseudo-terminal with the settings of the terminal at `outside`, standard input. Leaving the block
    restores the latter.
    """

    def __init__(self, outside: int = 0) -> None:
        self._outside = outside
        self._before: list[Any] | None = None
        self.ended = False  # the other end is closed
        self.master, self.slave = os.openpty()
        os.set_blocking(self.master, False)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self.slave, termios.TCSANOW, termios.tcgetattr(outside))
        self.resize()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()
        self.close_slave()
        os.close(self.master)

    def streams(self) -> list[int]:
        """Return the command's standard input, output and error, with this terminal in place of those that
        are terminals.
        """
        return [self.slave if os.isatty(each) else each for each in STANDARD]

    def close_slave(self) -> None:
        """Close the command's end here, once the command has it: reading then ends with its last holder."""
        if self.slave >= 0:
            os.close(self.slave)
            self.slave = -1

    def resize(self) -> None:
        """Copy the size of the terminal outside; processes in it get SIGWINCH."""
        with contextlib.suppress(OSError):
            fcntl.ioctl(
                self.master, termios.TIOCSWINSZ, fcntl.ioctl(self._outside, termios.TIOCGWINSZ, bytes(8))
            )

    def take(self) -> None:
        """Pass every key to the command from now on, including those that send signals; not while this
        process is in the background, when the terminal belongs to another process.
        """
        if self._before is None and self.is_ours():
            with contextlib.suppress(termios.error):
                before = termios.tcgetattr(self._outside)
                tty.setraw(self._outside, termios.TCSADRAIN)
                self._before = before

    def restore(self) -> None:
        """Restore the terminal outside."""
        if self._before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._outside, termios.TCSADRAIN, self._before)
            self._before = None

    def is_ours(self) -> bool:
        """Return whether this process is in the foreground, or the terminal's foreground group is unknown."""
        try:
            return os.tcgetpgrp(self._outside) == os.getpgrp()
        except OSError as error:
            if error.errno not in _HUNG_UP:
                raise
            return True

    def read(self) -> bytes | None:
        """Return the command's output; None if there is none now, b"" if no more will come."""
        try:
            return os.read(self.master, _PIECE_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _HUNG_UP:
                raise
            self.ended = True
            return b""

    def show(self, data: bytes) -> None:
        """Write to the terminal outside, by whichever standard stream is a terminal."""
        target = next((each for each in (1, 2, 0) if os.isatty(each)), 1)
        _write(target, data)

    def type(self, keys: bytes) -> int:
        """Send keys to the command; return how many it accepted."""
        try:
            return os.write(self.master, keys)
        except OSError as error:
            if error.errno not in (*_HUNG_UP, errno.EAGAIN):
                raise
            return 0


def _write(fd: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:  # another holder made it non-blocking
            select.select([], [fd], [])
        except OSError as error:
            if error.errno not in (*_HUNG_UP, errno.EPIPE):
                raise
            return  # the terminal is gone; the end of the command reports more
