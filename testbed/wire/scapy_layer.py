"""Gradient packets in scapy, derived from `spec`: importing this module makes scapy decode datagrams to the
gradient port.

`GradientPacket` over IP()/UDP() builds a packet with its checksums; `rdpcap` shows one by its fields. scapy
is imported only here.
"""

from __future__ import annotations

from typing import Any

from scapy.fields import (
    ByteEnumField,
    ByteField,
    Field,
    FieldListField,
    FlagsField,
    IntField,
    ShortField,
    XShortField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, Raw, bind_layers

from testbed.wire import spec

_DEFAULTS = {"magic": spec.MAGIC, "version": spec.VERSION, "op": int(spec.Op.PUSH)}
_MOST_LANES = 65535 // 4
_PLAIN = {8: ByteField, 16: ShortField, 32: IntField}


def _field(field: spec.Field) -> Field[Any, Any]:
    default = _DEFAULTS.get(field.name, 0)
    if field.name == "magic":
        return XShortField(field.name, default)
    if field.name == "op":
        return ByteEnumField(field.name, default, {op.value: op.name for op in spec.Op})
    if field.name == "flags":
        by_bit = [
            spec.Flag(1 << bit).name or "" if 1 << bit in set(spec.Flag) else f"bit{bit}"
            for bit in range(field.bits)
        ]
        return FlagsField(field.name, default, field.bits, by_bit)
    made: Field[Any, Any] = _PLAIN[field.bits](field.name, default)
    return made


class GradientPacket(Packet):
    """A header and its lanes; a notice has none. `gradients` are the lanes' values, `lanes` their number."""

    name = "Gradient"
    fields_desc = [  # noqa: RUF012 (scapy's metaclass reads it)
        *(_field(field) for field in spec.HEADER),
        FieldListField("gradients", [], IntField("gradient", 0), max_count=_MOST_LANES),
    ]

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_: Any, **__: Any) -> type[Packet]:
        """Decode a payload without the magic as raw bytes."""
        if _pkt is not None and _pkt[:2] != spec.MAGIC.to_bytes(2, "big"):
            return Raw
        return cls


# every scapy packet has a method `fragment`, which would hide the field; in the class body this property
# would be taken for a default
GradientPacket.fragment = property(lambda packet: packet.getfieldval("fragment"))  # type: ignore[method-assign,assignment]
bind_layers(UDP, GradientPacket, dport=spec.UDP_PORT)
