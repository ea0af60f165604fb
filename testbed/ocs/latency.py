"""The time that a reconfiguration keeps its ports dark. Pure: the source of randomness is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from testbed.topology.model import Delay, OcsSpec


@dataclass(frozen=True, slots=True)
class DarkTime:
    """One draw: the mirrors move for `switch_ns`, then the transceivers lock for `lock_ns`."""

    switch_ns: int
    lock_ns: int

    @property
    def total_ns(self) -> int:
        return self.switch_ns + self.lock_ns


def draw(spec: OcsSpec, random: Random) -> DarkTime:
    """The dark time of the next reconfiguration."""
    return DarkTime(_draw(spec.switch_ms, random), _draw(spec.lock_ms, random))


def _draw(delay: Delay, random: Random) -> int:
    if delay.kind == "uniform":
        value_ms = random.uniform(delay.a, delay.b)
    elif delay.kind == "normal":
        value_ms = max(0.0, random.gauss(delay.a, delay.b))
    else:
        value_ms = delay.a
    return round(value_ms * 1e6)
