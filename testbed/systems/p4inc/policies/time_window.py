"""TW: the heuristic of P4INC-AOI, algorithms 1 and 2, with and without INC. Pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.scheduling.free_capacity import SLACK, Loads, Room
from testbed.scheduling.model import NEEDED, Decision, Limits, Load, Progress, State
from testbed.systems.p4inc.policies import circuits, matching, windows


@dataclass(slots=True)
class Candidate:
    """A job in a slot, with the mode that it has or would start with. `gbps` is its rate so far, of
    `limit_gbps`.
    """

    progress: Progress
    load: Load
    limit_gbps: float
    gbps: float = 0.0


class TimeWindow:
    """INC goes to the waiting jobs that save most inter-unit traffic. Bandwidth goes in steps of delta B to
    the job with the longest ICT, one virtual port after the other, longest ideal window first. No job's rate
    falls.

    With `steps` NEEDED a job that ends within the slot gets no further step; with ALL, lines 19 to 31 go on
    until nothing fits, as printed. Without `reconfigures`, circuits do not change (INC-TW-NoRecon).
    """

    def __init__(self, *, inc: bool, reconfigures: bool = True, steps: str = NEEDED) -> None:
        self._inc = inc
        self._reconfigures = reconfigures
        self._steps = steps
        self._loads = Loads()

    @property
    def name(self) -> str:
        return ("inc-tw" if self._inc else "noinc-tw") + ("" if self._reconfigures else "-norecon")

    def decide(self, state: State) -> Decision:
        limits = state.limits
        running = [(p, self._loads.of(limits, p.job, p.inc)) for p in state.jobs if p.started is not None]
        room = Room.beside(limits, running, None if self._reconfigures else state.ports)
        waiting = [p for p in state.jobs if p.started is None]
        chosen = matching.assign(limits, waiting, room.inc_left, self._loads) if self._inc and waiting else {}
        candidates = [Candidate(p, its, room.limit(its), p.rate_gbps) for p, its in running]
        for p in waiting:
            its = self._loads.of(limits, p.job, chosen.get(p.job.id))
            candidates.append(Candidate(p, its, room.limit(its)))
        for related in by_window(limits, candidates):
            _raise(limits, related, room, self._steps)
        given = [c for c in candidates if c.gbps > 0]
        return Decision(
            {c.progress.job.id: c.gbps for c in given},
            {c.progress.job.id: c.load.inc for c in given if c.load.inc is not None},
            circuits.kept(state.ports, room.circuits, limits.ports) if self._reconfigures else state.ports,
        )


def by_window(limits: Limits, candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Group the jobs by virtual port, latest window end first; each job is in the first of its ports only.

    A unit has two virtual ports: its server pool's, with the switch's bandwidth (equation 5), and its AOI's,
    with the bandwidth of its optical ports; a circuit to a slower port occupies these for longer. A job
    leaves its first pass (algorithm 2, lines 19 to 31) only when no further step fits, and nothing becomes
    free before the next slot; so in later passes it would leave at once.
    """
    units = len(limits.ports)
    port: list[int] = []
    gigabits: list[float] = []
    update_s: list[float] = []
    first: list[int] = []
    for candidate in candidates:
        first.append(len(port))
        its, left = candidate.load, candidate.progress.remaining_gigabits
        for unit, count in its.switches:
            port.append(unit)
            gigabits.append(count * left)
        for pair, count in its.links:
            for unit in pair:
                port.append(units + unit)
                gigabits.append(count * left * limits.port_weight(unit, pair))
        update_s += [its.update_s] * (len(port) - first[-1])
    capacity = np.array([*limits.switch_gbps, *map(limits.optical_gbps, limits.units)])
    end = windows.ends(port, gigabits, update_s, capacity)
    rank = np.empty(len(end), np.intp)
    rank[np.argsort(-end, kind="stable")] = np.arange(len(end))
    related: dict[int, list[Candidate]] = {}
    if port:
        earliest = np.minimum.reduceat(rank[port], first)
        for candidate, at in zip(candidates, earliest.tolist(), strict=True):
            related.setdefault(at, []).append(candidate)
    return [related[at] for at in sorted(related)]


def _raise(limits: Limits, related: Sequence[Candidate], room: Room, steps: str) -> None:
    """Run algorithm 2, lines 19 to 31. Meanwhile room only shrinks, and a job's ICT depends on its own rate
    alone. So a heap of jobs, longest ICT first, yields the order of the paper's repeated search over all
    jobs.
    """
    heap = [
        entry
        for number, c in enumerate(related)
        if (entry := _projected(limits, number, c, steps)) is not None
    ]
    heapq.heapify(heap)
    while heap:
        _, number, step = heap[0]
        candidate = related[number]
        entry = None
        if room.fits(candidate.load, step):
            room.take(candidate.load, step)
            candidate.gbps += step
            entry = _projected(limits, number, candidate, steps)
        if entry is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, entry)


def _projected(
    limits: Limits, number: int, candidate: Candidate, steps: str
) -> tuple[float, int, float] | None:
    """Return the ICT after one more step, negated for the heap, and the step; None if the job is to get no
    more.
    """
    progress, had = candidate.progress, candidate.progress.rate_gbps
    left = progress.remaining_gigabits
    # the increase of its rate may take effect epsilon late
    lost = (candidate.gbps - had) * limits.reconfiguration_s if candidate.load.links else 0.0
    ends = candidate.gbps > 0 and candidate.gbps * limits.slot_s - lost >= left
    if ends and (steps == NEEDED or candidate.limit_gbps == math.inf):
        return None
    step = min(limits.step_gbps, candidate.limit_gbps - candidate.gbps)
    if step <= SLACK * candidate.gbps:
        return None
    return -(left / (candidate.gbps + step) + candidate.load.update_s), number, step
