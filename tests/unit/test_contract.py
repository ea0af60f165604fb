"""The wire format: rendered files are fresh, and the codec round-trips."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.contract import codec, emit, spec


def test_rendered_files_are_fresh() -> None:
    assert emit.stale() == [], "run `python -m testbed.contract.emit`"


def test_a_packet_fills_an_ethernet_frame() -> None:
    assert spec.FRAME_BYTES == 1514
    assert codec.PACKET_DTYPE.itemsize == spec.PAYLOAD_BYTES


@given(
    st.fixed_dictionaries(
        {f.name: st.integers(0, 2**f.bits - 1) for f in spec.HEADER if f.name not in ("magic", "version")}
    )
)
def test_header_round_trips_and_agrees_with_the_array_form(values: dict[str, int]) -> None:
    header = codec.Header(**values)
    assert codec.Header.unpack(header.pack()) == header
    array = np.frombuffer(header.pack(), codec.HEADER_DTYPE)[0]
    assert {name: int(array[name]) for name in values} == values


@pytest.mark.parametrize(("data", "said"), [(b"", "0 bytes"), (b"\0" * 32, "magic 0x0")])
def test_what_is_no_header_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        codec.Header.unpack(data)


def test_bias_has_room_for_every_worker() -> None:
    for workers in range(1, spec.MAX_WORKERS + 1):
        assert workers * (2 * spec.bias(workers) - 1) < 2**32
