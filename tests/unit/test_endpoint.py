"""The compiled endpoint against its NumPy statement, and the wire format that it repeats."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.wire import spec
from testbed.wire.endpoint import Event
from workloads import endpoint, quantiser
from workloads.endpoint import Endpoint, library

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(FLOATS, min_size=1, max_size=70), st.integers(1, 64))
def test_lanes_are_those_of_the_quantiser_bit_by_bit(values: list[float], workers: int) -> None:
    array = np.array(values, np.float32)
    scale = quantiser.scale_of(quantiser.largest_exponent(array), workers)
    expected, result = np.empty(array.size, ">u4"), np.empty(array.size, ">u4")
    zeroed = quantiser.encode(array, scale, workers, expected)
    assert zeroed == library().endpoint_encode(
        array.ctypes.data, result.ctypes.data, array.size, scale, spec.bias(workers)
    )
    assert np.array_equal(expected, result)


@given(
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=70), st.integers(1, 64), st.integers(-126, 126)
)
def test_values_are_those_of_the_quantiser_bit_by_bit(sums: list[int], workers: int, scale: int) -> None:
    lanes = np.array(sums, ">u4")
    expected, result = np.empty(lanes.size, np.float32), np.empty(lanes.size, np.float32)
    for contributors in {workers, 1 + workers // 2}:
        quantiser.decode(lanes, scale, workers, contributors, expected)
        offset, factor = contributors * spec.bias(workers), workers / contributors * 2.0**-scale
        library().endpoint_decode(lanes.ctypes.data, result.ctypes.data, lanes.size, factor, offset)
        assert np.array_equal(expected.view(np.uint32), result.view(np.uint32))


def test_an_endpoint_of_other_sources_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    class Longer(endpoint._Settings):
        _fields_ = (("another", ctypes.c_uint64),)

    monkeypatch.setattr(endpoint, "_Settings", Longer)
    with pytest.raises(RuntimeError, match="was compiled from other sources; run: sudo make setup"):
        library()


@pytest.mark.parametrize(("mtu", "lanes"), [(1500, 360), (3476, 854), (1504, 360), (1508, 362)])
def test_lanes_fill_the_mtu_in_pairs(mtu: int, lanes: int) -> None:
    assert spec.lanes_for(mtu) == lanes
    assert 28 + spec.payload_bytes(lanes) <= mtu


@pytest.mark.parametrize("contributors", [2, 3])
def test_only_a_nan_that_all_workers_heard_of_may_be_summed_otherwise(contributors: int) -> None:
    """The others may have their sum where a vote lacks workers, and would not come."""
    endpoint = Endpoint.__new__(Endpoint)
    endpoint._workers, endpoint._broken = 3, None
    error = endpoint._explained(Event.NOT_FINITE, 1, contributors, 1)
    assert isinstance(error, quantiser.NotFiniteError)
    assert isinstance(error, quantiser.UnheardError) == (contributors < 3)
    assert endpoint._broken is (error if contributors < 3 else None)
