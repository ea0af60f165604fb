"""Try BMv2 in the current namespaces: `python -m testbed.dataplanes.bmv2.probe`, run by
testbed/host_checks/kernel.py.

Leaves its veth pairs behind, since these namespaces end with it. Prints one line of what it saw; on stderr,
one line of what failed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from testbed.dataplanes.bmv2.program import compiled
from testbed.dataplanes.bmv2.switch import Bmv2Switch
from testbed.errors import TestbedError
from testbed.host_checks.features import ProbeFailure
from testbed.host_checks.frames import FRAME, arrives, make_veth, send, tool
from testbed.topology import addresses
from testbed.topology.addresses import tor_dpid
from testbed.topology.units import Unit

UNIT, MTU = Unit(1), 1500
HOSTS = (1, 2)


def probe() -> str:
    """Start a switch with the program for the default MTU, and send a frame through it."""
    program = compiled("wide", MTU)
    tool("ip", "link", "set", "lo", "up")
    ports = {addresses.tor_port_device(UNIT, host): addresses.tor_port_number(host) for host in HOSTS}
    ends = [f"bmv2-h{host}" for host in HOSTS]
    for device, end in zip(ports, ends, strict=True):
        make_veth(device, end)
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(dir="/run") as folder,
        Bmv2Switch(tor_dpid(UNIT), ports, program, Path(folder), verbose=False) as switch,
    ):
        started_s = time.monotonic() - begun
        if not arrives(ends[1:], lambda: send(ends[0], FRAME)):
            raise ProbeFailure(f"a frame did not cross it; it counts {switch.verdicts()}")
    return f"started with {program.name} in {started_s:.1f} s, and a frame crossed it"


def main() -> int:
    try:
        print(probe())
    except (TestbedError, ProbeFailure) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
