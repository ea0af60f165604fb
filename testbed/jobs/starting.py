"""Start a job's processes: each in its host's network namespace, as the job's user, as a new program or as a
fork of a process that has torch loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from testbed.client.caller import Caller
from testbed.jobs.processes import ProcessSpec
from testbed.machine.interface import Hosts
from testbed.machine.process import EnclosureHandle, Process


@dataclass(frozen=True, slots=True)
class Starter:
    """Starts the processes of one job as `caller`, in the folder `cwd` or their own, inside the enclosure.
    With `forks`, workers are forks of a process with torch loaded; a parameter server, which needs no torch,
    never is.
    """

    hosts: Hosts
    enclosure: EnclosureHandle
    caller: Caller
    cwd: str
    forks: bool = False

    def start(self, spec: ProcessSpec, stdout: int) -> Process:
        """Start a process as the leader of its own session, with its output to `stdout`. Raises OSError or
        TestbedError.
        """
        hosts, host, enclosure = self.hosts, spec.host, self.enclosure
        start: Callable[..., Process]
        if self.forks and not spec.serves:
            start = partial(hosts.fork_in, host, spec.argv[2:], enclosure)
        else:
            start = partial(hosts.popen_in, host, spec.argv, enclosure, stderr=stdout, new_session=True)
        return start(
            uid=self.caller.uid,
            gid=self.caller.gid,
            groups=self.caller.groups,
            env=spec.env,
            cwd=self.cwd if spec.cwd is None else str(spec.cwd),
            stdout=stdout,
            pass_fds=spec.pass_fds,
        )
