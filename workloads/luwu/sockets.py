"""Choose the settings of a tree's ends: sockets, room and times, from the testbed's description of a job
(docs/luwu-network.md).

Imports the contract and nothing of torch.
"""

from __future__ import annotations

import socket
from typing import Final

from testbed.wire import spec
from testbed.wire.node_settings import OwnerTree
from testbed.wire.settings import EndpointSettings
from workloads.luwu.contract import Role
from workloads.luwu.nic import Tree

MOST_DEPTH: Final = 64  # fragments that an end has room for, at most
LEAST_DETECT_US: Final = 20_000
LEAST_BEAT_US: Final = 1000
WINDOWS_TO_DETECT: Final = 2
_RECEIVE_BYTES: Final = 8 << 20  # requested; the kernel grants at most net.core.rmem_max
_PAGE: Final = 4096  # the kernel allocates a packet's buffer in pages
_OF_PACKET: Final = 1024  # bytes that the kernel charges for a packet in addition


def udp_at(ip: str, port: int) -> socket.socket:
    """Return an end's socket, bound to this address, which also sends multicast from there."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _RECEIVE_BYTES)
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, spec.ECT)  # links may mark these packets
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(ip))
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, spec.TTL)
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        udp.bind((ip, port))
    except BaseException:
        udp.close()
        raise
    return udp


def depth_for(lanes: int, slots: int, granted_bytes: int) -> int:
    """Return the number of fragments that an end has room for: at most what its socket's buffer and the
    tree's slots hold, and MOST_DEPTH.
    """
    taken_bytes = -(-_packet_bytes(lanes) // _PAGE) * _PAGE + _OF_PACKET
    return max(1, min(MOST_DEPTH, slots, granted_bytes // taken_bytes))


def detect_us_for(lanes: int, depth: int, rate_mbps: float | None) -> int:
    """Return after how many microseconds without a new acknowledgement an end goes back: twice its window's
    time on a link of this rate, but at least as long as a process may wait for a processor.
    """
    if rate_mbps is None:
        return LEAST_DETECT_US
    return max(LEAST_DETECT_US, round(WINDOWS_TO_DETECT * depth * 8 * _packet_bytes(lanes) / rate_mbps))


def beat_us_for(lanes: int, depth: int, rate_mbps: float | None, detect_us: int) -> int:
    """Return after how many microseconds an end acknowledges what arrived.

    That is a quarter of its window's time on a link of this rate (a quarter of its room is used then), at
    least LEAST_BEAT_US, and at most half the time after which the other end goes back.
    """
    window_us = (rate_mbps and 8 * depth * _packet_bytes(lanes) / rate_mbps) or 0
    return max(1, min(max(LEAST_BEAT_US, round(window_us / 4)), detect_us // 2))


def _packet_bytes(lanes: int) -> int:
    return spec.FRAME_HEADERS_BYTES + spec.payload_bytes(lanes)


def end_of(
    described: EndpointSettings | OwnerTree,
    udp: socket.socket,
    address: str,
    worker: int | None = None,
    slot_base: int = 0,
    detect_us: int | None = None,
) -> Tree:
    """Return the settings of an end of the job's tree: of this worker, or of the owner (None).

    `described` is the testbed's description of the job; packets go to `address`. `detect_us` replaces the
    value that suits the link.
    """
    lanes, slots, rate_mbps = described.lanes, described.slots, described.rate_mbps
    depth = depth_for(lanes, slots, udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
    if detect_us is None:
        detect_us = detect_us_for(lanes, depth, rate_mbps)
    return Tree(
        role=Role.OWNER if worker is None else Role.WORKER,
        job=described.job,
        generation=described.generation,
        worker=worker or 0,
        workers=described.workers,
        lanes=lanes,
        slots=slots,
        address=address,
        port=described.port,
        slot_base=slot_base,
        depth=depth,
        beat_us=beat_us_for(lanes, depth, rate_mbps, detect_us),
        detect_us=detect_us,
        rate_mbps=rate_mbps or 0.0,
    )
