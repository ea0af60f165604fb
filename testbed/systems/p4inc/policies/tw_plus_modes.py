"""TW+, first half: choose which waiting jobs use INC, which use their PS, and which wait. Owns no rates and
no circuits. Pure.

Times are seconds from the slot being decided.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.scheduling.free_capacity import Loads
from testbed.scheduling.model import Load, Progress, State, UnitIndex


@dataclass(frozen=True, slots=True)
class Tuning:
    """The weights of TW+, as fractions; docs/p4inc-aoi.md, section TW+, has the steps that use them.

    A job that its PS would not make late leaves its INC place to longer ones, on three conditions. Both
    units' optical ports are busy, with it and the PS jobs before it, for less than `spare` of the time to the
    expected end, less `spare_per_place` for each further free place. Its streams take, at its full rate, at
    most `narrow` of a unit's ports. Circuits are lit for them.

    `reserve` places of a switch stay free while the jobs that could use them can wait and still end by the
    expected end.

    PS jobs get rates that end them at the expected end, then rates for `hurry` of that time, then the
    remaining bandwidth of lit circuits.
    """

    spare: float = 0.7
    spare_per_place: float = 0.1
    narrow: float = 0.17
    hurry: float = 0.6
    reserve: int = 1


@dataclass(slots=True)
class Sending:
    """A job that may get a rate in this slot. `least_s` is its duration at its largest rate, update included;
    `may_wait`: it has not started and could use INC later.
    """

    progress: Progress
    load: Load
    least_s: float
    may_wait: bool = False


@dataclass(slots=True)
class _Queued:
    """A waiting job that could use INC in the unit of `inc`."""

    progress: Progress
    inc: Load
    ps: Load
    inc_s: float
    ps_s: float
    streams: int


class Modes:
    """The choice for one slot. `sending` has the jobs that run or may start; `end_s` is the expected end, as
    far as INC places and the jobs' largest rates determine it.
    """

    def __init__(self, state: State, tuning: Tuning, loads: Loads, inc: bool) -> None:
        self.limits, self.tuning, self._loads, self._lit = state.limits, tuning, loads, state.ports
        limits = state.limits
        self.port_gbps = [max(limits.optical_gbps(unit), 1e-9) for unit in limits.units]
        self.sending: list[Sending] = []
        # through each unit's optical ports, weighted where the other end is slower; used with INC only
        self.gigabits = [0.0] * len(limits.ports)
        self._held: dict[UnitIndex, list[float]] = {}  # by unit, when its INC places become free
        queues = self._sort(state, inc)
        for unit in sorted(queues):
            self._choose(unit, queues[unit])

    # -------------------------------------------------------------- running and waiting jobs

    def _sort(self, state: State, inc: bool) -> dict[UnitIndex, list[_Queued]]:
        limits, of = self.limits, self._loads.of
        queues: dict[UnitIndex, list[_Queued]] = {}
        known = 0.0
        for progress in state.jobs:
            job, left = progress.job, progress.remaining_gigabits
            if progress.started is not None:
                its = of(limits, job, progress.inc)
                least = left / its.limit_gbps + its.update_s
                if its.inc is not None:
                    self._held.setdefault(its.inc, []).append(least)
                if inc:
                    self._add(its, left)
                self.sending.append(Sending(progress, its, least))
                if least > known:
                    known = least
                continue
            its = of(limits, job, None)
            unit = self._inc_unit(progress, queues) if inc else None
            if unit is None:
                if its.limit_gbps > 0:
                    least = left / its.limit_gbps + its.update_s
                    if inc:
                        self._add(its, left)
                    self.sending.append(Sending(progress, its, least))
                    if least > known:
                        known = least
                continue
            with_inc = of(limits, job, unit)
            slots = max(1, math.ceil(left / (with_inc.limit_gbps * limits.slot_s) - 1e-9))
            ps_s = left / its.limit_gbps + its.update_s if its.limit_gbps > 0 else math.inf
            inc_s = slots * limits.slot_s + with_inc.update_s
            streams = sum([count for _, count in its.links])
            self._add(with_inc, left)
            queues.setdefault(unit, []).append(_Queued(progress, with_inc, its, inc_s, ps_s, streams))
            known = max(known, left / with_inc.limit_gbps + with_inc.update_s)
        self.end_s = known
        return queues

    def _inc_unit(
        self, progress: Progress, queues: Mapping[UnitIndex, Sequence[_Queued]]
    ) -> UnitIndex | None:
        """Return, of the units where a job may use INC, the one with most of its workers; of equal ones, that
        with the fewest jobs per place.
        """
        limits, job = self.limits, progress.job
        units = job.inc_units(limits)
        if len(units) == 1:
            return units[0] if self._loads.of(limits, job, units[0]).limit_gbps > 0 else None
        workers = dict(job.workers)

        def crowd(unit: UnitIndex) -> tuple[int, float, int]:
            jobs = len(self._held.get(unit, ())) + len(queues.get(unit, ()))
            return (-workers[unit], jobs / limits.inc[unit], unit)

        able = [unit for unit in units if self._loads.of(limits, job, unit).limit_gbps > 0]
        return min(able, key=crowd, default=None)

    def _add(self, its: Load, gigabits: float) -> None:
        through = self.gigabits
        for pair, count in its.links:
            for unit in pair:
                through[unit] += count * gigabits * self.limits.port_weight(unit, pair)

    # -------------------------------------------------------------- one unit's INC places

    def _choose(self, unit: UnitIndex, queue: list[_Queued]) -> None:
        free = max(0, self.limits.inc[unit] - len(self._held.get(unit, ())))
        spare = free - len(queue)
        kept: list[_Queued] = []
        # the jobs with the least load on the optical ports leave their places first
        for queued in sorted(queue, key=lambda q: (q.streams * q.inc_s, -q.progress.job.id)):
            if self._may_leave(queued, max(0, spare)):
                self._send(queued)
                spare += 1
            else:
                kept.append(queued)
        kept.sort(key=lambda q: (-q.inc_s, q.progress.job.id))  # longest first
        if len(kept) > free:
            self._relieve(unit, kept, free)
        for queued in kept[: self._starting(unit, kept, free)]:
            self.sending.append(Sending(queued.progress, queued.inc, queued.inc_s))

    def _starting(self, unit: UnitIndex, kept: Sequence[_Queued], free: int) -> int:
        """Return how many of a queue start now. A place stays free for a longer job that may arrive, as long
        as the jobs that could use it can wait a slot and the whole queue still ends by the expected end.
        """
        starting = min(free, len(kept))
        while starting and free - starting < self.tuning.reserve:
            if self._places_end_s(unit, kept, starting - 1) > self.end_s:
                break
            starting -= 1
        return starting

    def _may_leave(self, queued: _Queued, spare: int) -> bool:
        if queued.ps_s > self.end_s:
            return False
        tuning, left, its = self.tuning, queued.progress.remaining_gigabits, queued.ps
        most_s = (tuning.spare - tuning.spare_per_place * spare) * self.end_s
        for pair, count in its.links:
            if not self._lit.get(pair, 0):
                return False
            for unit in pair:
                weight = count * self.limits.port_weight(unit, pair)
                if weight * its.limit_gbps > tuning.narrow * self.port_gbps[unit]:
                    return False
                if self.gigabits[unit] + weight * left > most_s * self.port_gbps[unit]:
                    return False
        return True

    def _send(self, queued: _Queued) -> None:
        left = queued.progress.remaining_gigabits
        self._add(queued.inc, -left)
        self._add(queued.ps, left)
        self.sending.append(Sending(queued.progress, queued.ps, queued.ps_s, may_wait=True))

    def _relieve(self, unit: UnitIndex, kept: list[_Queued], free: int) -> None:
        """Move jobs from an overfull queue to their PS: as long as the queue ends later than expected and a
        move improves that, move the job after which the unit ends first; of equal ones, that with the fewest
        streams.
        """
        end_s = self._places_end_s(unit, kept)
        while len(kept) > free and end_s > self.end_s:
            best, least = None, (end_s, 0)
            for at, queued in enumerate(kept):
                ps_end_s = max(self.end_s, self._ps_end_s(queued))
                if ps_end_s >= end_s:
                    continue
                rank = (max(ps_end_s, self._places_end_s(unit, kept[:at] + kept[at + 1 :])), queued.streams)
                if rank < least:
                    best, least = queued, rank
            if best is None:
                break
            kept.remove(best)
            self._send(best)
            end_s = self._places_end_s(unit, kept)
        self.end_s = max(self.end_s, end_s)

    def _ps_end_s(self, queued: _Queued) -> float:
        end_s, left, its = queued.ps_s, queued.progress.remaining_gigabits, queued.ps
        for pair, count in its.links:
            for unit in pair:
                through = self.gigabits[unit] + count * left * self.limits.port_weight(unit, pair)
                end_s = max(end_s, through / self.port_gbps[unit] + its.update_s)
        return end_s

    def _places_end_s(self, unit: UnitIndex, queue: Sequence[_Queued], starting: int | None = None) -> float:
        """Return when a unit's INC places have completed a queue, each job at the first free place; jobs
        behind the first `starting` start in the next slot at the earliest.
        """
        held = self._held.get(unit, [])
        places = held + [0.0] * (self.limits.inc[unit] - len(held))
        heapq.heapify(places)
        end_s = 0.0
        for at, queued in enumerate(queue):
            begin_s = places[0] if starting is None or at < starting else max(places[0], self.limits.slot_s)
            free_s = begin_s + queued.inc_s
            end_s = max(end_s, free_s)
            heapq.heapreplace(places, free_s)
        return end_s
