"""Delays of links: the messages to the kernel, as <linux/pkt_sched.h> has them, and what is read back."""

from __future__ import annotations

import errno
import struct
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation import links
from testbed.emulation.delay_stage import DelayedEnd, booked
from testbed.emulation.links import WireEnd, Wires, WireSpec, check_delay, inner_devices
from testbed.emulation.netem import (
    delays,
    end_delay,
    room_bytes,
    room_packets,
    set_delay,
)
from testbed.emulation.netlink import Message, NetlinkError, RouteSocket, attribute, attributes
from testbed.errors import SettingError
from testbed.keys import Percentage, Time
from testbed.machine.links import NO_DELAY, LinkDelay

DELAY = LinkDelay(5.0, 0.25)
WIRE = WireSpec("u1h1", WireEnd("a"), WireEnd("b"), 100.0, 256 * 1514)


def test_a_delay_is_a_netem_within_the_token_bucket() -> None:
    message = set_delay(7, DELAY, room=420)
    ifindex, handle, parent, _ = struct.unpack_from("=4xiIII", message.body)
    assert (ifindex, handle, parent) == (7, 0x100000, 0x10001), "10: below 1:1"
    values = attributes(message.body[20:])
    assert values[1] == b"netem\0"
    assert struct.unpack_from("=6I", values[2]) == (0, 420, 0, 0, 0, 0), "nothing lost or copied"
    further = attributes(values[2][24:])
    assert {kind: struct.unpack("=q", value)[0] for kind, value in further.items()} == {
        10: 5_000_000,
        11: 250_000,
    }
    assert message.what == "delay device 7 by 5 ms, 0.25 ms more or less"


def test_the_end_of_a_delay_is_a_queue_of_bytes_again() -> None:
    message = end_delay(7, 387_584)
    assert struct.unpack_from("=4xiIII", message.body)[:3] == (7, 0x110000, 0x10001)
    values = attributes(message.body[20:])
    assert (values[1], struct.unpack("=I", values[2])) == (b"bfifo\0", (387_584,))


def test_there_is_room_for_what_is_under_way_and_for_what_waits() -> None:
    assert room_packets(NO_DELAY, 12_500_000, 256 * 1514, 1514) == 256
    assert room_packets(LinkDelay(10.0), 12_500_000, 256 * 1514, 1514) == 256 + 83, "125,000 bytes more"
    assert room_packets(LinkDelay(10.0, 10.0), 12_500_000, 256 * 1514, 1514) == 256 + 166


class Kernel:
    """A netlink socket: keeps netem's numbers of each device, or has no netem."""

    def __init__(self, has_netem: bool = True) -> None:
        self.has_netem, self.sent = has_netem, list[Message]()
        self.options: dict[int, bytes] = {}

    def send(self, messages: list[Message]) -> None:
        for message in messages:
            ifindex = struct.unpack_from("=4xi", message.body)[0]
            values = attributes(message.body[20:])
            if values[1] == b"netem\0" and not self.has_netem:
                raise NetlinkError(message.what, errno.ENOENT, "Specified qdisc kind is unknown")
            self.sent.append(message)
            if values[1] == b"netem\0":
                self.options[ifindex] = values[2] + attribute(99, b"more")
            elif values[1] == b"bfifo\0":
                self.options.pop(ifindex, None)

    def queues(self, kind: str) -> Iterator[tuple[int, dict[int, bytes]]]:
        assert kind == "netem"
        return ((ifindex, {2: options}) for ifindex, options in self.options.items())


def wires(kernel: Kernel) -> Wires:
    made: Any = object.__new__(Wires)
    made._wires, made._shaped = (WIRE,), [WIRE]
    made._inner = dict(zip(inner_devices(WIRE), (8, 9), strict=True))
    made._wires_route, made._counting, made._stage = kernel, threading.Lock(), None
    made._checked, made._namespaces = {}, {"wires": 3}
    made._checking, made.follow_delay = threading.Lock(), lambda *_: None
    made.follow_delays = lambda _: None
    return cast(Wires, made)


def test_both_directions_delay_and_are_read_back() -> None:
    kernel = Kernel()
    made = wires(kernel)
    made.set_delays(["u1h1"], DELAY)
    assert delays(cast(RouteSocket, kernel)) == {8: (5_000_000, 250_000), 9: (5_000_000, 250_000)}
    assert made.delays() == {"u1h1": DELAY}
    sent = len(kernel.sent)
    made.set_delays(["u1h1"], DELAY)
    assert len(kernel.sent) == sent, "what is so already is not set again"
    made.set_delays(["u1h1"], NO_DELAY)
    assert (kernel.options, made.delays()) == ({}, {})


class Stage:
    """A DelayStage that stores what is set."""

    def __init__(self, namespace: int, mtu: int) -> None:
        assert (namespace, mtu) == (3, 1500)
        self.ends: dict[DelayedEnd, LinkDelay] = {}

    def set(self, end: DelayedEnd, delay: LinkDelay) -> None:
        self.ends[end] = delay


def test_a_kernel_without_netem_delays_by_the_testbeds_own_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "DelayStage", Stage)
    monkeypatch.setattr(links, "_INNER_IFINDEX", 8)
    kernel = Kernel(has_netem=False)
    made = wires(kernel)
    made.set_delays(["u1h1"], DELAY)
    assert (kernel.sent, made.delays()) == ([], {"u1h1": DELAY})
    stage = cast(Any, made._stage)
    room = room_bytes(DELAY, 12_500_000, 256 * 1514)
    ends = [DelayedEnd(8, 9, 0, room), DelayedEnd(9, 8, 1, room)]
    assert stage.ends == dict.fromkeys(ends, DELAY)
    made.set_delays(["u1h1"], NO_DELAY)
    assert set(stage.ends.values()) >= {NO_DELAY}
    assert (made.delays(), made._stage) == ({}, stage)


@pytest.mark.parametrize(
    ("read", "says"), [(None, "no delay"), ((4_000_000, 250_000), "4 ms, 0.25 ms more or less")]
)
def test_a_delay_that_reads_back_otherwise_is_an_error(read: tuple[int, int] | None, says: str) -> None:
    delayed = SimpleNamespace(name="u1h1", delay=DELAY)
    with pytest.raises(
        SettingError, match=f"link u1h1: a delay of {DELAY} was set, and u1h1-a reads back {says}"
    ):
        check_delay(cast(WireSpec, delayed), "u1h1-a", read)
    check_delay(cast(WireSpec, delayed), "u1h1-a", (5_000_000, 250_000))
    check_delay(WIRE, "u1h1-a", None)


def test_frames_that_overran_are_booked_where_most_are_missing_and_never_taken_back() -> None:
    assert booked({}, {1: 3, 2: 0}, 0) == {1: 0, 2: 0}, "on their way"
    first = booked({}, {1: 9, 2: 1}, 5)
    assert first == {1: 5, 2: 0}
    assert booked(first, {1: 5, 2: 0}, 5) == first
    assert booked(first, {1: 5, 2: 7}, 8) == {1: 5, 2: 3}
    assert booked(first, {1: 5, 2: 0}, 7) == {1: 7, 2: 0}, "counted, though none is missing yet"
    assert booked({}, {}, 3) == {}


@given(st.floats(1e-6, 10_000), st.floats(0, 1))
def test_times_and_percentages_are_read_back_as_they_were_written(time_ms: float, share: float) -> None:
    assert Time.read(Time.written(time_ms)) == time_ms
    assert Percentage.read(Percentage.written(share)) == share


@pytest.mark.parametrize(
    ("raw", "time_ms"),
    [("0.0001us", None), ("0.001us", 1e-6), ("0ms", 0.0), ("10s", 10_000.0), ("1e3us", None)],
)
def test_times_below_a_nanosecond_are_none(raw: str, time_ms: float | None) -> None:
    assert Time.read(raw) == time_ms
