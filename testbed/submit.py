"""`testbed submit`: queues jobs on a running testbed, whose scheduler decides when and how they run
(docs/scheduling.md).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from testbed.client import environment, output

if TYPE_CHECKING:
    from testbed.api.submitting import QueueRequest
    from testbed.client.caller import Caller
    from testbed.client.runtime import Runtime
    from testbed.records.recorder import Recorder


def main(argv: list[str]) -> int:
    """Return the exit code; see testbed/errors.py. 0 only if every job ended well and its result is written,
    or all are queued (--detach).
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
        description="Queue training jobs on a testbed; a policy says when they start, and with what.",
    )
    add_name_option(parser)
    parser.add_argument(
        "--policy", help=f"in place of the file's: {', '.join(policies())}, FILE.py:CLASS, or MODULE:CLASS"
    )
    parser.add_argument("--slot", type=float, metavar="S", help="in place of the file's slot_s")
    parser.add_argument("--seed", type=int, metavar="N", help="in place of the file's seed")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the result there, when the last job has ended; -: on stdout",
    )
    parser.add_argument(
        "--logs", type=Path, metavar="DIR", help="keep the workers' logs there, in a folder for each job"
    )
    add_options(parser)
    parser.add_argument(
        "--detach", action="store_true", help="return when they are queued; Ctrl-C would cancel them"
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
        return _submit(options, batch, runtime, caller, record)


def _submit(
    options: argparse.Namespace,
    batch: QueueRequest,
    runtime: Runtime,
    caller: Caller,
    record: Recorder,
) -> int:
    """Queue the jobs; without `--detach` wait for their end, and show the result."""
    from testbed.api.files import STDOUT
    from testbed.errors import HostError, TestbedError
    from testbed.records.record import failure_of_queue, verdict_of_queue

    with record.run() as run:
        left = {} if batch.wait else run.left_to_testbed(batch.names, batch.logs is None)
        result, interrupted = _follow(runtime, batch, caller, run.hear, left)
        if not options.detach:
            run.take(result, interrupted, failure_of_queue(result), verdict_of_queue(result))
    if options.detach:
        look, end = (environment.typed(words, runtime.name) for words in ("status", "cancel --all"))
        queued = f"queued jobs {_range(result['jobs'])}; look: {look}; end: {end}"
        print(f"testbed submit: {queued}", file=sys.stderr)
        return 0
    if options.json == STDOUT:
        print(json.dumps(result, indent=2))
    print(_summary(result), file=sys.stderr)
    if interrupted:
        if result["lost"]:
            print(f"testbed submit: {result['lost']}", file=sys.stderr)
        return environment.INTERRUPTED
    if failure := failure_of_queue(result):
        raise TestbedError(run.with_kept_log(failure) + (f"; {result['lost']}" if result["lost"] else ""))
    if result["lost"]:
        raise HostError(result["lost"])
    return environment.INTERRUPTED if result["cancelled"] else 0


class _Follower:
    """Shows what becomes of the jobs."""

    def __init__(self, runtime: Runtime, caller: Caller) -> None:
        self._runtime, self._caller = runtime, caller
        self._jobs: list[int] = []
        self._missed_lines = 0
        self.interrupted = False

    def on_event(self, event: dict[str, Any]) -> None:
        """Show an event. The jobs end where nobody reads what becomes of them any more."""
        try:
            self._show(event)
        except BrokenPipeError:
            if not output.reader_has_gone():
                raise
            self._cancel("the reader of the output of testbed submit has gone")

    def _show(self, event: dict[str, Any]) -> None:
        if "queued" in event:
            self._jobs = list(event["queued"])
            line = f"{event['what']} queued; policy {event['policy']}, slots of {event['slot_s']:g} s"
        elif "missed" in event:
            self._missed_lines += event["missed"]["lines"]
            return
        else:
            who = f"job {event['job']} ({event['name']}): " if "job" in event else ""
            line = f"{event['at_s']:7.1f} s  {who}{event['what']}"
        print(f"testbed submit: {line}", file=sys.stderr, flush=True)

    def tell_missed(self) -> None:
        """Say how many lines were not shown, of all that were not."""
        if self._missed_lines:
            what = f"{self._missed_lines} lines came faster than they were read and are not shown"
            print(f"testbed submit: {what}", file=sys.stderr, flush=True)

    def interrupt(self, number: int, _frame: FrameType | None) -> None:
        """Cancel the jobs the first time, and go on listening; leave the second time, which cancels them as
        well.
        """
        self._cancel(f"{signal.Signals(number).name} to testbed submit")

    def _cancel(self, reason: str) -> None:
        from testbed.client import rpc
        from testbed.errors import RequestError

        if not self._jobs or self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        with contextlib.suppress(RequestError):  # they have just ended
            rpc.call(self._runtime.socket, "cancel", jobs=self._jobs, reason=reason, uid=self._caller.uid)


def _follow(
    runtime: Runtime,
    batch: QueueRequest,
    caller: Caller,
    hear: Callable[[dict[str, Any]], None],
    left: Mapping[str, Any],
) -> tuple[dict[str, Any], bool]:
    """Queue the jobs, and tell of them; return their result, and whether they were interrupted."""
    from testbed.api.submitting import submit

    follower = _Follower(runtime, caller)

    def on_event(event: dict[str, Any]) -> None:
        hear(event)
        follower.on_event(event)

    try:
        with _handling(follower):
            result = submit(runtime, batch, caller, on_event, left)
    finally:
        follower.tell_missed()
    return result, follower.interrupted


@contextlib.contextmanager
def _handling(follower: _Follower) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, follower.interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _summary(result: dict[str, Any]) -> str:
    modes = [job["mode"] or "-" for job in result["jobs"]]
    widest = max(map(len, ["mode", *modes]))
    lines = [f"{'job':<20} {'mode':<{widest}} {'wait s':>8}{'train s':>9}{'JCT s':>8}"]
    for job, mode in zip(result["jobs"], modes, strict=True):
        times = "".join(
            f"{'-' if job[key] is None else format(job[key], '.1f'):>{width}}"
            for key, width in (("waiting_s", 8), ("training_s", 9), ("jct_s", 8))
        )
        lines.append(f"{job['name']:<20} {mode:<{widest}} {times}{_became(job)}")
    lines.append(
        f"{result['policy']}: {result['done']} jobs done, total JCT {result['total_jct_s']:.1f} s;"
        f" {result['reconfigured_connections']} connections set up in {result['reconfigurations']} "
        f"reconfigurations;"
        f" policy {1e3 * result['policy_s_max']:.0f} ms at most, {result['overruns']} overruns"
    )
    if result["policy_failures"]:
        lines.append(
            f"{result['policy']}: {result['policy_failures']} times without a valid decision, the last one: "
            f"{result['last_failure']}"
        )
    return "\n".join([*lines, *_verdicts(result["jobs"])])


def _became(job: dict[str, Any]) -> str:
    if job["cancelled"]:
        return "   cancelled"
    return "   failed" if job["failure"] else ""


def _verdicts(jobs: Sequence[dict[str, Any]]) -> list[str]:
    """Return how many of the jobs that were judged are trustworthy, and of those that are not each verdict
    once, with the jobs that it is on.
    """
    from testbed.records.record import verdict_of_queue

    line, _ = verdict_of_queue({"jobs": jobs})
    verdicts = {job["name"]: job["run"]["verdict"] for job in jobs if job["run"] and not job["failure"]}
    return ([line] if line else []) + [
        f"  {name}: {each['line'].removeprefix('verdict: ')}"
        for name, each in verdicts.items()
        if each["trustworthy"] is False
    ]


def _range(ids: list[int]) -> str:
    return (
        f"{ids[0]} to {ids[-1]}"
        if len(ids) > 1 and ids[-1] - ids[0] == len(ids) - 1
        else " ".join(map(str, ids))
    )


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
