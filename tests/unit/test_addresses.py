"""Names and numbers: unique, short enough for the kernel, and readable back."""

from __future__ import annotations

import ipaddress

import pytest

from testbed.emulation import links
from testbed.topology import addresses as a

UNITS = (1, 2, 7, a.MAX_UNITS)
HOSTS = (1, 2, 101, a.MAX_HOSTS_PER_UNIT)
PORTS = (1, 2, a.MAX_OPTICAL_PORTS_PER_UNIT)


def test_device_names_fit_the_kernel_and_differ() -> None:
    names = [a.tor_port_device(u, h) for u in UNITS for h in HOSTS]
    names += [f(u, p) for u in UNITS for p in PORTS for f in (a.optical_device, a.oxc_device)]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 15


def test_host_numbers_differ() -> None:
    hosts = [(u, h) for u in range(1, a.MAX_UNITS + 1) for h in range(1, a.MAX_HOSTS_PER_UNIT + 1)]
    indices = [f(*host) for host in hosts for f in (a.host_ifindex, a.loop_ifindex, a.loop_place_ifindex)]
    assert len(set(indices)) == len(indices)
    taken = range(links._PORT_IFINDEX, links._INNER_IFINDEX + 2 * (len(hosts) + a.MAX_UNITS * max(PORTS)))
    assert not any(index in taken for index in indices), "switches' ports and the inner ends of links"
    ips = {ipaddress.ip_address(a.host_ip(u, h)) for u in UNITS for h in HOSTS} | {
        ipaddress.ip_address(a.tor_ip(u)) for u in UNITS
    }
    assert len(ips) == len(UNITS) * (len(HOSTS) + 1)


def test_openflow_ports_differ_on_each_switch() -> None:
    tor = [a.tor_port_number(h) for h in HOSTS] + [a.optical_number(p) for p in PORTS]
    assert len(set(tor)) == len(tor)
    oxc = [a.oxc_port_number(u, p) for u in range(1, a.MAX_UNITS + 1) for p in PORTS]
    assert len(set(oxc)) == len(oxc)
    assert min(oxc) > 0


@pytest.mark.parametrize(("unit", "port"), [(1, 1), (250, 40)])
def test_optical_port_names_read_back(unit: int, port: int) -> None:
    assert a.parse_optical_port(a.optical_port_name(unit, port)) == (unit, port)


@pytest.mark.parametrize("name", ["", "u1", "o1", "1o1", "u1o", "uxo1", "u1h1", "u0o1"])
def test_what_is_no_optical_port(name: str) -> None:
    with pytest.raises(ValueError, match="no optical port"):
        a.parse_optical_port(name)


def test_macs_are_local_unicast() -> None:
    assert a.host_mac(1, 2) == "02:00:0a:00:01:02"
    assert int(a.tor_mac(9)[:2], 16) & 3 == 2
