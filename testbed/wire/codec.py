"""The wire format in NumPy: structured types for whole windows of packets, and a packet's header as a
dataclass.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from testbed.wire import spec

_NAMES = tuple(field.name for field in spec.HEADER)
_STRUCT = struct.Struct("!" + "".join({8: "B", 16: "H", 32: "I"}[field.bits] for field in spec.HEADER))


def packet_dtype(lanes: int) -> np.dtype:
    """Return the type of a packet's UDP payload with this many lanes: its field `gradients`; `lanes` is the
    header's field.
    """
    return np.dtype(
        [*((field.name, f">u{field.bytes}") for field in spec.HEADER), ("gradients", ">u4", (lanes,))]
    )


PACKET_DTYPE = packet_dtype(spec.LANES)

assert PACKET_DTYPE.itemsize == spec.PAYLOAD_BYTES


@dataclass(frozen=True, slots=True)
class Header:
    """A packet's header. `testbed.wire.spec.HEADER` has the fields' meanings."""

    op: int
    job: int
    worker: int
    contributors: int
    generation: int
    slot: int
    fragment: int
    count: int
    flags: int = 0
    tree: int = 0
    age: int = 0
    lanes: int = spec.LANES
    magic: int = spec.MAGIC
    version: int = spec.VERSION
    reserved: int = 0

    def pack(self) -> bytes:
        """Encode the header for the wire."""
        return _STRUCT.pack(*(getattr(self, name) for name in _NAMES))

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        """Decode a header from the first bytes of a datagram. ValueError if it is not of this format."""
        if len(data) < _STRUCT.size:
            raise ValueError(f"{len(data)} bytes; a header has {_STRUCT.size}")
        values = dict(zip(_NAMES, _STRUCT.unpack_from(data), strict=True))
        if values["magic"] != spec.MAGIC or values["version"] != spec.VERSION:
            raise ValueError(
                f"magic {values['magic']:#x} version {values['version']}; expected {spec.MAGIC:#x} "
                f"{spec.VERSION}"
            )
        return cls(**values)
