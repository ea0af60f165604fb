"""The flows that generators ask for: a pure function of the generators, the hosts' links and a seed. Each
generator draws from a sequence of its own, so one more generator changes no other's flows.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random

from testbed.errors import RequestError
from testbed.flows.generators import (
    PERMUTATION,
    CoflowReplay,
    ConstantStream,
    Generator,
    IncastRounds,
    PoissonFlows,
)

MOST_FLOWS = 100_000
_MEGABYTE = 1e6


class TooManyFlowsError(RequestError):
    """More flows than are accepted start within the duration."""


@dataclass(frozen=True, slots=True)
class TrafficFlow:
    """Bytes from one host to another from a time on, in s after the traffic's start. `rate_mbps` is a UDP
    flow's, None for TCP. Flows with the same `group` of a generator belong together: a round, a coflow.
    """

    start_s: float
    sender: str
    to: str
    size: int
    generator: int
    rate_mbps: float | None = None
    group: int | None = None
    dscp: int = 0


def flows_of(
    generators: Sequence[Generator], rates_mbps: Mapping[str, float | None], seconds: float, seed: int
) -> tuple[TrafficFlow, ...]:
    """Return the flows that start before `seconds`, by their start. Raises RequestError if there are none, or
    more than MOST_FLOWS. `rates_mbps` are those of the hosts' links.
    """
    flows: list[TrafficFlow] = []
    for number, generator in enumerate(generators):
        for flow in _flows(generator, rates_mbps, seconds, number, seed):
            if len(flows) == MOST_FLOWS:
                raise TooManyFlowsError(
                    f"more than {MOST_FLOWS} flows in {seconds:g} s: fewer seconds, or a lower load, are "
                    f"accepted"
                )
            flows.append(flow)
    if not flows:
        raise RequestError(f"no flow starts within {seconds:g} s: more seconds are accepted")
    return tuple(sorted(flows, key=lambda flow: flow.start_s))


def _flows(
    generator: Generator, rates_mbps: Mapping[str, float | None], seconds: float, number: int, seed: int
) -> Iterator[TrafficFlow]:
    if isinstance(generator, PoissonFlows):
        return _arrivals(generator, rates_mbps, seconds, number, Random(f"{seed} {number}"))
    if isinstance(generator, IncastRounds):
        return _rounds(generator, seconds, number)
    if isinstance(generator, CoflowReplay):
        return _replayed(generator, seconds, number)
    return iter([_stream(generator, seconds, number)])


def due_until(flows: Iterable[TrafficFlow], wall_s: float) -> tuple[TrafficFlow, ...]:
    """Return the parts of flows, in their order, that were due before `wall_s`, when traffic was ended early.
    Of a TCP flow, all of its bytes are due at its start.
    """
    return tuple(_due(flow, wall_s) for flow in flows if flow.start_s < wall_s)


def _due(flow: TrafficFlow, wall_s: float) -> TrafficFlow:
    if flow.rate_mbps is None:
        return flow
    due_bytes = round(flow.rate_mbps * 1e6 / 8 * (wall_s - flow.start_s))
    return replace(flow, size=max(1, min(flow.size, due_bytes)))


def asked_mbps(generator: Generator, rates_mbps: Mapping[str, float | None]) -> float | None:
    """Return the load that a generator asks for, as an expectation; None for a replay, which has its own."""
    if isinstance(generator, PoissonFlows):
        return arrivals_per_s(generator, rates_mbps) * generator.sizes.mean_bytes * 8 / 1e6
    if isinstance(generator, IncastRounds):
        return len(generator.senders) * generator.size * 8 / 1e3 / generator.every_ms
    return generator.rate_mbps if isinstance(generator, ConstantStream) else None


def arrivals_per_s(generator: PoissonFlows, rates_mbps: Mapping[str, float | None]) -> float:
    """Return the mean number of flows a second."""
    if generator.per_s is not None:
        return generator.per_s
    assert generator.load is not None
    matrix = generator.matrix
    senders = generator.hosts if isinstance(matrix, str) else {sender for sender, _, _ in matrix}
    whole_mbps = math.fsum(rates_mbps[each] or 0.0 for each in senders)
    return generator.load * whole_mbps * 1e6 / 8 / generator.sizes.mean_bytes


def _arrivals(
    generator: PoissonFlows,
    rates_mbps: Mapping[str, float | None],
    seconds: float,
    number: int,
    random: Random,
) -> Iterator[TrafficFlow]:
    pairs = _weighted(generator, rates_mbps, random)
    sums = list(accumulate(weight for _, _, weight in pairs))
    per_s, start_s = arrivals_per_s(generator, rates_mbps), 0.0
    while (start_s := start_s + random.expovariate(per_s)) < seconds:
        at = min(bisect(sums, random.random() * sums[-1]), len(pairs) - 1)
        sender, to, _ = pairs[at]
        size = generator.sizes.draw(random)
        yield TrafficFlow(start_s, sender, to, size, number, generator.rate_mbps, dscp=generator.dscp)


def _weighted(
    generator: PoissonFlows, rates_mbps: Mapping[str, float | None], random: Random
) -> list[tuple[str, str, float]]:
    """Return the pairs of hosts with their weights: with a load, hosts send in proportion to their rates."""
    if not isinstance(generator.matrix, str):
        return list(generator.matrix)
    hosts = generator.hosts

    def weight(sender: str) -> float:
        return 1.0 if generator.load is None else rates_mbps[sender] or 0.0

    if generator.matrix == PERMUTATION:
        return [(sender, to, weight(sender)) for sender, to in _ring(hosts, random)]
    return [(sender, to, weight(sender)) for sender in hosts for to in hosts if to != sender]


def _ring(hosts: Sequence[str], random: Random) -> Iterator[tuple[str, str]]:
    """Draw a permutation in which no host sends to itself: one cycle of all hosts."""
    order = random.sample(hosts, len(hosts))
    return zip(order, [*order[1:], order[0]], strict=True)


def _rounds(generator: IncastRounds, seconds: float, number: int) -> Iterator[TrafficFlow]:
    for turn in range(math.ceil(seconds * 1e3 / generator.every_ms)):
        for sender in generator.senders:
            start_s = turn * generator.every_ms / 1e3
            yield TrafficFlow(start_s, sender, generator.to, generator.size, number, group=turn)


def _replayed(generator: CoflowReplay, seconds: float, number: int) -> Iterator[TrafficFlow]:
    """Yield a flow from each mapper to each reducer, which gets an equal part of its bytes from each. A
    mapper at the reducer's own host sends nothing.
    """
    hosts = generator.hosts
    for coflow in generator.trace:
        start_s = coflow.arrival_ms / 1e3 * generator.time_scale
        if start_s >= seconds:
            return
        for rack, megabytes in coflow.reducers:
            size = max(1, round(megabytes * _MEGABYTE * generator.bytes_scale / len(coflow.mappers)))
            to = hosts[rack % len(hosts)]
            for mapper in coflow.mappers:
                if (sender := hosts[mapper % len(hosts)]) != to:
                    yield TrafficFlow(start_s, sender, to, size, number, group=coflow.id)


def _stream(generator: ConstantStream, seconds: float, number: int) -> TrafficFlow:
    size = max(1, round(generator.rate_mbps * 1e6 / 8 * seconds))
    sender, to, rate_mbps = generator.sender, generator.to, generator.rate_mbps
    return TrafficFlow(0.0, sender, to, size, number, rate_mbps, dscp=generator.dscp)
