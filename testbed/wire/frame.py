"""A gradient packet as a whole Ethernet frame, checksums included. Pure; `codec` encodes header and lanes."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

import numpy as np
import numpy.typing as npt

from testbed.wire import spec
from testbed.wire.codec import Header

ETHERTYPE_IPV4, IPPROTO_UDP = 0x0800, 17
ETHERNET_BYTES, IPV4_BYTES, UDP_BYTES = 14, 20, 8
HEADERS_BYTES = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
TTL, DSCP_REPEATED, ECT, CE = spec.TTL, spec.DSCP_REPEATED, spec.ECT, spec.CE
NO_LANES: npt.NDArray[np.uint32] = np.zeros(0, np.uint32)


class CorruptError(ValueError):
    """The UDP checksum is zero or wrong."""


def checksum(data: bytes) -> int:
    """Compute the Internet checksum (RFC 1071) of whole bytes."""
    words = np.frombuffer(data + b"\0" if len(data) % 2 else data, ">u2")
    total = int(words.sum(dtype=np.uint64))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp_checksum(source: bytes, destination: bytes, datagram: bytes) -> int:
    """Compute the checksum of a datagram with a zero checksum field; never 0, which would mean that there is
    none (RFC 768).
    """
    pseudo = source + destination + struct.pack("!BBH", 0, IPPROTO_UDP, len(datagram))
    return checksum(pseudo + datagram) or 0xFFFF


@functools.lru_cache(4096)  # millions of packets share few addresses
def _packed(ip: str) -> bytes:
    return IPv4Address(ip).packed


def _dotted(ip: bytes) -> str:
    return f"{ip[0]}.{ip[1]}.{ip[2]}.{ip[3]}"


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One gradient packet. Lanes are numbers in host order; addresses are in text form."""

    header: Header
    lanes: npt.NDArray[np.uint32]
    source_ip: str
    destination_ip: str
    source_mac: str = "02:00:00:00:00:00"
    destination_mac: str = "02:00:00:00:00:00"
    source_port: int = spec.UDP_PORT
    ttl: int = TTL
    tos: int = 0  # DSCP and the ECN field

    def pack(self) -> bytes:
        """Encode the frame, with correct lengths and checksums."""
        source, destination = _packed(self.source_ip), _packed(self.destination_ip)
        payload = self.header.pack() + self.lanes.astype(">u4").tobytes()
        size = UDP_BYTES + len(payload)
        ports = struct.pack("!HHH", self.source_port, spec.UDP_PORT, size)
        summed = udp_checksum(source, destination, ports + b"\0\0" + payload)
        ip = (
            struct.pack("!BBHHHBBH", 0x45, self.tos, IPV4_BYTES + size, 0, 0, self.ttl, IPPROTO_UDP, 0)
            + source
            + destination
        )
        ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
        ethernet = (
            mac_bytes(self.destination_mac) + mac_bytes(self.source_mac) + struct.pack("!H", ETHERTYPE_IPV4)
        )
        return ethernet + ip + ports + struct.pack("!H", summed) + payload

    @classmethod
    def parse(cls, data: bytes, lanes: int = spec.LANES) -> Frame:
        """Decode a frame; bytes after the packet are ignored. `lanes` is the maximum of this fabric.

        ValueError if it is no well-formed gradient packet, CorruptError if only its UDP checksum is zero or
        wrong.
        """
        if not is_gradient(data):
            raise ValueError("not a UDP datagram to the gradient port")
        total, size = int.from_bytes(data[16:18], "big"), int.from_bytes(data[38:40], "big")
        header = Header.unpack(data[HEADERS_BYTES:])
        if header.op not in spec.OPS:
            raise ValueError(f"op {header.op}")
        count = header.lanes if spec.OPS[header.op].body is spec.Body.LANES else 0
        if not 1 <= header.lanes <= lanes:
            raise ValueError(f"{header.lanes} lanes; 1 to {lanes} fit")
        expected = UDP_BYTES + spec.HEADER_BYTES + 4 * count
        if (total, size) != (IPV4_BYTES + expected, expected) or len(data) < ETHERNET_BYTES + total:
            raise ValueError(
                f"{len(data)} bytes, IPv4 length {total}, UDP length {size}; UDP length is to be {expected}"
            )
        if header.count > header.lanes:
            raise ValueError(f"count {header.count} of {header.lanes} lanes")
        start = ETHERNET_BYTES + IPV4_BYTES
        datagram = data[start : start + size]
        given = int.from_bytes(datagram[6:8], "big")
        if given != udp_checksum(data[26:30], data[30:34], datagram[:6] + b"\0\0" + datagram[8:]):
            raise CorruptError(f"UDP checksum {given:#06x}")
        return cls(
            header,
            np.frombuffer(datagram, ">u4", count, UDP_BYTES + spec.HEADER_BYTES).astype(np.uint32),
            _dotted(data[26:30]),
            _dotted(data[30:34]),
            data[6:12].hex(":"),
            data[:6].hex(":"),
            int.from_bytes(data[34:36], "big"),
            data[22],
            data[15],
        )

    @property
    def is_marked(self) -> bool:
        """Return whether it met a long queue on its way (congestion experienced)."""
        return self.tos & CE == CE

    def fields(self) -> dict[str, int | str | list[int]]:
        """Return all fields, for comparing and printing."""
        named = {field.name: getattr(self.header, field.name) for field in spec.HEADER}
        addresses = (
            "source_ip",
            "destination_ip",
            "source_mac",
            "destination_mac",
            "source_port",
            "ttl",
            "tos",
        )
        return {
            **named,
            **{name: getattr(self, name) for name in addresses},
            "gradients": self.lanes.tolist(),
        }


def mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def is_ipv4(data: bytes) -> bool:
    """Return whether a frame is IPv4 without options; the switches parse no other."""
    return len(data) >= ETHERNET_BYTES + IPV4_BYTES and data[12:14] == b"\x08\0" and data[14] & 0x0F == 5


def is_gradient(data: bytes) -> bool:
    """Return whether a frame is a UDP datagram to the gradient port. An IP fragment has no port."""
    if not is_ipv4(data) or len(data) < HEADERS_BYTES:
        return False
    fragmented = int.from_bytes(data[20:22], "big") & 0x3FFF
    return data[23] == IPPROTO_UDP and not fragmented and data[36:38] == spec.UDP_PORT.to_bytes(2, "big")
