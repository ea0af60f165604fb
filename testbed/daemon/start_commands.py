"""The command lines that a configuration's hosts run from the start of the testbed to its end (`exec`).

Each runs by a shell, as the testbed's user, with its output in a file of the log folder, bounded as a job's
log. One that has ended is not started again; its end is noted.
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
from testbed.jobs.attempt import MOST_LOG_BYTES
from testbed.jobs.logs import Outputs, own_log
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
        self._running: dict[str, tuple[Spawned, contextlib.ExitStack]] = {}
        self._states: dict[str, str] = {}
        self._outputs = Outputs(lambda _host, _line: None)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_all)
            for host, line in self._lines.items():
                self._running[host] = self._start(host, line)
                self._states[host] = RUNNING
            stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_all()

    def _end_all(self) -> None:
        for _, release in self._running.values():
            release.close()
        self._outputs.finish()

    def log_of(self, host: str) -> Path:
        """Return the file that has the output of a host's command."""
        return self._log / f"exec-{host}.log"

    def _start(self, host: str, line: str) -> tuple[Spawned, contextlib.ExitStack]:
        """Start a host's command; return its process, and what ends it and releases its host."""
        owner = self._owner
        folder = owner.home if Path(owner.home).is_dir() else "/"
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._visited(host, owner.uid, owner.uid))
            enclosure = stack.enter_context(self._hosts.enclosed("exec", owner.uid))
            pipe, output = os.pipe2(os.O_CLOEXEC)
            stack.callback(os.close, output)
            self._outputs.add(
                pipe, own_log(self.log_of(host), owner), self.log_of(host), host, MOST_LOG_BYTES
            )
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
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                raise TestbedError(f"{host}: run {line}: {error}") from error
            stack.callback(process.end)
            return process, stack.pop_all()

    def watch(self) -> None:
        """Note each command that has ended since the last call, end what it left behind, and release its
        host.
        """
        for host, (process, release) in list(self._running.items()):
            if (code := process.poll()) is not None:
                del self._running[host]
                release.close()
                self._states[host] = exit_in_words(code)
                self._note(f"{host}: {self._lines[host]}: {self._states[host]} (log: {self.log_of(host)})")

    def states(self) -> dict[str, HostCommand]:
        """Return the hosts' command lines, each with its state in words."""
        return {
            host: HostCommand(line=self._lines[host], state=state) for host, state in self._states.items()
        }
