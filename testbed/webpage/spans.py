"""Compute the time spans in which jobs ran and circuits were lit, and which jobs used these. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

from testbed.messages.controller import ReconfigurationEvent
from testbed.ocs.circuits import circuit
from testbed.ocs.using import used
from testbed.topology.units import unit_named

Ports = tuple[str, str]
Names = tuple[str, str]  # names of two units
Running = tuple[int, float, float, tuple[Names, ...]]  # a job's number, begin, end and pairs
NOT_OVER = math.inf
OF_A_PIECE = 32  # changes per cached piece, by their numbers
PIECES_KEPT = 128  # enough for a testbed's 2,000 changes and a record's


@dataclass(frozen=True, slots=True)
class LitChange:
    """A reconfiguration: the cleared and the new circuits, and from when to when the new ones were dark, in
    seconds since 1970.
    """

    number: int
    at: float
    lit_at: float
    removed: frozenset[Ports]
    added: frozenset[Ports]

    @classmethod
    def of(cls, event: ReconfigurationEvent) -> Self:
        """Convert an event of the controller's history."""
        at, dark_s = float(event.time), (event.measured_ms or 0.0) / 1e3
        return cls(event.id, at, at + dark_s, ports_in(event.removed), ports_in(event.added))


@dataclass(frozen=True, slots=True)
class JobSpan:
    """A job from begin to end. Times are seconds since 1970."""

    number: int
    name: str
    began: float
    ended: float
    pairs: tuple[Names, ...]
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class CircuitSpan:
    """A stretch of time in which a circuit was dark, or lit and used by the same jobs."""

    name: str
    began: float
    ended: float
    jobs: tuple[int, ...] = ()
    is_dark: bool = False


@dataclass(frozen=True, slots=True)
class Spans:
    """The spans drawn over time, from `began` on. Unfinished ones end `now`."""

    jobs: tuple[JobSpan, ...] = ()
    circuits: tuple[CircuitSpan, ...] = ()
    began: float = 0.0
    now: float = 0.0


def ports_in(circuits: Iterable[Sequence[str]]) -> frozenset[Ports]:
    """Convert circuits to pairs of ports."""
    return frozenset((a, b) for a, b in circuits)


def lit_before(lit: frozenset[Ports], changes: Sequence[LitChange]) -> frozenset[Ports]:
    """Return the circuits before these changes, given those after them."""
    for change in reversed(changes):
        lit = (lit - change.added) | change.removed
    return lit


@lru_cache(4)  # unchanged between events
def circuit_spans(
    first: frozenset[Ports],
    changes: tuple[LitChange, ...],
    jobs: tuple[JobSpan, ...],
    units: tuple[str, ...],
    began: float,
    has_core: bool = False,
) -> tuple[CircuitSpan, ...]:
    """Return the spans of all circuits from `began` on, when the circuits were `first`. The jobs that use a
    circuit are those that `status` would have reported then, with or without an electrical core.
    """
    spans: list[CircuitSpan] = []
    pieces = [tuple(piece) for _, piece in itertools.groupby(changes, lambda each: each.number // OF_A_PIECE)]
    begins = list(itertools.accumulate((piece[0].at for piece in pieces[1:]), max, initial=began))
    lit, dark = first, frozenset[tuple[Ports, float]]()
    for begin, end, piece in zip(begins, [*begins[1:], NOT_OVER], pieces or [()], strict=True):
        running = tuple(
            (job.number, max(job.began, begin), min(job.ended, end), job.pairs)
            for job in jobs
            if job.pairs and job.began < end and begin < job.ended
        )
        of_it, lit, dark = _piece(lit, dark, piece, running, units, begin, end, has_core)
        spans += of_it
    return tuple(_joined(spans))


@lru_cache(PIECES_KEPT)
def _piece(
    lit: frozenset[Ports],
    dark: frozenset[tuple[Ports, float]],
    changes: tuple[LitChange, ...],
    jobs: tuple[Running, ...],
    units: tuple[str, ...],
    began: float,
    ended: float,
    has_core: bool,
) -> tuple[tuple[CircuitSpan, ...], frozenset[Ports], frozenset[tuple[Ports, float]]]:
    """Return the spans of all circuits between two times, the circuits at the end, and until when the dark
    ones among them are dark. A piece in the past never changes, so it is cached.
    """
    times = [at for _, at in dark] + [at for _, begin, end, _ in jobs for at in (begin, end)]
    times += [at for change in changes for at in (change.at, change.lit_at)]
    edges = sorted({began, ended, *(at for at in times if began < at < ended)})
    waiting, until = list(reversed(changes)), dict(dark)
    spans = []
    for start, end in itertools.pairwise(edges):
        while waiting and waiting[-1].at <= start:
            lit, until = _after(waiting.pop(), lit, until)
        until = {ports: at for ports, at in until.items() if at > start}
        running = tuple((number, pairs) for number, begin, over, pairs in jobs if begin <= start < over)
        users = _users(lit.difference(until), units, running, has_core) if running else {}
        spans += [
            CircuitSpan("-".join(ports), start, end, users.get(ports, ()), ports in until)
            for ports in sorted(lit)
        ]
    for change in reversed(waiting):  # changes at the very end, or after the clock was set back
        lit, until = _after(change, lit, until)
    return tuple(_joined(spans)), lit, frozenset(until.items())


def _after(
    change: LitChange, lit: frozenset[Ports], dark: Mapping[Ports, float]
) -> tuple[frozenset[Ports], dict[Ports, float]]:
    """Return the circuits after a change, and until when the dark ones are dark."""
    kept = {ports: until for ports, until in dark.items() if ports not in change.removed}
    return (lit - change.removed) | change.added, kept | dict.fromkeys(change.added, change.lit_at)


def _joined(spans: Iterable[CircuitSpan]) -> Iterator[CircuitSpan]:
    """Yield the spans, with consecutive equal spans of a circuit merged."""
    last: dict[str, CircuitSpan] = {}
    for span in spans:
        before = last.get(span.name)
        if before and (before.ended, before.jobs, before.is_dark) == (span.began, span.jobs, span.is_dark):
            last[span.name] = replace(before, ended=span.ended)
            continue
        if before:
            yield before
        last[span.name] = span
    yield from last.values()


@lru_cache(256)  # more than a piece has
def _users(
    lit: frozenset[Ports],
    units: tuple[str, ...],
    running: tuple[tuple[int, tuple[Names, ...]], ...],
    has_core: bool,
) -> Mapping[Ports, tuple[int, ...]]:
    """Return the jobs that use each circuit."""
    pairs = {job: [(unit_named(a), unit_named(b)) for a, b in of_it] for job, of_it in running}
    numbers = [unit_named(name) for name in units]
    taken = used([circuit(*ports) for ports in lit], numbers, pairs, has_core)
    return {
        ports: jobs
        for ports in lit
        if (jobs := tuple(job for job in sorted(taken) if circuit(*ports) in taken[job]))
    }
