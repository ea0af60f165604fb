"""Find which worker the others of a job wait for, and in which collective, from the job board and the ends of
processes. Pure: its observations, and their times, are arguments.

All workers ask for the same collectives of the group of all, in one order. So a worker that has asked for
fewer than another waits for is the late one, unless it waits as well; and a worker that ended before it asked
never will.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.jobs.board import GroupState
from testbed.jobs.stall_report import Activity, account, gathering
from testbed.wire.calls import Tables

FIRST_S = 5.0  # of waiting, until it is reported; then again after three times as long, and so on
STARTING_S = 15.0  # the same for a process group: starting workers import libraries, on shared cores
SURE_S = 1.0  # a board that is unchanged for so long shows a stable state
SLEEPS_SHARE = 0.02  # of a core: a process that uses less is asleep
_MOST_NAMED = 4
_TO_JOIN = 0  # in place of a collective's number: the process group itself


@dataclass(frozen=True, slots=True)
class Standing:
    """A worker's progress, by the job board. `exit_code` is None while it runs; `asked_to_end` says whether
    the launcher has asked it to end.
    """

    rank: int
    who: str  # worker 2 on u1h3
    phase: GroupState = GroupState.ALONE
    asked: int = 0  # collectives
    waits_for: int = 0  # the number of a collective, from 1; 0: none
    world: int = 0  # the size of the process group that it asked for; 0: none
    exit_code: int | None = None
    asked_to_end: bool = False

    @property
    def runs(self) -> bool:
        return self.exit_code is None

    @property
    def left(self) -> bool:
        """Return whether it ended with 0 of its own accord."""
        return self.exit_code == 0 and not self.asked_to_end


@dataclass(frozen=True, slots=True)
class Doing:
    """A process's activity: its state in a word, empty if it is not certain, and its CPU time so far."""

    state: str = ""
    cpu_s: float = 0.0


Look = Callable[[int], Doing]  # reads the activity of a rank's process


@dataclass(frozen=True, slots=True)
class Pulse:
    """A job's signs of progress: `beat` changes whenever a worker asks for a collective or ends a wait;
    `waits`: some worker waits; `in_calls` are the ranks that wait in any group. `tables` copies the workers'
    calls.
    """

    beat: bytes = b""
    waits: bool = False
    in_calls: frozenset[int] = frozenset()
    tables: Callable[[], Tables | None] = lambda: None


@dataclass(slots=True)
class _Wait:
    """The others' wait for one worker: for which collective, and its progress when the wait began."""

    what: int
    asked: int
    began: float
    tell_after_s: float
    first: Doing | None = None
    is_told: bool = False


@dataclass(slots=True)
class _Total:
    who: str
    times: int = 0
    seconds: float = 0.0


def lacking(workers: Sequence[Standing], in_calls: frozenset[int] = frozenset()) -> dict[int, int]:
    """Return the ranks of the workers that others wait for, each with the first collective that is waited for
    and that it has not asked for; _TO_JOIN stands for the process group. The ranks in `in_calls` wait
    themselves, in any group.
    """
    meeting = any(worker.runs and worker.phase is GroupState.MEETING for worker in workers)
    awaited = sorted(worker.waits_for for worker in workers if worker.runs)
    late: dict[int, int] = {}
    for worker in workers:
        if not (worker.runs or worker.left):
            continue  # a failed worker is reported as failed
        beyond = next((number for number in awaited if number > worker.asked), None)
        if meeting and worker.phase is GroupState.ALONE:
            late[worker.rank] = _TO_JOIN
        elif beyond is not None and not (worker.runs and (worker.waits_for or worker.rank in in_calls)):
            late[worker.rank] = beyond
    return late


def cause(workers: Sequence[Standing], failed: Standing) -> Standing:
    """Return the worker at fault for a failure. It differs from the failed one if that waited for a worker
    which had ended or failed itself.
    """
    ended = [worker for worker in workers if not worker.runs and not worker.asked_to_end]
    if failed.waits_for:
        before = [worker for worker in ended if worker.asked < failed.waits_for and _own_end(worker)]
    elif failed.phase is GroupState.MEETING:
        before = [worker for worker in ended if worker.phase is GroupState.ALONE]
    else:
        before = []
    return min(before, key=lambda worker: worker.asked, default=failed)


def _own_end(worker: Standing) -> bool:
    """Return whether it ended without having waited for others."""
    return worker.exit_code == 0 or not worker.waits_for


def ended_before(workers: Sequence[Standing], failed: Standing) -> str:
    """Name the workers that had ended with 0 when another failed inside the process group: torch's store and
    gloo's connections end with them.
    """
    gone = [worker.who for worker in workers if worker.left]
    if failed.phase is not GroupState.JOINED or not gone:
        return ""
    return f"; {_listed(gone)} had ended with 0 by then"


def left_early(worker: Standing) -> str:
    """Say which collective or group a worker that ended with 0 did not join."""
    if worker.phase is GroupState.ALONE and not worker.asked:
        return f"{worker.who} ended with 0 before it joined the process group"
    return f"{worker.who} ended with 0 while others waited for it in collective {worker.asked + 1}"


def in_vain(workers: Sequence[Standing]) -> bool:
    """Return whether all running workers wait for a process group that is impossible, because a worker has
    ended.
    """
    running = [worker for worker in workers if worker.runs]
    ended = [worker for worker in workers if not worker.runs]
    return (
        bool(running)
        and all(worker.phase is GroupState.MEETING for worker in running)
        and any(worker.phase is not GroupState.JOINED for worker in ended)
    )


@dataclass(slots=True)
class Lookout:
    """Tracks the waits of one job's workers from check to check. A wait is reported after `first_s`. `line`
    is the last report while it holds.
    """

    first_s: float = FIRST_S
    line: str = ""
    _waits: dict[int, _Wait] = field(default_factory=dict)
    _totals: dict[int, _Total] = field(default_factory=dict)
    _same: tuple[tuple[Standing, ...], bytes] = ((), b"")  # the last observation
    _since: float = 0.0  # when it was first made
    _tell_after_s: float = 0.0  # after which time to report it next; 0: not reported yet
    _firsts: dict[int, Doing] = field(default_factory=dict)  # the processes' activities once it was stable

    def look(
        self, now: float, workers: Sequence[Standing], look_at: Look, pulse: Pulse = Pulse()
    ) -> tuple[list[str], Standing | None]:
        """Return the line that is due now, if any, and the worker because of which the job must end: it ended
        with 0, and others wait for it.
        """
        seen = tuple(workers), pulse.beat
        if seen != self._same:
            self._same, self._since, self._tell_after_s = seen, now, 0.0
            self._firsts.clear()
        late = lacking(workers, pulse.in_calls)
        began = now
        if not late and now - self._since >= SURE_S:
            late, began = _stopped(workers, look_at), self._since
        by_rank = {worker.rank: worker for worker in workers}
        for rank, wait in list(self._waits.items()):
            if (wait.what, wait.asked) != (late.get(rank), by_rank[rank].asked):
                self._over(now, by_rank[rank])
        for rank, what in late.items():
            worker = by_rank[rank]
            wait = self._waits.setdefault(rank, _Wait(what, worker.asked, began, self.first_s))
            if worker.left and now - wait.began >= SURE_S:
                return [], worker
            if wait.first is None and worker.runs and now > wait.began:
                wait.first = look_at(rank)
        line = self._line(now, late, by_rank, look_at, pulse)
        if line:
            self.line = line
        elif not self._tell_after_s and not any(wait.is_told for wait in self._waits.values()):
            self.line = ""
        return [line] if line else [], None

    def totals(self, now: float, workers: Sequence[Standing]) -> list[str]:
        """Return a line for each worker that was waited for so long that it was reported."""
        for worker in workers:
            if worker.rank in self._waits:
                self._over(now, worker)
        return [
            f"the others waited {total.seconds:.0f} s for {total.who}"
            + (f", in {total.times} times" if total.times > 1 else "")
            for _, total in sorted(self._totals.items())
        ]

    def _over(self, now: float, worker: Standing) -> None:
        wait = self._waits.pop(worker.rank)
        if wait.is_told:
            total = self._totals.setdefault(worker.rank, _Total(worker.who))
            total.times += 1
            total.seconds += now - wait.began

    def _line(
        self,
        now: float,
        late: dict[int, int],
        by_rank: dict[int, Standing],
        look_at: Look,
        pulse: Pulse,
    ) -> str:
        """Return a line if one is due: on the workers that others wait for, with what each worker waits for;
        or on a job that stands still, or whose workers all sleep.
        """
        stood_s, meets = now - self._since, _some_meet(by_rank.values())
        sure_s = SURE_S if pulse.waits else self.first_s
        if pulse.beat and stood_s >= sure_s and not self._firsts:
            self._firsts = {worker.rank: look_at(worker.rank) for worker in by_rank.values() if worker.runs}
        least_s = self.first_s if pulse.waits and not meets else max(self.first_s, STARTING_S)
        stands = bool(pulse.beat) and stood_s >= (self._tell_after_s or least_s)
        for_whom = self._for_whom(now, late, by_rank, look_at)
        if not stands and not for_whom:
            return ""
        firsts = self._firsts or {rank: wait.first for rank, wait in self._waits.items() if wait.first}
        members = [_member(worker, firsts, look_at, stood_s) for worker in by_rank.values()]
        is_idle = all(member.acts == "sleeping" for member in members if member.runs)
        if stood_s >= sure_s:
            self._tell_after_s = self._tell_after_s or least_s
            while self._tell_after_s <= 2 * stood_s:  # otherwise two clocks would report it twice
                self._tell_after_s *= 3
        if for_whom:
            return f"{for_whom}: {account(members, pulse.tables())}"
        if meets:
            return gathering(members, pulse.tables(), stood_s)
        if pulse.waits:
            return account(members, pulse.tables())
        if is_idle:
            return f"no worker does anything: {account(members, pulse.tables())}"
        self._firsts.clear()  # measure afresh from the next check on
        return ""

    def _for_whom(self, now: float, late: dict[int, int], by_rank: dict[int, Standing], look_at: Look) -> str:
        if all(now - wait.began < wait.tell_after_s for wait in self._waits.values()):
            return ""
        named: dict[int, list[str]] = {}
        for rank, what in sorted(late.items()):
            wait, waited_s = self._waits[rank], now - self._waits[rank].began
            if waited_s < self.first_s:
                continue
            state = _state(wait.first, look_at(rank), waited_s)
            if what == _TO_JOIN and state == "running" and waited_s < STARTING_S:
                continue
            number = min(what, wait.asked + 1)
            named.setdefault(number, []).append(f"{by_rank[rank].who} ({state} for {waited_s:.0f} s)")
            wait.is_told = True
            while wait.tell_after_s <= waited_s:
                wait.tell_after_s *= 3
        whom = [f"for {_listed(who)} {_in_words(number)}" for number, who in named.items()]
        return f"waiting {' and '.join(whom)}" if whom else ""


def _some_meet(workers: Iterable[Standing]) -> bool:
    """Return whether some running workers wait for the process group, and none for a collective."""
    running = [worker for worker in workers if worker.runs]
    return any(worker.phase is GroupState.MEETING for worker in running) and not any(
        worker.waits_for for worker in running
    )


def _member(worker: Standing, firsts: Mapping[int, Doing], look_at: Look, stood_s: float) -> Activity:
    acts = ""
    if worker.runs and not worker.waits_for and worker.phase is GroupState.JOINED:
        acts = _state(firsts.get(worker.rank), look_at(worker.rank), stood_s)
    return Activity(worker.rank, worker.phase, worker.asked, worker.waits_for, worker.runs, acts)


def _in_words(what: int) -> str:
    return "to join the process group" if what == _TO_JOIN else f"in collective {what}"


def _stopped(workers: Sequence[Standing], look_at: Look) -> dict[int, int]:
    """Return the workers that others wait for because they are stopped, although they have asked for every
    collective, each with the number of its last one.
    """
    running = [worker for worker in workers if worker.runs]
    if not any(worker.waits_for or worker.phase is GroupState.MEETING for worker in running):
        return {}
    stopped = [worker for worker in running if look_at(worker.rank).state == "stopped"]
    return {
        worker.rank: _TO_JOIN if worker.phase is GroupState.MEETING else worker.asked for worker in stopped
    }


def _state(first: Doing | None, now: Doing, waited_s: float) -> str:
    if now.state:
        return now.state
    used_s = now.cpu_s - first.cpu_s if first is not None else waited_s
    return "running" if used_s > SLEEPS_SHARE * waited_s else "sleeping"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    others = len(names) - _MOST_NAMED
    return f"{shown} and {others} others" if others > 0 else shown
