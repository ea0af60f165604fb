"""Names and numbers: unique, short enough for the kernel, and readable back."""

from __future__ import annotations

import ipaddress
import itertools

import pytest

from testbed.emulation import links
from testbed.errors import RequestError
from testbed.topology import addresses as a

UNITS = (1, 2, 7, a.MAX_UNITS)
HOSTS = (1, 2, 101, a.MAX_HOSTS_PER_UNIT)
RACKS = (0, 1, 2, 16, a.MAX_RACKS_PER_POD)
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


def test_a_rack_and_its_hosts_read_back_from_their_numbers() -> None:
    for rack, host in itertools.product(RACKS, HOSTS):
        number = a.in_rack(rack, host)
        assert (a.rack_of(number), a.place_in_rack(number)) == (rack, host)
    for unit, rack in itertools.product(UNITS, RACKS):
        dpid = a.tor_dpid(unit, rack)
        assert (a.tor_unit(dpid), a.tor_rack(dpid), a.tor_named(a.tor_name(dpid))) == (unit, rack, dpid)


@pytest.mark.parametrize("name", ["", "u0", "r1", "u1r0", "u1h1", "u1r1h1", "oxc", 7])
def test_what_is_no_switch(name: object) -> None:
    with pytest.raises(RequestError, match="a name like u1, or u1r1 in a pod, is accepted"):
        a.tor_named(name)


@pytest.mark.parametrize("name", ["u251", "u257", "u999", "u1r65", "u257r1"])
def test_a_number_that_runs_over_is_no_switch(name: str) -> None:
    """u257 would be u1r1: its number has a bit of the rack's."""
    with pytest.raises(RequestError, match=f"switch {name}: .*units to 250 and racks to 64 are accepted"):
        a.tor_named(name)


def test_numbers_that_would_be_others_are_refused() -> None:
    for unit, rack in ((0, 16), (251, 0), (257, 0), (1, 65)):
        with pytest.raises(ValueError, match=f"unit {unit}, rack {rack}: "):
            a.tor_dpid(unit, rack)
    for rack, host in ((0, 201), (0, 300), (65, 1), (0, -1)):
        with pytest.raises(ValueError, match=f"rack {rack}, host {host}: "):
            a.in_rack(rack, host)
    assert a.control_mac(a.tor_dpid(3, 2)) == "02:00:0a:02:03:ff"


def test_everything_of_pods_has_a_name_and_a_number_of_its_own() -> None:
    hosts = [(u, a.in_rack(r, h)) for u in UNITS for r in RACKS for h in HOSTS]
    switches = [a.tor_dpid(u, r) for u in UNITS for r in RACKS]
    indices = [f(*host) for host in hosts for f in (a.host_ifindex, a.loop_ifindex, a.loop_place_ifindex)]
    assert len(set(indices)) == len(indices)
    assert max(indices) < 2**31
    assert min(i for i in indices if i >= 0x80000) >= 0x110000, "above all devices of racks and of links"
    assert a.OXC_DPID not in switches
    assert len({*switches}) == len(switches)
    assert max(switches) < 0x10000, "below all ifindices of hosts, which are owners of entries, too"
    named = [a.host_ip(*host) for host in hosts] + [a.tor_ip(dpid) for dpid in switches]
    assert len(set(named)) == len(named)
    assert all(ipaddress.ip_address(ip) for ip in named)
    assert len({a.mac_of(ip) for ip in named} | {a.control_mac(dpid) for dpid in switches}) == len(
        named
    ) + len(switches)
    devices = [a.tor_port_device(*host) for host in hosts]
    devices += [f(u, r) for u in UNITS for r in RACKS[1:] for f in (a.uplink_device, a.rack_device)]
    devices += [f(dpid) for dpid in switches for f in (a.control_device, a.control_far_device)]
    devices += [f(u, p) for u in UNITS for p in PORTS for f in (a.optical_device, a.oxc_device)]
    devices += [f(u) for u in UNITS for f in (a.core_device, a.core_far_device)]
    assert len(set(devices)) == len(devices)
    assert max(map(len, devices)) <= 15


def test_ports_of_a_pod_differ_and_say_what_they_lead_to() -> None:
    racks = [a.rack_number(r) for r in RACKS[1:]]
    hosts, optical = [a.tor_port_number(h) for h in HOSTS], [a.optical_number(p) for p in PORTS]
    core = a.optical_number(a.CORE_WAY)
    every = [*racks, *hosts, *optical, a.uplink_number(), a.CONTROL_PORT, core]
    assert len(set(every)) == len(every)
    assert max(every) < 511, "BMv2's ports have nine bits, the last of which drops"
    assert [port for port in every if a.is_host_port(port)] == hosts
    assert [port for port in every if a.is_optical_port(port)] == optical
    at_core = [a.core_port_number(u) for u in range(1, a.MAX_UNITS + 1)]
    assert not [port for port in at_core if a.is_host_port(port) or a.is_optical_port(port)]


def test_the_core_is_told_from_units() -> None:
    assert a.tor_name(a.CORE_DPID) == a.unit_name(a.CORE_UNIT) == "core"
    assert (a.tor_of(a.CORE_UNIT, 0), a.tor_of(7, 0)) == (a.CORE_DPID, a.tor_dpid(7))
    assert (a.way_device(1, 3), a.way_device(1, a.CORE_WAY), a.way_device(a.CORE_UNIT, 3)) == (
        "u1-o3",
        "u1-core",
        "core-u3",
    )


def test_a_hosts_address_reads_back_as_its_name() -> None:
    for unit, rack, place in itertools.product((1, a.MAX_UNITS), (0, 1, a.MAX_RACKS_PER_POD), (1, 200)):
        host = a.in_rack(rack, place)
        assert a.host_at(a.host_ip(unit, host)) == (unit, a.host_name(unit, host))
    assert a.host_at("10.0.3.254") == (3, "u3h254"), "whether or not it is there"


@pytest.mark.parametrize("ip", ["11.0.1.1", "10.0.0.1", "10.65.1.1", "192.168.1.1"])
def test_what_is_no_hosts_address(ip: str) -> None:
    assert a.host_at(ip) is None


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
