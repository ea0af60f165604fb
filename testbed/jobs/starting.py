"""The start of a job's processes: each in its host's network namespace, as the job's user, running a program
of its own or as a fork of the template.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from testbed.client.caller import Caller
from testbed.emulation.enclosures import Enclosure
from testbed.emulation.spawner import Started
from testbed.jobs.processes import Process, ProcessSpec
from testbed.jobs.template import Template


class Hosts(Protocol):
    """The part of the fabric (testbed/emulation/net.py) that starts processes."""

    def popen_in(self, host: str, argv: Sequence[str], **options: Any) -> Started: ...
    def host_namespace(self, host: str) -> Path: ...
    def enclosed(self, name: str, uid: int) -> AbstractContextManager[Enclosure]: ...


@dataclass(frozen=True, slots=True)
class Starter:
    """Starts the processes of one job, which enter `cwd`, or a folder of their own, as `caller`, and stay in
    the enclosure. With a template, workers are forks of it; a parameter server, which needs no torch, never
    is.
    """

    hosts: Hosts
    enclosure: Enclosure
    caller: Caller
    cwd: str
    template: Template | None = None

    def start(self, spec: ProcessSpec, stdout: int) -> Process:
        """Start a process as the leader of a session of its own, its output at `stdout`. Raises OSError or
        TestbedError.
        """
        options: dict[str, Any] = {
            "uid": self.caller.uid,
            "gid": self.caller.gid,
            "groups": self.caller.groups,
            "env": spec.env,
            "cwd": self.cwd if spec.cwd is None else str(spec.cwd),
            "stdout": stdout,
            "pass_fds": spec.pass_fds,
        }
        if self.template is None or spec.serves:
            options |= {"enclosure": self.enclosure, "stderr": stdout, "new_session": True}
            return self.hosts.popen_in(spec.host, spec.argv, **options)
        hold = partial(self.enclosure.hold, spec.host)
        return self.template.popen(self.hosts.host_namespace(spec.host), spec.argv[2:], hold=hold, **options)
