"""Names of the emulated hosts, for the programs of jobs: an /etc/hosts of the testbed's own.

torch looks up the name of every peer that connects. Nobody answers such questions inside the testbed, and a
lookup that waits for a name server of the world outside costs a job ten seconds at each step of its start.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from testbed.emulation.namespaces import call_libc
from testbed.topology import addresses
from testbed.topology.model import Topology

_MS_BIND = 0x1000  # <sys/mount.h>
HOSTS, RESOLVER = Path("/etc/hosts"), Path("/etc/resolv.conf")


def hosts_file(topology: Topology, hostname: str) -> str:
    """Return the file's text: loopback, every switch's own address and every host; again as IPv4-mapped
    addresses, by which glibc looks up the peer of a socket that takes both families.
    """
    names = {addresses.tor_ip(dpid): addresses.tor_name(dpid) for dpid in topology.switches}
    names |= {addresses.host_ip(*host): addresses.host_name(*host) for host in topology.hosts}
    for name, host in topology.second_names.items():
        names = {ip: f"{known} {name}" if known == host else known for ip, known in names.items()}
    lines = [f"127.0.0.1 localhost {hostname}", "::ffff:127.0.0.1 localhost"]
    for prefix in ("", "::ffff:"):
        lines += [f"{prefix}{ip} {name}" for ip, name in names.items()]
    return "\n".join(lines) + "\n"


def mount_names(topology: Topology, folder: Path) -> None:
    """Put the names, and a resolver without servers, in place of the host's: in this mount namespace only,
    which must be the testbed's own. Without servers glibc asks the local machine, which refuses at once.
    Raises OSError.
    """
    for target, text in (
        (HOSTS, hosts_file(topology, os.uname().nodename)),
        (RESOLVER, "# no name servers in a testbed\n"),
    ):
        source = folder / target.name
        source.write_text(text)
        source.chmod(0o644)
        if target.exists():
            _bind(source, target.resolve())


def _bind(source: Path, target: Path) -> None:
    call_libc("mount", str(source).encode(), str(target).encode(), None, ctypes.c_ulong(_MS_BIND), None)
