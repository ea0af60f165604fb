"""Find few heads that cover all workers where not every worker can head every other: capacitated domination,
by a greedy start and a local search. Deterministic. Pure.

For given heads, the largest number of members is a matching, maintained by augmenting paths. Every worker
that is no member is a contributor, so the search maximises the number of members.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.systems.aleph.model import Instance

SEED = 1
ATTEMPTS = 3000  # trials of one local search
VISITS = 2_000_000  # of workers, in all trials of one search: bounds its cost on large graphs
ALL_VISITS = 3 * VISITS  # in all searches of one group


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A connected component of the workers' neighbour graph; `complete` if every two of its workers are
    neighbours.
    """

    workers: tuple[int, ...]
    complete: bool


def groups(instance: Instance) -> list[Neighbourhood]:
    """Split an instance into its connected components."""
    if instance.neighbours is None:
        return [Neighbourhood(tuple(range(instance.size)), True)]
    seen: set[int] = set()
    known: list[Neighbourhood] = []
    for first in range(instance.size):
        if first in seen:
            continue
        seen.add(first)
        members, waiting = [first], [first]
        while waiting:
            new = instance.neighbours[waiting.pop()] - seen
            seen |= new
            members.extend(new)
            waiting.extend(new)
        complete = all(len(instance.neighbours[worker]) == len(members) - 1 for worker in members)
        known.append(Neighbourhood(tuple(sorted(members)), complete))
    return known


def assigned(
    instance: Instance, group: Neighbourhood, room: Sequence[int], heads: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """Assign as many members as possible to these heads of a group, by head."""
    if group.complete:
        others = iter(sorted(set(group.workers) - set(heads)))
        clusters = {head: tuple(itertools.islice(others, room[head])) for head in heads}
        return {head: members for head, members in clusters.items() if members}
    search = Domination(instance, group.workers)
    return search.assigned(room, heads)


def greedy(instance: Instance) -> dict[int, tuple[int, ...]]:
    """Choose heads greedily, by the number of members that each gains; return the members by head."""
    everybody = range(instance.size)
    if instance.neighbours is None:
        heads: list[int] = []
        covered = 0
        for worker in sorted(everybody, key=lambda worker: -instance.capacities[worker]):
            if covered >= instance.size or not instance.capacities[worker]:
                break
            heads.append(worker)
            covered += 1 + instance.capacities[worker]
        return assigned(instance, Neighbourhood(tuple(everybody), True), instance.capacities, heads)
    near = [sorted(others) for others in instance.neighbours]
    room = [min(most, len(near[worker])) for worker, most in enumerate(instance.capacities)]
    members = _greedy(near, room).members
    return {head: tuple(sorted(members[head])) for head in sorted(members)}


class Domination:
    """The search for one group's clusters, given how many others each worker can head (its room). It caches
    results: similar rooms have similar heads.
    """

    def __init__(self, instance: Instance, workers: tuple[int, ...]) -> None:
        assert instance.neighbours is not None
        self._workers = workers
        local = {worker: at for at, worker in enumerate(workers)}
        self._near = [sorted(local[other] for other in instance.neighbours[worker]) for worker in workers]
        self._at = np.array(workers, np.int64)
        self._degrees = np.array([len(near) for near in self._near], np.int64)
        self._kept: dict[bytes, _State] = {}
        self._searched: set[bytes] = set()  # rooms whose search fell short of its goal
        self._visits = ALL_VISITS

    def least(self, room: NDArray[np.int64]) -> int:
        """Return a lower bound of the number of contributors."""
        return len(self._workers) - _bound(self._own(room))

    def contributors(self, room: NDArray[np.int64], most: float = math.inf) -> int:
        """Return the number of contributors of the best clusters found; stop searching once there are at most
        `most`.
        """
        return len(self._workers) - self._found(room, len(self._workers) - most).matched

    def clusters(self, room: NDArray[np.int64]) -> dict[int, tuple[int, ...]]:
        """Return the members by head of the best clusters found."""
        return self._named(self._found(room, math.inf))

    def _named(self, state: _State) -> dict[int, tuple[int, ...]]:
        return {
            self._workers[head]: tuple(self._workers[member] for member in sorted(members))
            for head, members in sorted(state.members.items())
            if members
        }

    def assigned(self, room: Sequence[int], heads: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Assign as many members as possible to these heads, by head."""
        state = _State(self._near, [room[worker] for worker in self._workers])
        for head in heads:
            state.add(self._workers.index(head))
        state.complete()
        return self._named(state)

    def _own(self, room: NDArray[np.int64]) -> NDArray[np.int64]:
        own: NDArray[np.int64] = np.minimum(room[self._at], self._degrees)
        return own

    def _found(self, room: NDArray[np.int64], wanted: float) -> _State:
        """Search for clusters with `wanted` members; return the best found."""
        own = self._own(room)
        key = own.tobytes()
        if key not in self._kept:
            self._kept[key] = self._begun(own, wanted)
        if self._kept[key].matched < wanted and key not in self._searched and self._visits > 0:
            goal = min(wanted, _bound(own))
            self._kept[key], spent = _improved(self._kept[key], goal, min(VISITS, self._visits))
            self._visits -= spent
            if self._kept[key].matched < wanted:
                self._searched.add(key)
        return self._kept[key]

    def _begun(self, own: NDArray[np.int64], wanted: float) -> _State:
        """Choose the start of a search among the cached clusters that fit, those of the most similar room,
        and greedy ones: the first with enough members, else the one with the most.
        """
        room = own.tolist()
        begun: list[_State] = []
        for state in (*self._fitting(room), *self._nearest(own)):
            begun.append(state.within(room))
            if begun[-1].matched >= wanted:
                return begun[-1]
        return max([*begun, _greedy(self._near, room)], key=lambda state: state.matched)

    def _fitting(self, room: Sequence[int]) -> Iterator[_State]:
        """Yield, of the cached clusters that fit this room, those with the most members."""
        fitting = [state for state in self._kept.values() if state.fits(room)]
        if fitting:
            yield max(fitting, key=lambda state: state.matched)

    def _nearest(self, own: NDArray[np.int64]) -> Iterator[_State]:
        """Yield the cached clusters of the most similar room."""
        if self._kept:
            apart = {key: int(np.abs(own - np.frombuffer(key, np.int64)).sum()) for key in self._kept}
            yield self._kept[min(apart, key=apart.__getitem__)]


class _State:
    """Heads with as many members as they can have."""

    def __init__(self, near: Sequence[Sequence[int]], room: Sequence[int]) -> None:
        self.near, self.room = near, room
        self.of = [-1] * len(near)
        self.members: dict[int, set[int]] = {}
        self.visits = 0

    @property
    def matched(self) -> int:
        return sum(map(len, self.members.values()))

    def copy(self) -> _State:
        other = _State(self.near, self.room)
        other.of = list(self.of)
        other.members = {head: set(members) for head, members in self.members.items()}
        other.visits = self.visits + len(self.near)
        return other

    def fits(self, room: Sequence[int]) -> bool:
        return all(len(members) <= room[head] for head, members in self.members.items())

    def within(self, room: Sequence[int]) -> _State:
        """Return a copy for another room: heads that lack room for all their members lose some."""
        other = self.copy()
        other.room, other.visits = room, 0
        for head, members in other.members.items():
            for member in sorted(members)[room[head] :]:
                members.discard(member)
                other.of[member] = -1
        other.complete()
        return other

    def add(self, head: int) -> None:
        self.visits += len(self.near)
        if self.of[head] >= 0:
            self.members[self.of[head]].discard(head)
            self.of[head] = -1
        self.members[head] = set()

    def drop(self, head: int) -> None:
        self.visits += len(self.near)
        for member in self.members.pop(head):
            self.of[member] = -1

    def complete(self) -> None:
        """Assign members to heads until no more can be. A worker without an augmenting path has none later
        either.
        """
        full: set[int] = set()
        for worker in range(len(self.near)):
            if self.of[worker] < 0 and worker not in self.members:
                self._augment(worker, full)
        for head in [head for head, members in self.members.items() if not members]:
            if not self.members[head]:  # still empty: an earlier one may have become its member
                del self.members[head]
                self._augment(head, full)

    def _augment(self, worker: int, full: set[int]) -> None:
        """Assign one worker to a head, if necessary by moving members of other heads, along a shortest
        augmenting path. `full` collects the heads from which no path leads on; they are not tried again.
        """
        came: dict[int, int] = {}  # head -> the worker from which the search reached it
        asking = [worker]
        for asker in asking:
            self.visits += len(self.near[asker])
            for head in self.near[asker]:
                if head in came or head in full or head not in self.members:
                    continue
                came[head] = asker
                if len(self.members[head]) < self.room[head]:
                    self._move(head, came)
                    return
                asking.extend(sorted(self.members[head]))
        full.update(came)

    def _move(self, head: int, came: dict[int, int]) -> None:
        while True:
            asker = came[head]
            left = self.of[asker]
            self.of[asker] = head
            self.members[head].add(asker)
            if left < 0:
                return
            self.members[left].discard(asker)
            head = left


def _greedy(near: Sequence[Sequence[int]], room: Sequence[int]) -> _State:
    """Choose heads by the number of members that each gains, most first."""
    state = _State(near, room)
    covered = [False] * len(near)

    def gain(worker: int) -> int:
        if worker in state.members or not room[worker]:
            return 0
        free = sum(not covered[other] for other in near[worker])
        return min(room[worker], free) - (state.of[worker] >= 0)

    waiting = [(-gain(worker), worker) for worker in range(len(near))]
    heapq.heapify(waiting)
    while waiting:
        promised, worker = heapq.heappop(waiting)
        now = gain(worker)
        if now <= 0:
            continue
        if now < -promised:
            heapq.heappush(waiting, (-now, worker))
            continue
        state.add(worker)
        covered[worker] = True
        # members with the fewest uncovered neighbours first: the others are more likely to find a head later
        free = sorted((other for other in near[worker] if not covered[other]), key=lambda at: len(near[at]))
        for other in free[: room[worker]]:
            covered[other] = True
            state.of[other] = worker
            state.members[worker].add(other)
    state.complete()
    return state


def _bound(room: NDArray[np.int64]) -> int:
    """Return an upper bound of the number of members: the workers with the most room are heads, until all are
    covered.
    """
    held = -np.sort(-room)
    before = np.concatenate(([0], np.cumsum(1 + held)))
    heads = int(np.count_nonzero((before[:-1] < len(room)) & (held > 0)))
    return min(int(before[heads]), len(room)) - heads


def _improved(state: _State, wanted: float, visits: int) -> tuple[_State, int]:
    """Improve a state by local search: drop heads and put others in their place; a trial that is no worse
    replaces the state. Return the best state, and the visits that the search took.
    """
    draws = random.Random(SEED)
    best = state
    spent = 0
    for _ in range(ATTEMPTS):
        if best.matched >= wanted or spent > visits or not state.members:
            break
        trial = state.copy()
        trial.visits = len(state.near)
        gone = draws.choice(sorted(trial.members))
        trial.drop(gone)
        if draws.random() < 0.3 and trial.members:  # drop a second head too
            others = {other for member in trial.near[gone] for other in trial.near[member]}
            others &= trial.members.keys()
            if others:
                trial.drop(draws.choice(sorted(others)))
        for _ in range(draws.choice((0, 1, 1, 2))):
            alone = [at for at in range(len(trial.near)) if trial.of[at] < 0 and at not in trial.members]
            if not alone:
                break
            about = draws.choice(alone)
            around = [at for at in (about, *trial.near[about]) if at not in trial.members and trial.room[at]]
            if around:
                trial.add(draws.choice(around))
        trial.complete()
        spent += trial.visits
        if trial.matched >= state.matched:
            state = trial
            if state.matched > best.matched:
                best = state
    return best, spent
