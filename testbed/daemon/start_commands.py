"""The command lines that a configuration's hosts run from the start of the testbed to its end (`exec`).

Each runs by a shell, as the testbed's user, with its output in a file of the log folder. One that has ended
is not started again; its end is noted.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.client.caller import Caller
from testbed.daemon.commands import Visited, environment
from testbed.errors import TestbedError
from testbed.machine.interface import Hosts
from testbed.machine.process import Spawned, exit_in_words
from testbed.messages.status import HostCommand

RUNNING = "running"
_SHELL = "/bin/sh"


class StartCommands:
    """The command lines, by host, while entered; leaving ends them with all that they started. `visited` is
    `Jobs.visited`, which keeps other users' jobs off the hosts meanwhile. `log` is a folder.
    """

    def __init__(
        self,
        hosts: Hosts,
        lines: Mapping[str, str],
        owner: Caller,
        log: Path,
        visited: Visited,
        note: Callable[[str], None],
    ) -> None:
        self._hosts, self._lines, self._owner, self._log = hosts, lines, owner, log
        self._visited, self._note = visited, note
        self._processes: dict[str, Spawned] = {}
        self._states: dict[str, str] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for host, line in self._lines.items():
                stack.enter_context(self._visited(host, self._owner.uid, self._owner.uid))
                self._processes[host] = self._start(stack, host, line)
                self._states[host] = RUNNING
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def log_of(self, host: str) -> Path:
        """Return the file that has the output of a host's command."""
        return self._log / f"exec-{host}.log"

    def _start(self, stack: contextlib.ExitStack, host: str, line: str) -> Spawned:
        owner = self._owner
        enclosure = stack.enter_context(self._hosts.enclosed("exec", owner.uid))
        folder = owner.home if Path(owner.home).is_dir() else "/"
        with self.log_of(host).open("wb") as output:
            os.fchown(output.fileno(), owner.uid, owner.gid)
            try:
                process = self._hosts.popen_in(
                    host,
                    (_SHELL, "-c", line),
                    enclosure,
                    uid=owner.uid,
                    gid=owner.gid,
                    groups=owner.groups,
                    env=environment({}, owner),
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    new_session=True,
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise TestbedError(f"{host}: run {line}: {error}") from error
        stack.callback(process.end)
        return process

    def watch(self) -> None:
        """Note each command that has ended since the last call."""
        for host, process in self._processes.items():
            if self._states[host] == RUNNING and (code := process.poll()) is not None:
                self._states[host] = exit_in_words(code)
                self._note(f"{host}: {self._lines[host]}: {self._states[host]} (log: {self.log_of(host)})")

    def states(self) -> dict[str, HostCommand]:
        """Return the hosts' command lines, each with its state in words."""
        return {
            host: HostCommand(line=self._lines[host], state=state) for host, state in self._states.items()
        }
