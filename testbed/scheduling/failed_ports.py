"""Find the rates that running jobs can keep when ports are down, and the circuits that stay theirs. Pure.

A policy need not lower a running job's rate, and P4INC-AOI's never do. So if a running job's ports go down,
no decision may fit any more, for other jobs either. What a job can keep is settled here, before a policy is
asked: it sees the lower rates, and not the jobs that are cut off.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from testbed.scheduling.free_capacity import SLACK
from testbed.scheduling.model import Decision, Limits, Pair, Progress, State, UnitIndex, load

_Links = Mapping[int, tuple[tuple[Pair, int], ...]]


@dataclass(frozen=True, slots=True)
class Remainder:
    """The rates that remain of the jobs that cannot have theirs, in Gb/s by job; 0: the job is cut off.
    `reserved` are the lit circuits that only jobs which are cut off use: they stay, and are no policy's.
    """

    rates: Mapping[int, float] = field(default_factory=dict)
    reserved: Mapping[Pair, int] = field(default_factory=dict)

    @property
    def cut_off(self) -> list[int]:
        """The jobs that can have no rate."""
        return [job for job, gbps in self.rates.items() if not gbps]

    def limits(self, limits: Limits) -> Limits:
        """Return the limits without the ports of the reserved circuits."""
        taken = Counter[UnitIndex]()
        for link, count in self.reserved.items():
            for unit in link:
                taken[unit] += count
        ports = tuple(count - taken[unit] for unit, count in zip(limits.units, limits.ports, strict=True))
        return replace(limits, ports=ports) if taken else limits

    def circuits(self, lit: Mapping[Pair, int]) -> dict[Pair, int]:
        """Return the lit circuits without the reserved ones."""
        return {
            link: count - self.reserved.get(link, 0)
            for link, count in lit.items()
            if count > self.reserved.get(link, 0)
        }


def remainder(
    limits: Limits,
    running: Sequence[Progress],
    decided: Mapping[Pair, int],
    lit: Mapping[Pair, int],
    only_lit: bool = False,
) -> Remainder:
    """Compute what remains for running jobs, each of which wants its `rate_gbps`, where units have
    `limits.ports` ports that are up. Circuits that are `lit` stay where they are needed; pairs that lack some
    get them of the free ports, in turn, unless `only_lit`. Jobs of one pair share its circuits in proportion
    to their rates.

    `decided` are the circuits of the decision in force: where there is a core, pairs without one use that.
    """
    links = {
        progress.job.id: tuple(
            (link, count)
            for link, count in load(limits, progress.job, progress.inc).links
            if not limits.core_gbps or decided.get(link)
        )
        for progress in running
    }
    wanted = {progress.job.id: progress.rate_gbps for progress in running}
    cut: set[int] = set()
    while True:
        rest = {job: gbps for job, gbps in wanted.items() if job not in cut}
        reserved = _reserved(limits, links, wanted, rest, lit)
        shares = _shares(limits, links, rest, lit, reserved, only_lit)
        gone = {job for job in rest if links[job] and min(shares[link] for link, _ in links[job]) <= 0}
        if not gone:
            break
        cut |= gone
    left = {job: wanted[job] * min((shares[link] for link, _ in links[job]), default=1.0) for job in rest}
    rates = {job: left.get(job, 0.0) for job in wanted if left.get(job, 0.0) < wanted[job] * (1 - SLACK)}
    return Remainder(rates, reserved)


def _needed(limits: Limits, links: _Links, rates: Mapping[int, float]) -> dict[Pair, float]:
    """Return the Gb/s between each two units."""
    used: dict[Pair, float] = {}
    for job, gbps in rates.items():
        for link, count in links[job]:
            used[link] = used.get(link, 0.0) + count * gbps
    return used


def _circuits(limits: Limits, link: Pair, gbps: float) -> int:
    return math.ceil(gbps / limits.circuit_gbps(link) - SLACK)


def _reserved(
    limits: Limits,
    links: _Links,
    wanted: Mapping[int, float],
    rest: Mapping[int, float],
    lit: Mapping[Pair, int],
) -> dict[Pair, int]:
    """Return the lit circuits that the jobs of `wanted` need and those of `rest` alone would not."""
    others = _needed(limits, links, rest)
    reserved = {}
    for link, gbps in _needed(limits, links, wanted).items():
        count = min(lit.get(link, 0), _circuits(limits, link, gbps))
        more = count - _circuits(limits, link, others.get(link, 0.0))
        if more > 0:
            reserved[link] = more
    return reserved


def _shares(
    limits: Limits,
    links: _Links,
    rates: Mapping[int, float],
    lit: Mapping[Pair, int],
    reserved: Mapping[Pair, int],
    only_lit: bool,
) -> dict[Pair, float]:
    """Return the share of the requested Gb/s that each pair's circuits carry, at most 1."""
    used = _needed(limits, links, rates)
    needs = {link: _circuits(limits, link, gbps) for link, gbps in used.items()}
    given = {link: min(count, lit.get(link, 0) - reserved.get(link, 0)) for link, count in needs.items()}
    free = list(limits.ports)
    for circuits in (given, reserved):
        for (a, b), count in circuits.items():
            free[a] -= count
            free[b] -= count
    waiting = [] if only_lit else [link for link, count in needs.items() if given[link] < count]
    while waiting:
        link = min(waiting, key=lambda each: given[each])  # stable: the job that arrived first
        if min(free[unit] for unit in link) <= 0:
            waiting.remove(link)
            continue
        given[link] += 1
        for unit in link:
            free[unit] -= 1
        if given[link] == needs[link]:
            waiting.remove(link)
    return {
        link: min(1.0, given[link] * limits.circuit_gbps(link) / gbps) if gbps > 0 else 1.0
        for link, gbps in used.items()
    }


def feasible(state: State, decision: Decision, lacking: Collection[Pair]) -> Decision:
    """Return a decision without the starts and the raises over pairs of units that lack a circuit of it,
    since ports are down. All else that it decides stays.
    """
    rates, inc = dict(decision.rates), dict(decision.inc)
    for progress in state.jobs:
        id_ = progress.job.id
        if id_ not in rates:
            continue
        links = load(state.limits, progress.job, inc.get(id_)).links
        if not any(link in lacking for link, _ in links):
            continue
        if progress.started is None:
            del rates[id_]
            inc.pop(id_, None)
        else:
            rates[id_] = min(rates[id_], progress.rate_gbps)
    return replace(decision, rates=rates, inc=inc)
