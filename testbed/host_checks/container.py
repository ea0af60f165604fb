"""Find what a container lacks, and name the options that provide it. Of the project, imports only the
features.

scripts/container_needs.py found the needs, by removing them one by one; docs/containers.md has its table.
"""

from __future__ import annotations

import os
from pathlib import Path

from testbed.host_checks.features import ProbeFailure

# <linux/capability.h>: bit, and a testbed's use of it; container engines give the last five to every
# container
NEEDED = {
    "SYS_ADMIN": (21, "namespaces, mounts and BPF"),
    "NET_ADMIN": (12, "devices, shaping and routes"),
    "NET_RAW": (13, "frames on its own ports"),
    "SETUID": (7, "jobs as the user who asked"),
    "SETGID": (6, "jobs as the user who asked"),
    "CHOWN": (0, "a user's job folder"),
    "DAC_OVERRIDE": (1, "removal of what users' jobs leave"),
    "KILL": (5, "the end of a user's job"),
}
MARKS = (Path("run/.containerenv"), Path(".dockerenv"))
STATUS = Path("/proc/self/status")
TUN = Path("/dev/net/tun")
WHERE = "docs/containers.md"


def is_container(root: Path = Path("/")) -> bool:
    """Return whether a container tool made this system, by the marks of podman and docker."""
    return any((root / mark).exists() for mark in MARKS)


def missing_capabilities(status: str) -> list[str]:
    """Return the capabilities of NEEDED, in their order, that a process with this text in /proc/PID/status
    lacks.
    """
    line = next((line for line in status.splitlines() if line.startswith("CapEff:")), None)
    if line is None:
        return []
    bits = int(line.split()[1], 16)
    return [name for name, (bit, _) in NEEDED.items() if not bits >> bit & 1]


def capabilities() -> str:
    """Return the needed capabilities if this process has them all. ProbeFailure names the missing ones, with
    the options that give them to a container.
    """
    try:
        status = STATUS.read_text()
    except OSError as error:
        raise ProbeFailure(f"cannot read {STATUS}: {error.strerror}; is /proc mounted?") from error
    if missing := missing_capabilities(status):
        uses = "; ".join(f"{name} ({NEEDED[name][1]})" for name in missing)
        raise ProbeFailure(f"{where()} refuses {uses}", given(*(f"--cap-add={name}" for name in missing)))
    return " ".join(NEEDED)


def tun() -> str:
    """Open /dev/net/tun, by which Open vSwitch's user-space datapath makes its bridges' own ports."""
    try:
        os.close(os.open(TUN, os.O_RDWR))
    except OSError as error:
        remedy = given(f"--device={TUN}") if is_container() else None
        raise ProbeFailure(f"{where()} has no {TUN} that opens: {error.strerror}", remedy) from error
    return str(TUN)


def where() -> str:
    """Return "this container" or "this host"."""
    return "this container" if is_container() else "this host"


def given(*options: str) -> str | None:
    """Return the remedy for a container that was started without `options`; None outside containers."""
    return (
        f"run the container with --privileged, or with {' '.join(options)} ({WHERE})"
        if is_container()
        else None
    )
