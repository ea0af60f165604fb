"""Starts processes inside a host's network namespace, as a given user, that end when the daemon does.

Owns one thread, which starts all of them: the parent whose end the kernel reports to a process (PR_SET_PDEATHSIG) is
the thread that started it, so a thread that serves one request and ends would take its processes along.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from testbed.emulation.namespaces import die_with_parent, entered

Stream = int | IO[Any] | None


class Spawner:
    """A thread that starts processes. Closing it kills those that still run."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spawner")

    def close(self) -> None:
        self._thread.shutdown()

    def popen(
        self,
        namespace: int | None,
        argv: Sequence[str],
        *,
        uid: int | None = None,
        gid: int | None = None,
        groups: Sequence[int] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = None,
        stderr: Stream = None,
        pass_fds: Sequence[int] = (),
        new_session: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Start a process in this network namespace, root's rights given up last. Raises OSError as Popen does."""

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                argv,
                user=uid,
                group=gid,
                extra_groups=groups,
                env=env,
                cwd=cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=pass_fds,
                start_new_session=new_session,
                preexec_fn=die_with_parent,  # Popen calls it after the change of user, which would undo it
            )

        def start_inside() -> subprocess.Popen[bytes]:
            if namespace is None:
                return start()
            with entered(namespace):
                return start()

        return self._thread.submit(start_inside).result()
