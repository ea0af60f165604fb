"""Carry out the decisions of `controller.decide`, at the switches and the fast path, one errand at a time.

No decision is made here: an event and the time go to `decide`; the tasks that it returns are carried out in
order, and each one's answer is the next event.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.carriers import LinkEnds
from controller.decide import decide, leaving, leaving_turn, left, table_of, timed
from controller.history import History, LinkChange, LinkLog
from controller.model import Model, model_for
from controller.planes import Plane
from controller.records import ChangeRecord
from controller.state import State, begin
from controller.steps import (
    LIGHT,
    MODEL,
    ROUTES,
    AskModel,
    Began,
    Came,
    ChangeRoutes,
    Complain,
    Darkness,
    Demanded,
    Done,
    Drawn,
    End,
    Event,
    Failed,
    Gone,
    Held,
    Join,
    Joined,
    Linked,
    Lit,
    Modify,
    Ordered,
    Overdue,
    Read,
    ReadLight,
    Restarted,
    SetRoutes,
    Step,
    Task,
    TellTime,
    Timed,
    Turn,
    WaitUntil,
    Watch,
)
from controller.switch import Switch
from testbed.errors import RequestError, TestbedError
from testbed.ocs.circuits import checked
from testbed.ocs.glimpses import Turned
from testbed.ocs.timetable import Timetable, TimetableRun
from testbed.optics.model import CircuitTurn, DarkTimes
from testbed.topology import addresses
from testbed.topology.addresses import OXC_DPID, Dpid, parse_optical_port, unit_name
from testbed.topology.model import Topology
from testbed.topology.units import Unit, UnitPair

LOG = logging.getLogger("controller")
LIGHT_TIMEOUT_NS = 5_000_000_000
FINISH_TIMEOUT_S = 5.0
START_LEAD_NS = 5_000_000  # from writing the end of a timetable to its start
TURN_WAIT_S = 30.0
OVERDUE_S = 1.0  # interval of retries after a switch's failure
TOLD_AT_ONCE = 16  # ToRs in parallel: each mostly waits for replies
BY_HAND_NS = 10_000_000_000  # within which the kernel reports that a link was set down
MOST_LINK_CHANGES = 4_096  # changes of links that are remembered, the newest ones


class Conductor:
    """Carries out what is decided at all switches of a testbed. Thread-safe: one event is processed at a
    time.
    """

    def __init__(
        self,
        topology: Topology,
        plane: Plane | None,
        history: Path,
        when_ready: Callable[[], None] | None = None,
        model: Model | None = None,
    ) -> None:
        """Begin with the history, and with the circuits and timetable that the fast path holds. `when_ready`
        is called once, when all switches first hold what they should. `model` determines dark times; None:
        the topology's, in this process.
        """
        self._when_ready = when_ready
        self._topology, self._plane, self._history = topology, plane, History(history)
        self._planes = topology.planes
        self._switches: dict[Dpid, Switch] = {}
        self._arrived: dict[Dpid, Switch] = {}  # connected, and not processed yet
        self._state = begin(topology, plane is not None, self._history.read())
        self._model = model or model_for(topology, None)
        self._busy, self._deciding = threading.Lock(), threading.RLock()
        self._watcher = ThreadPoolExecutor(1, "watch")
        self._turned: Turned | None = None
        self._watched: int | None = None
        self._routed_ns = 0
        kept = plane.kept() if plane else None
        self._timetable = table_of(self._state.premises.ports, kept) if kept else None
        began_ns = plane.kept_from_ns() if plane else 0
        self._timetables = [TimetableRun(self._timetable, began_ns)] if self._timetable else []
        self._turns, self._turning, self._is_ending = 0, threading.Condition(), False
        self._tellers = ThreadPoolExecutor(TOLD_AT_ONCE, "tell")
        self.ends = LinkEnds(topology)
        # by what reported it, a switch or the kernel, the links without carrier
        self._dead_ends: dict[Dpid | str, frozenset[str]] = {}
        # links set down, until it is reported or was due: when each was set, by the monotonic clock
        self._dead_by_hand: dict[str, int] = {}
        self._down: frozenset[str] = frozenset()  # links of either kind
        self._linked = threading.Condition()  # guards these fields and the next
        self._nudge: Future[None] = Future()  # is done when a link changed
        self._links = LinkLog(history.with_name(f"{history.name}.links"))
        self._link_changes = deque(self._links.read(time.monotonic_ns()), maxlen=MOST_LINK_CHANGES)

    @property
    def state(self) -> State:
        """The current state: everything known and decided."""
        return self._state

    # ---- events ----

    def begin(self) -> None:
        """Set what needs no switch to connect: the routes of ToRs without OpenFlow, if there are no circuits
        to wait for.

        One that fails is `unsettled`.
        """
        try:
            self._conduct(Began())
        except TestbedError as error:
            LOG.error("%s", error)

    def connected(self, switch: Switch) -> None:
        """Bring a connected switch to the flows that it should hold. Matching flows stay, and its circuits
        are taken over. Switches that connect during another errand are processed in parallel by the next
        caller: one after the other, 250 of them took 13 s. TestbedError if its connection ended meanwhile, or
        for any failure among the switches that this call processed.
        """
        failure: TestbedError | None = None
        with self._deciding:
            self._arrived[switch.dpid] = switch
        with self._busy:
            while todo := self._take_in():
                try:
                    self._run(todo)
                except TestbedError as error:
                    failure = failure or error
        if failure:
            raise failure
        if switch.is_gone:
            raise TestbedError(f"set switch {switch.dpid:#x}: it disconnected")

    def _take_in(self) -> tuple[Task | End, ...]:
        """Decide what the newly connected switches need, the optical one first, by itself; () if there are
        none.
        """
        with self._deciding:  # a disconnection is decided before this and seen here, or after it
            came = {dpid: switch for dpid, switch in self._arrived.items() if not switch.is_gone}
            self._arrived = {}
            if OXC_DPID in came:
                self._arrived, came = came, {OXC_DPID: came.pop(OXC_DPID)}
            if not came:
                return ()
            self._switches |= came
            first, *others = came
            return self._decide(Came(first, tuple(others)))

    def disconnected(self, switch: Switch) -> None:
        """Record that a switch disconnected (`is_gone` is set); it keeps forwarding. If it has already
        reconnected, nothing changes. Does not wait for the current errand.
        """
        with self._deciding:
            if self._switches.get(switch.dpid) is switch:
                del self._switches[switch.dpid]
                self._decide(Gone(switch.dpid))

    def resettle(self, dpid: Dpid) -> None:
        """Set the routes of a restarted switch, which has none. It counts as ready only when they are read
        back.
        """
        self._conduct(Restarted(dpid))

    def settle_overdue(self, ended: threading.Event) -> None:
        """Retry switches that failed, until the controller ends. Without this, requests would wait forever:
        they wait until everything is ready.
        """
        while not ended.wait(OVERDUE_S):
            if not self._state.unsettled:
                continue
            try:
                self._conduct(Overdue())
            except Exception as error:  # a step may raise anything; the next try may succeed
                LOG.error("%s: %s", type(error).__name__, error)
            else:
                LOG.warning("%s", "; ".join(self._state.lacks) or "every switch holds what it should again")

    def carriers(self, dpid: Dpid, ports: Collection[int]) -> None:
        """Record which ports of a switch have carrier: all others' links are down."""
        self.without_carrier(dpid, self.ends.down_at(dpid, ports))

    def without_carrier(self, reporter: Dpid | str, links: frozenset[str]) -> None:
        """Record the links that are down by a report of a switch, or of the kernel. `follow_links` leads
        routes round these. Does not wait.
        """
        with self._linked:
            self._dead_ends[reporter] = links
            for link in links:  # from now on the reporter knows better
                self._dead_by_hand.pop(link, None)
            self._count_links()

    def set_by_hand(self, links: Collection[str], is_up: bool) -> None:
        """Record that links were set up or down, which switches may report a tenth of a second later. Links
        that do not end at two units' switches are ignored.
        """
        with self._linked:
            reported, now_ns = frozenset[str]().union(*self._dead_ends.values()), time.monotonic_ns()
            for link in self.ends.links.intersection(links):
                self._dead_by_hand.pop(link, None)
                if not is_up and link not in reported:
                    self._dead_by_hand[link] = now_ns
            self._count_links()

    def _forget_by_hand(self) -> None:
        """Forget links set down by hand that no switch reported within BY_HAND_NS: they came up again."""
        due_ns = time.monotonic_ns() - BY_HAND_NS
        with self._linked:
            for link in [link for link, at_ns in self._dead_by_hand.items() if at_ns < due_ns]:
                del self._dead_by_hand[link]
            self._count_links()

    def _count_links(self) -> None:
        down = frozenset(self._dead_by_hand).union(*self._dead_ends.values())
        if down != self._down:
            self._down = down
            if not self._nudge.done():
                self._nudge.set_result(None)
            self._linked.notify_all()

    def follow_links(self, ended: threading.Event) -> None:
        """Lead routes round links that go down, and back when they return, until the controller ends. Links
        that change during an errand wait for its end, or until it only waits for light (`_run`).
        """
        while not ended.is_set():
            try:
                self._forget_by_hand()
                self.take_links()
            except Exception as error:  # `unsettled` switches are retried
                LOG.error("%s: %s", type(error).__name__, error)
                ended.wait(OVERDUE_S)
            with self._linked:
                self._linked.wait_for(lambda: self._down != self._state.down, OVERDUE_S)

    def take_links(self) -> None:
        """Lead routes round the links that are down now."""
        if self._down == self._state.down:
            return
        with self._busy, _no_collections():
            if self._down != self._state.down:
                self._run(self._decide_links())

    def _decide_links(self) -> tuple[Task | End, ...]:
        down = self._down
        self._link_changes.append((time.monotonic_ns(), down))
        self._links.append(self._link_changes[-1])
        LOG.warning("links that are down: %s", ", ".join(sorted(down)) or "none")
        todo = self._decide(Linked(down))
        self._have_turned()
        return todo

    def link_changes(self) -> tuple[LinkChange, ...]:
        """Return when links changed, oldest first, those that earlier controllers saw included."""
        return tuple(self._link_changes)

    def request(self, demands: Iterable[UnitPair]) -> ChangeRecord | None:
        """Plan circuits for these pairs of units, and set them. Return the history's record, or None if
        nothing had to change.
        """
        return self._change(Demanded(tuple(demands)))

    def apply(self, pairs: Iterable[Sequence[str]]) -> ChangeRecord | None:
        """Set exactly these circuits. Return the history's record, or None if nothing had to change."""
        return self._change(Ordered(checked(pairs, self._planes)))

    def exchange(
        self, pairs: Iterable[Sequence[str]], instead_of: Iterable[Sequence[str]]
    ) -> tuple[bool, ChangeRecord | None]:
        """Set exactly these circuits if the decided ones are still `instead_of`. Return whether they were,
        and the history's record, None if nothing had to change.
        """
        wanted, expected = (checked(each, self._planes) for each in (pairs, instead_of))
        with self._busy, _no_collections():
            if expected != (self._state.circuits or frozenset()):
                return False, None
            return True, self._run_change(Ordered(wanted))

    def keep(self, table: Timetable) -> None:
        """Start a timetable, which the fast path executes by its own clock, even if this process ends. After
        `leave`, circuits are as before.
        """
        with self._busy:
            premises = self._state.premises
            if self._plane is None or premises.without_openflow:
                names = ", ".join(unit_name(unit) for unit in sorted(premises.without_openflow))
                lack = (
                    f"{names} {'do' if ',' in names else 'does'} not forward" if names else "no unit forwards"
                )
                raise RequestError(f"schedule: {lack} by the clock; accepted are units with engine: xdp")
            if self._plane.is_kept():
                raise RequestError("schedule: one is kept; circuits unschedule ends it")
            if not self._state.is_ready:
                raise TestbedError(f"schedule: {'; '.join(self._state.lacks)}")
            peers, routes = timed(premises.topology, table)
            self._plane.keep(table, peers, routes, lambda: time.monotonic_ns() + START_LEAD_NS)
            self._timetable = table
            self._timetables.append(TimetableRun(table, self._plane.kept_from_ns()))
            self._have_turned()  # results wait for slots from now on

    def tree(self, root: Unit, members: Iterable[Unit]) -> dict[Unit, list[tuple[int, ...]]]:
        """Return the ways of a packet from `root` to other units, over the circuits or, while a timetable
        runs, by calendar queues (`State.tree`).
        """
        topology = self._state.premises.topology
        waits = self._timetable is not None and topology.has_calendar and topology.core_link is None
        return self._state.tree(root, members, waits)

    def leave(self) -> None:
        """End the timetable: the ports with a circuit are dark for a dark time, then lit again."""
        with self._busy:
            if self._plane is None or not self._plane.is_kept():
                raise RequestError("schedule: none is kept")
            times = self._dark_times(leaving_turn(self._state))
            with self._deciding:
                self._state, peers, dark_ns = leaving(self._state, times, time.monotonic_ns(), time.time())
            turned: Turned | None = None
            try:
                turned = self._plane.leave(dict(peers), dark_ns)
                self._timetable = None
                if self._timetables:
                    self._timetables[-1] = replace(self._timetables[-1], ended_ns=turned.dark_at_ns)
                _sleep_until(turned.lit_at_ns)
            finally:
                with self._deciding:
                    self._state, record = left(self._state, turned)
                if record:
                    self._history.append(record)
                self._have_turned()

    def timetable(self) -> Timetable | None:
        """Return the running timetable, whichever process started it, or None."""
        return self._timetable if self._plane and self._plane.is_kept() else None

    def timetables(self) -> tuple[TimetableRun, ...]:
        """Return the timetables that ran, oldest first, as far as this process knows."""
        return tuple(self._timetables)

    def crossings(self) -> dict[int, tuple[int, int, int]]:
        """Count frames by port of the optical switch, as the fast path does."""
        return self._plane.crossings() if self._plane else {}

    def flows(self) -> list[list[str | int]]:
        """Count the bytes of plain traffic that hosts sent: sender, receiver, protocol, port, bytes."""
        counted = self._plane.flows() if self._plane else {}
        return [[*flow, count] for flow, count in counted.items()]

    def turned(self, other_than: int) -> int:
        """Wait until ports have been switched a number of times other than `other_than`, and return that
        number. The circuits are then decided, and dark: followers can use the dark time. Returns the
        unchanged number after TURN_WAIT_S, or when this process ends.
        """
        with self._turning:
            self._turning.wait_for(lambda: self._is_ending or self._turns != other_than, TURN_WAIT_S)
            return self._turns

    def dark(self) -> tuple[str, ...]:
        """Return the optical ports that a change keeps dark now; if dark times differ, without the ports that
        the fast path reports as lit.
        """
        state = self._state
        change = state.errand.change if state.errand else None
        if self._plane is None or not change or not change.times.circuits:
            return state.dark
        lit = self._plane.lit
        return tuple(
            port for port in state.dark if not lit(addresses.oxc_port_number(*parse_optical_port(port)))
        )

    def finish(self) -> None:
        """Wait for the current errand, and start no further one. Callers of `turned` get an answer."""
        self._busy.acquire(timeout=FINISH_TIMEOUT_S)
        with self._turning:
            self._is_ending = True
            self._turning.notify_all()

    # ---- carrying out ----

    def _change(self, event: Demanded | Ordered) -> ChangeRecord | None:
        """Change circuits, unless a timetable runs when this errand's turn comes."""
        with self._busy, _no_collections():
            return self._run_change(event)

    def _run_change(self, event: Demanded | Ordered) -> ChangeRecord | None:
        if self._plane is not None and self._plane.is_kept():
            raise RequestError("circuits: the optical switch keeps a schedule; circuits unschedule ends it")
        if self._down != self._state.down:  # reported, and not taken yet: no plan may use it
            self._run(self._decide_links())
        return self._run(self._decide(event))

    def _conduct(self, event: Event) -> ChangeRecord | None:
        with self._busy:
            return self._run(self._decide(event))

    def _run(self, decided: Iterable[Task | End]) -> ChangeRecord | None:
        """Carry out everything that an event leads to. Circuits change on this thread; new light is watched,
        and ToRs are set, in parallel.
        """
        out: set[Future[Event]] = set()
        todo = deque(decided)
        while True:
            if not todo:
                nudge = self._nudged()  # before the links are looked at, so that none changes unseen
                todo += self._links_meanwhile()
            if not todo:
                awaited: set[Future[Any]] = {*out, nudge}
                done, _ = wait(awaited, return_when=FIRST_COMPLETED)
                for future in done & out:
                    todo += self._decide(future.result())
                out -= done
                continue
            task = todo.popleft()
            if isinstance(task, End):
                return self._end(task)
            if any(isinstance(step, Watch) for step in task.steps):
                if self._plane is None:
                    self._have_turned()
                out.add(self._watcher.submit(self._carry_out, task.about, task.steps))
                continue
            if task.about not in (OXC_DPID, LIGHT, MODEL, ROUTES):
                out.add(self._tellers.submit(self._carry_out, task.about, task.steps))
                continue
            answer = self._carry_out(task.about, task.steps)
            if task.about == LIGHT:
                self._routed_ns = time.monotonic_ns()
                self._have_turned()
                if isinstance(answer, Failed) and self._turned and self._watched is not None:
                    self._fast_path.seen()  # otherwise it would be read as the answer to the next turn
            todo.extendleft(reversed(self._decide(answer)))

    def _links_meanwhile(self) -> tuple[Task | End, ...]:
        """Decide on links that changed while an errand only waits for light, which may take seconds."""
        errand = self._state.errand
        if errand is None or not errand.takes_links or self._down == self._state.down:
            return ()
        return self._decide_links()

    def _nudged(self) -> Future[None]:
        """Return a future that is done when a link goes down or comes back from now on."""
        with self._linked:
            if self._nudge.done():
                self._nudge = Future()
            return self._nudge

    def _have_turned(self) -> None:
        with self._turning:
            self._turns += 1
            self._turning.notify_all()

    def _decide(self, event: Event) -> tuple[Task | End, ...]:
        with self._deciding:
            self._state, todo = decide(self._state, event, time.monotonic_ns())
        return todo

    def _end(self, end: End) -> ChangeRecord | None:
        if self._when_ready and self._state.is_ready:
            self._when_ready()
            self._when_ready = None
        if end.record:
            self._history.append(end.record)
        if end.failure:
            raise end.failure
        return end.record

    def _carry_out(self, about: Dpid, steps: Sequence[Step]) -> Event:
        answer: Event | None = None
        try:
            for step in steps:
                answer = self._step(step)
        except Exception as error:  # any error: the errand ends with it as its failure
            return Failed(about, error)
        return answer or Done(about)

    def _step(self, step: Step) -> Event | None:
        """Carry out one step; return its answer, if it has one."""
        match step:
            case AskModel(turn):
                return Drawn(self._dark_times(turn))
            case TellTime():
                return Timed(time.time())
            case Read(dpid):
                return Held(dpid, self._switch(dpid).flows())
            case Modify(dpid, remove, add):
                self._switch(dpid).change(remove, add)
            case SetRoutes(dpid, routes):
                self._fast_path.set_routes(dpid, routes)
            case ChangeRoutes(changes):
                self._fast_path.change_routes(changes)
            case ReadLight():
                return Joined(self._fast_path.circuits())
            case Join(peers):
                self._fast_path.join(dict(peers))
            case Turn(peers, dark_ns):
                self._turn(dict(peers), dark_ns)
            case WaitUntil(at_ns):
                _sleep_until(at_ns)
            case Watch(ports):
                return self._watch(ports)
            case Complain(text):
                LOG.error("%s", text)
        return None

    def _dark_times(self, turn: CircuitTurn) -> DarkTimes:
        return self._model.dark_times(replace(turn, at_s=time.time()))

    def _switch(self, dpid: Dpid) -> Switch:
        switch = self._switches.get(dpid)
        if switch is None:
            raise TestbedError(f"set flows of switch {dpid:#x}: it is not connected")
        return switch

    @property
    def _fast_path(self) -> Plane:
        assert self._plane is not None
        return self._plane

    def _turn(self, peers: dict[int, int | None], dark_ns: Darkness) -> None:
        """Switch ports together, and watch one of the ports with new light, each time another one of those
        that are dark longest.
        """
        new = [port for port, peer in peers.items() if peer is not None]
        if isinstance(dark_ns, tuple):
            longest_ns = max(dark_ns)
            new = [port for port, ns in zip(peers, dark_ns, strict=True) if ns == longest_ns and port in new]
        self._watched = new[len(self._state.history) % len(new)] if new else None
        self._turned = None
        self._turned = self._fast_path.turn(peers, dark_ns, self._watched)

    def _watch(self, ports: Sequence[int]) -> Lit:
        """Wait for the end of the dark time, and until all these ports are lit."""
        turned = self._turned
        if (
            turned is None or self._watched is None
        ):  # the dark time was the flows' absence, or no port is to be lit
            _sleep_until(turned.lit_at_ns if turned else 0)
            return Lit(None, time.monotonic_ns(), 0, self._routed_ns)
        glimpses = self._fast_path.seen()
        waiting = list(ports)
        while waiting := [port for port in waiting if not self._fast_path.lit(port)]:
            if time.monotonic_ns() > turned.lit_at_ns + LIGHT_TIMEOUT_NS:
                raise TestbedError(
                    f"light optical ports {waiting}: dark {LIGHT_TIMEOUT_NS / 1e6:.0f} ms after they should "
                    f"be lit"
                )
        darkness = glimpses.darkness(turned.dark_at_ns, time.monotonic_ns())
        lit_ns = darkness.after_ns + darkness.longest_ns
        return Lit(darkness.after_ns, lit_ns, darkness.resolution_ns, self._routed_ns)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Suspend garbage collection: a collection visits all changed objects, which takes 40 ms at 250 units."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _sleep_until(monotonic_ns: int) -> None:
    rest_ns = monotonic_ns - time.monotonic_ns()
    if rest_ns > 0:
        time.sleep(rest_ns / 1e9)
