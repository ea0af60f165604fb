"""The scheduler: `testbed submit` and `testbed cancel` in the daemon; the submissions, their common session,
and the news about them.

There is one session at a time. Its policy, slot length and seed are those of the submission that started it,
and it ends with its last job.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from testbed.client.caller import Caller
from testbed.client.requests import SubmitRequest, asked
from testbed.errors import RequestError, TestbedError
from testbed.jobs.manager import Jobs
from testbed.jobs.processes import Emit
from testbed.jobs.request import JobRequest, absolute
from testbed.messages.coding import as_json
from testbed.messages.events import BatchQueued, QueueNews
from testbed.messages.queue import QueueStatus
from testbed.messages.submission import QueuedJobs
from testbed.plugins.policies import choice
from testbed.plugins.registry import available
from testbed.queue import submission
from testbed.queue.account import Rules, kind_of
from testbed.queue.layouts import check_against
from testbed.queue.policy_process import Options, PolicyProcess
from testbed.queue.queued import Queued, requested
from testbed.queue.result import of_batch, of_session
from testbed.queue.session import Session
from testbed.queue.submission import KEEP, Submission
from testbed.scheduling import live
from testbed.scheduling.model import Limits
from testbed.topology.model import Topology

_JOIN_S = 5.0
_END_S = 8.0  # longer than the time that a worker has to end on request
_WENT_AWAY = "the command that submitted it went away"


@dataclass(slots=True)
class Batch:
    """The jobs of one `testbed submit`. `left` are the numbers of the jobs without reported end. `news` has
    the events for its client, then None at its end. `complaints` has the reported complaints by kind, each
    with its text and count. `lost` says why a file of the result is missing.
    """

    caller: Caller
    jobs: list[Queued]
    session: Session
    result_files: tuple[Path, ...]
    left: set[int]
    complaints: dict[str, tuple[str, int]] = field(default_factory=dict)
    lost: str | None = None
    news: queue.SimpleQueue[QueueNews | None] = field(default_factory=queue.SimpleQueue)


class Scheduler:
    """Accepts submissions and runs the session. Thread-safe. A policy's log is in `folder`; `note` reports to
    the user of `up`.
    """

    def __init__(self, topology: Topology, jobs: Jobs, folder: Path, note: Callable[[str], None]) -> None:
        self._topology, self._jobs, self._folder, self._note = topology, jobs, folder, note
        self._submitting = (
            threading.Lock()
        )  # one submission at a time, for as long as a policy's start; acquired before _lock
        self._lock = threading.Lock()  # guards the fields below; acquired after a session's lock, not before
        self._session: Session | None = None
        self._thread: threading.Thread | None = None
        self._batches: list[Batch] = []
        self._results: list[threading.Thread] = []
        self._closed = False

    # ------------------------------------------------------------------ requests

    def submit(
        self, request: Mapping[str, Any], caller: Caller, emit: Emit, disconnected: threading.Event
    ) -> Any:
        """Queue jobs, which run as `caller`. Return their result as JSON data when they have ended or, unless
        the request has `wait`, their numbers at once.
        """
        submitted = asked(SubmitRequest, request)
        wanted = submission.parse(submitted.submission)
        check_against(wanted, self._topology)
        without_inc = choice(wanted.policy).without_inc
        first = JobRequest.parse({**request, "script": "", "arguments": [], "sync": without_inc.name}, caller)
        with self._submitting:
            batch = self._queue(wanted, first, submitted, disconnected)
        numbers, rules = tuple(queued.id for queued in batch.jobs), batch.session.rules
        emit(BatchQueued(numbers, rules.policy, rules.limits.slot_s, submission.kinds(wanted)))
        if not submitted.wait:
            if disconnected.is_set():  # the client has not learned that they are queued
                batch.session.cancel(set(numbers), _WENT_AWAY)
            return as_json(QueuedJobs(numbers))
        while True:
            with suppress(queue.Empty):
                event = batch.news.get(timeout=0.2)
                if event is None:
                    result = of_batch(batch.jobs, batch.session, self._topology)
                    return as_json(replace(result, lost=batch.lost))
                emit(event)
            if disconnected.is_set():
                batch.session.cancel(set(numbers), _WENT_AWAY)

    def cancel(self, ids: list[int], reason: str, asker: Caller) -> list[int]:
        """End the user's queued and running jobs, by number, or all of them; return the numbers of those that
        had not ended.
        """
        with self._lock:
            batches = list(self._batches)
        own_jobs = {
            queued.id for batch in batches for queued in batch.jobs if asker.uid in (0, batch.caller.uid)
        }
        if unknown := sorted(set(ids) - own_jobs):
            raise RequestError(
                f"job {unknown[0]} is not among the jobs queued here by this user; they are "
                f"{sorted(own_jobs) or 'none'}"
            )
        ended: set[int] = set()
        for batch in batches:
            ended |= set(
                batch.session.cancel((set(ids) or own_jobs) & {queued.id for queued in batch.jobs}, reason)
            )
        return sorted(ended)

    def status(self) -> QueueStatus | None:
        """Return the session's status; None while nothing is queued."""
        session = self._session
        return None if session is None else of_session(session)

    def end(self, reason: str) -> None:
        """Cancel all jobs, and wait until they have ended and the results are written. Aborts the start of a
        policy.
        """
        deadline = time.monotonic() + _END_S
        with self._lock:
            self._closed = True
            session, thread = self._session, self._thread
        if session is not None and thread is not None:
            session.cancel({queued.id for queued in session.all}, reason)
            session.end()
            thread.join(_END_S)
        with self._lock:
            results = list(self._results)
        for writing in results:
            writing.join(max(0.0, deadline - time.monotonic()))

    # ------------------------------------------------------------------ sessions

    def _queue(
        self, wanted: Submission, request: JobRequest, submitted: SubmitRequest, disconnected: threading.Event
    ) -> Batch:
        programs = available(choice(wanted.policy).with_inc.programs)
        limits = live.limits_of(self._topology, wanted.slot_s, wanted.step_gbps, programs)
        while True:
            if self._closed:
                raise TestbedError("the testbed is ending")
            session = self._lasting_session()
            if session is None:
                return self._open_session(limits, wanted, request, submitted, disconnected)
            self._check_same_rules(session, limits, wanted)
            batch = self._batch(wanted, request, submitted, session)
            with self._lock:
                self._batches.append(batch)
            if session.add(batch.jobs):
                return batch
            with self._lock:  # the earlier jobs have just ended, and the session with them
                self._batches.remove(batch)

    def _lasting_session(self) -> Session | None:
        """Return the session if some of its jobs have not ended. If all have, wait until the session has
        ended, because its result may just have been read.
        """
        session, thread = self._session, self._thread
        if session is None or thread is None or not session.is_done():
            return session
        thread.join(_JOIN_S)
        if thread.is_alive():
            raise TestbedError("the jobs before have ended, and their policy is busy still: submit again")
        return None

    def _check_same_rules(self, session: Session, limits: Limits, wanted: Submission) -> None:
        """Raise RequestError unless the submission has the session's rules."""
        rules = session.rules
        asked = Rules(wanted.policy, rules.policy, limits, wanted.seed, wanted.on_failure)
        if asked == rules:
            return
        raise RequestError(
            f"{_terms(asked)}: jobs are queued with {_terms(rules)}; submit with the same, or wait until "
            f"they have ended"
        )

    def _open_session(
        self,
        limits: Limits,
        wanted: Submission,
        request: JobRequest,
        submitted: SubmitRequest,
        disconnected: threading.Event,
    ) -> Batch:
        """Open a session with these jobs: start the policy, then, when it is ready, the time slots."""
        with ExitStack() as undo:
            undo.enter_context(self._jobs.means.supply.left_to_policy())
            policy = undo.enter_context(self._policy(wanted, request, disconnected))
            rules = Rules(wanted.policy, policy.policy, limits, wanted.seed, wanted.on_failure)
            session = Session(self._topology, rules, self._jobs, self._complain, self._tell)
            batch = self._batch(wanted, request, submitted, session)
            session.add(batch.jobs)
            with self._lock:
                if self._closed:
                    raise TestbedError("the testbed is ending")
                self._batches.append(batch)
                self._session = session
                self._thread = threading.Thread(
                    target=self._run, args=(session, policy, undo.pop_all()), name="scheduler", daemon=True
                )
                self._thread.start()
            return batch

    @contextmanager
    def _policy(
        self, wanted: Submission, request: JobRequest, disconnected: threading.Event
    ) -> Iterator[PolicyProcess]:
        self._folder.mkdir(mode=0o711, exist_ok=True)
        options = Options(
            wanted.policy,
            wanted.seed,
            request.caller,
            request.cwd,
            request.environ,
            self._folder / "policy.log",
        )
        process = PolicyProcess(
            self._jobs.means.machine.hosts.popen_aside,
            options,
            lambda: not (self._closed or disconnected.is_set()),
        )
        with ExitStack() as stack:
            try:
                policy = stack.enter_context(process)
            except RequestError:
                if self._closed:
                    raise TestbedError("the testbed is ending") from None
                raise
            yield policy

    def _batch(
        self, wanted: Submission, request: JobRequest, submitted: SubmitRequest, session: Session
    ) -> Batch:
        now_s = session.clock() if session is self._session else 0.0
        jobs = []
        for index, spec in enumerate(wanted.jobs):
            number, own = self._jobs.means.holdings.number(), requested(request, spec)
            volume = live.gigabits(self._topology, spec.megabytes, spec.iterations, spec.options.lanes)
            place_seed = f"{wanted.seed}/place/{index}"
            jobs.append(Queued(number, spec, own, place_seed, now_s + spec.arrival_s, volume))
        named = (("json", submitted.json), ("record", submitted.record))
        files = tuple(absolute(file, key) for key, file in named if file is not None)
        return Batch(request.caller, jobs, session, files, {queued.id for queued in jobs})

    def _run(self, session: Session, policy: PolicyProcess, held: ExitStack) -> None:
        """Run a session to its end; `held` then ends the policy, and frees the circuits."""
        try:
            with held:
                session.begin()
                session.run(policy)
        except Exception as error:  # a defect: the jobs must not wait forever, and the log must show it
            session.cancel(
                {queued.id for queued in session.all},
                f"scheduler: {type(error).__name__}: {error}",
                failing=True,
            )
            self._note(f"scheduler: {type(error).__name__}: {error}; the daemon's log says more")
            raise
        finally:
            if self._session is session:
                self._session = None

    def _tell(self, queued: Queued, what: str) -> None:
        """Queue news about a job for the client that submitted it. Never blocks; may be called with the
        session's lock held.
        """
        with self._lock:
            for batch in [batch for batch in self._batches if queued.id in batch.left]:
                at_s = batch.session.clock()
                batch.news.put(QueueNews(job=queued.id, name=queued.spec.name, at_s=at_s, what=what))
                if queued.state == "ended":
                    batch.left.remove(queued.id)
                if not batch.left:
                    self._batches.remove(batch)
                    writing = threading.Thread(target=self._finish, args=(batch,), name="result", daemon=True)
                    self._results = [*(other for other in self._results if other.is_alive()), writing]
                    writing.start()

    def _complain(self, text: str) -> None:
        """Report a complaint to the user of `up` and to waiting clients, unless they got the same for another
        slot.
        """
        kind, line = kind_of(text), text.removeprefix("scheduler: ")
        with self._lock:
            batches = list(self._batches)
            is_new = not any(kind in batch.complaints for batch in batches)
            for batch in batches:
                if kind not in batch.complaints:
                    batch.news.put(QueueNews(at_s=batch.session.clock(), what=line))
                first, count = batch.complaints.get(kind, (line, 0))
                batch.complaints[kind] = first, count + 1
        if is_new:
            self._note(text)

    def _tell_counts(self, batch: Batch) -> None:
        """Report the count of each complaint that recurred."""
        for first, count in batch.complaints.values():
            if count > 1:
                what = f"{first}: {count} times in all"
                batch.news.put(QueueNews(at_s=batch.session.clock(), what=what))
                with suppress(OSError):  # as for the session's notes
                    self._note(f"scheduler: {what}")

    def _finish(self, batch: Batch) -> None:
        try:
            self._tell_counts(batch)
            if batch.result_files:
                result = of_batch(batch.jobs, batch.session, self._topology)
                content = json.dumps(as_json(result), indent=2) + "\n"
            for file in batch.result_files:
                try:
                    self._jobs.means.executor.files.write(file, content.encode(), batch.caller)
                except OSError as error:
                    batch.lost = f"result {file}: {error.strerror}"
                    self._note(f"scheduler: {batch.lost}")
        finally:  # whatever else failed, the client must not wait forever
            batch.news.put(None)


def _terms(rules: Rules) -> str:
    limits, kept = rules.limits, ", on_failure keep" * (rules.on_failure == KEEP)
    slots = f"slot {limits.slot_s:g} s, step {limits.step_gbps:g} Gb/s"
    return f"policy {rules.asked_policy}, {slots}, seed {rules.seed}{kept}"
