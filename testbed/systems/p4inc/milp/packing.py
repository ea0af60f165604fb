"""Find the sets of jobs that can share one INC place of a switch: those that fit one after the other between
their arrivals and a common end.

A place is held for whole slots, and a job with INC at its full rate holds it for a known number of them. So
the places of a switch are machines, and the order of arrival is the best order for a machine. Choosing among
these sets makes the bound tight: it counts the slots at the end of a place that fit no other job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_SETS = 6000
"""The most sets of one switch. Beyond it sets are not used, and only the total time of the places
is limited.
"""


@dataclass(frozen=True, slots=True)
class Stay:
    """A job that would hold a place for `slots` slots, from `arrival` on."""

    key: int
    arrival: int
    slots: int


def fits(tasks: Sequence[Stay], end: int) -> bool:
    """Return whether one place has room for all tasks, which are given in the order of arrival."""
    free = 0
    for task in tasks:
        free = max(free, task.arrival) + task.slots
        if free > end:
            return False
    return True


def starts(tasks: Sequence[Stay]) -> dict[int, int]:
    """Return the first slot of each task, one after the other in the order of arrival."""
    free, begins = 0, {}
    for task in sorted(tasks, key=lambda task: (task.arrival, task.key)):
        begins[task.key] = max(free, task.arrival)
        free = begins[task.key] + task.slots
    return begins


def largest_sets(tasks: Sequence[Stay], end: int, most: int = MOST_SETS) -> list[tuple[int, ...]] | None:
    """Return the maximal sets of keys that fit one place; None if there are more than `most`, or if the
    search takes more than 40 times as many steps.
    """
    ordered = sorted((task for task in tasks if fits([task], end)), key=lambda task: (task.arrival, task.key))
    largest: list[tuple[int, ...]] = []
    looked = 0
    # depth first, from the last arrival backwards: `room` is the slot at which the chosen ones must begin
    pending: list[tuple[int, int, tuple[int, ...]]] = [(len(ordered) - 1, end, ())]
    while pending:
        position, room, chosen = pending.pop()
        looked += 1
        if looked > 40 * most or len(largest) > most:
            return None
        while position >= 0 and room - ordered[position].slots < ordered[position].arrival:
            position -= 1
        if position < 0:
            picked = tuple(reversed(chosen))
            if _is_largest(ordered, picked, end):
                largest.append(tuple(ordered[place].key for place in picked))
            continue
        pending.append((position - 1, room, chosen))
        pending.append((position - 1, room - ordered[position].slots, (*chosen, position)))
    return largest


def _is_largest(ordered: Sequence[Stay], picked: Sequence[int], end: int) -> bool:
    others = set(range(len(ordered))) - set(picked)
    return not any(fits([ordered[at] for at in sorted((*picked, other))], end) for other in others)


def held_at_least(arrival: int, slots: int, end: int, low: int, high: int) -> int:
    """Count the slots of low..high (high excluded) that a task between its arrival and `end` must hold,
    wherever it starts.
    """
    early = min(high, arrival + slots) - max(low, arrival)
    late = min(high, end) - max(low, end - slots)
    return max(0, min(early, late))
