"""Write captured frames in the pcap format, with times in nanoseconds, as Wireshark, tcpdump and scapy read
it. Pure.
"""

from __future__ import annotations

import struct

LINK_ETHERNET = 1
SNAP_BYTES = 65535
_MAGIC_NS = 0xA1B23C4D

HEADER = struct.pack("<IHHiIII", _MAGIC_NS, 2, 4, 0, 0, SNAP_BYTES, LINK_ETHERNET)
"""The header of a file."""


def record(time_ns: int, frame: bytes) -> bytes:
    """Encode one whole frame and the time at which it was seen, in Unix time."""
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    return struct.pack("<IIII", seconds, nanoseconds, len(frame), len(frame)) + frame
