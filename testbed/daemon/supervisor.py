"""The main process's work: hold the testbed's name, start the daemon in namespaces of its own, watch it, and
see it end.

Talks with the daemon over a socket pair (testbed/daemon/process.py lists the messages). Whatever fails, this
returns or raises only when the testbed's PID namespace is empty.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import psutil

from testbed.cgroups.hierarchy import NO_CGROUPS, Cgroups
from testbed.cgroups.lifetime import HostCgroups
from testbed.client import output
from testbed.client.caller import Caller
from testbed.client.environment import CHECKOUT
from testbed.client.last_words import LastWords
from testbed.client.main_facts import MainFacts, MainState
from testbed.client.runtime import HeldName, Runtime
from testbed.client.screen import Screen
from testbed.client.terminal_text import line as one_line
from testbed.client.up_messages import (
    DaemonReady,
    EndedInOrder,
    UpFailure,
    UpMessage,
    UpNote,
    UpReady,
    as_line,
    of_line,
)
from testbed.emulation import namespaces
from testbed.errors import HostError, RequestError, TestbedError, disk_is_full, from_exit_code
from testbed.interpreters import isolated, with_checkout
from testbed.topology.model import Topology

END_S = 20.0  # for an orderly end; after that by force
_GONE_S = 10.0
_INIT_KILLED = "unshare: sigprocmask unblock failed"  # its last output if the process it runs was killed
_NO_PROCESS = "there is no such process"
_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Show = Callable[[UpMessage], None]


def bring_up(
    runtime: Runtime,
    topology: Topology,
    caller: Caller,
    show: Show,
    detached: bool = False,
    held: Callable[[], None] | None = None,
    ends_with: int | None = None,
) -> int:
    """Start a testbed, supervise it, and end it at a signal, at `testbed down`, or when process `ends_with`
    has ended.

    `held` is called once the name is held. Raises the testbed's error, and KeyboardInterrupt if it was asked
    to end before it was up.
    """
    os.umask(0o022)  # for the daemon, its files and its jobs, whatever the user's umask
    with _end_of(ends_with) as ended, HeldName(runtime, caller) as name:
        runtime.topology.write_text(topology.to_json())
        facts = MainFacts(runtime.name, os.getpid(), caller.user, topology.name)
        name.write_main(MainState(**asdict(facts), state="starting"))
        if held:
            held()
        with (
            _last_words(name, facts),
            _signals() as asked,
            HostCgroups(runtime.name, topology.cpu_limits) as cgroups,
            DaemonTree(runtime, caller, cgroups.folders) as daemon,
        ):

            def on_message(message: UpMessage) -> None:
                if isinstance(message, DaemonReady):
                    name.write_main(MainState(**asdict(facts), state="ready"))
                    message = UpReady(message.ready, **asdict(facts), detached=detached)
                show(message)

            daemon.watch(asked, on_message, ended)
            if not daemon.ready and daemon.asked:
                raise KeyboardInterrupt
    return 0


@contextlib.contextmanager
def _last_words(name: HeldName, facts: MainFacts) -> Iterator[None]:
    """Store the reason when a testbed dies in the block, in the daemon's log too, and keep its logs. A
    testbed that this host cannot start has reported everything, and leaves nothing behind.
    """
    try:
        yield
    except TestbedError as error:
        with (
            contextlib.suppress(OSError),
            _daemon_log(name.runtime).open("a") as log,
        ):  # a full disk has no room
            log.write(f"the testbed ends: {one_line(str(error))}\n")
        main = name.runtime.read_main()
        if (main is not None and main.state == "ready") or error.exit_code == TestbedError.exit_code:
            name.leave(LastWords.of_main(facts, str(error), time.time()))
        raise


@contextlib.contextmanager
def _end_of(pid: int | None) -> Iterator[int | None]:
    """Yield a descriptor that is readable once a process has ended. RequestError if there is no
    such process.
    """
    if pid is None:
        yield None
        return
    try:
        pidfd = os.pidfd_open(pid)
    except OverflowError as error:
        raise RequestError(f"--ends-with {pid}: {_NO_PROCESS}") from error
    except OSError as error:
        reason = _NO_PROCESS if error.errno in (errno.ESRCH, errno.EINVAL) else error.strerror
        raise RequestError(f"--ends-with {pid}: {reason}") from error
    try:
        yield pidfd
    finally:
        os.close(pidfd)


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """Yield a descriptor that is readable once a signal asked this process to end."""
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def note(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(writer, b"x")

    before = {number: signal.signal(number, note) for number in _ENDING_SIGNALS}
    try:
        yield reader
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


class DaemonTree:
    """The daemon's process tree. A context manager: leaving it kills the remaining processes, and waits until
    they are gone.
    """

    def __init__(self, runtime: Runtime, caller: Caller, cgroups: Cgroups = NO_CGROUPS) -> None:
        self._runtime, self._caller, self._cgroups = runtime, caller, cgroups
        self._init_pidfd = -1
        self._pending = b""
        self.ready = False
        self.asked = False
        self._orderly = False
        self._error: TestbedError | None = None
        self._heard = False

    def __enter__(self) -> DaemonTree:
        self._socket, theirs = socket.socketpair()
        argv = isolated("-m", "testbed.daemon.process", "--folder", str(self._runtime.folder))
        argv += ["--main", str(theirs.fileno()), "--main-pid", str(os.getpid())]
        argv += ["--uid", str(self._caller.uid)]
        folders = {"limits": self._cgroups.limits, "enclosures": self._cgroups.enclosures}
        argv += [f"--{what}={folder}" for what, folder in folders.items() if folder is not None]
        parent = os.getpid()

        def bind_to_parent() -> None:
            namespaces.die_with_parent()
            if os.getppid() != parent:  # the parent died before this setting
                os._exit(1)

        with theirs, _daemon_log(self._runtime).open("ab") as log:
            self._process = subprocess.Popen(
                namespaces.command(argv, f"optinc-{self._runtime.name}"),
                cwd=CHECKOUT,
                # Mininet needs a module of distutils; setuptools' replacement of it takes 100 ms to import.
                env={**with_checkout(os.environ), "SETUPTOOLS_USE_DISTUTILS": "stdlib"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                # a terminal's Ctrl-C is for this process only, which then ends the daemon in order
                start_new_session=True,
                preexec_fn=bind_to_parent,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._find_init()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._init_pidfd >= 0:
            # Readable once PID 1 is gone; the kernel releases PID 1 only after every process of its
            # namespace.
            with selectors.DefaultSelector() as selector:
                selector.register(self._init_pidfd, selectors.EVENT_READ)
                if not selector.select(_GONE_S):
                    print(
                        "testbed: its processes are still there; the kernel is slow to end them",
                        file=sys.stderr,
                    )
            os.close(self._init_pidfd)
        self._socket.close()

    def _find_init(self) -> None:
        if self._init_pidfd >= 0:
            return
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, IndexError):
            self._init_pidfd = os.pidfd_open(psutil.Process(self._process.pid).children()[0].pid)

    def watch(self, asked: int, on_message: Show, ended: int | None = None) -> None:
        """Wait until the daemon has ended; raise the error of which it died. Either descriptor, `asked` or
        `ended`, requests its end while it is readable.
        """
        deadline = float("inf")
        pidfd = os.pidfd_open(self._process.pid)
        with selectors.DefaultSelector() as selector:
            for fd in (self._socket, asked, pidfd):
                selector.register(fd, selectors.EVENT_READ)
            if ended is not None:
                selector.register(ended, selectors.EVENT_READ)
            while True:
                ready = {
                    key.fd for key, _ in selector.select(max(0.0, min(deadline - time.monotonic(), 3600.0)))
                }
                if self._socket.fileno() in ready and not self._receive(on_message):
                    selector.unregister(self._socket)
                if asked in ready or ended in ready:
                    if asked in ready:
                        os.read(asked, 100)
                    if ended is not None and ended in ready:  # it remains readable
                        selector.unregister(ended)
                    if not self.ready or self.asked:  # while it starts, nothing needs an orderly end
                        self._process.kill()
                    else:
                        self._socket.sendall(b"end\n")
                        deadline = time.monotonic() + END_S
                    self.asked = True
                if time.monotonic() >= deadline:
                    on_message(UpNote(f"not ended after {END_S:g} s: ending it by force"))
                    self._process.kill()
                    deadline = float("inf")
                if pidfd in ready:
                    break
        os.close(pidfd)
        while self._receive(on_message):
            pass
        self._raise_failure()

    def _receive(self, on_message: Show) -> bool:
        """Read the daemon's messages; return False at their end."""
        try:
            data = self._socket.recv(65536)
        except ConnectionResetError:
            return False
        self._find_init()
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            message = of_line(line)
            self._heard = True
            self.ready = self.ready or isinstance(message, DaemonReady)
            self._orderly = self._orderly or isinstance(message, EndedInOrder)
            if isinstance(message, UpFailure):
                self._error = from_exit_code(message.exit_code, message.error)
            else:
                on_message(message)
        return bool(data)

    def _raise_failure(self) -> None:
        code = self._process.wait()
        if self._error:
            raise self._error
        if self._orderly or self.asked:
            return
        words = _daemon_log(self._runtime).read_text(errors="replace").strip().splitlines()
        last = words[-1] if words else "it left no word"
        if not self._heard:
            raise HostError(f"start the testbed's namespaces: {last}")
        if last.startswith(_INIT_KILLED):
            raise TestbedError("the first process of its namespaces was killed")
        raise TestbedError(f"the daemon ended unasked ({_ended_in_words(code)}): {last}")


def _daemon_log(runtime: Runtime) -> Path:
    """Return the file with the daemon's output, and the reason of the testbed's end."""
    return runtime.log / "daemon.log"


def _ended_in_words(code: int) -> str:
    """Describe how `unshare` ended. Its child exits with 128 plus the number of the signal that ended the
    daemon (testbed/emulation/namespaces.py).
    """
    killed_by = -code if code < 0 else code - 128
    return f"killed by signal {killed_by}" if killed_by > 0 else f"status {code}"


# ------------------------------------------------------------------ in the background


class Relay:
    """Passes messages to the waiting command until the testbed is up; afterwards writes them to the log."""

    def __init__(self, writer: int, runtime: Runtime) -> None:
        self._writer, self._runtime = writer, runtime

    def held(self) -> None:
        """Redirect standard output and error to the log, whose folder now exists."""
        log = os.open(
            self._runtime.log / "up.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
        for stream in (1, 2):
            os.dup2(log, stream)
        os.close(log)
        self._screen = Screen(sys.stdout)

    def show(self, message: UpMessage) -> None:
        """Show a message without blocking: a command that went away is no reason to end."""
        if self._writer >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._writer, as_line(message))
            if isinstance(message, UpReady):
                os.close(self._writer)
                self._writer = -1
        else:
            if isinstance(message, UpFailure):
                message = UpNote(message.error)
            with contextlib.suppress(OSError):  # a full disk costs a line of the log, and not the testbed
                self._screen.show(message)


def bring_up_detached(
    runtime: Runtime, topology: Topology, caller: Caller, screen: Screen, ends_with: int | None = None
) -> int:
    """Start the main process in a session of its own, and return when the testbed is up. Raises the error
    that made it fail.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(reader)
        _be_main(runtime, topology, caller, writer, ends_with)
    os.close(writer)
    try:
        with os.fdopen(reader) as lines:
            for line in lines:
                message = of_line(line)
                if isinstance(message, UpFailure):
                    screen.close()
                    os.waitpid(child, 0)
                    raise from_exit_code(message.exit_code, message.error)
                try:
                    screen.show(message)
                except BrokenPipeError:  # the testbed starts even if nobody reads the command's output
                    if not output.reader_has_gone():
                        raise
                if isinstance(message, UpReady):
                    return 0
    except KeyboardInterrupt:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        raise
    _, status = os.waitpid(child, 0)
    raise TestbedError(
        f"the main process ended with {os.waitstatus_to_exitcode(status)} before the testbed was up"
    )


def _be_main(
    runtime: Runtime, topology: Topology, caller: Caller, writer: int, ends_with: int | None
) -> None:
    code = 1
    relay = Relay(writer, runtime)
    try:
        os.setsid()
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        code = bring_up(
            runtime, topology, caller, relay.show, detached=True, held=relay.held, ends_with=ends_with
        )
    except TestbedError as error:
        relay.show(UpFailure(str(error), error.exit_code))
        code = error.exit_code
    except OSError as error:
        if (full := disk_is_full(error)) is None:
            raise
        relay.show(UpFailure(str(full), full.exit_code))
        code = full.exit_code
    except KeyboardInterrupt:
        code = 130
    finally:
        os._exit(code)
