"""Links by hand: the rates and delays that a user gives them, and whether they are up, while a testbed runs.

Owns what was set, the names of the links that ever were, and the delays that ended. The rates that policies
give to the links of their jobs' workers are Wires' and LinkMarks' alone; a rate by hand is what such a link
has again afterwards.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from testbed.emulation.links import Wires, WireSpec
from testbed.errors import RequestError
from testbed.machine.links import NO_DELAY, LinkDelay
from testbed.messages.links import LinkSetting
from testbed.topology.link_names import meant

MOST_ENDED = 4_096  # delays that are remembered when they have ended: the newest
SetRates = Callable[[Mapping[str, float]], None]


class LinksByHand:
    """The links of a fabric that have a rate, in the hands of its user. Thread-safe."""

    def __init__(self, wires: Wires, specs: Sequence[WireSpec], set_rates: SetRates) -> None:
        self._wires, self._set_rates = wires, set_rates
        self._made = {wire.name: wire.rate_mbps for wire in specs if wire.rate_mbps is not None}
        self._unshaped = [wire.name for wire in specs if wire.rate_mbps is None]
        self._rates: dict[str, float] = {}
        self._ever: set[str] = set()
        self._ended: deque[tuple[float, str, LinkDelay]] = deque(maxlen=MOST_ENDED)
        self._lock = threading.Lock()  # the three above, and one change at a time

    def names(self, words: Sequence[str]) -> list[str]:
        """Return the links that these words mean. RequestError for one that is not there or has no rate."""
        names = meant(words, list(self._made))
        for name in names:
            if name in self._unshaped:
                raise RequestError(
                    f"link {name}: it has no rate, and nothing that could be set; {self._accepted}"
                )
            if name not in self._made:
                raise RequestError(f"link {name}: there is none; {self._accepted}")
        return names

    @property
    def _accepted(self) -> str:
        links = ", ".join(self._made)
        return f"accepted are {links}, a unit, all" if links else "this testbed has no link with a rate"

    def set(
        self,
        names: Sequence[str],
        rate_mbps: float | None = None,
        is_up: bool | None = None,
        delay: LinkDelay | None = None,
    ) -> None:
        """Set the rate of links, both directions of each, what each direction delays, or have them up or
        down, and read that back. Frames that wait in a link that goes down are lost, as are those that are
        sent into it. HostError, and nothing is changed, where this kernel cannot delay.
        """
        with self._lock:
            if delay is not None:
                self._set_delays(names, delay)
                self._ever.update(names)
            if rate_mbps is not None:
                self._set_rates(dict.fromkeys(names, rate_mbps))
                self._rates |= dict.fromkeys(names, rate_mbps)
                self._ever.update(names)
            if is_up is not None:
                self._wires.set_links(names, is_up)
                self._ever.update(names)

    def reset(self, names: Sequence[str]) -> None:
        """Give links the configuration's rates again, and have them up and without delay."""
        with self._lock:
            if delayed := [name for name in names if name in self._wires.delays()]:
                self._set_delays(delayed, NO_DELAY)
            rates = {name: self._made[name] for name in names if name in self._rates}
            self._set_rates({name: rate for name, rate in rates.items() if rate is not None})
            for name in rates:
                del self._rates[name]
            self._wires.set_links(names, True)

    def _set_delays(self, names: Sequence[str], delay: LinkDelay) -> None:
        before = dict(self._wires.delays())
        self._wires.set_delays(names, delay)
        now_s = time.monotonic()
        self._ended += [(now_s, name, before[name]) for name in names if before.get(name, delay) != delay]

    def rate_mbps(self, name: str) -> float | None:
        """Return the rate that a user has given to a link; None where nobody has."""
        return self._rates.get(name)

    def delays(self) -> dict[str, LinkDelay]:
        """Return what links delay by, of those that do."""
        return self._wires.delays()

    def ended_delays(self, since_s: float) -> list[tuple[str, LinkDelay]]:
        """Return the delays that were taken away, or replaced, since a moment of the monotonic clock."""
        with self._lock:
            return [(link, delay) for at_s, link, delay in self._ended if at_s >= since_s]

    def ever(self) -> frozenset[str]:
        """Return the links that were set by hand, if only for a while."""
        with self._lock:
            return frozenset(self._ever)

    def states(self) -> tuple[LinkSetting, ...]:
        """Return each link as the kernel has it now, beside what the configuration says."""
        statistics, delays = self._wires.statistics(), self._wires.delays()
        return tuple(
            LinkSetting(
                link=name,
                rate_mbps=statistics[name].rate_mbps,
                configured_mbps=made,
                by_hand_mbps=self._rates.get(name),
                up=statistics[name].is_up,
                delay_ms=delays.get(name, NO_DELAY).delay_ms,
                jitter_ms=delays.get(name, NO_DELAY).jitter_ms,
            )
            for name, made in self._made.items()
        )
