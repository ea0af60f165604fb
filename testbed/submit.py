"""`testbed submit`: queues jobs on a running testbed; its scheduler decides when and how they run
(docs/scheduling.md).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from testbed.client import environment, output

if TYPE_CHECKING:
    from testbed.api.running import OnEvent
    from testbed.api.submitting import QueueRequest
    from testbed.client.caller import Caller
    from testbed.client.runtime import Runtime
    from testbed.messages.events import Event
    from testbed.messages.submission import QueuedRun, SubmissionResult
    from testbed.records.recorder import Recorder


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py): 0 only if every job ended well and its
    result is written, or all are queued (--detach).
    """
    from testbed.api.files import STDOUT
    from testbed.api.submitting import QueueRequest
    from testbed.client.caller import Caller
    from testbed.client.runtime import Runtime, add_name_option
    from testbed.errors import RequestError
    from testbed.plugins.policies import policies
    from testbed.records.recorder import Asked, add_options, recording, store_of
    from testbed.run import exception_shown
    from testbed.topology.yaml_text import read_yaml

    parser = environment.Parser(
        prog="testbed submit",
        description="Queue training jobs on a testbed; a policy decides when each starts, and with which "
        "resources.",
    )
    add_name_option(parser)
    parser.add_argument(
        "--policy", help=f"replaces the file's: {', '.join(policies())}, FILE.py:CLASS, or MODULE:CLASS"
    )
    parser.add_argument("--slot", type=float, metavar="S", help="replaces the file's slot_s")
    parser.add_argument("--seed", type=int, metavar="N", help="replaces the file's seed")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the result there when the last job has ended; -: on stdout",
    )
    parser.add_argument(
        "--logs", type=Path, metavar="DIR", help="keep the workers' logs there, in a folder for each job"
    )
    add_options(parser)
    parser.add_argument(
        "--detach",
        action="store_true",
        help="return when the jobs are queued; without it, Ctrl-C cancels them",
    )
    parser.add_argument(
        "--wait",
        action="store_false",
        dest="detach",
        help="return when the last job has ended, as without --detach",
    )
    parser.add_argument(
        "--preload",
        action="store_true",
        help="fork workers from a process that has torch loaded, so that they start at once",
    )
    parser.add_argument(
        "jobs", type=Path, metavar="JOBS.yaml", help="the jobs; docs/scheduling.md has the keys"
    )
    options = parser.parse_args(argv)
    caller = Caller.of_this_process()
    with caller.acting():
        data = read_yaml(options.jobs)
    overrides = {"policy": options.policy, "slot_s": options.slot, "seed": options.seed}
    try:
        if isinstance(data, dict):
            data = data | {key: value for key, value in overrides.items() if value is not None}
        batch = QueueRequest.of(
            data,
            wait=not options.detach,
            preload=options.preload,
            result=None if options.json == STDOUT else options.json,
            logs=options.logs,
        )
    except RequestError as error:
        key, _, what = str(error).partition(": ")
        if overrides.get(key) is not None:
            raise RequestError(f"--{key.removesuffix('_s')}: {what}") from error
        raise RequestError(f"{options.jobs}: {error}") from error
    runtime = Runtime.meant(options.name)
    if options.json == STDOUT and options.detach:
        raise RequestError("--json -: nobody is there to print it with --detach; a file is accepted")
    batch.check(runtime, caller, prefix="--")
    inputs = [("jobs", options.jobs), *batch.inputs()]
    asked = Asked("submit", argv, {**vars(options), "submission": data}, inputs, runtime)
    with exception_shown(caller), recording(asked, store_of(options, caller), caller) as record:
        if options.detach:
            return _detach(batch, runtime, caller, record)
        return _submit(options, batch, runtime, caller, record)


def _submit(
    options: argparse.Namespace,
    batch: QueueRequest,
    runtime: Runtime,
    caller: Caller,
    record: Recorder,
) -> int:
    """Queue the jobs, wait for their end, and show the result."""
    from testbed.api.files import STDOUT
    from testbed.api.submitting import submit
    from testbed.errors import HostError, TestbedError
    from testbed.messages.coding import as_json

    follower = _Follower(runtime, caller)
    with record.run() as run:
        with _following(follower, run.hear) as on_event:
            result = submit(runtime, batch, caller, on_event)
        run.take(result, follower.interrupted)
    if options.json == STDOUT:
        print(json.dumps(as_json(result), indent=2))
    print(_summary(result), file=sys.stderr)
    if follower.interrupted:
        if result.loss:
            print(f"testbed submit: {result.loss}", file=sys.stderr)
        return environment.INTERRUPTED
    if failure := result.why_failed:
        raise TestbedError(run.with_kept_log(failure) + (f"; {result.loss}" if result.loss else ""))
    if result.loss:
        raise HostError(result.loss)
    return environment.INTERRUPTED if result.cancelled else 0


def _detach(batch: QueueRequest, runtime: Runtime, caller: Caller, record: Recorder) -> int:
    """Queue the jobs; the testbed writes their result."""
    from testbed.api.submitting import queue

    with record.run() as run:
        testbeds_part = run.left_to_testbed(batch.names, batch.logs is None)
        with _following(_Follower(runtime, caller), run.hear) as on_event:
            jobs = queue(runtime, batch, caller, on_event, testbeds_part)
    look, end = (environment.typed(words, runtime.name) for words in ("status", "cancel --all"))
    queued = f"queued jobs {_range(jobs)}; look: {look}; end: {end}"
    print(f"testbed submit: {queued}", file=sys.stderr)
    return 0


class _Follower:
    """Prints the news of the jobs."""

    def __init__(self, runtime: Runtime, caller: Caller) -> None:
        self._runtime, self._caller = runtime, caller
        self._jobs: list[int] = []
        self._missed_lines = 0
        self.interrupted = False

    def on_event(self, event: Event) -> None:
        """Print an event. Cancels the jobs if the reader of this command's output has gone."""
        try:
            self._show(event)
        except BrokenPipeError:
            if not output.reader_has_gone():
                raise
            self._cancel("the reader of the output of testbed submit has gone")

    def _show(self, event: Event) -> None:
        from testbed.messages.events import BatchQueued, OutputMissed, QueueNews

        if isinstance(event, BatchQueued):
            self._jobs = list(event.queued)
            line = f"{event.what} queued; policy {event.policy}, slots of {event.slot_s:g} s"
        elif isinstance(event, QueueNews):
            line = f"{event.at_s:7.1f} s  {event.about}{event.what}"
        else:
            if isinstance(event, OutputMissed):
                self._missed_lines += event.missed.lines
            return
        print(f"testbed submit: {line}", file=sys.stderr, flush=True)

    def tell_missed(self) -> None:
        """Print how many lines were not shown, in total."""
        if self._missed_lines:
            what = f"{self._missed_lines} lines came faster than they were read and are not shown"
            print(f"testbed submit: {what}", file=sys.stderr, flush=True)

    def interrupt(self, number: int, _frame: FrameType | None) -> None:
        """Cancel the jobs the first time, and go on following them; leave the second time, which also cancels
        them.
        """
        self._cancel(f"{signal.Signals(number).name} to testbed submit")

    def _cancel(self, reason: str) -> None:
        from testbed.client import rpc
        from testbed.errors import RequestError

        if not self._jobs or self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        with contextlib.suppress(RequestError):  # the jobs have just ended
            rpc.call(self._runtime.socket, "cancel", jobs=self._jobs, reason=reason, uid=self._caller.uid)


@contextlib.contextmanager
def _following(follower: _Follower, hear: OnEvent) -> Iterator[OnEvent]:
    """Print the news of the jobs that the block queues, and pass their events to `hear`."""

    def on_event(event: Event) -> None:
        hear(event)
        follower.on_event(event)

    try:
        with _handling(follower):
            yield on_event
    finally:
        follower.tell_missed()


@contextlib.contextmanager
def _handling(follower: _Follower) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, follower.interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _summary(result: SubmissionResult) -> str:
    modes = [job.mode or "-" for job in result.jobs]
    widest = max(map(len, ["mode", *modes]))
    lines = [f"{'job':<20} {'mode':<{widest}} {'wait s':>8}{'train s':>9}{'JCT s':>8}"]
    for job, mode in zip(result.jobs, modes, strict=True):
        times = "".join(
            f"{'-' if time_s is None else format(time_s, '.1f'):>{width}}"
            for time_s, width in ((job.waiting_s, 8), (job.training_s, 9), (job.jct_s, 8))
        )
        lines.append(f"{job.name:<20} {mode:<{widest}} {times}{_became(job)}")
    lines.append(
        f"{result.policy}: {result.done} jobs done, total JCT {result.total_jct_s:.1f} s;"
        f" {result.reconfigured_connections} connections set up in {result.reconfigurations} "
        f"reconfigurations;"
        f" policy {1e3 * result.policy_s_max:.0f} ms at most, {result.overruns} overruns"
    )
    if result.policy_failures:
        lines.append(
            f"{result.policy}: {result.policy_failures} times without a valid decision, the last one: "
            f"{result.last_failure}"
        )
    return "\n".join([*lines, *_verdicts(result)])


def _became(job: QueuedRun) -> str:
    if job.cancelled:
        return "   cancelled"
    return "   failed" if job.failure else ""


def _verdicts(result: SubmissionResult) -> list[str]:
    """Return a line that counts the trustworthy jobs among those judged, and the verdict of each job that is
    not.
    """
    line, _ = result.verdict()
    verdicts = {job.name: job.run.verdict for job in result.jobs if job.run and not job.failure}
    return ([line] if line else []) + [
        f"  {name}: {each.text}" for name, each in verdicts.items() if each.trustworthy is False
    ]


def _range(ids: Sequence[int]) -> str:
    return (
        f"{ids[0]} to {ids[-1]}"
        if len(ids) > 1 and ids[-1] - ids[0] == len(ids) - 1
        else " ".join(map(str, ids))
    )


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
