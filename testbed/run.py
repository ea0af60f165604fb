"""`testbed run`: runs a training script over a running testbed, one worker a host, as the user who calls
it.
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
from typing import TYPE_CHECKING, TextIO

from testbed.client import environment, output
from testbed.client.terminal_text import line as one_line
from testbed.client.terminal_text import raw

if TYPE_CHECKING:
    from testbed.api.running import OnEvent, RunOptions
    from testbed.api.starts import Beginning
    from testbed.api.traffic import BackgroundTraffic
    from testbed.client.caller import Caller
    from testbed.client.runtime import Runtime
    from testbed.messages.events import Event
    from testbed.messages.result import RepeatedRuns, RunResult
    from testbed.records.recorder import Recorder

MOST_REPEATS = 1000


def parser() -> argparse.ArgumentParser:
    """Return the command's parser. testbed/queue/submission.py lists which of its options a jobs file has."""
    from testbed.client.runtime import add_name_option
    from testbed.client.single_run import Once
    from testbed.jobs.option_table import add_to
    from testbed.plugins.policies import choice, usual
    from testbed.plugins.registry import AUTO, systems
    from testbed.records.recorder import add_options

    sums = choice(usual()).with_inc.name
    parser = environment.Parser(prog="testbed run", description="Run a training job on a testbed.")
    add_name_option(parser)
    parser.add_argument(
        "--place",
        action=Once,
        metavar="UNIT:WORKERS,...",
        help="the workers' units, such as u1:2,u2:2, or racks of a pod, such as u1r1:2,u1r2:2; without it, "
        "all hosts of the first gpu unit",
    )
    parser.add_argument(
        "--ps",
        action=Once,
        metavar="UNIT",
        help="the unit, or rack of a pod, of the job's server, if it has one; without it, the system chooses",
    )
    parser.add_argument(
        "--sync",
        default=sums,
        metavar="|".join([AUTO, *systems(), "FILE.py:CLASS"]),
        help=f"the system that sums gradients, as `testbed systems` lists them; {AUTO}: the one that the "
        f"links allow the least time ({sums})",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the job's result there, its samples beside it; -: on stdout, without samples, and the "
        "job's output on stderr",
    )
    parser.add_argument(
        "--python",
        type=Path,
        metavar="PATH",
        help="the workers' Python, of an environment of your own that has torch and this project installed",
    )
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the workers' logs there")
    add_options(parser)
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="run the job N times, and print the means with their confidence intervals (1)",
    )
    parser.add_argument(
        "--traffic",
        type=Path,
        metavar="FILE.yaml",
        help="send the flows of this file between hosts meanwhile, as `testbed traffic` does",
    )
    parser.add_argument(
        "--traffic-seed", type=int, default=1, metavar="N", help="seed of the draws of --traffic (1)"
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="end the job after S seconds")
    add_to(parser)
    parser.add_argument(
        "--preload",
        action="store_true",
        help="fork workers from a process that has torch loaded, so that they start at once; they then "
        "share one hash seed. With PYTHONHASHSEED set, workers are not forked",
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python script that calls torch.distributed")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="the script's arguments")
    return parser


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py): 0 only if every worker exited with 0."""
    from testbed.api.files import STDOUT, check_result
    from testbed.api.running import check
    from testbed.client.caller import Caller
    from testbed.client.runtime import Runtime
    from testbed.errors import RequestError
    from testbed.records.recorder import Asked, recording, store_of

    arguments = parser().parse_args(argv)
    caller = Caller.of_this_process()
    if not 1 <= arguments.repeat <= MOST_REPEATS:
        raise RequestError(f"--repeat {arguments.repeat}: 1 to {MOST_REPEATS} are accepted")
    runtime = Runtime.meant(arguments.name)
    store = store_of(arguments, caller)
    with_series = store is not None or arguments.json not in (None, STDOUT)
    options = _options(arguments, with_series)
    check_result(caller, arguments.json, with_series=True)
    check(runtime, options, caller, prefix="--")
    inputs = options.inputs() + ([("traffic", arguments.traffic)] if arguments.traffic else [])
    asked = Asked("run", argv, vars(arguments), inputs, runtime)
    traffic = _traffic(arguments, runtime, caller)
    with exception_shown(caller), recording(asked, store, caller) as record:
        return _runs(arguments, options, runtime, record, traffic)


def _options(arguments: argparse.Namespace, with_series: bool) -> RunOptions:
    from testbed.api.running import RunOptions
    from testbed.jobs.option_table import ALL_OPTIONS

    return RunOptions(
        script=arguments.script,
        arguments=tuple(arguments.arguments),
        sync=arguments.sync,
        place=arguments.place,
        ps=arguments.ps,
        python=arguments.python,
        logs=arguments.logs,
        timeout_s=arguments.timeout,
        preload=arguments.preload,
        options=ALL_OPTIONS.parse(vars(arguments), "--", typed=True),
        series=with_series,
    )


def _traffic(arguments: argparse.Namespace, runtime: Runtime, caller: Caller) -> BackgroundTraffic | None:
    """Compute the flows that are sent while the job runs; None if there are none."""
    if arguments.traffic is None:
        return None
    from testbed.api.traffic import BackgroundTraffic

    return BackgroundTraffic(runtime, caller, arguments.traffic, arguments.traffic_seed)


def _runs(
    arguments: argparse.Namespace,
    options: RunOptions,
    runtime: Runtime,
    record: Recorder,
    traffic: BackgroundTraffic | None,
) -> int:
    """Run the job as often as requested, until it fails or is interrupted; write and show the results."""
    from dataclasses import replace

    from testbed.api.files import STDOUT
    from testbed.client.caller import Caller
    from testbed.errors import TestbedError
    from testbed.messages.coding import UNSET

    results: list[RunResult] = []
    caller = Caller.of_this_process()
    interrupted = False
    files = _Files.of(arguments, record, caller) if arguments.repeat > 1 else None
    shown_on = sys.stderr if arguments.json == STDOUT else sys.stdout
    try:
        while len(results) < arguments.repeat and not interrupted and not _has_failed(results):
            note = files.note(len(results) + 1) if files else None
            with record.run() as run:
                asked = options.repeated(results)
                if options.logs and arguments.repeat > 1:
                    asked = replace(asked, logs=_logs_of(options.logs, len(results) + 1, caller))
                with traffic or contextlib.nullcontext():
                    result, interrupted = follow(runtime, asked, caller, shown_on, run.hear)
                if traffic is not None:
                    result = traffic.added_to(result)
                if note:
                    result = replace(result, notes=(*result.notes, note))
                run.take(result, interrupted)
            if arguments.json in (None, STDOUT):
                result = replace(result, series=UNSET)  # the record has it; many runs' would fill memory
            results.append(result)
            if arguments.repeat > 1 and not result.failure:
                words = f"job {result.id}: done in {result.wall_s:.1f} s; {result.verdict.line}"
                print(f"testbed run: {len(results)} of {arguments.repeat}: {words}", file=sys.stderr)
    finally:  # also after a refused run, so that the earlier results are not lost
        if results:
            _write_results(arguments, results, caller)
    result = results[-1]
    if interrupted:
        print(f"testbed run: job {result.id}: interrupted, its workers were ended", file=sys.stderr)
        return environment.INTERRUPTED
    if result.failure:
        raise TestbedError(f"job {result.id} failed: {run.with_kept_log(result.failure)}")
    if arguments.repeat > 1:
        from testbed.records.tables import means_lines  # SciPy, which takes long to import

        print("\n".join(means_lines(results)), file=sys.stderr)
        return 0
    print(f"testbed run: job {result.id}: done in {result.wall_s:.1f} s", file=sys.stderr)
    if result.traffic is not UNSET:
        from testbed.records.traffic_table import traffic_lines

        print("\n".join(traffic_lines(result.traffic)), file=sys.stderr)
    for remark in result.verdict.notes:
        if remark.text in result.notes:  # printed already
            continue
        print(f"testbed run: note: {remark.text}", file=sys.stderr)
    print(result.verdict.line, file=sys.stderr)
    return 0


class _Files:
    """The files from which each run of a repeated job starts (testbed/api/starts.py)."""

    def __init__(self, tops: Sequence[Path], left_out: Sequence[Path], caller: Caller) -> None:
        self._tops, self._left_out, self._caller = tops, left_out, caller
        self._first: Beginning | None = None
        self._said = ""

    @classmethod
    def of(cls, arguments: argparse.Namespace, record: Recorder, caller: Caller) -> _Files:
        """List the files to watch, without the run's own outputs: logs, results and record."""
        from testbed.api.files import series_path
        from testbed.api.starts import own_outputs, watched

        script = None if arguments.module else arguments.script
        out = [path.absolute() for path in own_outputs()]
        if arguments.logs:
            out += [arguments.logs.absolute() / str(number + 1) for number in range(arguments.repeat)]
        if arguments.json:
            out += [arguments.json.absolute(), series_path(arguments.json).absolute()]
        if record.folder:
            out.append(record.folder)
        with caller.acting():
            tops = watched(script, arguments.arguments, Path.cwd())
        return cls(tops, out, caller)

    def note(self, number: int) -> str | None:
        """Return a line if this run starts from other files than the first, or may do so. Print it unless the
        previous run had the same.
        """
        from testbed.api.starts import beginning, changes, in_a_line, unread_in_a_line

        with self._caller.acting():
            now = beginning(self._tops, self._left_out)
        if self._first is None:
            self._first = now
            return None
        became, unread = changes(self._first, now), unread_in_a_line(self._first, now, Path.cwd())
        lines = [*([in_a_line(became, Path.cwd())] if became else []), *([unread] if unread else [])]
        if not lines:
            return None
        line = "; ".join(lines)
        if line != self._said:
            print(f"testbed run: note: run {number}: {line}", file=sys.stderr)
        self._said = line
        return line


def _has_failed(results: Sequence[RunResult]) -> bool:
    return bool(results and results[-1].failure)


def _logs_of(logs: Path, number: int, caller: Caller) -> Path:
    """Make the folder for the logs of a repeated run, as the caller. Raises HostError if that fails."""
    from testbed.errors import HostError

    folder = logs.absolute() / str(number)
    with caller.acting():
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise HostError(f"--logs {logs}: {folder.name}: {error.strerror}") from error
    return folder


def _write_results(arguments: argparse.Namespace, results: Sequence[RunResult], caller: Caller) -> None:
    """Write the output of `--json`: a job's result or, for repeated runs, all results and their means."""
    from testbed.api.files import STDOUT, write_repeated, write_result
    from testbed.messages.coding import as_json

    path = arguments.json
    if path == STDOUT:
        printed = results[0] if arguments.repeat == 1 else _with_means(results)
        print(json.dumps(as_json(printed), indent=2))
    elif path and arguments.repeat == 1:
        with caller.acting():
            write_result(path, results[0])
    elif path:
        with caller.acting():
            write_repeated(path, results, _with_means)


def _with_means(results: Sequence[RunResult]) -> RepeatedRuns:
    from testbed.records.tables import means_of

    return means_of(results)


@contextlib.contextmanager
def exception_shown(caller: Caller) -> Iterator[None]:
    """Print, of a job that fails in the block, the exception of the worker that failed first, from the log
    that the failure names.
    """
    from testbed.errors import TestbedError
    from testbed.records import logs

    try:
        yield
    except TestbedError as error:
        with caller.acting():
            lines = logs.exception_of(str(error))
        if lines:
            print("\n".join(f"  {line}" for line in lines), file=sys.stderr)
        raise


def missed(lines: int, size: int) -> str:
    """Describe output that was dropped because it came faster than it was read."""
    amount = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size} bytes"
    counted = f"{lines} line{'s' * (lines != 1)} of output ({amount})"
    return f"{counted} came faster than they were read and are not shown; see the log"


class Follower:
    """Prints a job's output while it runs; knows the job's number once it has one."""

    def __init__(self, runtime: Runtime, shown_on: TextIO) -> None:
        self._runtime, self._shown_on = runtime, shown_on
        self._job: int | None = None
        self._logs = ""
        self._missed_lines = self._missed_bytes = 0
        self.interrupted = False

    def on_event(self, event: Event) -> None:
        """Print an event. Ends the job if the reader of this command's output has gone."""
        try:
            self._show(event)
        except BrokenPipeError:
            if not output.reader_has_gone():
                raise
            self._stop("the reader of the output of testbed run has gone")

    def _show(self, event: Event) -> None:
        from testbed.messages.events import JobBegun, JobNote, OutputLine, OutputMissed

        if isinstance(event, OutputLine):
            terminal = raw(self._shown_on)  # not cleaned: the job is the reader's own
            print(f"[{event.label}] {event.output}", file=terminal, flush=True)
        elif isinstance(event, JobBegun):
            self._job, self._logs = event.job, event.logs
            ps = f", {event.service} on {event.ps_host}" if event.ps_host else ""
            print(f"testbed run: job {self._job} on {' '.join(event.hosts)}{ps}", file=sys.stderr, flush=True)
        elif isinstance(event, OutputMissed):
            self._missed_lines += event.missed.lines
            self._missed_bytes += event.missed.bytes
        elif isinstance(event, JobNote):
            print(f"testbed run: job {self._job}: {one_line(event.note)}", file=sys.stderr, flush=True)

    def tell_missed(self) -> None:
        """Print how much output was not shown, in total."""
        if self._missed_lines:
            what = missed(self._missed_lines, self._missed_bytes)
            print(f"testbed run: job {self._job}: {what}: {self._logs}", file=sys.stderr, flush=True)

    def interrupt(self, number: int, _frame: FrameType | None) -> None:
        """Request the job's end the first time, and go on following it; leave the second time, which also
        ends the job.
        """
        self._stop(f"{signal.Signals(number).name} to testbed run")

    def _stop(self, reason: str) -> None:
        from testbed.client import rpc
        from testbed.errors import RequestError

        if self._job is None or self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        with contextlib.suppress(RequestError):  # the job has just ended by itself
            rpc.call(self._runtime.socket, "stop", job=self._job, reason=reason)


def follow(
    runtime: Runtime,
    options: RunOptions,
    caller: Caller,
    shown_on: TextIO,
    hear: OnEvent = lambda event: None,
) -> tuple[RunResult, bool]:
    """Run the job, print its output to `shown_on`, and pass its events to `hear`. Return its result, and
    whether it was interrupted.
    """
    from testbed.api.running import run

    follower = Follower(runtime, shown_on)

    def on_event(event: Event) -> None:
        hear(event)
        follower.on_event(event)

    try:
        with _signals_handled(follower):
            result = run(runtime, options, caller, on_event)
    finally:
        follower.tell_missed()
    return result, follower.interrupted


@contextlib.contextmanager
def _signals_handled(follower: Follower) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, follower.interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
