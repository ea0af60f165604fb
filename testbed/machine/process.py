"""The processes that a machine starts, as whoever had them started sees them.

The one local handle of the interface: a process has a number, and inherits descriptors, of one machine.
docs/architecture.md, "A machine", says who uses it and why.
"""

from __future__ import annotations

import signal
from typing import Protocol


class Process(Protocol):
    """A started process, as far as a job needs it: one that runs a program of its own, or a fork of a process
    that has its libraries loaded. It is reaped by `wait`, and not before.
    """

    @property
    def pid(self) -> int: ...

    def wait(self) -> int:
        """Return its exit code, negative for the signal that ended it."""

    def why_not(self) -> str | None:
        """Return why a process that has ended did not come to run its program, None if it ran it."""


class Spawned(Process, Protocol):
    """A process that runs a program of its own, and ends with the testbed."""

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait as long for its end. Raises subprocess.TimeoutExpired."""

    def kill(self) -> None:
        """Kill it; nothing, once it is reaped."""

    def end(self) -> int:
        """End it, the leader of a session of its own, and all that it started; return its exit code."""

    def end_session(self) -> None:
        """Kill all processes of its session, once it has ended and before it is reaped."""


class EnclosureHandle(Protocol):
    """All that a job, or a command in a host, starts, kept together: handed back with each process that
    belongs there.
    """


def exit_in_words(exit_code: int) -> str:
    """Return an exit code in words; a negative one is the number of a signal."""
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        return f"was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was ended by signal {-exit_code}"
