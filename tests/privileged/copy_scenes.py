"""Scenes at a pair of devices for copies, frame by frame on the program there (bpf/relay.h): results come out
of the pair from the host's own programs, or some process on the host sends into it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from testbed.aggregation.entries import NO_IP
from testbed.reference_model.aggregator import ETH0
from testbed.reference_model.output_ports import Emission, To
from testbed.topology import addresses
from testbed.topology.units import Unit
from testbed.wire import spec
from testbed.wire.frame import Frame
from tests.privileged.xdp_aggregator import XdpAggregator
from tests.vectors.build import (
    JOB,
    PS_IP,
    altered,
    checksum_of,
    empty,
    job_at_ps,
    lanes,
    packet,
    partial,
    push,
    result_from_ps,
    tick,
)

MEMBER = (Unit(2), 6)
FRAGMENT_AT, PROTOCOL_AT, PORT_AT, HEADER_AT = 20, 23, 36, 42  # offsets in a frame
ZERO = np.zeros(spec.LANES, np.uint32)


def differences(host: XdpAggregator, eth0: int) -> dict[str, list[str]]:
    """Return by scene a line for each difference."""
    host.set_copies(JOB, 0, [MEMBER], own=False)
    host.admit(JOB, job_at_ps(2, group_ip=NO_IP))
    inner = next(at for at, name in socket.if_nameindex() if re.fullmatch(r"copy\d+in", name))
    return {name: list(scene(host, inner, eth0)) for name, scene in SCENES.items()}


def others_are_dropped(host: XdpAggregator, inner: int, eth0: int) -> Iterator[str]:
    """Any process on the host may send into the pair: only results may leave by it, with the host's
    address.
    """
    result = result_from_ps(2, lanes(9), to_ip=PS_IP)
    notice = packet(spec.Op.NOTICE, 2, lanes()[:0], PS_IP, PS_IP, count=0).pack()
    for name, data in {
        "a push": push(0, 2, to_ip=PS_IP),
        "an empty push": empty(0, 2, to_ip=PS_IP),
        "a partial sum": partial(0, 2),
        "a tick": tick(2, to_ip=PS_IP),
        "a notice": notice,
        "a frame of another protocol than IPv4": altered(result, 12, b"\x08\x06"),
        "a header with options": altered(result, 14, b"\x46"),
        "TCP": altered(result, PROTOCOL_AT, b"\x06"),
        "another port": altered(result, PORT_AT, b"\x00\x35"),
        "the first fragment of a datagram": altered(result, FRAGMENT_AT, b"\x20\x00"),
        "a further fragment": altered(result, FRAGMENT_AT, b"\x00\x01"),
        "half of a header": result[: HEADER_AT + 8],
    }.items():
        yield from _dropped(name, host.out_of(data, inner))
    yield from _dropped("a result out of a device that is no pair's", host.out_of(result, eth0))


def _dropped(name: str, came: tuple[str, list[Emission]]) -> Iterator[str]:
    verdict, left = came
    if verdict != "bad_sender" or left:
        yield f"{name}: {verdict}, {len(left)} frames left"


def checksums_are_right(host: XdpAggregator, inner: int, _: int) -> Iterator[str]:
    """Copy results whose checksums are various numbers; one is 0, which on the wire would mean that there is
    no checksum.
    """
    for seed in range(64):
        yield from _is_copied(host, inner, Frame.parse(result_from_ps(2, lanes(seed), to_ip=PS_IP)))
    plain = Frame.parse(result_from_ps(2, ZERO, to_ip=PS_IP))
    summed = ZERO.copy()
    summed[0] = checksum_of(_copy(plain).pack())
    awkward = replace(plain, lanes=summed)
    if checksum_of(_copy(awkward).pack()) != 0xFFFF:
        yield "the lanes were to make a checksum of 0"
    yield from _is_copied(host, inner, awkward)


def _copy(result: Frame) -> Frame:
    ip, mac = addresses.host_ip(*MEMBER), addresses.host_mac(*MEMBER)
    return replace(result, source_ip=PS_IP, destination_ip=ip, destination_mac=mac)


def _is_copied(host: XdpAggregator, inner: int, result: Frame) -> Iterator[str]:
    verdict, emissions = host.out_of(result.pack(), inner)
    name = f"a result with the checksum {checksum_of(result.pack()):#06x}"
    expected = Emission(To.ROUTE, _copy(result).pack(), (ETH0,))
    if verdict != "forwarded" or emissions != [expected]:
        yield f"{name}: {verdict}, {[(each.ports, each.data[:60].hex()) for each in emissions]} left"


Scene = Callable[[XdpAggregator, int, int], Iterator[str]]
SCENES: dict[str, Scene] = {
    "a pair for copies drops all but results": others_are_dropped,
    "copies have right checksums": checksums_are_right,
}
