"""The processes that a machine starts, as their starters see them.

This is the one handle of the interface that is local to a machine: a process has a number, and inherits
descriptors, of one machine. docs/architecture.md, "A machine", lists its users and the reasons.
"""

from __future__ import annotations

import signal
from typing import Protocol


class Process(Protocol):
    """A started process, as jobs use it: one that runs a program of its own, or a fork of a template process
    that has its libraries loaded. Only `wait` reaps it.
    """

    @property
    def pid(self) -> int: ...

    def wait(self) -> int:
        """Wait for the end and return the exit code; a negative one is the signal that ended the process."""

    def why_not(self) -> str | None:
        """Return why an ended process never ran its program; None if it did."""


class Spawned(Process, Protocol):
    """A process that runs a program of its own and ends with the testbed."""

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end for `timeout` seconds at most. Raises subprocess.TimeoutExpired."""

    def kill(self) -> None:
        """Kill the process; do nothing once it is reaped."""

    def end(self) -> int:
        """End the process, which leads a session of its own, and everything that it started; return its exit
        code.
        """

    def end_session(self) -> None:
        """Kill all processes of the session, after its leader ended and before it is reaped."""


class EnclosureHandle(Protocol):
    """The enclosure of everything that a job, or a command in a host, starts; passed along with each process
    that belongs in it.
    """


def exit_in_words(exit_code: int) -> str:
    """Return an exit code in words; a negative one is a signal's number."""
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        return f"was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was ended by signal {-exit_code}"
