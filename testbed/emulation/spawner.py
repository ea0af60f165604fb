"""Start processes inside a host's network namespace and cgroups, as a given user; they end when the daemon
does.

Owns one thread, which starts all of them. PR_SET_PDEATHSIG, which ends a process with its parent, refers to
the thread that started it; a thread that serves one request and ends would end its processes too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from testbed.cgroups.hierarchy import members
from testbed.emulation import start_in_folder
from testbed.emulation.enclosures import Enclosure
from testbed.emulation.leftovers import end_session
from testbed.emulation.namespaces import die_with_parent, entered
from testbed.interpreters import isolated

_LONGEST_REASON_BYTES = 4096

Stream = int | IO[Any] | None


class ErrorPipe:
    """A pipe on which a process reports why it could not run its program. The process inherits `writer`,
    which is then closed here.
    """

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def read(self) -> str | None:
        """Return the reported reason, if any, and close the pipe. Call when the process has ended."""
        if self._reader < 0:
            return None
        try:
            return os.read(self._reader, _LONGEST_REASON_BYTES).decode(errors="replace") or None
        except BlockingIOError:  # another process holds the other end, and nothing was written
            return None
        finally:
            self.close()

    def close(self) -> None:
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1


class Started(subprocess.Popen[bytes]):
    """A process, its report, and its enclosure, if it has one."""

    report: ErrorPipe | None = None
    enclosure: Enclosure | None = None

    def end(self) -> int:
        """End the process, which leads a session of its own, and everything that it started; return its exit
        code.
        """
        if self.returncode is None:  # not reaped: the number is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.kill()
        code = self.wait()
        if self.enclosure is not None:
            self.enclosure.end()
        return code

    def end_session(self) -> None:
        """Kill all processes of its session, after it has ended and before it is reaped: until then its
        number identifies the session.
        """
        end_session(self.pid)

    def why_not(self) -> str | None:
        """Return why an ended process could not run its program, if so."""
        return self.report.read() if self.report else None


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
        cgroups: Sequence[Path] = (),
    ) -> Started:
        """Start a process in this network namespace and these cgroups; root's rights are dropped last. A
        user's `cwd` is entered as that user, after the start: `why_not` reports a failure. Raises OSError as
        Popen does.
        """

        def start() -> Started:
            if uid is None or cwd is None:
                return popen(argv, cwd, pass_fds)
            report = ErrorPipe()
            enter = isolated("-I", "-S", start_in_folder.__file__, str(report.writer), str(cwd))
            try:
                started = popen([*enter, *argv], None, (*pass_fds, report.writer))
            except BaseException:
                report.close()
                raise
            finally:
                os.close(report.writer)
            started.report = report
            return started

        def popen(argv: Sequence[str], cwd: Path | str | None, pass_fds: Sequence[int]) -> Started:
            with contextlib.ExitStack() as opened:
                fds = [os.open(members(cgroup), os.O_WRONLY | os.O_CLOEXEC) for cgroup in cgroups]
                for fd in fds:
                    opened.callback(os.close, fd)

                def enter_and_bind() -> None:
                    for fd in fds:
                        os.write(fd, b"0")  # with the rights of the opener
                    die_with_parent()

                return popen_bound(argv, cwd, pass_fds, enter_and_bind)

        def popen_bound(
            argv: Sequence[str],
            cwd: Path | str | None,
            pass_fds: Sequence[int],
            begin: Callable[[], None],
        ) -> Started:
            return Started(
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
                preexec_fn=begin,  # Popen calls it after the change of user, which would undo its effect
            )

        def start_inside() -> Started:
            if namespace is None:
                return start()
            with entered(namespace):
                return start()

        return self._thread.submit(start_inside).result()
