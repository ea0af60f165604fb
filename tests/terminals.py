"""A program in a terminal of its own, as a user runs it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import time
from collections.abc import Sequence
from contextlib import suppress

from tests.limits import CALL_S


class Screen:
    """The program, and its output that was not read yet."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP):
                signal.signal(number, signal.SIG_DFL)
            os.execv(argv[0], list(argv))
        self.text = ""

    def read_until(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + CALL_S
        while not (match := re.search(pattern, self.text)):
            assert select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))[0], self.text
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            assert data, self.text
            self.text += data.decode()
        self.text = self.text[match.end() :]
        return match

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def wait(self, limit_s: float) -> int:
        """Wait until the program closes its terminal and ends, and return its exit code."""
        deadline = time.monotonic() + limit_s
        with suppress(OSError):
            while True:
                assert select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))[0], self.text
                if not (data := os.read(self.fd, 65536)):
                    break
                self.text += data.decode()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
