"""Links: their counters, settings and faults. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages.coding import Number


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """A link's counters since the testbed came up, in bytes with Ethernet headers; up is away from its host,
    port or rack. `rate_mbps` None: it has no rate. `up` says whether it has carrier. `queued_bytes` wait in
    its two queues now.
    """

    name: str
    rate_mbps: Number | None
    bytes: int
    bytes_up: int
    bytes_down: int
    drops: int
    up: bool = True
    queued_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CalendarStatus:
    """A calendar queue's counts since the testbed came up: of the frames of `unit` that wait for a slot in
    which a circuit leads to `goal`.

    `held` came, and `sent` left in such a slot. `dropped` found the queue full; for `unlit` no matching
    leads there. `marked` frames were told of congestion (RFC 3168). `missed` came to their link too late and
    waited again. `longest_ms` is the longest wait of a sent frame.
    """

    unit: str
    goal: str
    held: int
    sent: int
    dropped: int
    unlit: int
    marked: int
    missed: int
    waiting: int
    waiting_bytes: int
    longest_ms: Number


@dataclass(frozen=True, slots=True)
class LinkDelta:
    """A link's counters over a job's time. Of the drops, `device_drops` were not caused by a full queue; the
    first versions did not count them.
    """

    name: str
    rate_mbps: Number | None
    bytes: int
    bytes_up: int
    bytes_down: int
    drops: int
    device_drops: int = 0


@dataclass(frozen=True, slots=True)
class LinkSetting:
    """A link's state in the kernel, beside its configured rate and the rate that was set by hand."""

    link: str
    rate_mbps: Number | None
    configured_mbps: Number
    by_hand_mbps: Number | None
    up: bool
    delay_ms: Number
    jitter_ms: Number

    @property
    def is_changed(self) -> bool:
        """Return whether anything is set by hand on it."""
        return self.by_hand_mbps is not None or not self.up or bool(self.delay_ms)


@dataclass(frozen=True, slots=True)
class FaultStatus:
    """The fault of one direction of a link, with rates as shares of its frames (0 to 1), and its counters
    since it was set (testbed/dataplanes/xdp/link_faults.py, COUNTERS).
    """

    link: str
    direction: str
    loss: Number
    duplicate: Number
    reorder: Number
    corrupt: Number
    distance: int
    seed: int
    counters: dict[str, int]
