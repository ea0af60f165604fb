"""The optical switch and its transceivers as frozen data: how long circuits are dark, and which are lit at
first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

DISTRIBUTIONS = ("constant", "uniform", "normal", "lognormal", "values")
MOST_DELAY_MS = 60_000.0


@dataclass(frozen=True, slots=True)
class Delay:
    """A duration in milliseconds.

    `constant` at `a`; `uniform` from `a` to `b`; `normal` and `lognormal` with mean `a` and standard
    deviation `b`, the first cut off below 0; `values`: each of these as likely as any other.
    """

    kind: str
    a: float = 0.0
    b: float = 0.0
    values: tuple[float, ...] = ()

    @property
    def mean_ms(self) -> float:
        if self.kind == "values":
            return sum(self.values) / len(self.values)
        return (self.a + self.b) / 2 if self.kind == "uniform" else self.a


@dataclass(frozen=True, slots=True)
class Transceiver:
    """The ways of a port's own transceiver; None: those that the optical switch has for all."""

    lock_ms: Delay | None = None
    lock_failure: float | None = None
    retry_ms: Delay | None = None


@dataclass(frozen=True, slots=True)
class OpticalPlane:
    """One of several optical switches, with what it has of its own; None: what is said of all."""

    name: str
    switch_ms: Delay | None = None
    lock: Transceiver = Transceiver()


@dataclass(frozen=True, slots=True)
class OcsSpec:
    """The optical switch: how long a reconfiguration keeps a port dark (switching, then transceiver lock),
    and what is lit at first.

    An attempt to lock fails with probability `lock_failure`, takes `retry_ms` then (None: as `lock_ms`), and
    is made again. `ports` are the transceivers that have something of their own, `planes` the optical
    switches where there are several. `circuits` are pairs of optical port names such as ("u1o1", "u2o1").
    Durations are real time: no scale touches them.
    """

    switch_ms: Delay = Delay("constant", 10.0)
    lock_ms: Delay = Delay("uniform", 5.0, 15.0)
    seed: int = 1
    circuits: tuple[tuple[str, str], ...] = ()
    lock_failure: float = 0.0
    retry_ms: Delay | None = None
    ports: tuple[tuple[str, Transceiver], ...] = ()
    planes: tuple[OpticalPlane, ...] = ()

    def of_plane(self, name: str) -> OcsSpec:
        """Return one of several optical switches as if it were the only one."""
        plane = next((plane for plane in self.planes if plane.name == name), None)
        if plane is None:
            return self
        failure = plane.lock.lock_failure
        return replace(
            self,
            switch_ms=plane.switch_ms or self.switch_ms,
            lock_ms=plane.lock.lock_ms or self.lock_ms,
            lock_failure=self.lock_failure if failure is None else failure,
            retry_ms=plane.lock.retry_ms or self.retry_ms,
            planes=(),
        )

    def at(self, port: str) -> Transceiver:
        """Return how a port's transceiver locks, in full but for a `lock_ms` that it shares with others."""
        own = dict(self.ports).get(port, Transceiver())
        failure = self.lock_failure if own.lock_failure is None else own.lock_failure
        return Transceiver(own.lock_ms, failure, own.retry_ms or self.retry_ms or own.lock_ms or self.lock_ms)

    @property
    def locks_alike(self) -> bool:
        """Say whether all transceivers lock at the same time, and at once."""
        return not self.lock_failure and not self.ports and not self.planes
