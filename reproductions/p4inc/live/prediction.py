"""Predict the live experiment: the same policy objects decide on a simulated clock for jobs that compute as
well as send. Pure.

The fluid simulator (testbed/systems/p4inc/simulator/fluid.py) knows volumes alone, but a job that computes
for most of an iteration sends less than its rate allows. Here a job sends one iteration's volume in the time
that `model` computes for an iteration. A job ends within a slot, as a real one does, and its resources are
free from the next slot on. Nothing is fitted to measurements of jobs; the time that this machine takes to
start processes is an argument.
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
    """Supplies jobs to `predict`."""

    def shown(self, slot: int, now_s: float) -> list[Job]:
        """Return the jobs that become visible to the policy in this slot."""

    def ended(self, job: int, at_s: float) -> None: ...

    def is_empty(self) -> bool:
        """Return whether no further job will come."""


class Given:
    """Jobs with measured first slots and placements."""

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
    """A job as submitted. `seed` is the seed of its placement (testbed/queue/scheduler.py)."""

    id: int
    arrival_s: float
    workers: int
    gigabits: float
    seed: str


@dataclass(slots=True)
class Queue:
    """Jobs that wait for hosts in order of arrival, as on the testbed. `start_up_s`: seconds from placement
    to ready, for each worker of the job. `handling_s`: seconds from the last iteration until its hosts are
    free.
    """

    racks: Sequence[Rack]
    asked: Sequence[Asked]
    start_up_s: float
    handling_s: float
    _waiting: list[Asked] = field(default_factory=list)
    _starting: list[tuple[float, Job]] = field(default_factory=list)
    _hosts: dict[int, set[Host]] = field(default_factory=dict)
    _releases: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._waiting = sorted(self.asked, key=lambda request: (request.arrival_s, request.id))

    def shown(self, slot: int, now_s: float) -> list[Job]:
        for released in [id_ for at_s, id_ in self._releases if at_s <= now_s]:
            del self._hosts[released]
        self._releases = [(at_s, id_) for at_s, id_ in self._releases if at_s > now_s]
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
        self._releases.append((at_s + self.handling_s, job))

    def is_empty(self) -> bool:
        return not self._waiting and not self._starting


@dataclass(frozen=True, slots=True)
class Predicted:
    """A prediction: by job, the slot in which the policy first sees it, the seconds of its start and end, and
    its program; the circuits set up (`connections`) and the number of slots.
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
    """Simulate all jobs to their end. TestbedError for a decision that breaks a constraint, or where jobs
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
            progress = present[id_]
            begins_s = now_s + (limits.reconfiguration_s if new and rate > progress.rate_gbps else 0.0)
            total = progress.job.gigabits
            sent = total - progress.remaining_gigabits
            until_s = (
                now_s + pace.until_s(sent, total, progress.rate_gbps) if progress.rate_gbps else math.inf
            )
            if until_s > begins_s:
                if progress.rate_gbps:
                    sent = pace.after(sent, begins_s - now_s, progress.rate_gbps)
                until_s = begins_s + pace.until_s(sent, total, rate)
            if progress.started is None:
                progress.started, progress.inc = slot, decision.inc.get(id_)
                started_s[id_], modes[id_] = now_s, progress.inc
            progress.rate_gbps = rate
            if until_s <= now_s + limits.slot_s:
                ended_s[id_] = until_s
                del present[id_]
                source.ended(id_, until_s)
            else:
                progress.remaining_gigabits = total - pace.after(sent, now_s + limits.slot_s - begins_s, rate)
        lit = dict(decision.ports)
    raise TestbedError(f"{policy.name}: {len(present)} jobs are not done after {_MOST_SLOTS} slots")
