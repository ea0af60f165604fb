"""The interface of optical models: the parameters that a model declares, the change of circuits that it is
asked about, and the dark times that it answers. Pure data, and the base class of every model.

All ports of a change go dark at the same moment, which the controller chooses: no port gets its new circuit
while another still has its old one. The model answers how long each circuit then stays dark. Ports whose
circuits do not change keep carrying packets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar, Self

from testbed.errors import RequestError
from testbed.keys import Duration as Duration  # a user's file has these from here
from testbed.keys import Parameter as Parameter
from testbed.keys import Quantity as Quantity
from testbed.keys import Whole as Whole
from testbed.keys import Word as Word
from testbed.keys import YesNo as YesNo

MOST_DARK_NS = 120_000_000_000
"""The longest dark time: a transceiver that has not locked by then counts as locked."""

ANSWER_S = 5.0
"""The time that a user's own model has to answer for a change."""

Ends = tuple[str, str]
"""A circuit, by the names of its two optical ports, such as ("u1o1", "u2o1"): the port of the smaller unit
first.
"""


# ---- what a model declares: `Parameter`s, of kinds that testbed/keys.py has ----


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of a model's parameters: `values` for all ports (defaults where a configuration gives none),
    and the values that single planes or ports have of their own.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    planes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def of(self, name: str, port: str, plane: str = "") -> Any:
        """Return a parameter's value for a port: the port's own, else its plane's, else the general one."""
        for own in (self.ports.get(port, {}), self.planes.get(plane, {}), self.values):
            if name in own:
                return own[name]
        raise KeyError(name)


# ---- what a model is asked, and what it answers ----


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A change of circuits in the past, at `at_s` seconds since 1970."""

    number: int
    at_s: float
    removed: tuple[Ends, ...]
    added: tuple[Ends, ...]


@dataclass(frozen=True, slots=True)
class CircuitTurn:
    """A change of circuits about to be made: the `number`th of the testbed, counted from 1, requested at
    `at_s` seconds since 1970.

    When a timetable ends, `before` is empty and `after` has all circuits, because each is lit anew. `history`
    lists every earlier change, oldest first.
    """

    number: int
    at_s: float
    before: frozenset[Ends]
    after: frozenset[Ends]
    history: tuple[PastTurn, ...] = ()

    @property
    def added(self) -> tuple[Ends, ...]:
        """The circuits that the change sets up, sorted."""
        return tuple(sorted(self.after - self.before))

    @property
    def removed(self) -> tuple[Ends, ...]:
        """The circuits that the change clears, sorted."""
        return tuple(sorted(self.before - self.after))


@dataclass(frozen=True, slots=True)
class DarkTime:
    """The two parts of a dark time: the mirrors move for `switch_ns`, then the transceivers lock for
    `lock_ns`.
    """

    switch_ns: int
    lock_ns: int

    @classmethod
    def of_ms(cls, switch_ms: float, lock_ms: float = 0.0) -> Self:
        """Make a dark time from milliseconds. ValueError for NaN, OverflowError for infinity."""
        return cls(round(switch_ms * 1e6), round(lock_ms * 1e6))

    @property
    def total_ns(self) -> int:
        return self.switch_ns + self.lock_ns


@dataclass(frozen=True, slots=True)
class DarkTimes:
    """The dark times of a change. `circuits`: each new circuit's own dark time, where they differ; ports that
    lose their circuit and get none are dark as long as the longest of these. `otherwise`: the dark time of
    new circuits that are not in `circuits`, and of all ports if `circuits` is empty. `failed`: the number of
    failed attempts to lock, by port.
    """

    otherwise: DarkTime = DarkTime(0, 0)
    circuits: Mapping[Ends, DarkTime] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)

    @property
    def longest(self) -> DarkTime:
        """The dark time of the circuit that is lit last."""
        return max(self.circuits.values(), key=lambda time: time.total_ns, default=self.otherwise)

    def for_circuits(self, added: Iterable[Ends]) -> DarkTimes:
        """Complete `circuits` with `otherwise` for each circuit that a change sets up; leave it empty if no
        circuit has its own dark time.
        """
        if not self.circuits:
            return self
        return replace(
            self, circuits={ends: self.circuits.get(ends, self.otherwise) for ends in sorted(added)}
        )

    def check(self, turn: CircuitTurn, ports: Mapping[str, str]) -> None:
        """Raise RequestError for an impossible answer: a dark time of a circuit that the change does not set
        up, a time below 0 or above two minutes (MOST_DARK_NS), or failed attempts at an unknown port.
        """
        new = turn.after - turn.before
        for ends, time in (*self.circuits.items(), (None, self.otherwise)):
            name = "-".join(ends) if ends else "otherwise"
            if ends is not None and ends not in new:
                made = ", ".join("-".join(each) for each in turn.added) or "none"
                raise RequestError(
                    f"its dark time has {name}, which the change does not make; it makes {made}"
                )
            if min(time.switch_ns, time.lock_ns) < 0 or time.total_ns > MOST_DARK_NS:
                raise RequestError(
                    f"its dark time of {name} is {time.switch_ns / 1e6:g} ms and {time.lock_ns / 1e6:g} ms; "
                    f"0 to {MOST_DARK_NS / 1e6:.0f} ms together are accepted"
                )
        for port, count in self.failed.items():
            if port not in ports or count < 0:
                raise RequestError(
                    f"its dark times have {count} failed attempts at {port}; 0 or more are, at a port"
                )


# ---- the model ----


class OpticalModel:
    """An optical model: its name, a one-line summary, its parameters, and its answer to each change of
    circuits.

    One object serves one controller process and is asked about one change at a time. It may keep state, but
    state that `turn.history` does not hold is lost when the controller is restarted.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    parameters: ClassVar[tuple[Parameter, ...]] = ()

    def __init__(self, settings: Settings, seed: int = 1, ports: Mapping[str, str] | None = None) -> None:
        """Store the settings. `ports` maps all optical ports, in order, to their planes ("" where there is a
        single optical switch). Subclasses raise RequestError for settings that contradict each other.
        """
        self.settings, self.seed, self.ports = settings, seed, ports or {}

    def dark_times(self, turn: CircuitTurn) -> DarkTimes:
        """Return how long the circuits of a change are dark. If it raises anything, the change is not
        made.
        """
        raise NotImplementedError

    def mean_ms(self, plane: str = "") -> float:
        """Return the mean dark time of a port in milliseconds, that of the slowest port where they differ.
        Queue policies use it.
        """
        raise NotImplementedError

    def plane(self, circuit: Ends) -> str:
        """Return the plane of a circuit; "" where there is a single optical switch."""
        return self.ports.get(circuit[0], "")

    def random(self, turn: CircuitTurn, about: str = "") -> Random:
        """Return a reproducible random source. It depends only on the seed, the number of the change, and
        `about`, such as a port's name.
        """
        return Random(f"{self.seed} {turn.number} {about}".rstrip())
