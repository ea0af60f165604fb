"""Set offload features of network devices in bulk by the ethtool ioctl, and read them back.

A subprocess of ethtool costs 8 ms a device; these calls cost microseconds. Owns the ioctl and the feature
names; links.py decides which features are on.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from array import array
from collections.abc import Mapping

from testbed.errors import SettingError

_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSSET_INFO, _GFEATURES, _SFEATURES = 0x1B, 0x37, 0x3A, 0x3B
_SS_FEATURES = 4
_NAME_BYTES = 32

# A wire carries single frames: features that make or accept more than one frame at a time, or leave a
# checksum undone, are off. Names as `ethtool -k` prints the kernel's; names that a kernel lacks are skipped.
_WIRE_OFF = (
    "tx-checksum-ipv4",
    "tx-checksum-ipv6",
    "tx-checksum-sctp",
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp-accecn-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-generic-segmentation",
    "tx-gso-list",
    "tx-sctp-segmentation",
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
    "tx-gre-segmentation",
    "tx-gre-csum-segmentation",
    "tx-ipxip4-segmentation",
    "tx-ipxip6-segmentation",
    "rx-gro-list",
    "rx-udp-gro-forwarding",
)
_GRO = "rx-gro"
CHECKSUMS = "tx-checksum-ip-generic"


def wire_features(gro: bool, leaves_checksums: bool = False) -> dict[str, bool]:
    """Return a fabric device's features.

    GRO makes veth poll; without it frames that XDP redirects do not arrive. A device that leaves checksums to
    the next one sends frames with only the pseudo header's sum.
    """
    return {**dict.fromkeys(_WIRE_OFF, False), CHECKSUMS: leaves_checksums, _GRO: gro}


class FeatureControl:
    """Sets and reads features of the devices in the network namespace of the thread that constructs it."""

    _bits: dict[str, int] | None = None  # the same for every device of a kernel

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def __enter__(self) -> FeatureControl:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _call(self, device: str, request: bytes) -> bytes:
        data = array("B", request)
        address, _ = data.buffer_info()
        fcntl.ioctl(self._socket, _SIOCETHTOOL, struct.pack("16sP16x", device.encode(), address))
        return data.tobytes()

    def _names(self, device: str) -> dict[str, int]:
        if FeatureControl._bits is None:
            answer = self._call(device, struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _SS_FEATURES, 0))
            count = struct.unpack_from("=I", answer, 16)[0]
            header = struct.pack("=III", _GSTRINGS, _SS_FEATURES, count)
            answer = self._call(device, header + bytes(count * _NAME_BYTES))
            names = [
                answer[12 + at * _NAME_BYTES :][:_NAME_BYTES].split(b"\0")[0].decode() for at in range(count)
            ]
            FeatureControl._bits = {name: bit for bit, name in enumerate(names) if name}
        return FeatureControl._bits

    def active(self, device: str) -> dict[str, bool]:
        """Return every feature that the kernel knows, and whether it is on."""
        bits = self._names(device)
        blocks = max(bits.values()) // 32 + 1
        answer = self._call(device, struct.pack("=II", _GFEATURES, blocks) + bytes(16 * blocks))
        words = [struct.unpack_from("=IIII", answer, 8 + 16 * block)[2] for block in range(blocks)]
        return {name: bool(words[bit // 32] >> (bit % 32) & 1) for name, bit in bits.items()}

    def set(self, device: str, features: Mapping[str, bool]) -> None:
        """Set these features (names that this kernel lacks are skipped) and read them back. SettingError if
        they differ.
        """
        bits = self._names(device)
        wanted = {name: on for name, on in features.items() if name in bits}
        blocks = max(bits.values()) // 32 + 1
        words = [[0, 0] for _ in range(blocks)]
        for name, on in wanted.items():
            word = words[bits[name] // 32]
            word[0] |= 1 << bits[name] % 32
            word[1] |= on << bits[name] % 32
        packed = b"".join(struct.pack("=II", *word) for word in words)
        self._call(device, struct.pack("=II", _SFEATURES, blocks) + packed)
        self.check(device, wanted)

    def check(self, device: str, features: Mapping[str, bool]) -> None:
        """Raise SettingError for the first feature that differs."""
        active = self.active(device)
        for name, on in features.items():
            if name in active and active[name] != on:
                state = "on" if active[name] else "off"
                raise SettingError(
                    f"{device}: feature {name} was set {'on' if on else 'off'} and reads back {state}"
                )
