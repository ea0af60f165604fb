"""Link data that crosses the machine interface: settings of links, and counts of their frames. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from testbed.errors import RequestError

DIRECTIONS = ("up", "down")  # up: host to ToR, ToR to optical switch; down: back
MAX_DISTANCE = 10_000
_RATES = ("loss", "duplicate", "reorder", "corrupt")
ETHERNET_BYTES = 14
_FRAME_OVERHEAD_BYTES = ETHERNET_BYTES + 4  # with a VLAN tag
# How late a timer may be without loss of rate: when the kernel runs a shaper later than this, the rest of the
# tokens is lost. It is also the burst that a link lets through after a pause. docs/studies/performance.md,
# Links.
_BURST_S = 0.002


def rate_bytes_per_s(rate_mbps: float) -> int:
    return round(rate_mbps * 1e6 / 8)


def burst_bytes(rate_mbps: float, mtu: int) -> int:
    """Compute the depth of the token bucket: two milliseconds at the link's rate, but at least two frames."""
    return max(2 * (mtu + _FRAME_OVERHEAD_BYTES), round(rate_bytes_per_s(rate_mbps) * _BURST_S))


@dataclass(frozen=True, slots=True)
class LinkDelay:
    """A delay of each frame of a link, in both directions: `delay_ms`, varied for each frame by a random
    value of up to `jitter_ms` more or less.
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
    """A fault of one direction of a link. Rates are shares, 0 to 1; the last three are shares of the frames
    that are not lost.

    A reordered frame is sent directly after the frame that arrived `distance` frames later, lost frames
    included; if fewer arrive, it is held. A corrupted frame has one bit flipped after its Ethernet header.
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
        """Compute the capacity for held frames: six standard deviations above the mean of a binomial. Then a
        frame finds it full once in 10^9 frames at most.
        """
        if not self.reorder:
            return 0
        mean = self.reorder * self.distance
        return min(self.distance + 1, math.ceil(mean + 6 * math.sqrt(mean)) + 8)


@dataclass(frozen=True, slots=True)
class LinkDisturbance:
    """The fault of one direction of a link, or the delay of both directions."""

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
    """Frame counts of a capture. Forward is from end a of the link: from the host, from the unit's switch to
    the optical switch, or from a pod's ToR to its pod switch.
    """

    forward: int = 0
    backward: int = 0
    missed: int = 0  # frames that crossed but that the capture was too slow to store
    seconds: float = 0.0
