"""The layout of a topology and the encoding of netlink messages: pure, so no root."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.links import WIRES, inner_devices
from testbed.emulation.namespaces import command
from testbed.emulation.netlink import attribute, attributes
from testbed.emulation.parts import Parts, files_needed, parts
from testbed.machine.links import burst_bytes, rate_bytes_per_s
from testbed.topology.load import parse
from testbed.topology.model import HostSpec, IncSpec, LinkSpec, Topology, UnitSpec
from testbed.topology.optical import OcsSpec

IFNAMSIZ = 16
CALL_S = 20.0
HELD_UP_S = 0.5
INIT_HELD_UP_BEHIND_ITS_FORK = f"""
import os, time
from testbed.emulation.namespaces import init_main
os.register_at_fork(after_in_parent=lambda: time.sleep({HELD_UP_S}))
init_main(["sh", "-c", "trap 'exit 7' TERM INT; echo up; sleep 10 & wait; exit 1"])
"""


def topology(*units: tuple[int, int], rate_mbps: float | None = 40_000, scale: int = 200) -> Topology:
    made = tuple(UnitSpec(index, "gpu", hosts, ports) for index, (hosts, ports) in enumerate(units, 1))
    return Topology("t", made, LinkSpec(rate_mbps, 100), LinkSpec(rate_mbps, 50), OcsSpec(), IncSpec(), scale)


def devices_of(made: Parts) -> list[str]:
    ends = [end for wire in made.wires for end in (wire.a, wire.b) if end.namespace is None]
    return [end.device for end in ends]


def test_names_and_numbers_are_those_of_the_architecture() -> None:
    made = parts(topology((3, 2), (2, 1)))
    assert made.namespaces == (WIRES, "u1h1", "u1h2", "u1h3", "u2h1", "u2h2")
    bridges = {
        bridge.name: (bridge.datapath_id, [(p.device, p.number) for p in bridge.ports])
        for bridge in made.bridges
    }
    assert bridges["u2"] == (2, [("u2-h1", 1), ("u2-h2", 2), ("u2-o1", 201)])
    assert bridges["oxc"] == (0x1000, [("x-u1o1", 1), ("x-u1o2", 2), ("x-u2o1", 65)])
    second = next(host for host in made.hosts if host.namespace == "u1h2")
    assert (second.address, second.prefix, second.gateway) == ("10.0.1.2", 24, "10.0.1.254")
    assert dict(second.neighbours) == {
        "10.0.1.1": "02:00:0a:00:01:01",
        "10.0.1.3": "02:00:0a:00:01:03",
        "10.0.1.254": "02:00:0a:00:01:fe",
    }
    wire = next(wire for wire in made.wires if wire.name == "u2h1")
    assert (wire.a.device, wire.a.namespace, wire.a.mac, wire.a.ifindex) == (
        "eth0",
        "u2h1",
        "02:00:0a:00:02:01",
        0x10201,
    )
    assert (wire.b.device, wire.b.namespace, wire.rate_mbps, wire.buffer_bytes) == (
        "u2-h1",
        None,
        200,
        100 * 1514,
    )


def test_a_single_rack_has_no_optical_switch() -> None:
    assert [bridge.name for bridge in parts(topology((4, 0))).bridges] == ["u1"]


def test_a_bmv2_unit_has_the_same_devices_and_no_bridge() -> None:
    plain = topology((2, 1), (1, 1))
    mixed = replace(plain, units=(replace(plain.units[0], engine="bmv2"), plain.units[1]))
    assert [bridge.name for bridge in parts(mixed).bridges] == ["u2", "oxc"]
    assert parts(mixed).switch_devices == parts(plain).switch_devices
    assert parts(mixed).wires == parts(plain).wires


@pytest.mark.parametrize(
    ("units", "hosts", "seen"), [(1, 4, 64), (4, 3, 84), (16, 4, 232), (64, 4, 811), (250, 1, 2301)]
)
def test_the_files_that_a_fabric_takes_are_a_little_more_than_were_seen(
    units: int, hosts: int, seen: int
) -> None:
    described = {"units": [{"hosts": hosts} for _ in range(units)]}
    assert seen < files_needed(parts(parse(described, "test"))) < max(129, 1.3 * seen)


def test_switches_of_pods_and_a_core_take_files_as_well() -> None:
    rack, pod = ({"units": [{"hosts": 2, **more}] * 2} for more in ({}, {"racks": 40}))
    core = {"units": [{"hosts": 2}] * 60, "core": {"rate_mbps": 10000}}
    bare = {"units": [{"hosts": 2}] * 60}
    few, many, with_core, without = (files_needed(parts(parse(it, "test"))) for it in (rack, pod, core, bare))
    assert many > few + 2 * 40 * (4 + 2)
    assert with_core > without + 60


def test_an_unshaped_topology_has_unshaped_wires() -> None:
    assert {wire.rate_mbps for wire in parts(topology((2, 1), (1, 1), rate_mbps=None)).wires} == {None}


def test_each_hosts_wire_has_its_own_rate() -> None:
    hosts = (HostSpec(30_000), HostSpec(None), HostSpec(40_000, 0.5))
    made = topology((3, 1), (1, 1))
    wires = parts(replace(made, units=(replace(made.units[0], unequal=hosts), made.units[1]))).wires
    rates = {wire.name: wire.rate_mbps for wire in wires}
    assert rates == {"u1h1": 150, "u1h2": None, "u1h3": 200, "u1o1": 200, "u2h1": 200, "u2o1": 200}


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 40)), min_size=1, max_size=6))
def test_every_device_is_named_once_and_is_a_port_of_one_bridge(units: list[tuple[int, int]]) -> None:
    made = parts(topology(*units))
    devices = devices_of(made)
    ports = [port.device for bridge in made.bridges for port in bridge.ports]
    assert sorted(devices) == sorted(ports)
    assert len(set(devices)) == len(devices)
    inner = [device for wire in made.wires for device in inner_devices(wire)]
    assert len(set(inner)) == len(inner)
    assert max(len(name) for name in devices + inner) < IFNAMSIZ
    indices = [wire.a.ifindex for wire in made.wires if wire.a.ifindex]
    assert len(set(indices)) == len(indices)


def test_the_largest_names_fit_the_kernel() -> None:
    made = parts(topology(*[(1, 1)] * 249, (200, 40)))
    names = devices_of(made) + [device for wire in made.wires for device in inner_devices(wire)]
    assert max(len(name) for name in names) < IFNAMSIZ


@pytest.mark.parametrize(("rate_mbps", "expected"), [(1.0, 3036), (200.0, 50_000), (10_000.0, 2_500_000)])
def test_a_token_bucket_holds_two_milliseconds_and_two_frames(rate_mbps: float, expected: int) -> None:
    assert burst_bytes(rate_mbps, 1500) == expected


def test_rates_are_whole_bytes() -> None:
    assert rate_bytes_per_s(100.0) == 12_500_000


@given(st.dictionaries(st.integers(1, 0x3FFF), st.binary(max_size=40), max_size=8))
def test_attributes_come_back_as_they_went(values: dict[int, bytes]) -> None:
    encoded = b"".join(attribute(kind, value) for kind, value in values.items())
    assert len(encoded) % 4 == 0
    assert attributes(encoded) == values


def test_a_truncated_attribute_ends_the_list() -> None:
    assert attributes(attribute(1, b"ab") + struct.pack("=HH", 0, 2) + b"\0" * 8) == {1: b"ab"}


def test_the_command_line_dies_with_its_parent_and_passes_the_daemon_on() -> None:
    argv = command(["daemon", "--flag"], "demo")
    assert argv[0] == "unshare"
    assert {
        "--net",
        "--mount",
        "--pid",
        "--ipc",
        "--uts",
        "--fork",
        "--kill-child=KILL",
        "--mount-proc",
    } <= set(argv)
    assert argv[-3:] == ["demo", "daemon", "--flag"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_by_an_init_that_lost_its_core_behind_its_fork(number: signal.Signals) -> None:
    init = subprocess.Popen(
        [sys.executable, "-c", INIT_HELD_UP_BEHIND_ITS_FORK], stdout=subprocess.PIPE, text=True
    )
    assert init.stdout is not None
    with init.stdout:
        assert init.stdout.readline() == "up\n"
        os.kill(init.pid, number)
        try:
            assert init.wait(timeout=CALL_S) == 7
        finally:
            init.kill()
