"""The scapy layer and the codec read each other's packets."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from testbed.wire import codec, spec
from testbed.wire.frame import NO_LANES, Frame
from testbed.wire.scapy_layer import GradientPacket

HEADERS = st.fixed_dictionaries(
    {f.name: st.integers(0, 2**f.bits - 1) for f in spec.HEADER if f.name not in ("magic", "version", "op")}
)
ADDRESSES = ("10.0.1.2", "10.0.1.254")


def plain(packet: GradientPacket) -> dict[str, int]:
    return {field.name: int(getattr(packet, field.name)) for field in spec.HEADER}


@settings(max_examples=30)
@given(HEADERS, st.sampled_from(list(spec.Op)), st.integers(0, 2**32 - 1))
def test_scapy_reads_what_the_codec_writes(values: dict[str, int], op: spec.Op, seed: int) -> None:
    header = codec.Header(**{**values, "op": op})
    lanes = np.random.default_rng(seed).integers(0, 2**32, spec.LANES, dtype=np.uint32)
    read = Ether(Frame(header, lanes, *ADDRESSES).pack())
    assert plain(read[GradientPacket]) == {field.name: getattr(header, field.name) for field in spec.HEADER}
    assert read[GradientPacket].gradients == lanes.tolist()
    assert (read[IP].src, read[IP].dst, read[UDP].dport) == ("10.0.1.2", "10.0.1.254", spec.UDP_PORT)


@settings(max_examples=30)
@given(HEADERS, st.integers(0, 2**32 - 1))
def test_the_codec_reads_what_scapy_writes(values: dict[str, int], seed: int) -> None:
    lanes = np.random.default_rng(seed).integers(0, 2**32, spec.LANES, dtype=np.uint32)
    fields: dict[str, Any] = {**values, "count": values["count"] % (spec.LANES + 1), "lanes": spec.LANES}
    made = (
        Ether()
        / IP(src="10.0.1.2", dst="10.0.1.254")
        / UDP()
        / GradientPacket(gradients=lanes.tolist(), **fields)
    )
    data = bytes(made)
    read = Frame.parse(data)  # raises for a length or checksum that is not right
    assert read.lanes.tolist() == lanes.tolist()
    assert plain(made[GradientPacket]) == {
        field.name: getattr(read.header, field.name) for field in spec.HEADER
    }
    assert len(data) == spec.FRAME_HEADERS_BYTES + spec.PAYLOAD_BYTES


def test_a_notice_has_no_lanes() -> None:
    header = codec.Header(spec.Op.NOTICE, 7, 1, 1, 3, 48, 5, 0, flags=spec.Flag.ECN)
    read = Ether(Frame(header, NO_LANES, *ADDRESSES).pack())[GradientPacket]
    assert (read.op, read.gradients, str(read.flags)) == (spec.Op.NOTICE, [], "ECN")


def test_names_are_shown() -> None:
    shown = str(GradientPacket(op=spec.Op.RESULT, flags=spec.Flag.FINAL | spec.Flag.ECN).show(dump=True))
    assert "RESULT" in shown
    assert "FINAL+ECN" in shown


def test_what_is_no_gradient_packet_is_left_alone() -> None:
    read = Ether(bytes(Ether() / IP() / UDP(dport=spec.UDP_PORT) / Raw(b"hello")))
    assert GradientPacket not in read
    assert bytes(read[UDP].payload) == b"hello"
