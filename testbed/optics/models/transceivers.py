"""Mirrors that move, then transceivers that lock: together, or each for itself, and not always at once."""

from __future__ import annotations

from collections.abc import Mapping
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


class Transceivers(OpticalModel):
    """The model of a configuration that names none.

    A change draws one time in which the mirrors move, and one in which its transceivers lock. Each of several
    planes draws both for itself, and a port with a `lock_ms` of its own that. An attempt to lock fails with
    probability `lock_failure`, takes `retry_ms` then (None: as `lock_ms`), and is made again.
    """

    name = "transceivers"
    summary = "mirrors move, then transceivers lock; an attempt to lock may fail"
    parameters = (
        Parameter(
            "switch_ms",
            Duration(),
            Delay("constant", 10.0),
            "how long it switches",
            of_planes=True,
        ),
        Parameter(
            "lock_ms",
            Duration(),
            Delay("uniform", 5.0, 15.0),
            "how long transceivers take to lock, after that",
            of_planes=True,
            of_ports=True,
        ),
        Parameter(
            "lock_failure",
            Quantity(0, 0.9, "a probability"),
            0.0,
            "how likely an attempt to lock fails, and another is made",
            of_planes=True,
            of_ports=True,
        ),
        Parameter(
            "retry_ms",
            Duration(),
            None,
            "how long such an attempt takes",
            of_planes=True,
            of_ports=True,
            usual="as `lock_ms`",
        ),
    )

    def __init__(self, settings: Settings, seed: int = 1, ports: Mapping[str, str] | None = None) -> None:
        super().__init__(settings, seed, ports)
        self._sequence: Random | None = None

    def dark_times(self, turn: CircuitTurn) -> DarkTimes:
        """Return the darkness of each circuit that the change makes: until both of its transceivers have
        locked. What a port draws depends on the seed, the number of the change and the port alone. A change
        that makes no circuit has the longest draw of the planes whose circuits it removes.
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
        """Return the mean dark time of a plane's port, the slowest one's where they differ."""
        switch_ms: Delay = self.at_plane("switch_ms", plane)
        return switch_ms.mean_ms + max(self._mean_lock_ms(port, plane) for port in (*self.settings.ports, ""))

    @property
    def locks_alike(self) -> bool:
        """Say whether all transceivers lock at the same time, and at once."""
        return not self.settings["lock_failure"] and not self.settings.ports and not self.settings.planes

    def at_plane(self, name: str, plane: str) -> Any:
        """Return a parameter's value on a plane, for ports without one of their own."""
        return self.settings.of(name, "", plane)

    def at_port(self, port: str, plane: str = "") -> Mapping[str, Any]:
        """Return how a port's transceiver locks, in full but for a `lock_ms` that it shares with others:
        None.
        """
        own = self.settings.ports.get(port, {})
        shared = self.at_plane("retry_ms", plane)
        return {
            "lock_ms": own.get("lock_ms"),
            "lock_failure": own.get("lock_failure", self.at_plane("lock_failure", plane)),
            "retry_ms": own.get("retry_ms")
            or shared
            or own.get("lock_ms")
            or self.at_plane("lock_ms", plane),
        }

    def _next_draw(self, number: int) -> DarkTime:
        """Draw what is next in the sequence; the first call passes over what changes before this one drew."""
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
        """Return how long a transceiver takes to lock, and how many attempts fail before that."""
        at, failures = self.at_port(port, plane), 0
        lock_ns: int = dark.lock_ns if at["lock_ms"] is None else at["lock_ms"].draw_ns(random)
        while random.random() < at["lock_failure"] and dark.switch_ns + lock_ns < MOST_DARK_NS:
            failures += 1
            lock_ns += at["retry_ms"].draw_ns(random)
        return min(lock_ns, MOST_DARK_NS - dark.switch_ns), failures

    def _mean_lock_ms(self, port: str, plane: str) -> float:
        at = self.at_port(port, plane)
        lock_ms: Delay = at["lock_ms"] or self.at_plane("lock_ms", plane)
        retries: float = at["lock_failure"] / (1 - at["lock_failure"]) * at["retry_ms"].mean_ms
        return lock_ms.mean_ms + retries
