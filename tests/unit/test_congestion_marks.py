"""The queue at which links begin to mark, and the description of a queue that the marking program gets."""

from __future__ import annotations

import pytest

from testbed.emulation import congestion_marks
from testbed.emulation.congestion_marks import LinkMarks, queue_of, threshold_bytes
from testbed.emulation.links import WireEnd, WireSpec
from testbed.errors import HostError

FRAME = 1514


def wire(rate_mbps: float, packets: int, mtu: int = 1500) -> WireSpec:
    return WireSpec("w", WireEnd("a"), WireEnd("b"), rate_mbps, packets * (mtu + 14), mtu)


@pytest.mark.parametrize(
    ("rate_mbps", "packets", "expected"),
    [
        (200, 16, 4 * FRAME),
        (200, 32, 8 * FRAME),
        (100, 256, 25_000),  # two milliseconds
        (200, 10_000, 50_000),
        (10, 10_000, 4 * FRAME),
        (1, 16, 4 * FRAME),
        (10_000, 16, 4 * FRAME),
    ],
)
def test_a_link_marks_from_a_quarter_of_its_queue_or_two_milliseconds(
    rate_mbps: float, packets: int, expected: int
) -> None:
    assert threshold_bytes(wire(rate_mbps, packets)) == expected


@pytest.mark.parametrize("rate_mbps", [1, 10, 200, 1000, 20_000])
def test_the_program_counts_in_times_at_the_links_rate(rate_mbps: float) -> None:
    words = queue_of(wire(rate_mbps, 256)).words()
    frame_ns = FRAME * 8e3 / rate_mbps
    assert (FRAME * words["byte_time"] >> 16) == pytest.approx(frame_ns, rel=0.001)
    assert words["limit"] == pytest.approx(256 * frame_ns, abs=1)
    assert words["bucket"] == pytest.approx(max(2e6, 2 * 1518 * 8e3 / rate_mbps), rel=0.001)
    assert words["threshold"] < words["limit"] / 3.9


class Refused:
    """A program that this host does not load."""

    def __init__(self) -> None:
        raise HostError("load the marking program: refused")


def test_links_without_a_rate_want_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(congestion_marks, "MarkProgram", Refused)
    with LinkMarks([WireSpec("w", WireEnd("a"), WireEnd("b"), None, 100, 1500)]) as unshaped:
        unshaped.attach(-1)


def test_a_program_that_does_not_load_is_told_when_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(congestion_marks, "MarkProgram", Refused)
    with LinkMarks([wire(200, 256)]) as shaped, pytest.raises(HostError, match="refused"):
        shaped.attach(-1)
