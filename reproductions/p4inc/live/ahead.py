"""Simulated results of figures 6 and 7, for numbers of jobs that take hours on a testbed. Pure.

Demands, placements, policies and iteration times are those of the live runs; starting a process costs
nothing, as in the paper.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from reproductions.p4inc.live.model import JobKind
from reproductions.p4inc.live.prediction import Asked, Predicted, Queue, predict
from reproductions.p4inc.live.queue import STEP_GBPS, LiveTrial, demands, pace
from reproductions.p4inc.live.report import QueueTotals
from testbed.aggregation.site import racks_of
from testbed.plugins.policies import choice
from testbed.scheduling import live
from testbed.scheduling.model import Pair, pair
from testbed.systems.p4inc.policies import catalogue
from testbed.topology import addresses
from testbed.topology.model import Topology

JOBS = (10, 20, 40, 60)
"""The paper's numbers of jobs."""


def rows(
    topology: Topology,
    kinds: Sequence[JobKind],
    jobs: Sequence[int],
    seeds: Sequence[int],
    schemes: Sequence[str],
    slot_s: float,
) -> Iterator[QueueTotals]:
    """Yield the totals of each run."""
    for kind in kinds:
        for count in jobs:
            for seed in seeds:
                for scheme in schemes:
                    asked = submitted(topology, kind, count, seed, slot_s)
                    forecast = of(topology, kind, asked, scheme, seed, slot_s)
                    total_s = math.fsum(forecast.ended_s[job.id] - job.arrival_s for job in asked)
                    yield QueueTotals(
                        model=kind.model,
                        scheme=scheme,
                        jobs=count,
                        seed=seed,
                        total_jct_s=total_s,
                        total_jct_less_start_ups_s=total_s,
                        connections=forecast.connections,
                    )


def lasts_s(topology: Topology, trial: LiveTrial, slot_s: float) -> float:
    """Return the seconds from the first slot of a run to the end of its last job. TestbedError where a job
    would never end.
    """
    asked = submitted(topology, trial.kind, trial.jobs, trial.seed, slot_s)
    return max(of(topology, trial.kind, asked, trial.scheme, trial.seed, slot_s).ended_s.values())


def submitted(topology: Topology, kind: JobKind, jobs: int, seed: int, slot_s: float) -> list[Asked]:
    volume = live.gigabits(topology, kind.megabytes(topology.scale), kind.iterations)
    drawn = enumerate(demands(jobs, seed, slot_s))
    return [Asked(at + 1, time_s, workers, volume, f"{seed}/place/{at}") for at, (time_s, workers) in drawn]


def of(
    topology: Topology, kind: JobKind, asked: Sequence[Asked], scheme: str, seed: int, slot_s: float
) -> Predicted:
    racks = racks_of(topology)
    limits = live.limits_of(topology, slot_s, STEP_GBPS, choice(scheme).with_inc.programs)
    queue = Queue(racks, asked, start_up_s=0.0, handling_s=0.0)
    policy = catalogue.make(scheme, seed)
    return predict(limits, queue, policy, initial_ports(topology), pace(kind, topology))


def initial_ports(topology: Topology) -> dict[Pair, int]:
    """Count the initial circuits between each pair of units, as policies see them."""
    ends = (
        [live.index_of(addresses.parse_optical_port(port)[0]) for port in circuit]
        for circuit in topology.ocs.circuits
    )
    return dict(Counter(pair(a, b) for a, b in ends))
