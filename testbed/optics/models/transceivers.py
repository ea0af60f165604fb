"""Mirrors move, then transceivers lock: all alike, or each port with its own lock time and failed
attempts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from testbed.keys import Duration, Parameter, Quantity
from testbed.optics.delays import Delay
from testbed.optics.model import (
    MOST_DARK_NS,
    CircuitTurn,
    DarkTime,
    DarkTimes,
    OpticalModel,
    Settings,
)


@dataclass(frozen=True, slots=True)
class Locking:
    """A port's parameters of locking. `lock_ms` is None if the port shares the lock time that its plane, or
    the change, draws.
    """

    lock_ms: Delay | None
    lock_failure: float
    retry_ms: Delay


class Transceivers(OpticalModel):
    """The default optical model.

    Each change draws one switching time and one lock time. Planes that have settings of their own draw both
    for themselves; a port with its own `lock_ms` draws that. An attempt to lock fails with probability
    `lock_failure`; it then takes `retry_ms` (None: as `lock_ms`) and is repeated.
    """

    name = "transceivers"
    summary = "mirrors move, then transceivers lock; an attempt to lock may fail"
    parameters = (
        Parameter(
            "switch_ms",
            Duration(),
            Delay("constant", 10.0),
            "how long the mirrors of the optical switch move",
            of_planes=True,
        ),
        Parameter(
            "lock_ms",
            Duration(),
            Delay("uniform", 5.0, 15.0),
            "how long transceivers then take to lock",
            of_planes=True,
            of_ports=True,
        ),
        Parameter(
            "lock_failure",
            Quantity(0, 0.9, "a probability"),
            0.0,
            "how likely an attempt to lock fails, so that another attempt follows",
            of_planes=True,
            of_ports=True,
        ),
        Parameter(
            "retry_ms",
            Duration(),
            None,
            "how long a further attempt to lock takes",
            of_planes=True,
            of_ports=True,
            usual="as `lock_ms`",
        ),
    )

    def __init__(self, settings: Settings, seed: int = 1, ports: Mapping[str, str] | None = None) -> None:
        super().__init__(settings, seed, ports)
        self._sequence: Random | None = None

    def dark_times(self, turn: CircuitTurn) -> DarkTimes:
        """Draw the dark time of each circuit that the change sets up: until both its transceivers have
        locked. A port's draws depend only on the seed, the number of the change and the port. A change that
        sets up no circuit has the longest draw of the planes whose circuits it clears.
        """
        drawn = self._next_draw(turn.number)
        if self.locks_alike:
            return DarkTimes(drawn)
        of_planes = {
            plane: self._drawn(plane, self.random(turn, f"plane {plane}")) for plane in self.settings.planes
        }
        circuits, failed = {}, {}
        for circuit in turn.added:
            plane, locks_ns = self.plane(circuit), []
            base = of_planes.get(plane, drawn)
            for port in circuit:
                lock_ns, failures = self._lock(port, plane, base, self.random(turn, port))
                locks_ns.append(lock_ns)
                if failures:
                    failed[port] = failures
            circuits[circuit] = DarkTime(base.switch_ns, max(locks_ns))
        without = [of_planes.get(self.plane(circuit), drawn) for circuit in turn.removed]
        return DarkTimes(max(without, key=lambda time: time.total_ns, default=drawn), circuits, failed)

    def mean_ms(self, plane: str = "") -> float:
        """Return the mean dark time of a plane's ports in milliseconds, that of the slowest port where they
        differ.
        """
        switch_ms: Delay = self.at_plane("switch_ms", plane)
        return switch_ms.mean_ms + max(self._mean_lock_ms(port, plane) for port in (*self.settings.ports, ""))

    @property
    def locks_alike(self) -> bool:
        """Return whether all transceivers lock after the same time, at the first attempt."""
        return not self.settings["lock_failure"] and not self.settings.ports and not self.settings.planes

    def at_plane(self, name: str, plane: str) -> Any:
        """Return a parameter's value on a plane, for ports without a value of their own."""
        return self.settings.of(name, "", plane)

    def at_port(self, port: str, plane: str = "") -> Locking:
        """Return a port's parameters of locking."""
        own = self.settings.ports.get(port, {})
        lock_ms = own.get("lock_ms")
        retry_ms = own.get("retry_ms") or self.at_plane("retry_ms", plane) or lock_ms
        return Locking(
            lock_ms,
            own.get("lock_failure", self.at_plane("lock_failure", plane)),
            retry_ms or self.at_plane("lock_ms", plane),
        )

    def _next_draw(self, number: int) -> DarkTime:
        """Draw the next dark time of the sequence. The first call skips the draws of the changes before this
        object was made.
        """
        if self._sequence is None:
            self._sequence = Random(self.seed)
            for _ in range(number - 1):
                self._drawn("", self._sequence)
        return self._drawn("", self._sequence)

    def _drawn(self, plane: str, random: Random) -> DarkTime:
        switch_ms: Delay = self.at_plane("switch_ms", plane)
        lock_ms: Delay = self.at_plane("lock_ms", plane)
        return DarkTime(switch_ms.draw_ns(random), lock_ms.draw_ns(random))

    def _lock(self, port: str, plane: str, dark: DarkTime, random: Random) -> tuple[int, int]:
        """Draw a transceiver's lock time in nanoseconds, failed attempts included, and the number of
        those.
        """
        at, failures = self.at_port(port, plane), 0
        lock_ns = dark.lock_ns if at.lock_ms is None else at.lock_ms.draw_ns(random)
        while random.random() < at.lock_failure and dark.switch_ns + lock_ns < MOST_DARK_NS:
            failures += 1
            lock_ns += at.retry_ms.draw_ns(random)
        return min(lock_ns, MOST_DARK_NS - dark.switch_ns), failures

    def _mean_lock_ms(self, port: str, plane: str) -> float:
        at = self.at_port(port, plane)
        lock_ms: Delay = at.lock_ms or self.at_plane("lock_ms", plane)
        retries = at.lock_failure / (1 - at.lock_failure) * at.retry_ms.mean_ms
        return lock_ms.mean_ms + retries
