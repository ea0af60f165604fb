"""Where a job's processes run and which circuits that needs. Pure: what is free, and what is joined, are
arguments.

Units and hosts are numbers from 1, a host is the pair (unit, host); names are made by
testbed/topology/addresses.py.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from testbed.errors import RequestError
from testbed.topology import addresses

SYNCS = ("inc", "ring", "ps")

Host = tuple[int, int]
_PLACE = re.compile(r"u([1-9][0-9]*):([0-9]+)")


@dataclass(frozen=True, slots=True)
class Rack:
    """What placement must know of a unit."""

    unit: int
    role: str
    hosts: int

    def members(self) -> list[Host]:
        return [(self.unit, host) for host in range(1, self.hosts + 1)]


@dataclass(frozen=True, slots=True)
class Placement:
    """Workers by rank, the host of the parameter server (None if the job has none), and the demands on the
    optics.
    """

    sync: str
    workers: tuple[Host, ...]
    ps: Host | None
    demands: tuple[tuple[int, int], ...]

    def hosts(self) -> set[Host]:
        return {*self.workers, *([self.ps] if self.ps else [])}


def check_sync(sync: str) -> str:
    """The kind of synchronisation, if it is one. Raises RequestError."""
    if sync not in SYNCS:
        raise RequestError(f"--sync {sync!r}: accepted are {', '.join(SYNCS)}")
    return sync


def parse_place(text: str) -> tuple[tuple[int, int], ...]:
    """`u1:2,u2:2` as ((1, 2), (2, 2)): units and numbers of workers, in the order of ranks. Raises
    RequestError.
    """
    parts = []
    for part in text.split(","):
        match = _PLACE.fullmatch(part.strip())
        if not match or int(match[2]) == 0:
            raise RequestError(f"--place {part.strip()!r}: accepted is UNIT:WORKERS, such as u1:2,u2:2")
        parts.append((int(match[1]), int(match[2])))
    units = [unit for unit, _ in parts]
    if twice := [unit for unit in units if units.count(unit) > 1]:
        raise RequestError(f"--place {text!r}: {addresses.unit_name(twice[0])} is named twice")
    return tuple(parts)


def place_workers(
    racks: Sequence[Rack], busy: Collection[Host], wanted: Sequence[tuple[int, int]] | None
) -> list[Host]:
    """The hosts of the workers, by rank; every host of the first gpu unit when nothing is asked for.

    Raises RequestError for a unit that there is not, more workers than hosts, and hosts in use by another
    job.
    """
    by_unit = {rack.unit: rack for rack in racks}
    if wanted is None:
        first = next((rack for rack in racks if rack.role == "gpu"), None)
        if first is None:
            raise RequestError(f"no gpu unit to place workers in: say --place; units are {_names(by_unit)}")
        wanted = [(first.unit, first.hosts)]
    chosen: list[Host] = []
    for unit, count in wanted:
        if unit not in by_unit:
            raise RequestError(
                f"--place {addresses.unit_name(unit)}:{count}: no such unit; accepted are {_names(by_unit)}"
            )
        free = [host for host in by_unit[unit].members() if host not in busy]
        if count > len(free):
            total = by_unit[unit].hosts
            in_use = f", {total - len(free)} of them in use by running jobs" if len(free) < total else ""
            name = addresses.unit_name(unit)
            raise RequestError(
                f"--place {name}:{count}: {name} has {total} hosts{in_use}; {len(free)} can be placed there"
            )
        chosen += free[:count]
    return chosen


def choose_ps(
    racks: Sequence[Rack],
    busy: Collection[Host],
    workers: Sequence[Host],
    circuits: Iterable[tuple[int, int]],
) -> Host:
    """The host of the parameter server: the first free one of a cpu unit, preferably one that needs few new
    circuits.

    Where no cpu unit has a free host, any unit's will do. `circuits` are the pairs of units that are joined
    now.
    """
    joined = {frozenset(pair) for pair in circuits}
    taken = {*busy, *workers}
    units = {unit for unit, _ in workers}

    def cost(host: Host) -> tuple[bool, int, Host]:
        new = sum(1 for unit in units if unit != host[0] and frozenset((unit, host[0])) not in joined)
        return roles[host[0]] != "cpu", new, host

    roles = {rack.unit: rack.role for rack in racks}
    free = [host for rack in racks for host in rack.members() if host not in taken]
    if not free:
        raise RequestError(
            "no free host for the parameter server: place fewer workers, or wait for a job to end"
        )
    return min(free, key=cost)


def place_in_queue(
    racks: Sequence[Rack],
    busy: Collection[Host],
    workers: int,
    wanted: Sequence[tuple[int, int]] | None,
    together: bool,
    ps_unit: int | None,
    random: Random,
) -> Placement | None:
    """Hosts for a scheduled job and its parameter server; None while there are too few.

    Where nothing is `wanted`, workers go to a random gpu unit that has room for all of them, else, unless
    they must be `together`, to as few units as possible; the parameter server to a random cpu unit, or to any
    where there is none. The first free hosts of a unit.
    """
    free = {rack.unit: [host for host in rack.members() if host not in busy] for rack in racks}
    roles = {rack.unit: rack.role for rack in racks}
    if wanted is None:
        room = {unit: len(free[unit]) - (unit == ps_unit) for unit in free if roles[unit] == "gpu"}
        wanted = _drawn(room, workers, together, random)
    if wanted is None or any(count > len(free[unit]) for unit, count in wanted):
        return None
    chosen = [host for unit, count in wanted for host in free[unit][:count]]
    left = {unit: [host for host in hosts if host not in chosen] for unit, hosts in free.items()}
    cpu = [unit for unit in roles if roles[unit] == "cpu"]
    allowed = [ps_unit] if ps_unit is not None else cpu or list(roles)
    able = [unit for unit in allowed if left[unit]]
    if not able:
        return None
    return Placement("ps", tuple(chosen), left[random.choice(able)][0], ())


def _drawn(
    free: Mapping[int, int], workers: int, together: bool, random: Random
) -> list[tuple[int, int]] | None:
    if sum(free.values()) < workers or (together and max(free.values(), default=0) < workers):
        return None
    rest, found = dict(free), []
    while workers:
        most = max(rest.values())
        unit = random.choice([unit for unit, count in rest.items() if count >= min(workers, most)])
        found.append((unit, min(workers, most)))
        workers -= min(workers, most)
        del rest[unit]
    return found


def demands(sync: str, workers: Sequence[Host], ps: Host | None) -> tuple[tuple[int, int], ...]:
    """The pairs of units that the job's traffic joins, each pair once."""
    units = list(dict.fromkeys(unit for unit, _ in workers))
    if sync == "ring":
        around = itertools.pairwise([*[unit for unit, _ in workers], workers[0][0]])
        pairs = [pair for pair in around if pair[0] != pair[1]]
    else:
        pairs = [(unit, ps[0]) for unit in units if unit != ps[0]] if ps else []
    once: dict[frozenset[int], tuple[int, int]] = {}
    for pair in pairs:
        once.setdefault(frozenset(pair), pair)
    return tuple(once.values())


def place(
    racks: Sequence[Rack],
    busy: Collection[Host],
    sync: str,
    wanted: Sequence[tuple[int, int]] | None,
    circuits: Iterable[tuple[int, int]],
) -> Placement:
    """All of the above. A job that sums in the network within one unit needs no parameter server."""
    workers = place_workers(racks, busy, wanted)
    needs_ps = sync == "ps" or (sync == "inc" and len({unit for unit, _ in workers}) > 1)
    ps = choose_ps(racks, busy, workers, circuits) if needs_ps else None
    return Placement(check_sync(sync), tuple(workers), ps, demands(sync, workers, ps))


def at_parameter_server(
    racks: Sequence[Rack], busy: Collection[Host], placed: Placement, circuits: Iterable[tuple[int, int]]
) -> Placement:
    """The same workers, summing at a parameter server: the one they have, or a free host."""
    ps = placed.ps or choose_ps(racks, busy, placed.workers, circuits)
    return Placement("ps", placed.workers, ps, demands("ps", placed.workers, ps))


def _names(by_unit: Mapping[int, Rack]) -> str:
    return ", ".join(
        f"{addresses.unit_name(unit)} ({rack.hosts} hosts)" for unit, rack in sorted(by_unit.items())
    )
