"""Names and numbers of everything in a testbed, as functions of unit, host and port. Pure. The table is in
docs/interfaces.md.

A host's number within its unit includes its rack: host h of rack r of a pod is `in_rack(r, h)`; in a unit
that is itself a rack (rack 0) it is h. A rack's ToR has the number of host 0 in it, so the switch of a unit,
which is a rack's ToR or a pod's pod switch, is number 0. In an address, rack, unit and host are the second,
third and last byte.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NewType

from testbed.errors import RequestError
from testbed.topology.units import Unit
from testbed.wire.links import HOST_IFINDEXES
from testbed.wire.places import OPTICAL_STRIDE

Dpid = NewType("Dpid", int)
"""A switch's number, in OpenFlow its datapath id: for a unit's own switch the unit's number, for the ToR of a
pod's rack a combination of unit and rack, and one for the optical switch.
"""

MAX_UNITS = 250
MAX_RACKS_PER_POD = 64
MAX_HOSTS_PER_UNIT = 200
MAX_OPTICAL_PORTS_PER_UNIT = 40
OXC_BRIDGE = "oxc"
OXC_DPID = Dpid(0x1000)
CORE_BRIDGE = "core"
CORE_UNIT = Unit(MAX_UNITS + 1)  # stands for the electrical core; no unit has this number
CORE_DPID = Dpid(CORE_UNIT)
CORE_WAY = MAX_OPTICAL_PORTS_PER_UNIT + 1  # a unit's port to the core, numbered after its optical ports
_QUEUED, _QUEUE = 1000, "queue-u"  # ways that are no ports: of results that wait for a slot
_OPTICAL_BASE = 200
_UPLINK = 250  # port of a ToR to its pod switch
_RACK_BASE = 300  # ports of a pod switch to its ToRs
_RACK_BITS = 8
_TOR = re.compile(r"u([1-9][0-9]{0,2})(?:r([1-9][0-9]{0,1}))?")
_IN_RACK = (1 << _RACK_BITS) - 1
HOST_DEVICE = "eth0"  # a host's only link
# The loop of a host that sums for its own worker: a pair of devices in it, and their addresses.
LOOP_WORKER_DEVICE, LOOP_PLACE_DEVICE = "sum0", "sum1"
LOOP_PLACE_IP = "169.254.78.1"  # link-local (RFC 3927)
LOOP_WORKER_IP, LOOP_PREFIX = "169.254.78.2", 30
LOOP_PLACE_MAC, LOOP_WORKER_MAC = "02:00:a9:fe:4e:01", "02:00:a9:fe:4e:02"
CALENDAR_DEVICES = ("calendar0", "calendar1")  # frames wait for their slot behind the second
ROOM_DEVICES = ("room0", "room1")  # a switch's pair, in which an empty push gets room for a sum
# A switch's pair, or that of a host that is a place: for ticks too long for a test run of the program.
CONTROL_DEVICES = ("control0", "control1")
_COPIES = 1 << 27  # above the ifindices of all hosts and switches
CONTROL_PORT = 255  # a place's port for packets of the testbed itself, such as ticks


def in_rack(rack: int, host: int) -> int:
    """Return the number within its unit of a rack's host; for host 0, that of the rack's ToR. Raises
    ValueError for a number that would collide with another.
    """
    if not (0 <= rack <= MAX_RACKS_PER_POD and 0 <= host <= MAX_HOSTS_PER_UNIT):
        raise ValueError(
            f"rack {rack}, host {host}: racks to {MAX_RACKS_PER_POD} and hosts to {MAX_HOSTS_PER_UNIT} "
            f"are accepted"
        )
    return rack << _RACK_BITS | host


def rack_of(number: int) -> int:
    """Return the rack of a host or ToR by its number within its unit; 0 if the unit is a rack."""
    return number >> _RACK_BITS


def place_in_rack(number: int) -> int:
    """Return a host's number in its rack, from 1; 0 for a switch."""
    return number & _IN_RACK


def unit_name(unit: Unit) -> str:
    """Return the name of a unit, of its switch, and of the switch's bridge."""
    return CORE_BRIDGE if unit == CORE_UNIT else f"u{unit}"


def rack_name(unit: Unit, rack: int) -> str:
    """Return the name of a rack and of its ToR; for rack 0, the unit's."""
    return f"u{unit}r{rack}" if rack else unit_name(unit)


def host_name(unit: Unit, host: int) -> str:
    return f"{rack_name(unit, rack_of(host))}h{place_in_rack(host)}"


def host_ip(unit: Unit, host: int) -> str:
    return f"10.{rack_of(host)}.{unit}.{place_in_rack(host)}"


def host_at(ip: str) -> tuple[Unit, str] | None:
    """Return the unit and name of the host that has an address, or would have it; None if no unit can have
    such a host.
    """
    network, rack, unit, host = map(int, ip.split("."))
    if network != 10 or not 1 <= unit <= MAX_UNITS or rack > MAX_RACKS_PER_POD:
        return None
    return Unit(unit), f"{rack_name(Unit(unit), rack)}h{host}"


def tor_dpid(unit: Unit, rack: int = 0) -> Dpid:
    """Return the number of a unit's switch, or of the ToR of a pod's rack. Raises ValueError for a number
    that would collide with another.
    """
    if not (1 <= unit <= MAX_UNITS and 0 <= rack <= MAX_RACKS_PER_POD):
        raise ValueError(
            f"unit {unit}, rack {rack}: units to {MAX_UNITS} and racks to {MAX_RACKS_PER_POD} are accepted"
        )
    return Dpid(rack << _RACK_BITS | unit)


def tor_of(unit: Unit, host: int) -> Dpid:
    """Return the number of the switch to which a host is connected, or that is host 0 of its rack; for
    CORE_UNIT, the core's.
    """
    return CORE_DPID if unit == CORE_UNIT else tor_dpid(unit, rack_of(host))


def tor_unit(dpid: Dpid) -> Unit:
    """Return the unit of a switch."""
    return Unit(dpid & _IN_RACK)


def tor_rack(dpid: Dpid) -> int:
    """Return the rack with this ToR; 0 for a unit's own switch."""
    return dpid >> _RACK_BITS


def tor_name(dpid: Dpid) -> str:
    """Return the name of a switch and of its bridge; for a pod's ToR also of its link to the pod switch."""
    return rack_name(tor_unit(dpid), tor_rack(dpid))


def bridge_name(dpid: Dpid) -> str:
    """Return the name of a unit's switch, of the core, or of the optical switch."""
    return OXC_BRIDGE if dpid == OXC_DPID else tor_name(dpid)


def tor_ip(dpid: Dpid) -> str:
    """Return a switch's address as gateway and aggregator."""
    return f"10.{tor_rack(dpid)}.{tor_unit(dpid)}.254"


def rack_network(unit: Unit, rack: int) -> str:
    """Return the network of a rack's hosts and ToR; for rack 0, that of a unit's switch, and of its hosts if
    the unit is a rack.
    """
    return f"10.{rack}.{unit}.0"


def unit_network(unit: Unit) -> str:
    return rack_network(unit, 0)


def mac_of(ip: str) -> str:
    """Return the locally administered MAC address made of an IPv4 address."""
    return "02:00:" + ":".join(f"{int(part):02x}" for part in ip.split("."))


def host_mac(unit: Unit, host: int) -> str:
    return mac_of(host_ip(unit, host))


def tor_mac(dpid: Dpid) -> str:
    return mac_of(tor_ip(dpid))


def control_mac(dpid: Dpid) -> str:
    """Return the destination of frames that leave a switch by its control port; no host has this number."""
    return mac_of(f"10.{tor_rack(dpid)}.{tor_unit(dpid)}.255")


def host_ifindex(unit: Unit, host: int) -> int:
    """Return the ifindex of a host's eth0, unique among the testbed's devices in all namespaces."""
    return _ifindex(HOST_IFINDEXES, unit, host)


def loop_ifindex(unit: Unit, host: int) -> int:
    """Return the ifindex of the worker's end of a host's loop, unique among the testbed's devices."""
    return _ifindex(0x60000, unit, host)


def loop_place_ifindex(unit: Unit, host: int) -> int:
    """Return the ifindex of the place's end of a host's loop, unique among the testbed's devices."""
    return _ifindex(0x70000, unit, host)


def copy_devices(number: int) -> tuple[str, str]:
    """Return the names of a pair of devices by which a host copies results for one member: frames sent into
    the first come out of the second. Pairs are numbered over all hosts.
    """
    return f"copy{number}", f"copy{number}in"


def copy_ifindices(number: int) -> tuple[int, int]:
    """Return the ifindices of such a pair, unique among the testbed's devices."""
    return _COPIES + 2 * number, _COPIES + 2 * number + 1


def control_ifindices(unit: Unit, host: int) -> tuple[int, int]:
    """Return the ifindices of the pair by which a host receives ticks, which come out of the second; unique
    among the testbed's devices.
    """
    return _ifindex(0x90000, unit, host), _ifindex(0x80000, unit, host)


def _ifindex(base: int, unit: Unit, host: int) -> int:
    """Return a host's ifindex above `base`. Those of pods' hosts are above those of racks' hosts, and of all
    switches.
    """
    return base + (rack_of(host) << 20) + (unit << 8) + place_in_rack(host)


def tor_port_device(unit: Unit, host: int) -> str:
    """Return the switch's end of a host's link."""
    return f"{rack_name(unit, rack_of(host))}-h{place_in_rack(host)}"


def tor_port_number(host: int) -> int:
    """Return the OpenFlow port of a host at its switch."""
    return place_in_rack(host)


def is_host_port(number: int) -> bool:
    """Return whether a switch's port of this number leads to a host."""
    return number <= MAX_HOSTS_PER_UNIT


def is_optical_port(number: int) -> bool:
    """Return whether a switch's port of this number is an optical one."""
    return _OPTICAL_BASE < number <= _OPTICAL_BASE + MAX_OPTICAL_PORTS_PER_UNIT


def uplink_device(unit: Unit, rack: int) -> str:
    """Return the ToR's end of the link to its pod switch."""
    return f"u{unit}r{rack}-up"


def uplink_number() -> int:
    """Return the OpenFlow port, at a pod's ToR, of the link to its pod switch."""
    return _UPLINK


def rack_device(unit: Unit, rack: int) -> str:
    """Return the pod switch's end of the link to a rack's ToR."""
    return f"u{unit}-r{rack}"


def rack_number(rack: int) -> int:
    """Return the OpenFlow port, at a pod switch, of the link to a rack's ToR."""
    return _RACK_BASE + rack


def rack_behind(number: int) -> int:
    """Return the rack to which this OpenFlow port of a pod switch leads."""
    return number - _RACK_BASE


def optical_device(unit: Unit, port: int) -> str:
    """Return the unit's end of an optical port's link."""
    return f"u{unit}-o{port}"


def core_device(unit: Unit) -> str:
    """Return the unit's end of its link to the core."""
    return f"u{unit}-core"


def core_far_device(unit: Unit) -> str:
    """Return the core's end of a unit's link."""
    return f"core-u{unit}"


def core_link_name(unit: Unit) -> str:
    return f"u{unit}c"


def core_port_number(unit: Unit) -> int:
    """Return the OpenFlow port, at the core, of a unit's link."""
    return _RACK_BASE + unit


def queued_way(unit: Unit) -> int:
    """Return the way of a unit's results to another unit by calendar queues: they wait for a slot."""
    return _QUEUED + unit


def queued_unit(device: str) -> Unit | None:
    """Return the unit that results wait for, if this is the name of a queued way (`way_device`)."""
    name = device.removeprefix(_QUEUE)
    return Unit(int(name)) if name != device else None


def way_device(unit: Unit, way: int) -> str:
    """Return the device of a port by which a unit's switch reaches other units: an optical port, or CORE_WAY;
    the name of a queued way is of no device (`queued_unit`). For the core, whose ports are numbered by unit,
    return the device towards a unit.
    """
    if unit == CORE_UNIT:
        return core_far_device(Unit(way))
    if way > _QUEUED:
        return f"{_QUEUE}{way - _QUEUED}"
    return core_device(unit) if way == CORE_WAY else optical_device(unit, way)


def control_device(dpid: Dpid) -> str:
    """Return the switch's end of the link to its control port, for switches with such a port."""
    return f"{tor_name(dpid)}-c"


def control_far_device(dpid: Dpid) -> str:
    """Return the far end of that link, into which ticks are sent."""
    return f"{tor_name(dpid)}-c-far"


def optical_number(port: int) -> int:
    """Return the OpenFlow port of an optical port at its unit's switch."""
    return _OPTICAL_BASE + port


def optical_port_of(number: int) -> int:
    """Return the optical port with this OpenFlow port at its unit's switch."""
    return number - _OPTICAL_BASE


def oxc_device(unit: Unit, port: int) -> str:
    """Return the optical switch's end of an optical port's link."""
    return f"x-u{unit}o{port}"


def optical_port_name(unit: Unit, port: int) -> str:
    return f"u{unit}o{port}"


def oxc_port_number(unit: Unit, port: int) -> int:
    """Return an optical port's OpenFlow port at the optical switch."""
    return (unit - 1) * OPTICAL_STRIDE + port


def oxc_number_of(device: str) -> int:
    """Return the OpenFlow port, at the optical switch, of the far end of a unit's optical device (`u1-o2`); 0
    for any other device.
    """
    unit, _, port = device.removeprefix("u").partition("-o")
    return oxc_port_number(Unit(int(unit)), int(port)) if unit.isdecimal() and port.isdecimal() else 0


@lru_cache(MAX_UNITS * MAX_OPTICAL_PORTS_PER_UNIT)
def parse_optical_port(name: str) -> tuple[Unit, int]:
    """Parse a name like "u1o2" to (unit, port). Raises ValueError for any other."""
    unit, _, port = name.removeprefix("u").partition("o")
    if not name.startswith("u") or not unit.isdecimal() or not port.isdecimal() or not int(unit):
        raise ValueError(f"{name!r} is no optical port; a name is like u1o2")
    return Unit(int(unit)), int(port)


def tor_named(name: Any) -> Dpid:
    """Return the number of the switch with a name like "u1", or "u1r1" in a pod. Raises RequestError for any
    other.
    """
    match = _TOR.fullmatch(name) if isinstance(name, str) else None
    if not match:
        raise RequestError(f"switch {name}: a name like u1, or u1r1 in a pod, is accepted")
    try:
        return tor_dpid(Unit(int(match[1])), int(match[2] or 0))
    except ValueError as error:
        raise RequestError(f"switch {name}: {error}") from error
