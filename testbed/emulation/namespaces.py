"""The testbed's own namespaces: entering them, their private mounts and settings, and their PID 1.

Owns the `unshare` command line, the private mounts, the init process and the named network namespaces of
hosts. Standard library only, and run by path as PID 1, so that this process stays small; heavier imports are
inside the functions that need them.

The kernel cleans up: every process of a PID namespace dies with its PID 1, and with the last process go the
network namespaces, their devices, the mounts, and the BPF objects that nothing else holds.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

NETNS_DIR = Path("/run/netns")
BPFFS_DIR = Path("/sys/fs/bpf")
OPEN_FILES = 65536  # enough for the largest fabrics

# <sched.h>, <sys/mount.h>, <sys/prctl.h>: Python 3.11 defines none of these.
CLONE_NEWNET = 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 0x2, 0x4, 0x8
_MS_BIND, _MS_MOVE, _MS_REC, _MS_SLAVE = 0x1000, 0x2000, 0x4000, 0x80000
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}  # by architecture; glibc has no function for it
_KEYCTL_JOIN_SESSION_KEYRING = 1
_NO_KEYS = errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP  # forbidden, or not compiled in
_HOST_CANNOT = (
    3  # testbed.errors.HostError.exit_code; spelled here because PID 1 imports nothing of the project
)


def command(argv: Sequence[str], name: str) -> list[str]:
    """Return the command line that runs `argv` as the daemon of testbed `name`, below an init in namespaces
    of its own.

    `unshare` itself blocks SIGTERM and SIGINT while it waits. Request an orderly end from its child, the
    init, which forwards it; SIGKILL to `unshare` ends everything.
    """
    from testbed.interpreters import (
        isolated,
    )  # not imported by the init, which runs this file without packages

    init = isolated("-I", "-S", str(Path(__file__).resolve()), name, *argv)
    kinds = ["--net", "--mount", "--pid", "--ipc", "--uts", "--propagation=slave"]
    return ["unshare", *kinds, "--fork", "--kill-child=KILL", "--mount-proc", "--", *init]


@functools.cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def call_libc(function: str, *arguments: object) -> int:
    """Call a C library function that returns -1 on failure. OSError names the function."""
    import ctypes

    result = int(getattr(_libc(), function)(*arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{function}: {os.strerror(code)}")
    return result


def _mount(
    source: str, target: Path, kind: str | None = None, flags: int = 0, data: str | None = None
) -> None:
    import ctypes

    encoded_kind = kind.encode() if kind else None
    encoded_data = data.encode() if data else None
    try:
        call_libc(
            "mount", source.encode(), str(target).encode(), encoded_kind, ctypes.c_ulong(flags), encoded_data
        )
    except OSError as error:
        raise OSError(
            error.errno, f"mount {kind or source} on {target}: {os.strerror(error.errno or 0)}"
        ) from error


def die_with_parent(signal_number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when the thread that started it ends. For Popen's preexec_fn.

    A change of user id clears the setting, so this must come after it (Popen applies user= before
    preexec_fn).
    """
    call_libc("prctl", _PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)


def private_mounts(hostname: str) -> None:
    """Give this mount namespace its own mounts, hostname, loopback, limits and keys. Call before any thread
    starts. Later mounts of the machine appear here too; mounts made here appear nowhere else.

    Raises OSError naming the mount that this host refuses.
    """
    _mount("none", Path("/"), flags=_MS_REC | _MS_SLAVE)
    folders = {
        Path(base).resolve() / leaf for base in ("/run", "/var/run") for leaf in ("openvswitch", "netns")
    }
    for folder in sorted(folders):
        folder.mkdir(mode=0o755, exist_ok=True)
        _mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755")
    _fresh_sysfs()
    _mount("bpffs", BPFFS_DIR, "bpf", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "mode=0700")
    call_libc("sethostname", hostname.encode(), len(hostname.encode()))
    _loopback_up()
    _raise_limits()
    fresh_keys()


def _fresh_sysfs() -> None:
    """Replace /sys by an instance for this network namespace, and keep the mounts below it (cgroups,
    debugfs).

    A sysfs shows the devices of the network namespace that mounted it; the inherited one belongs to the host.
    """
    staging = NETNS_DIR / ".sys"
    staging.mkdir()
    _mount("sysfs", staging, "sysfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    kept: list[str] = []
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            target = line.split()[4]
            if not target.startswith("/sys/") or target.startswith(
                (*[f"{folder}/" for folder in kept], str(BPFFS_DIR))
            ):
                continue
            if target not in kept and (staging / target[5:]).is_dir():
                kept.append(target)
    for folder in kept:
        _mount(folder, staging / folder[5:], flags=_MS_BIND | _MS_REC)
    _mount(str(staging), Path("/sys"), flags=_MS_MOVE)
    staging.rmdir()


def _loopback_up() -> None:
    import fcntl
    import socket
    import struct

    get_flags, set_flags, up = 0x8913, 0x8914, 0x1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = fcntl.ioctl(control, get_flags, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", request)[1]
        fcntl.ioctl(control, set_flags, struct.pack("16sh14x", b"lo", flags | up))


def fresh_keys() -> None:
    """Replace the session keyring, which survives a change of user: otherwise processes that run as a user
    could read root's keys through it.

    A container engine that forbids this call also forbids those that read keys, and a kernel may lack keys
    altogether. Raises OSError for any other failure.
    """
    if number := _SYS_KEYCTL.get(os.uname().machine):
        try:
            call_libc("syscall", number, _KEYCTL_JOIN_SESSION_KEYRING, None)
        except OSError as error:
            if error.errno not in _NO_KEYS:
                reason = os.strerror(error.errno or 0)
                raise OSError(error.errno, f"join a session keyring of its own: {reason}") from error


def files_allowed() -> int:
    """Return how many files a testbed's process may have open: the limit that `private_mounts` will set. This
    process's own soft limit stays; its hard limit may be raised.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES:
        return OPEN_FILES
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, OPEN_FILES))
    except ValueError:  # it is not allowed to
        return hard
    return OPEN_FILES


def _raise_limits() -> None:
    """Raise the limits of open files and locked memory where allowed: root may lack CAP_SYS_RESOURCE, and the
    defaults are often too low.
    """
    import resource

    for kind, wanted in (
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_MEMLOCK, resource.RLIM_INFINITY),
    ):
        _, hard = resource.getrlimit(kind)
        for limit in (wanted, hard):  # what root may set, else what any user may
            with contextlib.suppress(ValueError):  # it is not allowed to
                resource.setrlimit(kind, (limit, limit))
                break


def init_main(child_argv: Sequence[str], prepare: Callable[[], None] | None = None) -> NoReturn:
    """Run as PID 1: start the daemon, reap orphans, forward SIGTERM, SIGINT and SIGHUP, and exit with the
    daemon's status.

    `prepare` runs in the child before it becomes the daemon, so that its imports do not stay in this process.
    Signals that arrive before there is a child stay blocked until then: PID 1 would lose a signal without a
    handler.
    """
    passed_on = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
    signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
    child = os.fork()
    if child == 0:
        _become(child_argv, prepare)

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in passed_on:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    while True:
        pid, status = os.wait()  # PEP 475: a forwarded signal restarts the wait
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def default_signals() -> None:
    """Undo the signal settings that the starter left ignored or blocked: a shell's background job ignores
    SIGINT and SIGQUIT, nohup SIGHUP.

    An ignored signal stays ignored across exec, in all descendants, and a shell cannot even trap it then.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _become(argv: Sequence[str], prepare: Callable[[], None] | None) -> NoReturn:
    default_signals()
    try:
        if prepare:
            prepare()
        os.execvp(argv[0], list(argv))
    except OSError as error:
        print(f"testbed: setting up the namespaces: {error.strerror or error}", file=sys.stderr, flush=True)
    os._exit(_HOST_CANNOT)


# ------------------------------------------------------------------ named network namespaces


@contextlib.contextmanager
def entered(namespace: int) -> Iterator[None]:
    """Run the block with the calling thread in this network namespace; processes started in it stay there."""
    with open("/proc/thread-self/ns/net") as home:
        call_libc("setns", namespace, CLONE_NEWNET)
        try:
            yield
        finally:
            call_libc("setns", home.fileno(), CLONE_NEWNET)


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Run the block with the calling thread in a new network namespace without links; processes started in it
    stay there. For root.
    """
    with open("/proc/thread-self/ns/net") as home:
        call_libc("unshare", CLONE_NEWNET)
        try:
            yield
        finally:
            call_libc("setns", home.fileno(), CLONE_NEWNET)


class NetworkNamespaces:
    """Network namespaces by name, made and removed together; `ip -n NAME` finds them. Holds a descriptor of
    each.
    """

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}

    def add(self, names: Sequence[str], sysctls: Mapping[str, str] | None = None) -> None:
        """Make the namespaces, and apply these settings (paths below /proc/sys) in each before it contains a
        device.
        """
        with open("/proc/thread-self/ns/net") as home:
            try:
                for name in names:
                    self._add_one(name, sysctls or {})
            finally:
                call_libc("setns", home.fileno(), CLONE_NEWNET)

    def _add_one(self, name: str, sysctls: Mapping[str, str]) -> None:
        call_libc("unshare", CLONE_NEWNET)
        for path, value in sysctls.items():
            Path("/proc/sys", path).write_text(value)
        target = NETNS_DIR / name
        target.touch(mode=0o444, exist_ok=False)
        _mount("/proc/thread-self/ns/net", target, flags=_MS_BIND)
        self._descriptors[name] = os.open(target, os.O_RDONLY | os.O_CLOEXEC)

    def __getitem__(self, name: str) -> int:
        return self._descriptors[name]

    def __contains__(self, name: object) -> bool:
        return name in self._descriptors

    def names(self) -> tuple[str, ...]:
        return tuple(self._descriptors)

    def remove_all(self) -> None:
        """Release every namespace; the kernel destroys it, and its devices, when its last process is gone."""
        while self._descriptors:
            name, descriptor = self._descriptors.popitem()
            os.close(descriptor)
            target = NETNS_DIR / name
            call_libc("umount2", str(target).encode(), _MNT_DETACH)
            target.unlink()


if __name__ == "__main__":
    init_main(sys.argv[2:], prepare=lambda: private_mounts(sys.argv[1]))
