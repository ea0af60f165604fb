"""The timelines of workers' scripts: what they asked for, waited for and computed (workloads/native/
timeline.hpp writes them). Pure.

A timeline is its user's business: what does not read is no timeline.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from testbed.wire import calls

ASKED, WAITED, RESUMED = map(int, calls.Deed)
BESIDE, SUMMED, PULLED, PUSHED, CALLED = map(int, calls.Course)
MOST_ROWS = 100_000
MOST_USES = 8  # of other things than links, by a collective
LARGE = 0.5  # of what the round that sums most sums: a round of training
WARM_UP_ROUNDS = 2  # torch's first call, DDP's first layout of buckets
_LATEST_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective: bytes of a worker's vector, its kind, and when a worker had its result, or of what it
    pushed knew that it was there, in ns; 0 if it never had.
    """

    size_bytes: int
    kind: int
    ready_ns: int

    @property
    def summed(self) -> bool:
        """Return whether it is summed by the job's own kind of synchronisation."""
        return self.kind in (SUMMED, PUSHED)


@dataclass(frozen=True, slots=True)
class Row:
    """A deed of a script: about which collective, when, and how long its thread had waited for a core, and
    had run on a core, since the row before.
    """

    what: int
    number: int
    at_ns: int
    starved_ns: int
    ran_ns: int


@dataclass(frozen=True, slots=True)
class Declared:
    """The time that a collective takes of something else than links, by its declared rate: a disk's, say.
    `behind`: the collective is there before that, and the next call is not.
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
        """Return where the script went on with nothing under way, by number of the latest collective that was
        asked for. All before that are then there; but what was pushed may be on its way behind a pull.
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
    """The next step of a script: it computes, then asks for a collective, or waits for it and all
    before it.
    """

    compute_s: float
    what: int  # ASKED or WAITED
    number: int


def read(statistics: Mapping[str, Any] | None) -> Timeline | None:
    """Return the timeline in what a worker left; None where there is none, or none that makes sense."""
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
    """The rounds that count: from where the scripts went on after collective `first` to where they did after
    `last`.

    A round is from one such moment to the next before which much was summed: an iteration of DDP. `left_out`
    came before.
    """

    first: int
    last: int
    rounds: int
    left_out: int


def window(timelines: Sequence[Timeline]) -> Window | None:
    """Return the rounds that count; None where scripts have no two moments in common in which nothing was
    under way, or asked for different things.
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
    """The end of a round, of CLOCK_MONOTONIC, and how long it took: means over the workers."""

    ended_s: float
    took_ms: float


def rounds(timelines: Sequence[Timeline]) -> list[Round]:
    """Return the rounds from the second on, those that `window` leaves out among them; the begin of the first
    is not known.
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
    """Return what the script did within the window. Computing is as long as it took less what the thread
    waited for a core; time in which the script waited for a result counts as none. Once that is there, only
    what the thread ran counts: what it slept on is its wake-up, of Python's lock for one.
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
    """Return when the script went on with nothing under way after this collective."""
    return timeline.rows[timeline.quiet_rows()[number]].at_ns
