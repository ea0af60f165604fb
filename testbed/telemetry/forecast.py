"""Forecast a job's bound before it runs: the time that its links would need for one all-reduce, by the
demand and the replay of its later bound (bound.py). Pure.

Bytes between units take the circuits as routes do. Other jobs' traffic on these links is not known yet, so
each link counts with the job's fair share of its rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.ocs.circuits import Circuit, carrying
from testbed.ocs.routes import Hops, next_hops
from testbed.ocs.using import OVER_CORE
from testbed.telemetry.demand import (
    DOWN,
    UP,
    Traffic,
    between,
    is_between_units,
    needs,
    streams,
    tail,
    unit_of,
    worker_bytes,
)
from testbed.telemetry.network import LitNetwork, pair_of
from testbed.telemetry.replay import Transfer, Use, replay
from testbed.telemetry.timelines import ASKED, SUMMED, WAITED, Collective, Step
from testbed.topology import addresses
from testbed.topology.places import Host
from testbed.topology.units import Unit, UnitPair

Crossing = tuple[tuple[str, ...], str]
"""Links that share a stream's packets, such as those of parallel circuits, and a direction."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """The network that a job would have: the rates of links (None or absent: unshaped), the circuits that
    would be lit, or a timetable's light, the other jobs' traffic, and the links that are down.
    """

    rates_mbps: Mapping[str, float | None]
    units: tuple[Unit, ...]
    circuits: frozenset[Circuit] = frozenset()
    has_core: bool = False
    light: LitNetwork = field(default_factory=LitNetwork)
    others: Sequence[Traffic] = ()
    down: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Forecast:
    """The milliseconds that links need for an all-reduce, and the link and direction that needs longest; 0
    and "" if none of the links has a rate.
    """

    bound_ms: float
    link: str = ""


def forecast(traffic: Traffic, size_bytes: int, prospect: Prospect) -> Forecast:
    """Compute the bound of one all-reduce of `size_bytes` of gradients, for which all workers ask at once."""
    collective = Collective(size_bytes, SUMMED, 0)
    everybody = tuple(range(len(traffic.hosts)))
    uses = []
    for need in needs(traffic, collective):
        if rate_mbps := prospect.rates_mbps.get(need.host):
            uses.append(Use(need.link, need.bytes * 8e-6 / rate_mbps, 0.0, need.sources))
    uses += _between_switches(traffic, worker_bytes(traffic, collective), prospect)
    uses += _in_light(traffic, collective, prospect)
    last = tail(traffic, collective)
    rate_mbps = prospect.rates_mbps.get(last.host) if last else None
    tail_s = last.bytes * 8e-6 / rate_mbps if last and rate_mbps else 0.0
    script = [Step(0.0, ASKED, 0), Step(0.0, WAITED, 0)]
    ends_s = replay([script for _ in everybody], {0: Transfer(tuple(uses), tail_s)})
    busy_s: Counter[str] = Counter()
    for use in uses:
        busy_s[use.link] += use.busy_s  # type: ignore[assignment]
    fullest = max(busy_s, key=lambda link: busy_s[link], default="")
    return Forecast(max(ends_s) * 1e3, fullest if busy_s[fullest] else "")


def _between_switches(traffic: Traffic, size_bytes: float, prospect: Prospect) -> Iterator[Use]:
    """Yield the use of links between switches: optical ones, pods', and those to a core."""
    circuits = carrying(prospect.circuits, prospect.down)
    hops = next_hops(circuits, prospect.units, prospect.has_core, prospect.down)
    way = _Ways(hops, circuits)
    amounts = way.shares(traffic)
    crowd = Counter(
        crossing for other in prospect.others for crossing, share in way.shares(other).items() if share
    )
    for (links, direction), share in amounts.items():
        rates = [rate for link in links if (rate := prospect.rates_mbps.get(link))]
        if len(rates) == len(links):
            jobs = 1 + crowd[links, direction]
            name = f"{'+'.join(links)} {direction}"
            yield Use(name, share * size_bytes * jobs * 8e-6 / sum(rates))


def _in_light(traffic: Traffic, collective: Collective, prospect: Prospect) -> Iterator[Use]:
    """Yield the use of circuits that are lit only part of the time, for each two units, by their share of a
    timetable's period.
    """
    amounts = between(traffic, collective)
    lights = prospect.light.lights({pair_of(*way) for way in amounts})
    for (sender, receiver), size_bytes in amounts.items():
        light = lights.get(pair_of(sender, receiver))
        rates = [
            rate
            for link, rate in prospect.rates_mbps.items()
            if rate is not None and unit_of(link) == sender and is_between_units(link)
        ]
        if light is None or not rates:
            continue
        jobs = 1 + sum(pair_of(sender, receiver) in _pairs(other, collective) for other in prospect.others)
        lit_mbps = max(rates) * light.circuits * max(light.stretches[-1].share, 1e-9)
        busy_s = size_bytes * 8e-6 * jobs / lit_mbps
        yield Use(f"circuits {sender} to {receiver}", busy_s)


def _pairs(traffic: Traffic, collective: Collective) -> Collection[UnitPair]:
    return {pair_of(*way) for way in between(traffic, collective)}


class _Ways:
    """The links between switches that streams cross."""

    def __init__(self, hops: Hops, circuits: Collection[Circuit]) -> None:
        self._hops = hops
        self._far = {end: other for each in circuits for end, other in (each.ports, each.ports[::-1])}

    def shares(self, traffic: Traffic) -> dict[Crossing, float]:
        """Return the share of a worker's bytes that each crossing carries; copies part as late as they
        can.
        """
        shares: dict[Crossing, float] = {}
        for stream in streams(traffic):
            crossed = {each for goal in stream.receivers for each in self._way(stream.sender, goal)}
            for crossing in sorted(crossed):
                shares[crossing] = shares.get(crossing, 0.0) + stream.share
        return shares

    def _way(self, sender: Host, goal: Host) -> Iterator[Crossing]:
        (here, at), (there, to) = sender, goal
        if here == there and addresses.rack_of(at) == addresses.rack_of(to):
            return
        if rack := addresses.rack_of(at):
            yield (addresses.rack_name(here, rack),), UP
        yield from self._between_units(here, there)
        if rack := addresses.rack_of(to):
            yield (addresses.rack_name(there, rack),), DOWN

    def _between_units(self, here: Unit, goal: Unit) -> Iterator[Crossing]:
        while here != goal and (bundle := self._hops[here].get(goal)):
            if bundle == OVER_CORE:
                beyond = self._hops.from_core.get(goal, goal)
                if beyond is None:
                    return
                yield (addresses.core_link_name(here),), UP
                yield (addresses.core_link_name(beyond),), DOWN
                here = beyond
                continue
            near = tuple(addresses.optical_port_name(here, port) for port in bundle)
            far = tuple(self._far[port] for port in near)
            yield near, UP
            yield far, DOWN
            here = addresses.parse_optical_port(far[0])[0]
