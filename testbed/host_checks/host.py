"""Try the features that need no namespace of their own: software, limits, the size of the machine."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from testbed.cgroups.hierarchy import find
from testbed.cgroups.lifetime import HostCgroups
from testbed.client import environment
from testbed.errors import HostError, TestbedError
from testbed.host_checks import container, headers
from testbed.host_checks.features import ProbeFailure
from testbed.interpreters import isolated

PROGRAM_S = 180.0  # long, since a busy or emulated machine is no failure
TRACEBACK = "Traceback (most recent call last)"


class ProbeFault(Exception):
    """A module of this project that tries a feature ended with an unexpected exception; the message is its
    line.
    """


def output_of(argv: list[str], deadline_s: float = PROGRAM_S) -> str:
    """Run a program and return its output, from stderr if stdout is empty.

    ProbeFailure, with the program's last line, if it is missing, slow or fails.
    """
    ended = _ended(argv, deadline_s)
    if ended.returncode != 0:
        raise ProbeFailure(
            f"{' '.join(argv[:3])} exited with {ended.returncode} and said: {_last_words(ended)}"
        )
    return ended.stdout.strip() or ended.stderr.strip()


def said_by_ours(argv: list[str], deadline_s: float = PROGRAM_S) -> str:
    """Run a program that ends in a module of this project, and return its output as `output_of` does.
    ProbeFault if it ended with a traceback.
    """
    ended = _ended(argv, deadline_s)
    if ended.returncode != 0 and TRACEBACK in ended.stderr:
        raise ProbeFault(f"{' '.join(argv[-2:])}: {_last_words(ended)}")
    if ended.returncode != 0:
        raise ProbeFailure(_last_words(ended))
    return ended.stdout.strip()


def _ended(argv: list[str], deadline_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=deadline_s, check=False, stdin=subprocess.DEVNULL
        )
    except (FileNotFoundError, PermissionError):  # PermissionError: a folder of PATH may not be read
        raise ProbeFailure(f"{argv[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise ProbeFailure(f"{argv[0]} was not done after {deadline_s:.0f} s") from None


def _last_words(ended: subprocess.CompletedProcess[str]) -> str:
    return (
        ended.stderr.strip() or ended.stdout.strip() or f"nothing, and exited with {ended.returncode}"
    ).splitlines()[-1]


def root() -> str:
    if os.geteuid() != 0:
        raise ProbeFailure(f"user id {os.geteuid()}")
    return "user id 0"


def cores() -> str:
    count = len(os.sched_getaffinity(0))
    if count < 2:
        raise ProbeFailure(f"{count} core: rates are low, and few results will be trustworthy")
    return f"{count}"


def memory() -> str:
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if gib < 3.5:
        raise ProbeFailure(f"{gib:.1f} GiB")
    return f"{gib:.1f} GiB"


def memlock() -> str:
    """Raise the limit and lower it again; even root may be refused, without the capability."""
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_MEMLOCK, before)
    except (OSError, ValueError) as error:
        raise ProbeFailure(f"refused, it stays at {before[0] // 1024} KiB: {error}") from error
    return "unlimited can be set"


def project_environment() -> str:
    try:
        python = environment.interpreter()
    except HostError as error:
        raise ProbeFailure(str(error)) from error
    code = "import sys; print('Python', sys.version.split()[0])"
    return output_of(isolated("-c", code, path=python))


def _imported(code: str) -> str:
    return output_of(isolated("-c", code, path=environment.interpreter()))


def torch() -> str:
    return _imported(
        "import torch, torch.distributed as d;"
        "assert 'inc' in d.Backend.backend_list, 'torch does not know the backend inc';"
        "from workloads.native import build; build.load();"
        "print(torch.__version__)"
    )


def os_ken() -> str:
    return _imported("import os_ken.controller.ofp_handler, os_ken; print(os_ken.__version__)")


def ryu() -> str:
    """Import ryu and the controller's modules that use it, as the controller process does."""
    try:
        python = environment.controller_interpreter("ryu")
    except HostError as error:
        raise ProbeFailure(str(error)) from error
    code = (
        f"import sys; sys.path.insert(0, {str(environment.CHECKOUT)!r})\n"
        "from controller import adapter, app, planes; assert adapter.LIBRARY == 'ryu'; "
        "print(adapter.library())"
    )
    return output_of(isolated("-c", code, path=python)).removeprefix("ryu ")


def mininet() -> str:
    if shutil.which("mnexec") is None:
        raise ProbeFailure("mnexec is not installed")
    return _imported("import mininet.topo, mininet.net; print(mininet.net.VERSION)")


def bcc() -> str:
    return _imported("import bcc; print(bcc.__version__)")


def kernel_headers() -> str:
    try:
        return str(headers.kernel_headers())
    except HostError as error:
        raise ProbeFailure(str(error)) from error


def p4c() -> str:
    """Return the version of the compiler for BMv2, whether it is installed by itself or behind the driver
    p4c.
    """
    compiler = "p4c-bm2-ss" if shutil.which("p4c-bm2-ss") else "p4c"
    return output_of([compiler, "--version"]).splitlines()[-1].strip()


def namespaces() -> str:
    """Make namespaces with the flags with which a testbed starts."""
    outside = Path("/proc/self/ns/net").stat().st_ino
    inside = output_of([*UNSHARE, "stat", "--dereference", "--format=%i", "/proc/self/ns/net"])
    if int(inside) == outside:
        raise ProbeFailure("unshare succeeded, yet the network namespace is the same")
    return "created and gone again"


def cgroups() -> str:
    """Make a cgroup limited to half a core, and remove it."""
    try:
        hierarchy = find()
        with HostCgroups("doctor", {"probe": 0.5}):
            return f"version {hierarchy.version}, at {hierarchy.top}"
    except TestbedError as error:
        raise ProbeFailure(str(error)) from error


UNSHARE = ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]

PROBES: dict[str, Callable[[], str]] = {
    "root": root,
    "capabilities": container.capabilities,
    "tun": container.tun,
    "cores": cores,
    "memory": memory,
    "memlock": memlock,
    "environment": project_environment,
    "torch": torch,
    "os-ken": os_ken,
    "ryu": ryu,
    "mininet": mininet,
    "bcc": bcc,
    "headers": kernel_headers,
    "p4c": p4c,
    "namespaces": namespaces,
    "cgroups": cgroups,
}
