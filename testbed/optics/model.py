"""The interface of an optical model: the parameters that it declares, the change of circuits that it is asked
about, and the darkness that it answers with. Pure data, and the base of every model.

A change's ports all go dark at one time, which the mechanism chooses: no port has its new circuit while
another has its old one. How long each circuit is dark is the model's answer. Ports of circuits that stay
carry on.
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
"""No darkness is longer: a transceiver that has failed to lock until then locks."""

ANSWER_S = 5.0
"""How long a user's own model may take for its answer to a change."""

Ends = tuple[str, str]
"""A circuit, by the names of its optical ports, such as ("u1o1", "u2o1"): the one of the smaller unit first.
"""


# ---- what a model declares: `Parameter`s, of kinds that testbed/keys.py has ----


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of a model's parameters: of all (those that a configuration leaves out by their defaults),
    and the ones that a plane or a port has of its own.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    planes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def of(self, name: str, port: str, plane: str = "") -> Any:
        """Return a parameter's value at a port: the port's own, its plane's, or that of all."""
        for own in (self.ports.get(port, {}), self.planes.get(plane, {}), self.values):
            if name in own:
                return own[name]
        raise KeyError(name)


# ---- what it is asked, and what it answers ----


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A change of circuits that was made, at `at_s` seconds since 1970."""

    number: int
    at_s: float
    removed: tuple[Ends, ...]
    added: tuple[Ends, ...]


@dataclass(frozen=True, slots=True)
class CircuitTurn:
    """A change of circuits that is about to be made: the `number`th, 1 being a testbed's first, asked for at
    `at_s` seconds since 1970.

    At the end of a timetable, `before` is empty and `after` has all circuits: each is lit anew. `history` has
    every change before, the oldest first.
    """

    number: int
    at_s: float
    before: frozenset[Ends]
    after: frozenset[Ends]
    history: tuple[PastTurn, ...] = ()

    @property
    def added(self) -> tuple[Ends, ...]:
        """The circuits that are to be lit, in order."""
        return tuple(sorted(self.after - self.before))

    @property
    def removed(self) -> tuple[Ends, ...]:
        """The circuits that go, in order."""
        return tuple(sorted(self.before - self.after))


@dataclass(frozen=True, slots=True)
class DarkTime:
    """The two parts of a darkness: the mirrors move for `switch_ns`, then the transceivers lock for
    `lock_ns`.
    """

    switch_ns: int
    lock_ns: int

    @classmethod
    def of_ms(cls, switch_ms: float, lock_ms: float = 0.0) -> Self:
        """Return a dark time from milliseconds. ValueError or OverflowError for what is no number."""
        return cls(round(switch_ms * 1e6), round(lock_ms * 1e6))

    @property
    def total_ns(self) -> int:
        return self.switch_ns + self.lock_ns


@dataclass(frozen=True, slots=True)
class DarkTimes:
    """The darkness of a change. `circuits`: each new circuit's own dark time, where they differ; ports
    without a circuit are dark as long as the longest of these. `otherwise`: that of a new circuit without
    its own, and of all ports where no circuit has its own. `failed`: how many attempts to lock failed, by
    port.
    """

    otherwise: DarkTime = DarkTime(0, 0)
    circuits: Mapping[Ends, DarkTime] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)

    @property
    def longest(self) -> DarkTime:
        """The dark time of the circuit that is lit last."""
        return max(self.circuits.values(), key=lambda time: time.total_ns, default=self.otherwise)

    def for_circuits(self, added: Iterable[Ends]) -> DarkTimes:
        """Return these times with one for each circuit that a change lights, where any has its own."""
        if not self.circuits:
            return self
        return replace(
            self, circuits={ends: self.circuits.get(ends, self.otherwise) for ends in sorted(added)}
        )

    def check(self, turn: CircuitTurn, ports: Mapping[str, str]) -> None:
        """Raise RequestError for a darkness that no change can have: of a circuit that the turn does not
        make, below 0, or beyond two minutes.
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
    """An optical model: a name, a line about it, its parameters, and its answer to each change of circuits.

    An object serves one life of a controller, and is asked for one change after the other; it may remember,
    but what the next controller's object cannot know from `turn.history` is lost with it.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    parameters: ClassVar[tuple[Parameter, ...]] = ()

    def __init__(self, settings: Settings, seed: int = 1, ports: Mapping[str, str] | None = None) -> None:
        """`ports` are all optical ports, in order, with the plane of each, "" where there is one optical
        switch. Raise RequestError for settings that do not go together.
        """
        self.settings, self.seed, self.ports = settings, seed, ports or {}

    def dark_times(self, turn: CircuitTurn) -> DarkTimes:
        """Return how long the circuits of a change are dark. Whatever it raises, the change is not made."""
        raise NotImplementedError

    def mean_ms(self, plane: str = "") -> float:
        """Return the mean dark time of a port, in milliseconds, of the slowest one: policies of a queue are
        told it.
        """
        raise NotImplementedError

    def plane(self, circuit: Ends) -> str:
        """Return the plane of a circuit; "" where there is one optical switch."""
        return self.ports.get(circuit[0], "")

    def random(self, turn: CircuitTurn, about: str = "") -> Random:
        """Return a source of draws that repeats: it follows from the seed, the number of the change, and what
        it is `about` alone, such as a port.
        """
        return Random(f"{self.seed} {turn.number} {about}".rstrip())
