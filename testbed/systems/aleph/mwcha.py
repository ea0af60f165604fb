"""M-WCHA, the paper's algorithm 1 with equations (2) to (6), as printed and as probably meant. Pure; random
draws come from an argument.

docs/aleph.md explains each change of the repaired variant; tests/unit/test_aleph_mwcha.py has an instance for
each.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.systems.aleph.model import Clustering, Instance, too_few

REPAIRED, PRINTED = VARIANTS = ("repaired", "printed")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The sets V_w by aggregator w, itself included, in the order of selection. As printed, sets may overlap
    and exceed capacities. `rounds` counts the loop's rounds; `left` has the workers that send to the
    parameter server because the last round selected nobody.
    """

    size: int
    sets: Mapping[int, tuple[int, ...]]
    rounds: int
    left: tuple[int, ...]

    def clustering(self) -> Clustering:
        """Convert the sets to heads. A worker in several sets belongs to the first, unless it heads others
        itself.
        """
        head = list(range(self.size))
        heading: set[int] = set()
        for leader, members in self.sets.items():
            if head[leader] != leader:
                if len(members) == 1:
                    continue  # already a member of another, and heads nobody
                head[leader] = leader
            heading.add(leader)
            for member in members:
                if head[member] == member and member not in heading:
                    head[member] = leader
        return Clustering(tuple(head))


def cluster(instance: Instance, draws: random.Random, variant: str = REPAIRED) -> Clustering:
    """Run the algorithm once and return its clustering. RequestError if that has more contributors than the
    servers take.
    """
    clustering = run(instance, draws, variant).clustering()
    if len(clustering.contributors) > instance.contributors:
        raise too_few(instance, len(clustering.contributors))
    return clustering


def run(instance: Instance, draws: random.Random, variant: str = REPAIRED) -> Outcome:
    """Run one variant of the algorithm. ValueError for an unknown variant."""
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: accepted are {', '.join(VARIANTS)}")
    return _printed(instance, draws) if variant == PRINTED else _repaired(instance, draws)


def rounded(capacity: int) -> int:
    """Round a capacity up to a power of two, (3)."""
    return 1 << max(0, capacity - 1).bit_length()


class _Round:
    """The state of one round in steps 1 to 3: the workers in no set yet (U), and the sizes of their
    neighbourhoods.
    """

    def __init__(self, instance: Instance, unclustered: set[int], *, itself: bool) -> None:
        """Count neighbourhoods and capacities within U. With `itself`, N(w) includes w, as printed."""
        self._instance, self.unclustered, self._itself = instance, unclustered, itself
        self.around = [self._around(worker) for worker in range(instance.size)]
        self.capacity = [
            min(most, around) for most, around in zip(instance.capacities, self.around, strict=True)
        ]
        self.rounded = [rounded(capacity) for capacity in self.capacity]

    def _around(self, worker: int) -> int:
        near = self._instance.neighbours
        count = len(self.unclustered) if near is None else len(near[worker] & self.unclustered)
        beside = worker in self.unclustered
        if near is None:
            return count if self._itself else count - beside
        return count + (beside if self._itself else 0)

    def near(self, worker: int) -> set[int]:
        """Return N(w) within U; w itself is included if `itself` is set."""
        near = self._instance.neighbours
        others = set(self.unclustered) if near is None else set(near[worker] & self.unclustered)
        others.discard(worker)
        return others | {worker} if self._itself and worker in self.unclustered else others

    def within_two_hops(self, worker: int) -> set[int]:
        near = self._instance.neighbours
        if near is None:
            return set(range(self._instance.size))
        return set(near[worker]).union(*(near[other] for other in near[worker])) | {worker}

    def alpha(self, worker: int) -> float:
        """Compute alpha, (5)."""
        return self.capacity[worker] / self.around[worker] if self.around[worker] else 0.0

    def betas(self, candidates: Sequence[int], workers: set[int]) -> dict[int, float]:
        """Compute beta, (6), of each worker: the sum of alpha over the candidates among its neighbours and
        itself.
        """
        alphas = {worker: self.alpha(worker) for worker in candidates}
        near = self._instance.neighbours
        if near is None:
            total = math.fsum(alphas.values())
            return dict.fromkeys(workers, total)
        return {
            worker: math.fsum(
                alpha for other, alpha in alphas.items() if other == worker or other in near[worker]
            )
            for worker in workers
        }


def _printed(instance: Instance, draws: random.Random) -> Outcome:
    """Run the algorithm line by line as printed. Line 11 leaves the loop over the workers. Line 17 gives
    candidates no beta, so the median is over workers that have one, and a candidate without such neighbours
    is certainly selected.
    """
    sets: dict[int, tuple[int, ...]] = {}
    clustered: set[int] = set()
    rounds = 0
    while len(clustered) < instance.size:
        rounds += 1
        unclustered = set(range(instance.size)) - clustered
        step = _Round(instance, unclustered, itself=True)
        candidates: list[int] = []
        for worker in sorted(unclustered):
            if any(step.rounded[worker] < step.rounded[other] for other in step.within_two_hops(worker)):
                break
            candidates.append(worker)
        beta = step.betas(candidates, unclustered - set(candidates))
        alphas = {worker: step.alpha(worker) for worker in candidates}
        selected = False
        for worker in candidates:
            known = [beta[other] for other in step.near(worker) if other in beta]
            median = statistics.median(known) if known else 0.0
            if draws.random() >= (1 / median if median > 0 else 1.0):
                continue
            selected = True
            members = list(sets.get(worker, (worker,)))
            clustered.add(worker)
            for other in sorted(step.near(worker) - clustered):
                if draws.random() < alphas[worker]:
                    members.append(other)
                    clustered.add(other)
            sets[worker] = tuple(members)
        if not selected:
            break
    left = tuple(worker for worker in range(instance.size) if worker not in clustered)
    return Outcome(instance.size, sets, rounds, left)


def _repaired(instance: Instance, draws: random.Random) -> Outcome:
    """Run the repaired algorithm. Candidates have the largest capacity among the unclustered workers near
    them. Each is selected with a probability of at most 1, and draws as many members around it as its
    capacity allows. A round that selects nobody takes one of the candidates.
    """
    sets: dict[int, tuple[int, ...]] = {}
    clustered: set[int] = set()
    rounds = 0
    while len(clustered) < instance.size:
        rounds += 1
        unclustered = set(range(instance.size)) - clustered
        step = _Round(instance, unclustered, itself=False)
        candidates = _candidates(instance, step)
        if not any(step.capacity[worker] for worker in candidates):
            for worker in candidates:  # a worker that can head nobody contributes by itself
                sets[worker] = (worker,)
                clustered.add(worker)
            continue
        beta = step.betas(candidates, unclustered)
        before = len(clustered)
        for worker in candidates:
            if worker not in clustered and draws.random() < _chance(step, beta, worker):
                _take(step, worker, sets, clustered, draws)
        if len(clustered) == before:
            _take(step, draws.choice(candidates), sets, clustered, draws)
    return Outcome(instance.size, sets, rounds, ())


def _candidates(instance: Instance, step: _Round) -> list[int]:
    if instance.neighbours is None:
        most = max(step.rounded[worker] for worker in step.unclustered)
        able = [worker for worker in sorted(step.unclustered) if step.rounded[worker] == most]
    else:
        able = [
            worker
            for worker in sorted(step.unclustered)
            if all(
                step.rounded[worker] >= step.rounded[other]
                for other in step.within_two_hops(worker) & step.unclustered
            )
        ]
    # capacity 0 is rounded to 1: where one candidate can head a worker, those that can head none are removed
    heading = [worker for worker in able if step.capacity[worker]]
    return heading or able


def _chance(step: _Round, beta: Mapping[int, float], worker: int) -> float:
    median = statistics.median(beta[other] for other in (*step.near(worker), worker))
    return min(1.0, 1 / median) if median > 0 else 1.0


def _take(
    step: _Round,
    worker: int,
    sets: dict[int, tuple[int, ...]],
    clustered: set[int],
    draws: random.Random,
) -> None:
    clustered.add(worker)
    free = sorted(step.near(worker) - clustered)
    members = draws.sample(free, min(step.capacity[worker], len(free)))
    clustered.update(members)
    sets[worker] = (worker, *sorted(members))
