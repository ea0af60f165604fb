"""Delay links by the kernel's netem inside a link's token bucket: a frame first waits for the link's delay,
then for the link's rate; the bucket and its counters stay as they are.

Owns the encoding, and reading back. Knows nothing of wires.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from testbed.emulation.netlink import Message, RouteSocket, add_queue, attribute, attributes
from testbed.machine.links import LinkDelay

# <linux/pkt_sched.h>
_LATENCY64, _JITTER64 = 10, 11
_QUEUE = struct.Struct("=6I")  # struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter
_NETEM_HANDLE, _PLAIN_HANDLE = 0x100000, 0x110000


def room_bytes(delay: LinkDelay, rate_bytes_per_s: int, queue_bytes: int) -> int:
    """Compute the bytes of frames that a delay must hold: those under way at the link's rate, plus those of a
    full queue.
    """
    return math.ceil(rate_bytes_per_s * (delay.delay_ms + delay.jitter_ms) / 1e3 + queue_bytes)


def room_packets(delay: LinkDelay, rate_bytes_per_s: int, queue_bytes: int, frame_bytes: int) -> int:
    """Compute the frames of full size in `room_bytes`."""
    return math.ceil(room_bytes(delay, rate_bytes_per_s, queue_bytes) / frame_bytes)


def set_delay(ifindex: int, delay: LinkDelay, room: int) -> Message:
    """Make the message that delays what a shaped device sends. Changing a delay loses no queued frames."""
    delay_ns, jitter_ns = delay.nanoseconds
    options = _QUEUE.pack(0, room, 0, 0, 0, 0)
    options += attribute(_LATENCY64, struct.pack("=q", delay_ns))
    options += attribute(_JITTER64, struct.pack("=q", jitter_ns))
    return add_queue(ifindex, "netem", _NETEM_HANDLE, options, f"delay device {ifindex} by {delay}")


def end_delay(ifindex: int, queue_bytes: int) -> Message:
    """Make the message that ends a shaped device's delay. Its bucket's queue becomes one of bytes again, as
    the kernel makes it with the bucket.
    """
    limit = struct.pack("=I", queue_bytes)  # struct tc_fifo_qopt
    return add_queue(ifindex, "bfifo", _PLAIN_HANDLE, limit, f"end the delay of device {ifindex}")


def delays(route: RouteSocket) -> dict[int, tuple[int, int]]:
    """Return, by ifindex, the delay and jitter in nanoseconds of every device that has a delay."""
    return dict(_read(route))


def _read(route: RouteSocket) -> Iterator[tuple[int, tuple[int, int]]]:
    for ifindex, values in route.queues("netem"):
        further = attributes(values[2][_QUEUE.size :])
        delay_ns, jitter_ns = (struct.unpack("=q", further[kind])[0] for kind in (_LATENCY64, _JITTER64))
        yield ifindex, (delay_ns, jitter_ns)
