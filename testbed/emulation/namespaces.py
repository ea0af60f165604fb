"""The testbed's own namespaces: how they are entered, what is private in them, and their PID 1.

Owns the `unshare` command line, the private mounts, the init process and the named network namespaces of
hosts. Standard library only, and run by path as PID 1, so that this process stays small; imports of anything
heavier are inside the functions that need them.

The kernel is what cleans up: every process of a PID namespace dies with its PID 1, and with the last process
go the network namespaces, their devices, the mounts, and the BPF objects that nothing else holds.
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
OPEN_FILES = 65536  # that are enough for the largest fabrics

# <sched.h>, <sys/mount.h>, <sys/prctl.h>: Python 3.11 has none of these.
CLONE_NEWNET = 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 0x2, 0x4, 0x8
_MS_BIND, _MS_MOVE, _MS_REC, _MS_SLAVE = 0x1000, 0x2000, 0x4000, 0x80000
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}  # by machine; glibc has no function for it
_KEYCTL_JOIN_SESSION_KEYRING = 1
_NO_KEYS = errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP  # forbidden, or not built
_HOST_CANNOT = (
    3  # testbed.errors.HostError.exit_code; spelled here because PID 1 imports nothing of the project
)


def command(argv: Sequence[str], name: str) -> list[str]:
    """The argument vector that runs `argv` as the daemon of testbed `name`, below an init in namespaces of
    its own.

    `unshare` itself blocks SIGTERM and SIGINT while it waits: an orderly end is asked of its child, the init,
    which passes it on; SIGKILL to `unshare` ends all of it.
    """
    from testbed.interpreters import isolated  # not by the init, which is this file without packages

    init = isolated("-I", "-S", str(Path(__file__).resolve()), name, *argv)
    kinds = ["--net", "--mount", "--pid", "--ipc", "--uts", "--propagation=slave"]
    return ["unshare", *kinds, "--fork", "--kill-child=KILL", "--mount-proc", "--", *init]


@functools.cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def call_libc(function: str, *arguments: object) -> int:
    """Call a C library function that returns -1 on failure; OSError names the function."""
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
    """Have the kernel send this process a signal when the thread that started it ends. For a Popen's
    preexec_fn.

    A change of user id clears the setting, so it comes after one (Popen's user= is applied before
    preexec_fn).
    """
    call_libc("prctl", _PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)


def private_mounts(hostname: str) -> None:
    """Make this mount namespace the testbed's own: mounts, hostname, loopback, limits, keys. Call before any
    thread starts. What the machine mounts later is seen here, too, and what is mounted here nowhere else.

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
    """Replace /sys by an instance of this network namespace, keeping what is mounted below it (cgroups,
    debugfs).

    A sysfs shows the devices of the network namespace that mounted it, and the inherited one belongs to the
    host.
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
    """Give up the session's keyring, which a change of user keeps: what runs as a user here could read root's
    keys by it.

    Where a container's engine forbids this call it forbids those that read keys as well, and a kernel may be
    built without keys. Raises OSError for any other failure.
    """
    if number := _SYS_KEYCTL.get(os.uname().machine):
        try:
            call_libc("syscall", number, _KEYCTL_JOIN_SESSION_KEYRING, None)
        except OSError as error:
            if error.errno not in _NO_KEYS:
                reason = os.strerror(error.errno or 0)
                raise OSError(error.errno, f"join a session keyring of its own: {reason}") from error


def files_allowed() -> int:
    """Return how many files a process of a testbed may have open: what `private_mounts` will come to. This
    process's own limit stays, but for that it may be raised further.
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
    """More open files and locked memory, where allowed: root may lack CAP_SYS_RESOURCE, and the defaults
    often do.
    """
    import resource

    for kind, wanted in (
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_MEMLOCK, resource.RLIM_INFINITY),
    ):
        _, hard = resource.getrlimit(kind)
        for limit in (wanted, hard):  # what root may set, or else what anybody may
            with contextlib.suppress(ValueError):  # it is not allowed to
                resource.setrlimit(kind, (limit, limit))
                break


def init_main(child_argv: Sequence[str], prepare: Callable[[], None] | None = None) -> NoReturn:
    """Be PID 1: start the daemon, reap orphans, pass on SIGTERM and SIGINT, exit with the daemon's status.

    `prepare` runs in the child before it becomes the daemon: what it loads is not kept by this process. What
    arrives before there is a child to pass it on to waits until there is: a PID 1 without a handler loses it.
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
    """Undo what a starter left ignored or blocked: a shell's background job ignores SIGINT and SIGQUIT, nohup
    SIGHUP.

    What is ignored stays so over exec, in all that the process starts, and a shell cannot even trap it then.
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
    """Run the body with the calling thread in this network namespace; processes started in it stay there."""
    with open("/proc/thread-self/ns/net") as home:
        call_libc("setns", namespace, CLONE_NEWNET)
        try:
            yield
        finally:
            call_libc("setns", home.fileno(), CLONE_NEWNET)


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Run the body with the calling thread in a network namespace of its own, without links; processes
    started in it stay there. For root.
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
        """Make the namespaces, with these settings (paths below /proc/sys) in each before it holds any
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
        """Let go of every namespace; the kernel destroys one, and its devices, when its last process is
        gone.
        """
        while self._descriptors:
            name, descriptor = self._descriptors.popitem()
            os.close(descriptor)
            target = NETNS_DIR / name
            call_libc("umount2", str(target).encode(), _MNT_DETACH)
            target.unlink()


if __name__ == "__main__":
    init_main(sys.argv[2:], prepare=lambda: private_mounts(sys.argv[1]))
