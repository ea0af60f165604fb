"""Grant circuits to jobs that ask for them while they run, and keep them from other jobs until they are
released. Thread-safe.

A released circuit stays lit until something else needs its ports, so that the next block that asks for it
costs no dark time. Circuits are set for a job again only when its units would have no way to each other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from testbed.aggregation.forest import joined_by
from testbed.aggregation.system import Layout
from testbed.errors import RequestError, TestbedError
from testbed.messages.coding import decode
from testbed.messages.controller import CircuitsExchanged, LitCircuits, ReconfigurationEvent
from testbed.ocs.circuits import Circuit, checked, circuit
from testbed.ocs.claims import (
    CircuitDemand,
    Claims,
    Granted,
    Holder,
    Obstacle,
    Optics,
    beside,
    grant,
    in_words,
)
from testbed.ocs.routes import next_hops
from testbed.ocs.using import used
from testbed.topology.addresses import parse_optical_port, unit_name
from testbed.topology.fields import shown
from testbed.topology.model import Topology
from testbed.topology.units import Unit, UnitPair, unit_named
from testbed.wire.circuit_messages import CircuitAnswer, CircuitAsk

_LOOK_S = 0.05  # other jobs end without notice
_MOST_TRIES = 20  # in each the circuits had changed between reading and setting them

Controller = Callable[..., Any]  # (op, **arguments) -> result


class BusyCircuitsError(RequestError):
    """Others use the circuits, or their ports."""


@dataclass(frozen=True, slots=True)
class CircuitRequest:
    """A request of some of a job's workers, all of which have asked for the same."""

    job: int
    ask: CircuitAsk

    @property
    def holders(self) -> list[Holder]:
        return [Holder(self.job, rank, self.ask.key) for rank in self.ask.members]


class ClaimedCircuits:
    """The circuits that running jobs asked for. `layouts` has all running jobs; `is_left` says whether a
    policy decides on the circuits.
    """

    def __init__(
        self,
        topology: Topology,
        controller: Controller,
        layouts: Callable[[], Mapping[int, Layout]],
        is_left: Callable[[], bool],
    ) -> None:
        self._topology, self._controller = topology, controller
        self._layouts, self._is_left = layouts, is_left
        self._claims = Claims()
        self._releases = 0
        self._wanted: dict[int, Callable[[Holder], None]] = {}
        self._released = threading.Condition()  # guards the three above; notified at each release
        self._changing = threading.Lock()  # one change at a time; acquired before `_released`

    @property
    def may_cut_off(self) -> bool:
        """Whether circuits are the only ways between units."""
        return self._topology.core_link is None

    def subscribe(self, job: int, wanted: Callable[[Holder], None] | None) -> None:
        """Call `wanted` for each holder of a job for whose circuits others wait; None: no more."""
        with self._released:
            if wanted is None:
                self._wanted.pop(job, None)
            else:
                self._wanted[job] = wanted

    def by_job(self) -> dict[int, frozenset[Circuit]]:
        """Return the circuits that each job holds; jobs that hold none are left out."""
        with self._released:
            return self._claims.by_job()

    def get(self, request: CircuitRequest, given_up: Callable[[], bool]) -> CircuitAnswer:
        """Give the request's holders their circuits, and return the answer when these are lit. Waits for
        circuits that other requests hold, or that other jobs use, up to the request's `wait_s`, unless
        `given_up`. RequestError with the reason if they get none.
        """
        began, tries, told = time.monotonic(), 0, set[Holder]()
        demand = demand_of(request.ask.circuits, self._topology, self._units_of(request.job))
        while True:
            with self._released:
                released = self._releases
            with self._changing:
                lit = self._lit()
                outcome = self._try(request, demand, lit)
                if isinstance(outcome, Granted):
                    try:
                        exchanged = self._set(outcome.target, lit)
                    except BaseException:
                        self._release_request(request)
                        raise
                    if exchanged.is_done:
                        break
                    self._release_request(request)
                    tries += 1
                    _check_tries(tries)
                    continue
            self._check_waiting(request, outcome, began)
            told |= self._tell_holders(outcome, told)
            with self._released:
                self._released.wait_for(lambda: self._releases != released, _LOOK_S)  # noqa: B023
            if given_up():
                raise RequestError("its workers gave it up")
        waited_ms = round((time.monotonic() - began) * 1e3, 3)
        return replace(_answer(request.ask.key, outcome, exchanged.event), waited_ms=waited_ms)

    def release(self, job: int, rank: int | None = None, key: str | None = None) -> None:
        """Release the circuits of a job, as `Claims.release`. They stay lit."""
        with self._released:
            self._claims.release(job, rank, key)
            self._releases += 1
            self._released.notify_all()

    def rejoin(self, job: int) -> None:
        """Set circuits between the units of a job that holds none any more, if some have no way to each
        other.
        """
        with self._changing:
            layout = self._layouts().get(job)
            if layout is None or job in self.by_job() or self._is_left():
                return
            lit = self._lit()
            if lit.timetable is None and _apart(self._optics(lit), layout.demands):
                self._request(layout)

    def request(self, layout: Layout) -> bool:
        """Set circuits for a job's demands and those of the jobs without claims, beside the circuits that
        others hold. Return whether any changed. RequestError if there are too few ports.
        """
        with self._changing:
            return self._request(layout)

    # ------------------------------------------------------------------ one change

    def _request(self, layout: Layout) -> bool:
        for tries in range(1, _MOST_TRIES + 2):
            lit = self._lit()
            exchanged = self._set(self._beside_claims(lit, layout), lit)
            if exchanged.is_done:
                break
            _check_tries(tries)
        return exchanged.event is not None

    def _try(self, request: CircuitRequest, demand: CircuitDemand, lit: LitCircuits) -> Granted | Obstacle:
        """Claim circuits for a request if they are free now."""
        if self._is_left():
            raise RequestError(
                "the circuits are the scheduler's while jobs are queued (testbed status): its policy decides"
            )
        if lit.timetable is not None:
            raise RequestError(
                "a timetable runs, by whose slots alone circuits change; end it: circuits unschedule"
            )
        optics = self._optics(lit)
        layouts, job = self._layouts(), request.job
        in_use = _used(optics, {each: layout for each, layout in layouts.items() if each != job})
        with self._released:
            claimed = self._claims.by_job()
            outcome = grant(job, demand, claimed, in_use, optics)
            if isinstance(outcome, Obstacle):
                return outcome
            layout = layouts.get(job)
            if layout is not None and layout.forest is not None:
                _check_forest(layout, Optics(outcome.target, optics.ports, {}, optics.has_core, optics.down))
            for holder in request.holders:
                self._claims.hold(holder, outcome.circuits)
        return outcome

    def _check_waiting(self, request: CircuitRequest, outcome: Obstacle, began: float) -> None:
        """Raise RequestError if the request does not wait for what is in the way, or has waited long
        enough.
        """
        ask = request.ask
        with self._released:
            own = outcome.in_the_way.get(request.job, frozenset())
            holders = [each for circuit in sorted(own) for each in self._claims.holders(request.job, circuit)]
        ranks = sorted({each.rank for each in holders})
        if not ask.ahead and (outer := [rank for rank in ranks if rank in ask.members]):
            raise RequestError(
                f"{in_words(own)} is held by worker {outer[0]} in a block around this one: leave that block "
                f"first, or ask for both in one block"
            )
        if time.monotonic() - began < ask.wait_s:
            return
        texts = [
            f"{in_words(circuits)} is in use by job {job}"
            for job, circuits in sorted(outcome.in_the_way.items())
            if job != request.job
        ]
        if own:
            texts.append(
                f"{in_words(own)} is held by {', '.join(f'worker {rank}' for rank in ranks)} of this job"
            )
        waited = f" after {ask.wait_s:g} s" if ask.wait_s else " (wait_s: how long to wait for it)"
        raise BusyCircuitsError(f"{'; '.join(texts)}{waited}")

    def _tell_holders(self, outcome: Obstacle, told: Collection[Holder]) -> set[Holder]:
        """Tell the holders of what is in the way, except those told already, that others wait for it."""
        with self._released:
            holders = {
                holder
                for job, circuits in outcome.in_the_way.items()
                for each in circuits
                for holder in self._claims.holders(job, each)
            }.difference(told)
            wanted = dict(self._wanted)
        for holder in holders:
            if holder.job in wanted:
                wanted[holder.job](holder)
        return holders

    def _release_request(self, request: CircuitRequest) -> None:
        for holder in request.holders:
            self.release(holder.job, holder.rank, holder.key)

    def _beside_claims(self, lit: LitCircuits, layout: Layout) -> frozenset[Circuit]:
        """Plan all circuits for the demands of a job and of the jobs without claims, beside the circuits that
        jobs hold, and those that these jobs' traffic uses.
        """
        optics, claimed, layouts = self._optics(lit), self.by_job(), self._layouts()
        holding = {job: each for job, each in layouts.items() if job in claimed}
        others = [each for job, each in layouts.items() if job not in claimed]
        circuits = [*claimed.values(), *_used(optics, holding).values()]
        demands = joined_by(pair for each in [*others, layout] for pair in each.demands)
        return beside(frozenset().union(*circuits), demands, optics)

    def _set(self, target: frozenset[Circuit], lit: LitCircuits) -> CircuitsExchanged:
        """Set all circuits in place of those that are lit, and return when the new ones are lit."""
        now = frozenset(circuit(*pair) for pair in lit.circuits)
        if now == target and not lit.dark:
            return CircuitsExchanged(True, None)
        answer = self._controller("exchange", circuits=_lists(target), instead_of=_lists(now))
        return decode(CircuitsExchanged, answer, "exchange")

    def _lit(self) -> LitCircuits:
        return decode(LitCircuits, self._controller("circuits"), "circuits")

    def _optics(self, lit: LitCircuits) -> Optics:
        topology = self._topology
        circuits = frozenset(circuit(*pair) for pair in lit.circuits)
        has_core = topology.core_link is not None
        return Optics(circuits, topology.ports, topology.planes, has_core, lit.down)

    def _units_of(self, job: int) -> list[Unit]:
        layout = self._layouts().get(job)
        if layout is None:
            raise RequestError("the job has no hosts any more")
        return sorted({unit for unit, _ in layout.hosts()})


def demand_of(pairs: Sequence[Sequence[str]], topology: Topology, units: Collection[Unit]) -> CircuitDemand:
    """Read what a worker asks for: pairs of units, or of optical ports. RequestError for anything else, and
    for a unit outside the job's `units`.
    """
    if not pairs:
        raise RequestError("pairs of units like u1-u3, or of optical ports like u1o1-u3o1, are accepted")
    between, named = list[UnitPair](), list[Sequence[str]]()
    for pair in pairs:
        if len(pair) != 2 or not all(isinstance(end, str) for end in pair):
            raise RequestError(f"{shown(list(pair))}: a pair of units or of optical ports is accepted")
        if all(end in topology.planes for end in pair):
            named.append(pair)
            ends = [parse_optical_port(end)[0] for end in pair]
        else:
            ends = [unit_named(end) for end in pair]
            between.append((ends[0], ends[1]))
        for unit in ends:
            if unit not in units:
                names = ", ".join(map(unit_name, sorted(units)))
                raise RequestError(f"the job has no host in {unit_name(unit)}; its units are {names}")
        if ends[0] == ends[1]:
            raise RequestError(f"{pair[0]} and {pair[1]} are of one unit; two different units are accepted")
    return CircuitDemand(tuple(between), checked(named, topology.planes))


def _check_tries(tries: int) -> None:
    if tries > _MOST_TRIES:
        raise TestbedError(f"others changed circuits {_MOST_TRIES} times meanwhile")


def _answer(key: str, granted: Granted, event: ReconfigurationEvent | None) -> CircuitAnswer:
    """Make the answer for circuits that are lit. TestbedError if the new ones have no light."""
    circuits = tuple((each.a, each.b) for each in sorted(granted.circuits))
    if event is None:
        return CircuitAnswer(key=key, circuits=circuits)
    dark_ms = None if event.measured_ms is None else float(event.measured_ms)
    return CircuitAnswer(key=key, circuits=circuits, is_changed=True, dark_ms=dark_ms)


def _used(optics: Optics, layouts: Mapping[int, Layout]) -> dict[int, frozenset[Circuit]]:
    """Return the circuits that jobs' traffic uses, by job."""
    demands = {job: layout.demands for job, layout in layouts.items() if layout.demands}
    return used(optics.lit, [*optics.ports], demands, optics.has_core, optics.down)


def _apart(optics: Optics, pairs: Iterable[UnitPair]) -> list[UnitPair]:
    """Return the pairs of units that have no way to each other."""
    hops = next_hops(optics.lit, [*optics.ports], optics.has_core, optics.down)
    return [(a, b) for a, b in pairs if a != b and b not in hops[a]]


def _check_forest(layout: Layout, optics: Optics) -> None:
    """Raise RequestError if places that sum for a job would have no way to each other."""
    if apart := _apart(optics, layout.demands):
        a, b = map(unit_name, apart[0])
        raise RequestError(
            f"{a} and {b} would have no way to each other, and places sum for the job in both "
            f"({layout.system}); leave a way between them, or sum by ring"
        )


def _lists(circuits: frozenset[Circuit]) -> list[list[str]]:
    return [[each.a, each.b] for each in sorted(circuits)]
