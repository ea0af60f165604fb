"""The terminal of whoever runs a command in a host, and the one that the command gets in its place.

A command cannot be given its user's own terminal: that belongs to the session of a shell outside, whose
signals and job control do not reach it. So it gets a pseudo-terminal, whose other end is relayed here, as ssh
does it.
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
_HUNG_UP = errno.EIO, errno.ENXIO, errno.ENOTTY  # of a terminal that is gone, or is none
STANDARD = (0, 1, 2)


class Terminal:
    """A pseudo-terminal like the one at `outside`, standard input. Leaving the block gives the latter back as
    it was.
    """

    def __init__(self, outside: int = 0) -> None:
        self._outside = outside
        self._before: list[Any] | None = None
        self.ended = False  # nobody is at the other end any more
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
        """Return the command's standard input, output and error: this terminal in place of any that is a
        terminal.
        """
        return [self.slave if os.isatty(each) else each for each in STANDARD]

    def close_slave(self) -> None:
        """Let go of the command's end, once the command has it: its last holder ends what is read then."""
        if self.slave >= 0:
            os.close(self.slave)
            self.slave = -1

    def resize(self) -> None:
        """Make it as large as the one outside; who is in it hears of that by SIGWINCH."""
        with contextlib.suppress(OSError):
            fcntl.ioctl(
                self.master, termios.TIOCSWINSZ, fcntl.ioctl(self._outside, termios.TIOCGWINSZ, bytes(8))
            )

    def take(self) -> None:
        """Hand every key to the command from now on, those that send signals too; not while this process is
        in the background, whose terminal is somebody else's.
        """
        if self._before is None and self.is_ours():
            with contextlib.suppress(termios.error):
                before = termios.tcgetattr(self._outside)
                tty.setraw(self._outside, termios.TCSADRAIN)
                self._before = before

    def restore(self) -> None:
        """Give the terminal outside back as it was."""
        if self._before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._outside, termios.TCSADRAIN, self._before)
            self._before = None

    def is_ours(self) -> bool:
        """Return whether this process is in the foreground, or the terminal is of no session that says so."""
        try:
            return os.tcgetpgrp(self._outside) == os.getpgrp()
        except OSError as error:
            if error.errno not in _HUNG_UP:
                raise
            return True

    def read(self) -> bytes | None:
        """Return what the command has written; None when that is nothing now, b"" when no more will come."""
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
        """Write to the terminal outside, by whichever of the standard streams is that."""
        target = next((each for each in (1, 2, 0) if os.isatty(each)), 1)
        _write(target, data)

    def type(self, keys: bytes) -> int:
        """Hand keys to the command; return how many of them it took."""
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
        except BlockingIOError:  # somebody else who has it lets nobody wait
            select.select([], [fd], [])
        except OSError as error:
            if error.errno not in (*_HUNG_UP, errno.EPIPE):
                raise
            return  # it is gone: the end of the command says more
