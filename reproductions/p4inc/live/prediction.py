"""The forecast of the live experiment: the same policy objects on a simulated clock, jobs that compute as
well as send. Pure.

The fluid simulator (testbed/systems/p4inc/simulator/fluid.py) knows volumes alone: a job that computes for
most of an iteration sends less than its rate allows. Here a job's volume shrinks by one iteration's in the
time that `model` gives for it, and a job ends within a slot, as real ones do, while what it held is free from
the next one on. Nothing is fitted to a measurement of jobs; what starting processes takes on a machine is an
argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

from reproductions.p4inc.live.model import Pace
from testbed.aggregation.site import Rack
from testbed.errors import TestbedError
from testbed.jobs.placement import place_in_queue
from testbed.plugins.policies import choice
from testbed.scheduling import live
from testbed.scheduling.constraints import check_decision
from testbed.scheduling.model import Job, Limits, Pair, Policy, Progress, State, set_up
from testbed.systems.p4inc.policies import catalogue
from testbed.topology.places import Host

_MOST_SLOTS = 100_000


class Source(Protocol):
    """A source of jobs."""

    def shown(self, slot: int, now_s: float) -> list[Job]:
        """Those that the policy sees from this slot on."""

    def ended(self, job: int, at_s: float) -> None: ...

    def is_empty(self) -> bool:
        """Return whether no job is to come."""


class Given:
    """Jobs with their first slots and placements as they were measured."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._coming = sorted(jobs, key=lambda job: job.arrival)

    def shown(self, slot: int, now_s: float) -> list[Job]:
        arrived = [job for job in self._coming if job.arrival <= slot]
        self._coming = self._coming[len(arrived) :]
        return arrived

    def ended(self, job: int, at_s: float) -> None:
        pass

    def is_empty(self) -> bool:
        return not self._coming


@dataclass(frozen=True, slots=True)
class Asked:
    """A job as it is submitted. `seed` is that of its placement (testbed/queue/scheduler.py)."""

    id: int
    arrival_s: float
    workers: int
    gigabits: float
    seed: str


@dataclass(slots=True)
class Queue:
    """Jobs that wait for hosts in the order of arrival, as on the testbed. `start_up_s` is from hosts to
    ready, by worker of the job; `handling_s` from the last iteration until its hosts are free.
    """

    racks: Sequence[Rack]
    asked: Sequence[Asked]
    start_up_s: float
    handling_s: float
    _waiting: list[Asked] = field(default_factory=list)
    _starting: list[tuple[float, Job]] = field(default_factory=list)
    _hosts: dict[int, set[Host]] = field(default_factory=dict)
    _given_back: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._waiting = sorted(self.asked, key=lambda request: (request.arrival_s, request.id))

    def shown(self, slot: int, now_s: float) -> list[Job]:
        for gone in [id_ for at_s, id_ in self._given_back if at_s <= now_s]:
            del self._hosts[gone]
        self._given_back = [(at_s, id_) for at_s, id_ in self._given_back if at_s > now_s]
        without_inc = choice(catalogue.NAMES[0]).without_inc
        while self._waiting and self._waiting[0].arrival_s <= now_s:
            first = self._waiting[0]
            busy = {host for hosts in self._hosts.values() for host in hosts}
            placed = place_in_queue(
                self.racks, busy, first.workers, None, False, None, Random(first.seed), without_inc.lay_out
            )
            if placed is None:
                break
            assert placed.server is not None
            self._hosts[first.id] = placed.hosts()
            job = live.model_job(first.id, placed.workers, placed.server[0], first.gigabits, 0.0, 0)
            self._starting.append((now_s + self.start_up_s * first.workers, job))
            self._waiting.pop(0)
        ready = [job for at_s, job in self._starting if at_s <= now_s]
        self._starting = [(at_s, job) for at_s, job in self._starting if at_s > now_s]
        return [replace(job, arrival=slot) for job in ready]

    def ended(self, job: int, at_s: float) -> None:
        self._given_back.append((at_s + self.handling_s, job))

    def is_empty(self) -> bool:
        return not self._waiting and not self._starting


@dataclass(frozen=True, slots=True)
class Predicted:
    """A forecast by job: its first slot with the policy, the second of its start and of its end.
    `connections` are circuits set up.
    """

    arrival: Mapping[int, int]
    started_s: Mapping[int, float]
    ended_s: Mapping[int, float]
    inc: Mapping[int, int | None]
    connections: int
    slots: int


def predict(
    limits: Limits, source: Source, policy: Policy, ports: Mapping[Pair, int], pace: Pace
) -> Predicted:
    """Run all jobs to their end. Raises TestbedError for a decision that breaks a constraint, or jobs that
    would wait for ever.
    """
    present: dict[int, Progress] = {}
    arrival: dict[int, int] = {}
    started_s: dict[int, float] = {}
    ended_s: dict[int, float] = {}
    modes: dict[int, int | None] = {}
    lit, connections = dict(ports), 0
    for slot in range(_MOST_SLOTS):
        now_s = slot * limits.slot_s
        for job in source.shown(slot, now_s):
            present[job.id], arrival[job.id] = Progress(job, job.gigabits), slot
        if not present:
            if source.is_empty():
                return Predicted(arrival, started_s, ended_s, modes, connections, slot)
            continue
        state = State(limits, slot, tuple(present.values()), lit)
        decision = policy.decide(state)
        check_decision(state, decision, policy.name)
        new = set_up(lit, decision.ports)
        connections += new
        for id_, rate in decision.rates.items():
            its = present[id_]
            begins_s = now_s + (limits.reconfiguration_s if new and rate > its.rate_gbps else 0.0)
            total = its.job.gigabits
            sent = total - its.remaining_gigabits
            until_s = now_s + pace.until_s(sent, total, its.rate_gbps) if its.rate_gbps else math.inf
            if until_s > begins_s:
                if its.rate_gbps:
                    sent = pace.after(sent, begins_s - now_s, its.rate_gbps)
                until_s = begins_s + pace.until_s(sent, total, rate)
            if its.started is None:
                its.started, its.inc = slot, decision.inc.get(id_)
                started_s[id_], modes[id_] = now_s, its.inc
            its.rate_gbps = rate
            if until_s <= now_s + limits.slot_s:
                ended_s[id_] = until_s
                del present[id_]
                source.ended(id_, until_s)
            else:
                its.remaining_gigabits = total - pace.after(sent, now_s + limits.slot_s - begins_s, rate)
        lit = dict(decision.ports)
    raise TestbedError(f"{policy.name}: {len(present)} jobs are not done after {_MOST_SLOTS} slots")
