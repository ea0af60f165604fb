"""The data of links that crosses the interface of a machine: what is set on them, and what was counted of
their frames. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from testbed.errors import RequestError

DIRECTIONS = ("up", "down")  # from a host to its ToR, from a ToR to the optical switch; and back
MAX_DISTANCE = 10_000
_RATES = ("loss", "duplicate", "reorder", "corrupt")
ETHERNET_BYTES = 14
_FRAME_OVERHEAD_BYTES = ETHERNET_BYTES + 4  # with a VLAN tag
# What a late timer may cost nothing: a shaper that the kernel runs later than this loses the rest. It is also
# what a link lets through at once after a pause. docs/studies/performance.md, Links.
_BURST_S = 0.002


def rate_bytes_per_s(rate_mbps: float) -> int:
    return round(rate_mbps * 1e6 / 8)


def burst_bytes(rate_mbps: float, mtu: int) -> int:
    """The token bucket's depth: two milliseconds' worth, and never less than two frames."""
    return max(2 * (mtu + _FRAME_OVERHEAD_BYTES), round(rate_bytes_per_s(rate_mbps) * _BURST_S))


@dataclass(frozen=True, slots=True)
class LinkDelay:
    """A link delays each frame, either way, by so long, and by up to `jitter_ms` more or less, which is drawn
    for each frame.
    """

    delay_ms: float
    jitter_ms: float = 0.0

    @property
    def nanoseconds(self) -> tuple[int, int]:
        return round(self.delay_ms * 1e6), round(self.jitter_ms * 1e6)

    def __str__(self) -> str:
        jitter = f", {self.jitter_ms:g} ms more or less" if self.jitter_ms else ""
        return f"{self.delay_ms:g} ms{jitter}"


NO_DELAY = LinkDelay(0.0)


@dataclass(frozen=True, slots=True)
class LinkFault:
    """The fault that one direction's frames meet. Rates are shares, 0 to 1; the last three are of the frames
    that are not lost.

    A frame that is reordered goes out directly behind the frame that arrived `distance` after it; `distance`
    counts lost frames too. Where fewer come, it stays. A corrupted frame has one bit flipped behind its
    Ethernet header.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    distance: int = 50
    seed: int = 1

    def __post_init__(self) -> None:
        for name in _RATES:
            rate = getattr(self, name)
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
                shown = f"{100 * rate:g} %" if isinstance(rate, int | float) else repr(rate)
                raise RequestError(f"{name}: {shown}; 0 to 100 % is accepted")
        if not any(getattr(self, name) for name in _RATES):
            raise RequestError(
                f"no fault: a rate above 0 of {', '.join(_RATES)} is needed; `clear` ends a fault"
            )
        _whole("distance", self.distance, 1, MAX_DISTANCE)
        _whole("seed", self.seed, 0, 2**63 - 1)

    @property
    def cells(self) -> int:
        """Room for frames held: six deviations above the mean of a binomial; more would be found full once in
        10^9 frames.
        """
        if not self.reorder:
            return 0
        mean = self.reorder * self.distance
        return min(self.distance + 1, math.ceil(mean + 6 * math.sqrt(mean)) + 8)


@dataclass(frozen=True, slots=True)
class LinkDisturbance:
    """The fault of one direction of a link, or the delay of both."""

    link: str
    direction: str
    what: LinkFault | LinkDelay

    def __str__(self) -> str:
        if isinstance(self.what, LinkDelay):
            words = f"delay {self.what}"
        else:
            rates = {name: getattr(self.what, name) for name in _RATES}
            words = ", ".join(f"{name} {100 * rate:g}%" for name, rate in rates.items() if rate)
        return f"{self.link} {self.direction} {words}"


def _whole(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(f"{name}: {value!r}; a whole number from {low} to {high} is accepted")


@dataclass(slots=True)
class Captured:
    """The frames of a capture, counted. Forward is from end a of the link: from the host, or from the unit's
    switch to the optical one, or from a pod's ToR to its pod switch.
    """

    forward: int = 0
    backward: int = 0
    missed: int = 0  # frames that crossed and that the capture was too slow for
    seconds: float = 0.0
