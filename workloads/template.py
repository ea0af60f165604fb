"""A process that has loaded torch and is forked for each worker of a scheduled job: `python -m
workloads.template`, with a socket as standard input.

Loading torch and the parts that DDP needs takes a worker three to four seconds of a core; a fork takes
hundredths. The process runs as root. A fork that becomes a worker enters its host's network namespace, gives
up root's rights for good, and runs its script. Requests and replies are those of testbed/wire/forks.py;
testbed/emulation/template.py is the other end. The description of a worker arrives on a connection that only
its fork reads, so that nothing of one worker is ever in the memory of the next. The process must have only
one thread.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import importlib
import os
import runpy
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.wire.forks import ForkedWorker, ForkReply, ForkRequest
from testbed.wire.settings import read, written
from workloads.randomness import Unseeded

LOADED = (
    *("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo"),
    *("workloads.backend", "workloads.endpoint", "workloads.ps_client", "workloads.job_env"),
)
_LARGEST_REQUEST_BYTES = 4096
_PIECE_BYTES = 1 << 16
_MOST_FDS = 64
_COULD_NOT = 126  # a shell's code for a command that cannot be run
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4


def serve(requests: socket.socket) -> tuple[ForkedWorker, list[int]] | None:
    """Answer requests until the other end closes, then return None. In a fork, return at once, with the
    description of the worker that it becomes and its descriptors.
    """
    while True:
        message, fds, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST_BYTES, 1)
        if not message:
            return None
        request = read(ForkRequest, message)
        if request.wait is not None:
            reply = ForkReply(code=_exit_code(request.wait))
        else:
            try:
                pid = os.fork()
            except OSError as error:  # out of processes or memory: the earlier workers go on
                reply = ForkReply(refused=error.strerror)
            else:
                if pid == 0:
                    return _described(fds[0])
                reply = ForkReply(pid=pid)
        for fd in fds:
            os.close(fd)
        requests.send(written(reply).encode())


def _described(connection_fd: int) -> tuple[ForkedWorker, list[int]]:
    """Read the description of the worker that this fork becomes, and its descriptors. Raises ValueError where
    the other end closed before the description was complete.
    """
    with socket.socket(fileno=connection_fd) as connection:
        piece, fds, _, _ = socket.recv_fds(connection, _PIECE_BYTES, _MOST_FDS)
        pieces = [piece]
        while pieces[-1]:
            pieces.append(connection.recv(_PIECE_BYTES))
    return read(ForkedWorker, b"".join(pieces)), fds


def _exit_code(pid: int) -> int:
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def become(worker: ForkedWorker, fds: Sequence[int], unseeded: Unseeded, parent: int) -> None:
    """Turn this process into a worker.

    `fds` are its network namespace, its output, the pipe on which it reports a failure, and those that get
    the numbers in the worker's description. The generators of `unseeded` are reseeded. The process ends if
    its parent is no longer `parent`.
    """
    wanted = worker.fds
    above = max([3, *wanted]) + 1
    namespace, output, report, *passed = (fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in fds)
    attempt = "enter the host's network namespace"
    try:
        _check(_libc().setns(namespace, _CLONE_NEWNET))
        attempt = "give up root's rights"
        descriptors = [(output, 1), (output, 2), *zip(passed, wanted, strict=True)]
        _give_up_root(worker, parent, report, descriptors)
        attempt = f"enter {worker.cwd}"
        os.chdir(worker.cwd)
    except OSError as error:
        os.write(report, f"{attempt}: {error.strerror}".encode(errors="replace"))
        os._exit(_COULD_NOT)
    os.close(report)
    os.environ.clear()
    os.environ.update(worker.env)
    sys.argv = list(worker.argv)
    folder = os.getcwd() if sys.argv[0] == "-m" else str(Path(sys.argv[0]).resolve().parent)
    paths = [path for path in worker.env.get("PYTHONPATH", "").split(":") if path and path not in sys.path]
    sys.path[:1] = [folder, *paths]
    import multiprocessing.process

    import torch

    unseeded.draw()
    # a newly started process would have set these itself
    processes: Any = multiprocessing.process
    processes.ORIGINAL_DIR = os.getcwd()  # children that it spawns find its script from here
    distributed: Any = importlib.import_module("torch.distributed")  # torch's stubs lack what is used here
    distributed.set_debug_level_from_env()
    if (threads := worker.env.get("OMP_NUM_THREADS", "")).isdecimal():
        torch.set_num_threads(max(1, int(threads)))


def _give_up_root(worker: ForkedWorker, parent: int, report: int, passed: Sequence[tuple[int, int]]) -> None:
    """Start a session, move descriptors, close the others, and change to the worker's user for good.

    `passed` are descriptors with the numbers that they get; of the others only `report` stays open. The
    kernel ends the worker when its parent ends.
    """
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd, number in ((nothing, 0), *passed):
        os.dup2(fd, number)
    kept = {0, report, *(number for _, number in passed)}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError as error:
                if error.errno != errno.EBADF:  # the descriptor of the listing itself
                    raise
    os.setgroups(worker.groups)
    os.setresgid(worker.gid, worker.gid, worker.gid)
    os.setresuid(worker.uid, worker.uid, worker.uid)
    libc = _libc()
    _check(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))  # the change of user has cleared it
    _check(libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))  # as after an exec: its user owns its /proc entries
    if os.getppid() != parent:  # the parent ended before PR_SET_PDEATHSIG was set
        os._exit(1)


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    """Raise OSError if a call of the C library failed."""
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def main() -> None:
    requests, parent = socket.socket(fileno=os.dup(0)), os.getpid()
    with Unseeded() as unseeded:
        for name in LOADED:
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that loaded objects stay shared with the forks
    requests.send(b'{"ready": true}')
    mine = serve(requests)
    if mine is None:
        return
    requests.detach()  # `become` closes it; its number may then be another file's, which must stay open
    become(*mine, unseeded, parent)
    from workloads import autoload

    autoload.begin_worker()
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
