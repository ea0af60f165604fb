"""Read the timelines of workers' scripts: the collectives that they asked for and waited for, and their
computing (written by workloads/native/timeline.hpp). Pure.

A timeline is user data: a malformed one counts as none.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from testbed.messages.statistics import Statistics
from testbed.wire import calls

ASKED, WAITED, RESUMED = map(int, calls.Deed)
BESIDE, SUMMED, PULLED, PUSHED, CALLED = map(int, calls.Course)
MOST_ROWS = 100_000
MOST_USES = 8  # resources other than links, per collective
LARGE = 0.5  # of the largest round's bytes: from here on it is a round of training
WARM_UP_ROUNDS = 2  # torch's first call, DDP's first layout of buckets
_LATEST_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective: the bytes of a worker's vector, its kind, and the time in ns at which a worker had its
    result, or knew that its push had arrived; 0 if never.
    """

    size_bytes: int
    kind: int
    ready_ns: int

    @property
    def summed(self) -> bool:
        """Return whether the job's own kind of synchronisation sums it."""
        return self.kind in (SUMMED, PUSHED)


@dataclass(frozen=True, slots=True)
class Row:
    """An action of a script: its collective, its time, and how long the thread waited for a core, and ran on
    one, since the previous row.
    """

    what: int
    number: int
    at_ns: int
    starved_ns: int
    ran_ns: int


@dataclass(frozen=True, slots=True)
class Declared:
    """The time that a collective needs of a resource other than a link, by its declared rate, such as a
    disk's. `behind`: the collective completes before that, but the next call does not.
    """

    number: int
    resource: str
    busy_ns: int
    behind: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of a worker's script."""

    collectives: tuple[Collective, ...]
    rows: tuple[Row, ...]
    declared: tuple[Declared, ...] = ()

    def quiet_rows(self) -> dict[int, int]:
        """Return the rows in which the script resumed with nothing under way, by number of the latest
        collective asked for. All earlier ones are then complete; but a push may still be on its way behind a
        pull.
        """
        last, quiet, pushed_ns = -1, {}, 0
        for at, row in enumerate(self.rows):
            if row.what == ASKED:
                last = max(last, row.number)
                if (each := self.collectives[row.number]).kind == PUSHED:
                    pushed_ns = max(pushed_ns, each.ready_ns or _LATEST_NS)
            elif row.what == RESUMED and row.number == last and pushed_ns <= row.at_ns:
                quiet[last] = at
        return quiet


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a script: it computes, then asks for a collective, or waits for it and all before it."""

    compute_s: float
    what: int  # ASKED or WAITED
    number: int


def read(statistics: Statistics | None) -> Timeline | None:
    """Return the timeline in a worker's statistics; None if there is none or it is inconsistent."""
    left = statistics.get("timeline") if statistics else None
    if not isinstance(left, dict):
        return None
    sums, rows = left.get("sums"), left.get("rows")
    if not _is_table(sums, 3) or not _is_table(rows, 5) or not rows or not sums:
        return None
    collectives = tuple(Collective(*row) for row in sums)
    uses = _declared(left.get("uses", []), len(collectives))
    if uses is None:
        return None
    timeline = Timeline(collectives, tuple(Row(*row) for row in rows), uses)
    in_order = all(before.at_ns <= after.at_ns for before, after in itertools.pairwise(timeline.rows))
    known = all(row.what <= RESUMED and row.number < len(collectives) for row in timeline.rows)
    known = known and all(each.kind <= CALLED for each in collectives)
    asked = Counter(row.number for row in timeline.rows if row.what == ASKED)
    known = known and max(asked.values(), default=0) <= 1
    return timeline if in_order and known else None


def _declared(value: Any, collectives: int) -> tuple[Declared, ...] | None:
    if not isinstance(value, list) or not all(isinstance(row, list) and len(row) == 4 for row in value):
        return None
    if not _is_table([[number, busy_ns, behind] for number, _, busy_ns, behind in value], 3):
        return None
    if not all(number < collectives and isinstance(resource, str) for number, resource, _, _ in value):
        return None
    if max(Counter(number for number, *_ in value).values(), default=0) > MOST_USES:
        return None
    return tuple(
        Declared(number, resource, busy_ns, bool(behind)) for number, resource, busy_ns, behind in value
    )


def _is_table(value: Any, columns: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MOST_ROWS
        and all(
            isinstance(row, list)
            and len(row) == columns
            and all(isinstance(number, int) and 0 <= number < _LATEST_NS for number in row)
            for row in value
        )
    )


@dataclass(frozen=True, slots=True)
class Window:
    """The rounds that count: from where the scripts resumed after collective `first` to where they did after
    `last`.

    A round is the time between two consecutive such moments, if a large part was summed in it: an iteration
    of DDP. `left_out` rounds came before.
    """

    first: int
    last: int
    rounds: int
    left_out: int


def window(timelines: Sequence[Timeline]) -> Window | None:
    """Return the rounds that count; None if scripts have fewer than two common moments with nothing under
    way, or asked for different collectives.
    """
    ends = _ends(timelines)
    left_out = WARM_UP_ROUNDS if len(ends) > 2 * WARM_UP_ROUNDS else 1
    if len(ends) <= left_out:
        return None
    return Window(ends[left_out - 1], ends[-1], len(ends) - left_out, left_out)


def _ends(timelines: Sequence[Timeline]) -> list[int]:
    """Return the collectives after which rounds end."""
    sizes = {tuple((each.size_bytes, each.kind) for each in line.collectives) for line in timelines}
    if len(sizes) != 1:
        return []
    quiet = [timeline.quiet_rows() for timeline in timelines]
    moments = sorted(set.intersection(*(set(rows) for rows in quiet)))
    collectives = timelines[0].collectives
    summed = [
        sum(each.size_bytes for each in collectives[before + 1 : moment + 1] if each.summed)
        for before, moment in itertools.pairwise([-1, *moments])
    ]
    least = LARGE * max(summed, default=0)
    return [moment for moment, size in zip(moments, summed, strict=True) if size and size >= least]


@dataclass(frozen=True, slots=True)
class Round:
    """The end of a round, of CLOCK_MONOTONIC, and its duration: means over the workers."""

    ended_s: float
    took_ms: float


def rounds(timelines: Sequence[Timeline]) -> list[Round]:
    """Return the rounds from the second on, those that `window` leaves out included; the begin of the first
    is unknown.
    """
    ends = _ends(timelines)
    moments_ns = [
        [timeline.rows[quiet[end]].at_ns for end in ends]
        for timeline in timelines
        for quiet in [timeline.quiet_rows()]
    ]
    done = []
    for at in range(1, len(ends)):
        ended_ns = fmean(moments[at] for moments in moments_ns)
        took_ns = fmean(moments[at] - moments[at - 1] for moments in moments_ns)
        done.append(Round(ended_ns / 1e9, took_ns / 1e6))
    return done


def steps(timeline: Timeline, span: Window) -> list[Step]:
    """Return a script's steps within the window. Computing is the elapsed time less the thread's waiting for
    a core; time spent waiting for a result counts as none. After the result is complete, only the thread's
    running time counts: the rest is its wake-up, such as waiting for Python's lock.
    """
    quiet = timeline.quiet_rows()
    rows = timeline.rows[quiet[span.first] : quiet[span.last] + 1]
    script: list[Step] = []
    compute_ns = 0
    for before, row in itertools.pairwise(rows):
        began_ns, most_ns = before.at_ns, row.at_ns
        if row.what == RESUMED and before.what == WAITED and before.number == row.number:
            began_ns = max(began_ns, min(timeline.collectives[row.number].ready_ns, row.at_ns))
            most_ns = row.ran_ns
        compute_ns += max(0, min(most_ns, row.at_ns - began_ns - row.starved_ns))
        if row.what != RESUMED:
            script.append(Step(compute_ns / 1e9, row.what, row.number))
            compute_ns = 0
    script.append(Step(compute_ns / 1e9, WAITED, span.last))
    return script


def moment_ns(timeline: Timeline, number: int) -> int:
    """Return when the script resumed with nothing under way after this collective."""
    return timeline.rows[timeline.quiet_rows()[number]].at_ns
