"""Links by hand: the rates and delays that a user sets, and whether links are up, while a testbed runs.

Owns the settings, the names of all links that ever had some, and the delays that ended. The rates that
policies set on the links of their jobs' workers are only in Wires and LinkMarks; a rate by hand is what such
a link returns to afterwards.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from testbed.emulation.links import Wires, WireSpec
from testbed.errors import RequestError, TestbedError
from testbed.machine.links import NO_DELAY, LinkDelay
from testbed.messages.links import LinkSetting
from testbed.topology.link_names import meant

MOST_ENDED = 4_096  # ended delays that are remembered, the newest ones
SetRates = Callable[[Mapping[str, float]], None]


class LinksByHand:
    """A user's settings on the links of a fabric that have a rate. Thread-safe."""

    def __init__(self, wires: Wires, specs: Sequence[WireSpec], set_rates: SetRates) -> None:
        self._wires, self._set_rates = wires, set_rates
        self._made = {wire.name: wire.rate_mbps for wire in specs if wire.rate_mbps is not None}
        self._delays = {wire.name: wire.delay for wire in specs}
        self._unshaped = [wire.name for wire in specs if wire.rate_mbps is None]
        self._rates: dict[str, float] = {}
        self._ever: set[str] = set()
        self._ended: deque[tuple[float, str, LinkDelay]] = deque(maxlen=MOST_ENDED)
        self._lock = threading.Lock()  # guards the three fields above, and serialises changes

    def names(self, words: Sequence[str]) -> list[str]:
        """Return the links that a user's words select. RequestError for a link that does not exist or has no
        rate.
        """
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
        """Set the rate or the delay of links, in both directions, or set them up or down, and read that back.
        Frames waiting in a link that goes down, or sent into it, are lost. HostError, with nothing changed,
        if this kernel cannot delay.
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
        """Restore the configuration's rates and delays of links, and set them up."""
        with self._lock:
            now, failed = self._wires.delays(), list[TestbedError]()
            for name in names:
                if now.get(name, NO_DELAY) != self._delays[name]:
                    try:
                        self._set_delays([name], self._delays[name])
                    except TestbedError as error:  # a device is gone; the other links are reset all the same
                        failed.append(error)
            rates = {name: self._made[name] for name in names if name in self._rates}
            self._set_rates({name: rate for name, rate in rates.items() if rate is not None})
            for name in rates:
                del self._rates[name]
            self._wires.set_links(names, True)
            if failed:
                raise failed[0]

    def _set_delays(self, names: Sequence[str], delay: LinkDelay) -> None:
        before = dict(self._wires.delays())
        self._wires.set_delays(names, delay)
        now_s = time.monotonic()
        self._ended += [(now_s, name, before[name]) for name in names if before.get(name, delay) != delay]

    def rate_mbps(self, name: str) -> float | None:
        """Return the rate that a user set on a link; None if no user did."""
        return self._rates.get(name)

    def delays(self) -> dict[str, LinkDelay]:
        """Return the delays of the links that have one."""
        return self._wires.delays()

    def ended_delays(self, since_s: float) -> list[tuple[str, LinkDelay]]:
        """Return the delays that were removed or replaced since a time of the monotonic clock."""
        with self._lock:
            return [(link, delay) for at_s, link, delay in self._ended if at_s >= since_s]

    def ever(self) -> frozenset[str]:
        """Return the links that were ever set by hand."""
        with self._lock:
            return frozenset(self._ever)

    def states(self) -> tuple[LinkSetting, ...]:
        """Return each link's settings in the kernel, beside the configuration's."""
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
