"""Names and numbers of everything in a testbed, as functions of unit, host and port. Pure. The table is in
docs/architecture.md.
"""

from __future__ import annotations

MAX_UNITS = 250
MAX_HOSTS_PER_UNIT = 200
MAX_OPTICAL_PORTS_PER_UNIT = 40
OXC_BRIDGE = "oxc"
OXC_DPID = 0x1000
_OXC_STRIDE = 64
_OPTICAL_BASE = 200


def unit_name(unit: int) -> str:
    """Also the ToR's bridge."""
    return f"u{unit}"


def host_name(unit: int, host: int) -> str:
    return f"u{unit}h{host}"


def host_ip(unit: int, host: int) -> str:
    return f"10.0.{unit}.{host}"


def tor_ip(unit: int) -> str:
    """The unit's gateway and aggregator."""
    return f"10.0.{unit}.254"


def unit_network(unit: int) -> str:
    return f"10.0.{unit}.0"


def mac_of(ip: str) -> str:
    """Locally administered, made of the address."""
    return "02:00:" + ":".join(f"{int(part):02x}" for part in ip.split("."))


def host_mac(unit: int, host: int) -> str:
    return mac_of(host_ip(unit, host))


def tor_mac(unit: int) -> str:
    return mac_of(tor_ip(unit))


def host_ifindex(unit: int, host: int) -> int:
    """Of eth0; no other device of the testbed has it, in any namespace."""
    return 0x10000 + (unit << 8) + host


def aggregator_name(number: int) -> str:
    """Of a unit's ToR by the unit's number, of a PS host by its ifindex."""
    return unit_name(number) if number < 0x10000 else host_name((number >> 8) & 0xFF, number & 0xFF)


def tor_dpid(unit: int) -> int:
    return unit


def tor_port_device(unit: int, host: int) -> str:
    return f"u{unit}-h{host}"


def tor_port_number(host: int) -> int:
    """OpenFlow port of a host at its ToR."""
    return host


def is_host_port(number: int) -> bool:
    """Whether the port of this number at a ToR leads to a host."""
    return number < _OPTICAL_BASE


def optical_device(unit: int, port: int) -> str:
    """The unit's end."""
    return f"u{unit}-o{port}"


def optical_number(port: int) -> int:
    """OpenFlow port of an optical port at its ToR."""
    return _OPTICAL_BASE + port


def oxc_device(unit: int, port: int) -> str:
    """The optical switch's end."""
    return f"x-u{unit}o{port}"


def optical_port_name(unit: int, port: int) -> str:
    return f"u{unit}o{port}"


def oxc_port_number(unit: int, port: int) -> int:
    """OpenFlow port at the optical switch."""
    return (unit - 1) * _OXC_STRIDE + port


def parse_optical_port(name: str) -> tuple[int, int]:
    """(unit, port) of a name like "u1o2". ValueError if it is none."""
    unit, _, port = name.removeprefix("u").partition("o")
    if not name.startswith("u") or not unit.isdecimal() or not port.isdecimal():
        raise ValueError(f"{name!r} is no optical port; a name is like u1o2")
    return int(unit), int(port)
