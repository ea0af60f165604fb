"""The life of a job, from the hosts that it holds to its result, for `testbed run` and the queue alike.

    hosts held - [its workers wait at their gates] - circuits, places, rates - processes - ending
               - the same again in a new generation, while it has restarts left - all given back - result

A job of `testbed run` knows at once how to run; a queued job learns it from `start`, which lets its workers
through their gates. From then on both run alike, and a restart uses the same terms. The job gives back what
it holds in reverse order, whatever raises.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from testbed.aggregation.counts import ProgramCounts
from testbed.aggregation.grants import Admission, Group
from testbed.aggregation.program import Findings
from testbed.aggregation.system import Layout
from testbed.errors import ChangedError, RequestError, TestbedError
from testbed.jobs import result
from testbed.jobs.attempt import Attempt, Executor, settings_of, traffic_of
from testbed.jobs.board import JobBoard
from testbed.jobs.circuit_desk import CircuitDesk
from testbed.jobs.forest_names import summing_trees
from testbed.jobs.gates import Gates
from testbed.jobs.groups import Groups
from testbed.jobs.held_hosts import Holdings
from testbed.jobs.looks import Looks
from testbed.jobs.observation import Observation, require_links
from testbed.jobs.processes import Emit, Ending, Orders, ProcessSpec
from testbed.jobs.request import JobRequest
from testbed.jobs.supply import Share, Start, Supply
from testbed.jobs.surroundings import Surroundings
from testbed.machine.interface import Machine
from testbed.messages.automatic import AutomaticChoice
from testbed.messages.coding import UNSET, UnsetType
from testbed.messages.events import JobBegun, JobNote
from testbed.messages.jobs import JobStatus, SummingTree, WrittenCounts
from testbed.messages.result import AttemptResult, OpticalEvents, RunResult
from testbed.messages.verdict import JobVerdict
from testbed.plugins.counts import checked, written
from testbed.plugins.user_class import in_a_line
from testbed.telemetry.sampler import Sampler
from testbed.telemetry.verdict import UNUSED
from testbed.topology import addresses
from testbed.topology.places import Host
from testbed.wire.recovery import Recovery
from testbed.wire.settings import SumSettings
from testbed.wire.spec import lanes_for

START_UP_S = 120.0  # from the start of a job's processes until they wait at their gates
NETWORK_LOOK_S = 5.0  # between two checks of the devices and programs that a running job uses


@dataclass(frozen=True, slots=True)
class Means:
    """The parts of the testbed that all its jobs use."""

    machine: Machine
    holdings: Holdings
    supply: Supply
    executor: Executor
    sampler: Sampler
    controller: Callable[..., Any]  # (op, **arguments) -> result
    require_programs: Callable[[Layout, Recovery], list[str]]
    mtu: int
    surroundings: Surroundings | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms that the requester of a job sets. `start` None: it waits at its gates until `Job.start`.
    `emit` gets its processes' output and its news, and must not block; `ends` returns the reason if it must
    end; `freed` is called when its hosts are free.
    """

    start: Start | None
    emit: Emit = lambda event: None
    ends: Callable[[], str | None] = lambda: None
    freed: Callable[[], None] = lambda: None


class Job:
    """A job that holds hosts. Its own thread calls `live`; until that returns, any thread may call the other
    methods.

    `state` goes from starting (its processes start) over ready (all workers wait at their gates; only for a
    job that waits for its `start`) to running, and finishing (its hosts are free, and its result is
    computed).
    """

    def __init__(
        self, held: tuple[int, int], request: JobRequest, layout: Layout, means: Means, terms: Terms
    ) -> None:
        """`held` is (number, first generation)."""
        self.id, self.generation = held
        self.request, self.layout = request, layout
        self.state = "starting"
        self.stop_reason: str | None = None  # if set, the job ends
        self.failure: str | None = None  # if set, its present generation ends: something that it needs failed
        self._counts: ProgramCounts | None = None  # the final ones of its program, if that counts
        self._selection = layout.automatic
        # facts that a reader of the result must know
        self.notes: list[str] = [layout.automatic.line] if layout.automatic else []
        self.attempts: list[AttemptResult] = []  # its starts that have ended
        self.started_at: float | None = None  # by the monotonic clock, as all times here
        self.ended_at: float | None = None
        self._means, self._terms = means, terms
        self.began_unix = time.time()
        self._notes_told = self._restarts = 0
        self._lock = threading.RLock()  # guards the fields below; acquired before the supply's and holdings'
        self._start = terms.start
        self._share: Share | None = None
        self._spared: set[Host] = set()  # the hosts of workers that failed
        self._gates: Gates | None = None
        self._looks: Looks | None = None  # this attempt's
        self._network_looked_at = 0.0
        self._board_lock = threading.Lock()  # guards the fields below; no other lock is acquired under it
        self._board: JobBoard | None = None
        self._observation: Observation | None = None
        self._summed_bytes, self._left_ns = 0, 0
        self._owing: dict[int, int] = {}  # the last start's workers that should have written statistics

    # ------------------------------------------------------------------ its state

    @property
    def hosts(self) -> list[str]:
        """Return the names of the workers' hosts, by rank."""
        return [addresses.host_name(*host) for host in self.layout.workers]

    @property
    def ps_host(self) -> str | None:
        return addresses.host_name(*self.layout.server) if self.layout.server else None

    @property
    def other_hosts(self) -> list[str]:
        """Return the names of the hosts that it holds besides its workers'."""
        others = self.layout.hosts() - {*self.layout.workers}
        return [addresses.host_name(*host) for host in sorted(others)]

    @property
    def sums(self) -> tuple[SummingTree, ...] | None:
        """Return its trees by names: which place sums which workers and places; None if no place sums for
        it.
        """
        return summing_trees(self.layout.forest) if self.layout.forest else None

    def status(self) -> JobStatus:
        """Return its status, without its use of the network, which is not known here."""
        with self._board_lock:
            progress = self._board.progress() if self._board else []
            service = self._board.service() if self._board else None
            waiting = self._board.waiting if self._board else ""
        return JobStatus(
            id=self.id,
            state=self.state,
            user=self.request.caller.user,
            script=" ".join(self.request.arguments_of_python),
            sync=self.layout.system,
            hosts=tuple(self.hosts),
            ps_host=self.ps_host,
            other_hosts=tuple(self.other_hosts),
            sums=self.sums,
            running_s=round(time.time() - self.began_unix, 3),
            progress=tuple(progress),
            summed_bytes=self.summed_bytes(),
            service=service,
            waiting=waiting or None,
            blocks=self._counts_shown(),
            uses=None,
        )

    def _counts_shown(self) -> WrittenCounts | None:
        """Return its program's counts; None also if the program cannot count. Such an error becomes a note at
        its end, but must not break the status of other jobs.
        """
        with contextlib.suppress(TestbedError):
            counts = self._counts or self._counts_now(self._share)
            return None if counts is None else written(counts)
        return None

    def _counts_now(self, share: Share | None) -> ProgramCounts | None:
        """Read its program's present counts; None if that counts none. Raises TestbedError if the program
        raises or returns another type.
        """
        if share is None or share.admission is None:
            return None
        counts = self._means.supply.counts(self.id)
        return None if counts is None else checked(counts, self.id)

    def summed_bytes(self) -> int:
        """Return the bytes of gradients whose sums every worker has received since its script began."""
        self._read_board()
        return self._summed_bytes

    def left_ns(self) -> int:
        """Return when the last worker left its process group, by the monotonic clock; 0 before."""
        self._read_board()
        return self._left_ns

    def is_ready(self) -> bool:
        """Return whether all its workers wait at their gates."""
        with self._lock:
            return self._gates is not None and self._gates.all_there()

    @property
    def restarts(self) -> int:
        """Return how often it was started again."""
        return self._restarts

    @property
    def may_start_again(self) -> bool:
        """Return whether it would start again after a failure now."""
        return len(self.attempts) < self.request.options.restarts

    # ------------------------------------------------------------------ requests of other threads

    def stop(self, reason: str) -> None:
        """Request its end, for this reason."""
        self.stop_reason = reason

    def fail(self, generation: int, reason: str) -> None:
        """Make it fail for an external reason, if it is still in that generation; with restarts left it
        starts again.
        """
        if self.generation == generation:
            self.failure = reason

    def start(self, start: Start) -> bool:
        """Let its workers through their gates, to run on these terms; return False if they do not wait there.
        Raises NoRoomError, SettingError or TestbedError if the network cannot supply them; then it waits on.
        """
        with self._lock:
            gates = self._gates
            if gates is None or self._start is not None or not gates.all_there():
                return False
            self._require_network()
            self._settle(self._means.supply.give(self.id, self.generation, start), start)
            self._start_looks()
            self.started_at = time.monotonic()  # before a worker can begin
            for rank in range(len(self.layout.workers)):
                gates.open(rank, *self._settings(rank))
            self.state = "running"
            return True

    def set_rate(self, rate_mbps: float) -> None:
        """Set the rate of its workers' links, now and for restarts. Raises SettingError if it did not take
        effect.
        """
        with self._lock:
            if self._start is None or self.state == "finishing":
                return
            self._means.supply.set_rate(self.layout, rate_mbps)
            self._start = replace(self._start, rate_mbps=rate_mbps)
            with self._board_lock:
                if self._board is not None:
                    self._board.set_rate(rate_mbps)

    @property
    def has_rate_of_policy(self) -> bool:
        """Return whether a policy decides on the rate of its workers' links."""
        with self._lock:
            return self._start is not None and self._start.rate_mbps is not None

    def hear_rates(self) -> None:
        """Send its workers the rate of their slowest link, if users have set any by hand and no policy sets
        rates.
        """
        with self._lock:
            if self._start is not None and self._start.rate_mbps is None:
                rate_mbps = self._means.supply.slowest_by_hand(self.layout)
                with self._board_lock:
                    if self._board is not None:
                        self._board.set_rate(rate_mbps or 0.0)  # 0: the rate of its start

    def outlook(self) -> JobVerdict | None:
        """Return the verdict on its last seconds; None if there is none yet, or none any more."""
        observation = self._observation
        return observation.outlook(self.layout, self.id) if observation else None

    # ------------------------------------------------------------------ its life

    def live(self) -> RunResult:
        """Run the job to its end, and return the result; its `failure` says why the job failed, if it did.
        Raises TestbedError if there is no result, because the job could not get what it needs.
        """
        means, terms, request = self._means, self._terms, self.request
        try:
            logs = request.logs or means.executor.folder_of(self.id)
            service = self.layout.service.name if self.layout.service else "parameter server"
            terms.emit(JobBegun(self.id, tuple(self.hosts), self.ps_host, service, str(logs)))
            history = 0 if terms.start is None else result.last_id(means.controller("history"))
            self._require_network()
            if terms.start is not None:
                self._supply(terms.start)
                self.started_at = time.monotonic()
            self._tell_notes()
            with means.executor.folder(self.id, request) as folder:
                senders = [*self.hosts, *self.other_hosts]
                with Observation(
                    means.sampler,
                    means.machine.links,
                    means.machine.hosts,
                    senders,
                    means.mtu,
                    means.surroundings,
                ) as observation:
                    self._observation = observation
                    specs, ending = self._attempts(folder)
                    self._observation, self.ended_at = None, time.monotonic()
                self._give_back()  # before the result is computed, which takes a moment
                return self._result(specs, ending, observation, history)
        finally:
            self._give_back()
            self._tell_notes()

    def _attempts(self, folder: Path) -> tuple[list[ProcessSpec], Ending]:
        """Start it, again after each failure while it has restarts left. Return the processes of the last
        start, and their ending.
        """
        while True:
            specs, ending = self._attempt(folder)
            self.notes += ending.notes
            again = self.may_start_again
            self.attempts.append(AttemptResult(self.generation, ending.wall_s, ending.failure))
            if ending.failure is None or ending.stopped or not again:
                return specs, ending
            self._take_back()
            self.notes.append(
                f"{ending.failure}: restart {len(self.attempts)} of at most {self.request.options.restarts}"
            )
            with self._lock:
                self.generation, self.failure = self._means.holdings.generation(), None
            if ending.failed is not None:
                self._spared.add(self.layout.workers[ending.failed])
            try:
                self._require_network()
                if self._start is not None:
                    self._supply(self._restart_terms(self._start))
            except TestbedError as error:
                return specs, replace(ending, failure=f"{ending.failure}; and no restart: {error}")
            self._tell_notes()

    def _restart_terms(self, start: Start) -> Start:
        """Return the terms of a restart: if its system chooses which hosts sum, those of failed workers are
        excluded. A policy's circuits are lit for the layout that it saw, which therefore stays.
        """
        if start.by_policy:
            return start
        layout = self._means.supply.lay_out_again(
            self.id, start.layout, start.packets, frozenset(self._spared)
        )
        if layout != start.layout:
            names = ", ".join(addresses.host_name(*host) for host in sorted(self._spared))
            self.notes.append(
                f"laid out anew: {names} {'sums' if len(self._spared) == 1 else 'sum'} for nobody"
            )
        return replace(start, layout=layout)

    def _attempt(self, folder: Path) -> tuple[list[ProcessSpec], Ending]:
        """Run all its processes, from start to end, in its present generation."""
        layout = self.layout
        has_server = layout.service is not None
        with (
            Groups(len(layout.workers), self._give_group, self._means.supply.take_group_back) as groups,
            CircuitDesk(self.id, len(layout.workers), self._means.supply.claimed) as circuits,
            JobBoard(len(layout.workers), has_server) as board,
            contextlib.ExitStack() as stack,
        ):
            with self._board_lock:
                self._board, self._summed_bytes, self._left_ns = board, 0, 0
            stack.callback(self._read_board, last=True)
            with self._lock:
                self.state, share = "starting", self._share
                self._restarts = len(self.attempts)
                if self._start is None:
                    self._gates = Gates(len(layout.workers))
                    stack.callback(self._close_gates)
                gates, rate_mbps = self._gates, self._start.rate_mbps if self._start else None
                if share and share.admission:
                    share.admission.subscribe_parallel(board.set_parallel)
            attempt = Attempt(
                job=self.id,
                generation=self.generation,
                request=self.request,
                layout=layout,
                admission=share.admission if share else None,
                rate_mbps=rate_mbps,
                number=len(self.attempts),
                folder=folder,
                board=board,
                groups=groups,
                circuits=circuits,
                gates=gates,
                emit=self._terms.emit,
                started=lambda: self._processes_run(groups, circuits),
                orders=Orders(
                    self._end_reason(time.monotonic()),
                    self._failure_reason,
                    lambda: self.layout.server is None,
                ),
            )
            looks = stack.enter_context(self._make_looks(board))
            stack.callback(self._set_looks, None)  # before the checks end: their start may be under way
            self._set_looks(looks)
            specs, ending = self._means.executor.attempt(attempt)
        self.notes += [*groups.notes(), *circuits.notes]
        return specs, ending

    def _make_looks(self, board: JobBoard) -> Looks:
        """Make the periodic checks of its program at its places."""

        def report(findings: Findings) -> None:
            for line in findings.lines:
                self._terms.emit(JobNote(line))
            board.set_left(findings.absent)

        def every_s() -> float:
            admission = self._share.admission if self._share else None
            return admission.grant.look_every_s(admission.forest) if admission else 0.1

        def failed(why: str) -> None:
            self.fail(self.generation, why)

        return Looks(every_s, partial(self._means.supply.look, self.id), report, failed)

    def _set_looks(self, looks: Looks | None) -> None:
        with self._lock:
            self._looks = looks
            self._start_looks()

    def _start_looks(self) -> None:
        """Start the checks if its grant has them. A queued job has a grant only after its start."""
        admission = self._share.admission if self._share else None
        if self._looks is None or admission is None:
            return
        try:
            if admission.grant.looks:
                self._looks.start()
        except Exception as error:  # a user's own program may raise anything
            self.fail(self.generation, f"look for stragglers: {in_a_line(error)}")

    def _processes_run(self, groups: Groups, circuits: CircuitDesk) -> None:
        groups.are_inherited()
        circuits.are_inherited()
        with self._lock:
            if self._gates is None:
                self.state = "running"
            else:
                self._gates.are_inherited()
        self.hear_rates()

    def _end_reason(self, began: float) -> Callable[[], str | None]:
        """Return a function that returns the reason if it must end now. Its time limit covers all its starts
        together, from the first one.
        """
        limit_s = self.request.timeout_s

        def reason() -> str | None:
            if self.stop_reason is not None:
                return self.stop_reason
            if (why := self._terms.ends()) is not None:
                return why
            now = time.monotonic()
            if self.started_at is None:
                if now - began > START_UP_S and not self.is_ready():
                    return f"its workers did not import torch within {START_UP_S:g} s"
            elif limit_s is not None and now - self.started_at > limit_s:
                waited = self._terms.start is None
                return (
                    f"not done {limit_s:g} s after its start" if waited else f"not done after {limit_s:g} s"
                )
            return None

        return reason

    def _failure_reason(self) -> str | None:
        """Return why its present generation must end, if it must. Checks every NETWORK_LOOK_S whether the
        network is as at its start; a check that itself fails is ignored, because the next one will say.
        """
        now = time.monotonic()
        if self.failure is None and now - self._network_looked_at >= NETWORK_LOOK_S:
            try:
                self._require_network()
            except ChangedError as error:
                self.fail(self.generation, str(error))
            except (TestbedError, OSError):
                pass
            self._tell_notes()
        return self.failure

    def _result(
        self, specs: list[ProcessSpec], ending: Ending, observation: Observation, history: int
    ) -> RunResult:
        means, request, layout = self._means, self.request, self.layout
        workers, unread = means.executor.workers(specs, ending, request.caller)
        self.notes += unread
        ocs: OpticalEvents | UnsetType = UNSET
        if self._terms.start is not None:  # otherwise a policy sets circuits, and its session reports them
            ocs = OpticalEvents(result.events_after(means.controller("history"), history))
        if self._counts is not None:
            self.notes += self._counts.notes()
        stats = [worker.stats for worker in workers]
        traffic = traffic_of(layout, means.mtu, request.options.lanes)
        starts = len(self.attempts)
        pattern = request.options.slow_workers
        slow = None if pattern is None else str(pattern)
        missing = None  # a failed job has a reason already, and terminated workers write no statistics
        if ending.failure is None:
            missing = result.missing_statistics(stats, self._owing, unread)
        observed = observation.report(
            stats, traffic, ending.failure, request.with_series, starts, slow, missing, layout, self.id
        )
        self.notes += [note.text for note in observed.verdict.notes if note.name == UNUSED]
        return RunResult(
            id=self.id,
            testbed=means.executor.testbed,
            script=" ".join(request.arguments_of_python),
            sync=layout.system,
            placement=tuple(addresses.tor_name(addresses.tor_of(*host)) for host in layout.workers),
            ps_host=self.ps_host,
            failure=ending.failure,
            bytes_by=result.bytes_by_way(stats),
            groups=result.bytes_by_group(stats),
            workers=result.without_timelines(workers),
            notes=tuple(self.notes),
            asked_sync=request.sync,
            sums=self.sums,
            lanes=(request.options.lanes or lanes_for(means.mtu)) if layout.forest else None,
            recovery=request.options.packets.recovery if layout.forest else None,
            attempts=tuple(self.attempts),
            wall_s=sum(attempt.wall_s for attempt in self.attempts),
            ocs=ocs,
            blocks=UNSET if self._counts is None else written(self._counts),
            links=observed.links,
            telemetry=observed.telemetry,
            stragglers=observed.stragglers,
            optical_losses=observed.optical_losses,
            other_traffic=observed.other_traffic,
            bound=observed.bound,
            verdict=observed.verdict,
            series=UNSET if observed.series is None else observed.series,
            automatic=UNSET if self._selection is None else AutomaticChoice(**asdict(self._selection)),
        )

    # ------------------------------------------------------------------ the resources that it holds

    def _require_network(self) -> None:
        """Raise ChangedError if a device that it uses was deleted, or another program attached there. Called
        before each start of a job, and periodically while it runs.
        """
        self._network_looked_at = time.monotonic()
        require_links(self._means.machine.links, [*self.hosts, *self.other_hosts])
        self.notes += self._means.require_programs(self.layout, self.request.options.packets.recovery)

    def _supply(self, start: Start) -> None:
        """Acquire its share of the network, in its own thread; waits for a switch that is being restarted."""
        supply = self._means.supply
        share = supply.give_again(self.id, self.generation, start, lambda: self.stop_reason is not None)
        with self._lock:
            rate_mbps = self._start.rate_mbps if self._start else start.rate_mbps
            if rate_mbps is not None and rate_mbps != start.rate_mbps:  # changed meanwhile
                supply.set_rate(share.layout, rate_mbps)
            self._settle(share, replace(start, rate_mbps=rate_mbps))

    def _settle(self, share: Share, start: Start) -> None:
        self._share, self.layout = share, share.layout
        if share.admission and self._board:
            share.admission.subscribe_parallel(self._board.set_parallel)
        self._start = replace(start, layout=share.layout)
        self._means.holdings.replace(self.id, share.layout)  # releases the hosts that it does not need
        if share.note:
            self.notes.append(share.note)

    def _give_group(self, group: Group) -> Admission:
        """Give a group of its workers its own places. Raises TestbedError if that is impossible."""
        with self._lock:
            share, start = self._share, self._start
        if share is None or start is None or share.admission is None:
            raise RequestError(f"the job is summed by {self.layout.system}, at no place")
        admission = self._means.supply.give_group(self.id, share.layout, group)
        if start.rate_mbps is not None:
            admission.rate_mbps = start.rate_mbps
        return admission

    def _settings(self, rank: int) -> tuple[SumSettings, list[int]]:
        admission = self._share.admission if self._share else None
        rate_mbps = self._start.rate_mbps if self._start else None
        return settings_of(self.id, self.layout, admission, rate_mbps, rank)

    def _take_back(self) -> None:
        """Give back its share of the network. What fails becomes a note, and stops nothing."""
        with self._lock:
            share, self._share = self._share, None
            if share is None or self._start is None:
                return
            try:
                with self._errors_as_notes():
                    self._counts = self._counts_now(share)
            finally:  # also if reading the program's counts raises
                with self._errors_as_notes():
                    self._means.supply.take_back(self.id, self._start)

    @contextlib.contextmanager
    def _errors_as_notes(self) -> Iterator[None]:
        """Turn a TestbedError in the block into a note, and go on."""
        try:
            yield
        except TestbedError as error:
            self.notes.append(str(error))

    def _give_back(self) -> None:
        """Give back all that it still holds."""
        with self._lock:
            if self.state == "finishing":
                return
            self._take_back()
            self._means.holdings.free(self.id)
            self.state = "finishing"
            self.ended_at = self.ended_at or time.monotonic()
        self._terms.freed()

    def _close_gates(self) -> None:
        with self._lock:
            gates, self._gates = self._gates, None
        if gates is not None:
            gates.close()

    def _read_board(self, last: bool = False) -> None:
        """Update its progress from the board; with `last`, also drop the board, which is about to be
        closed.
        """
        with self._board_lock:
            if self._board is not None:
                self._summed_bytes, self._left_ns = self._board.summed_bytes(), self._board.left_ns()
            if last and self._board is not None:
                self._owing = self._board.owing()
                self._board = None

    def _tell_notes(self) -> None:
        for note in self.notes[self._notes_told :]:
            self._terms.emit(JobNote(note))
        self._notes_told = len(self.notes)
