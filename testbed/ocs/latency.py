"""The time that a reconfiguration keeps its ports dark. Pure: the source of randomness is an argument, or
follows from the configuration's seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from testbed.ocs.circuits import Circuit
from testbed.topology.optical import MOST_DELAY_MS, Delay, OcsSpec

MOST_DARK_NS = 120_000_000_000
"""No darkness is longer: a transceiver that has failed to lock until then locks."""


@dataclass(frozen=True, slots=True)
class DarkTime:
    """One draw: the mirrors move for `switch_ns`, then the transceivers lock for `lock_ns`."""

    switch_ns: int
    lock_ns: int

    @property
    def total_ns(self) -> int:
        return self.switch_ns + self.lock_ns


@dataclass(frozen=True, slots=True)
class Locks:
    """The darkness of the circuit that is lit last, that of each new circuit where not all transceivers lock
    alike, and how many attempts failed at which ports.
    """

    longest: DarkTime
    dark_ns: Mapping[Circuit, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)


def draw(spec: OcsSpec, random: Random) -> DarkTime:
    """The dark time of the next reconfiguration, where all transceivers lock alike."""
    return DarkTime(_draw(spec.switch_ms, random), _draw(spec.lock_ms, random))


def locks(
    spec: OcsSpec,
    dark: DarkTime,
    number: int,
    added: Iterable[Circuit],
    removed: Iterable[Circuit] = (),
    planes: Mapping[str, str] | None = None,
) -> Locks:
    """The darkness of each circuit that the reconfiguration of that number makes: until both of its
    transceivers have locked. What a port draws depends on the seed, the number and the port alone. `planes`
    says of which a port is: each of several optical switches has a draw of its own in the place of `dark`.
    A reconfiguration that makes no circuit has the longest draw of the planes whose circuits it removes.
    """
    if spec.locks_alike:
        return Locks(dark)
    times: dict[Circuit, DarkTime] = {}
    failed: dict[str, int] = {}
    draws = {
        plane.name: draw(spec.of_plane(plane.name), Random(f"{spec.seed} {number} plane {plane.name}"))
        for plane in spec.planes
    }

    def plane_of(circuit: Circuit) -> str:
        return (planes or {}).get(circuit.a, "")

    for circuit in sorted(added):
        ends_ns, plane = [], plane_of(circuit)
        its, base = spec.of_plane(plane), draws.get(plane, dark)
        for port in circuit.ports:
            lock_ns, failures = _lock(its, port, base, Random(f"{spec.seed} {number} {port}"))
            ends_ns.append(lock_ns)
            if failures:
                failed[port] = failures
        times[circuit] = DarkTime(base.switch_ns, max(ends_ns))
    without = [draws.get(plane_of(circuit), dark) for circuit in sorted(removed)]
    longest = max(times.values() or without, key=lambda time: time.total_ns, default=dark)
    return Locks(longest, {circuit: time.total_ns for circuit, time in times.items()}, failed)


def expected_ms(spec: OcsSpec) -> float:
    """The mean dark time of a port of an optical switch, the slowest one's where they differ."""
    names = [port for port, _ in spec.ports]
    return spec.switch_ms.mean_ms + max(_expected_lock_ms(spec, port) for port in (*names, ""))


def _expected_lock_ms(spec: OcsSpec, port: str) -> float:
    at = spec.at(port)
    failure, retry_ms = at.lock_failure or 0.0, at.retry_ms or spec.lock_ms
    return (at.lock_ms or spec.lock_ms).mean_ms + failure / (1 - failure) * retry_ms.mean_ms


def _lock(spec: OcsSpec, port: str, dark: DarkTime, random: Random) -> tuple[int, int]:
    """Return how long a transceiver takes to lock, and how many attempts fail before that."""
    at, failures = spec.at(port), 0
    lock_ns = dark.lock_ns if at.lock_ms is None else _draw(at.lock_ms, random)
    while random.random() < (at.lock_failure or 0.0) and dark.switch_ns + lock_ns < MOST_DARK_NS:
        failures += 1
        lock_ns += _draw(at.retry_ms or spec.lock_ms, random)
    return min(lock_ns, MOST_DARK_NS - dark.switch_ns), failures


def _draw(delay: Delay, random: Random) -> int:
    if delay.kind == "uniform":
        value_ms = random.uniform(delay.a, delay.b)
    elif delay.kind == "normal":
        value_ms = max(0.0, random.gauss(delay.a, delay.b))
    elif delay.kind == "lognormal":
        variance = math.log1p((delay.b / delay.a) ** 2)  # of the logarithms, for that deviation of the values
        value_ms = random.lognormvariate(math.log(delay.a) - variance / 2, math.sqrt(variance))
    elif delay.kind == "values":
        value_ms = random.choice(delay.values)
    else:
        value_ms = delay.a
    return round(min(value_ms, MOST_DELAY_MS) * 1e6)
