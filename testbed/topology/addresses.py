"""Names and numbers of everything in a testbed, as functions of unit, host and port. Pure. The table is in
docs/interfaces.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NewType

from testbed.topology.units import Unit

Dpid = NewType("Dpid", int)
"""An OpenFlow switch's datapath number: a ToR's, made of its unit's, or the optical switch's."""

MAX_UNITS = 250
MAX_HOSTS_PER_UNIT = 200
MAX_OPTICAL_PORTS_PER_UNIT = 40
OXC_BRIDGE = "oxc"
OXC_DPID = Dpid(0x1000)
_OXC_STRIDE = 64
_OPTICAL_BASE = 200
HOST_DEVICE = "eth0"  # a host's one link
# A host that sums for a worker of its own: a pair of devices within it, and the address that is behind it.
LOOP_WORKER_DEVICE, LOOP_PLACE_DEVICE = "sum0", "sum1"
LOOP_PLACE_IP = "169.254.78.1"  # RFC 3927: of one link only
LOOP_WORKER_IP, LOOP_PREFIX = "169.254.78.2", 30
LOOP_PLACE_MAC, LOOP_WORKER_MAC = "02:00:a9:fe:4e:01", "02:00:a9:fe:4e:02"
ROOM_DEVICES = ("room0", "room1")  # of the ToRs: where an empty push gets room for a sum
CONTROL_PORT = 255  # of a place: what comes by it was made by whoever runs the testbed, ticks


def unit_name(unit: Unit) -> str:
    """Also the ToR's bridge."""
    return f"u{unit}"


def host_name(unit: Unit, host: int) -> str:
    return f"u{unit}h{host}"


def host_ip(unit: Unit, host: int) -> str:
    return f"10.0.{unit}.{host}"


def tor_ip(unit: Unit) -> str:
    """The unit's gateway and aggregator."""
    return f"10.0.{unit}.254"


def unit_network(unit: Unit) -> str:
    return f"10.0.{unit}.0"


def mac_of(ip: str) -> str:
    """Locally administered, made of the address."""
    return "02:00:" + ":".join(f"{int(part):02x}" for part in ip.split("."))


def host_mac(unit: Unit, host: int) -> str:
    return mac_of(host_ip(unit, host))


def tor_mac(unit: Unit) -> str:
    return mac_of(tor_ip(unit))


def control_mac(unit: Unit) -> str:
    """Return where frames go that leave a ToR by its control port: no host has this number."""
    return host_mac(unit, 255)


def host_ifindex(unit: Unit, host: int) -> int:
    """Return the ifindex of eth0; no other device of the testbed has it, in any namespace."""
    return 0x10000 + (unit << 8) + host


def loop_ifindex(unit: Unit, host: int) -> int:
    """Return the ifindex of the worker's end of a host's loop; no other device of the testbed has it."""
    return 0x60000 + (unit << 8) + host


def loop_place_ifindex(unit: Unit, host: int) -> int:
    """Return the ifindex of the place's end of a host's loop; no other device of the testbed has it."""
    return 0x70000 + (unit << 8) + host


def tor_dpid(unit: Unit) -> Dpid:
    """Return the datapath number of a unit's ToR."""
    return Dpid(unit)


def tor_unit(dpid: Dpid) -> Unit:
    """Return the unit whose ToR has this datapath number."""
    return Unit(dpid)


def tor_port_device(unit: Unit, host: int) -> str:
    return f"u{unit}-h{host}"


def tor_port_number(host: int) -> int:
    """OpenFlow port of a host at its ToR."""
    return host


def is_host_port(number: int) -> bool:
    """Say whether the port of this number at a ToR leads to a host."""
    return number < _OPTICAL_BASE


def optical_device(unit: Unit, port: int) -> str:
    """The unit's end."""
    return f"u{unit}-o{port}"


def control_device(unit: Unit) -> str:
    """The ToR's end of the link to its control port, where that is a port."""
    return f"u{unit}-c"


def control_far_device(unit: Unit) -> str:
    """The end of that link by which ticks are sent."""
    return f"u{unit}-c-far"


def optical_number(port: int) -> int:
    """OpenFlow port of an optical port at its ToR."""
    return _OPTICAL_BASE + port


def oxc_device(unit: Unit, port: int) -> str:
    """The optical switch's end."""
    return f"x-u{unit}o{port}"


def optical_port_name(unit: Unit, port: int) -> str:
    return f"u{unit}o{port}"


def oxc_port_number(unit: Unit, port: int) -> int:
    """OpenFlow port at the optical switch."""
    return (unit - 1) * _OXC_STRIDE + port


@lru_cache(MAX_UNITS * MAX_OPTICAL_PORTS_PER_UNIT)
def parse_optical_port(name: str) -> tuple[Unit, int]:
    """(unit, port) of a name like "u1o2". ValueError if it is none."""
    unit, _, port = name.removeprefix("u").partition("o")
    if not name.startswith("u") or not unit.isdecimal() or not port.isdecimal() or not int(unit):
        raise ValueError(f"{name!r} is no optical port; a name is like u1o2")
    return Unit(int(unit)), int(port)
