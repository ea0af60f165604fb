"""Run one command in a host and supervise it: `python -I -S keeper.py FD PROGRAM ARGS...`, as the command's
user, in the host's network namespace, as the leader of a session of its own.

Messages on the socket FD: from the client, first START, with the file mode mask, whether there is a terminal,
and the command's standard input, output and error; later SIGNAL and a number, for the command's process
group. To the client: STOPPED if the terminal or a signal stopped the command, and FAILED with a reason if it
could not be run. The end of the client, or SIGTERM from the daemon, ends the command: it gets SIGHUP, and the
daemon handles a command that ignores that. The exit code is the command's, or 128 plus the number of the
signal that ended it, as in shells. Standard library only, since it is imported for every command.
"""

import contextlib
import errno
import fcntl
import os
import select
import shutil
import signal
import socket
import sys
import termios

START, SIGNAL, STOPPED, FAILED = b"s", b"k", b"z", b"f"
LONGEST_BYTES = 4096
STREAMS = 3
COULD_NOT, NOT_FOUND = 126, 127  # as shells have it
PASSED_ON = (
    *(signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT),
)


def start_message(mask: int, has_terminal: bool) -> bytes:
    """Return the client's first message, which accompanies its three descriptors."""
    return START + bytes([has_terminal]) + mask.to_bytes(2, "big")


def main(fd: int, argv: list[str]) -> int:
    for number in (*PASSED_ON, signal.SIGTTOU, signal.SIGTTIN):  # it lives as long as the command
        signal.signal(number, signal.SIG_IGN)
    control = socket.socket(fileno=fd)
    control.set_inheritable(False)
    message, streams, _, _ = socket.recv_fds(control, LONGEST_BYTES, STREAMS)
    if message[:1] != START or len(message) != len(start_message(0, False)) or len(streams) != STREAMS:
        return COULD_NOT  # the client is gone, or sent something else
    has_terminal = bool(message[1])
    os.umask(int.from_bytes(message[2:], "big") & 0o777)
    terminal = streams[0] if has_terminal else None
    if terminal is not None:
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    # signals are read where they are waited for, together with the client's messages
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    child = os.fork()
    if child == 0:
        _become(control, streams, terminal, argv)
    with contextlib.suppress(
        PermissionError, ProcessLookupError
    ):  # parent and child both do this, whichever is first
        os.setpgid(child, child)
    for each in streams:
        os.close(each)
    return _keep(control, reader, child)


def _become(control: socket.socket, streams: list[int], terminal: int | None, argv: list[str]) -> None:
    """Become the command, in a process group of its own, the terminal's foreground group."""
    os.setpgid(0, 0)
    if terminal is not None:
        os.tcsetpgrp(terminal, os.getpid())
    for number in range(1, signal.NSIG):
        if (
            number not in (signal.SIGKILL, signal.SIGSTOP) and not 32 <= number <= 33
        ):  # signals reserved by the C library
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    kept = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, STREAMS) for each in streams]
    for place, each in enumerate(kept):
        os.dup2(each, place)
    for each in streams:
        if each >= STREAMS:
            os.close(each)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        # a folder of PATH that this user may not enter is no failure, if the program is in none
        is_there = "/" in argv[0] or shutil.which(argv[0], os.F_OK) is not None
        reason = os.strerror(error.errno if is_there and error.errno else errno.ENOENT)
        control.send(FAILED + f"run {argv[0]}: {reason}".encode(errors="replace")[: LONGEST_BYTES - 1])
        os._exit(NOT_FOUND if reason == os.strerror(errno.ENOENT) else COULD_NOT)


def _keep(control: socket.socket, changed: int, child: int) -> int:
    """Forward signals until the command has ended; return its exit code."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(changed, select.POLLIN)
    while True:
        pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if pid and os.WIFSTOPPED(status):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                control.send(STOPPED)
            continue
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        ready = dict(poll.poll())
        if changed in ready and signal.SIGTERM in os.read(changed, LONGEST_BYTES):
            _hang_up(child)
        if control.fileno() in ready:
            message = control.recv(LONGEST_BYTES)
            if message[:1] == SIGNAL and len(message) == 2:
                _signal(child, message[1])
            elif not message:
                poll.unregister(control)
                _hang_up(child)


def _hang_up(child: int) -> None:
    _signal(child, signal.SIGHUP)
    _signal(child, signal.SIGCONT)


def _signal(child: int, number: int) -> None:
    """Send a signal to the command's group. The command is not reaped yet, so its number is still its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, number)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
