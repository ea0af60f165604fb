"""Circuits: unordered pairs of optical ports; each port is in one circuit at most. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from testbed.errors import RequestError
from testbed.topology.addresses import parse_optical_port
from testbed.topology.units import UnitPair


@dataclass(frozen=True, slots=True, order=True)
class Circuit:
    """A duplex circuit. `a` sorts before `b`; `circuit` makes one in this order."""

    a: str
    b: str

    @property
    def ports(self) -> tuple[str, str]:
        return (self.a, self.b)

    @property
    def units(self) -> UnitPair:
        """The units that the circuit joins, the smaller first."""
        return _units(self.a, self.b)


@lru_cache(1 << 16)
def _units(a: str, b: str) -> UnitPair:
    first, second = sorted((parse_optical_port(a)[0], parse_optical_port(b)[0]))
    return (first, second)


def circuit(a: str, b: str) -> Circuit:
    """Make the circuit between two ports, given in either order."""
    first, second = sorted((a, b), key=parse_optical_port)
    return Circuit(first, second)


def checked(pairs: Iterable[Sequence[str]], ports: Iterable[str] | Mapping[str, str]) -> frozenset[Circuit]:
    """Make circuits from pairs of port names. `ports` lists all optical ports, or maps each to its plane.
    RequestError for an unknown port, a port in two circuits, or a circuit from a port to itself or to a port
    of another plane.
    """
    known, used = set(ports), set[str]()
    planes = ports if isinstance(ports, Mapping) else {}
    circuits = set()
    for pair in pairs:
        if len(pair) != 2 or pair[0] == pair[1]:
            raise RequestError(f"circuit {list(pair)}: two different optical ports are accepted")
        for end in pair:
            if end not in known:
                names = ", ".join(sorted(known, key=parse_optical_port))
                raise RequestError(f"circuit {list(pair)}: no optical port {end}; there are {names}")
            if end in used:
                raise RequestError(f"circuit {list(pair)}: {end} is in another circuit; a port carries one")
            used.add(end)
        a, b = pair
        if planes.get(a) != planes.get(b):
            raise RequestError(
                f"circuit {list(pair)}: {a} is of plane {planes[a]} and {b} of plane {planes[b]}; a circuit "
                f"is within one plane"
            )
        circuits.add(circuit(*pair))
    return frozenset(circuits)


def carrying(circuits: Iterable[Circuit], down: Collection[str]) -> frozenset[Circuit]:
    """Return the circuits without a port whose link is down; `down` has names of links."""
    return frozenset(each for each in circuits if each.a not in down and each.b not in down)


def ports_of(circuits: Iterable[Circuit]) -> tuple[str, ...]:
    """Return all ports of some circuits, sorted."""
    return tuple(sorted({port for c in circuits for port in c.ports}, key=parse_optical_port))
