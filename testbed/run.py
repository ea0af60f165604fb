"""`testbed run`: a training script over a running testbed, one worker a host, as the user who asked."""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from testbed.client import environment

if TYPE_CHECKING:
    from testbed.client.caller import Caller
    from testbed.client.runtime import Runtime
    from testbed.records.recorder import Recorder


STDOUT = Path("-")  # in the place of a file
MOST_REPEATS = 1000


def parser() -> argparse.ArgumentParser:
    """Return the command's parser; testbed/queue/submission.py says what a jobs file has of its options."""
    from testbed.client.once import Once
    from testbed.client.runtime import DEFAULT_NAME
    from testbed.discovery.policies import choice, usual
    from testbed.discovery.registry import systems
    from testbed.records.recorder import add_options

    sums = choice(usual()).with_inc.name
    parser = argparse.ArgumentParser(prog="testbed run", description="Run a training job on a testbed.")
    parser.add_argument("--name", default=DEFAULT_NAME, help="of the testbed (default)")
    parser.add_argument(
        "--place",
        action=Once,
        metavar="UNIT:WORKERS,...",
        help="such as u1:2,u2:2, or u1r1:2,u1r2:2 in a pod; without it, all of the first gpu unit",
    )
    parser.add_argument(
        "--ps",
        action=Once,
        metavar="UNIT",
        help="the unit, or rack of a pod, whose host is the job's server, where it has one; without it, the "
        "system chooses",
    )
    parser.add_argument(
        "--sync",
        default=sums,
        metavar="|".join([*systems(), "FILE.py:CLASS"]),
        help=f"the system that sums gradients, as `testbed systems` lists them ({sums})",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the job's result there, its samples beside it; -: on stdout, without samples, and what "
        "the job prints on stderr",
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
        help="run the job N times, and say the means with their confidence intervals (1)",
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="end the job after so many seconds")
    parser.add_argument(
        "--restarts",
        type=int,
        default=0,
        metavar="N",
        help="when a worker dies, start the whole job again, at most N times (0)",
    )
    parser.add_argument(
        "--preload",
        action="store_true",
        help="fork workers from a process that has torch loaded, so that they start at once",
    )
    parser.add_argument(
        "--lanes", type=int, metavar="N", help="put N gradients in a packet, 64 or more (what the MTU holds)"
    )
    parser.add_argument(
        "--recovery",
        metavar="HOW",
        help="get lost packets again by a window, by asking what is lost, or not at all: window, integrity, "
        "none (window)",
    )
    parser.add_argument(
        "--age-out",
        type=float,
        dest="age_out_ms",
        metavar="MS",
        help="send a sum without workers that are so late, where the system can; 0: never (its own)",
    )
    parser.add_argument(
        "--window",
        type=int,
        metavar="N",
        help="have N packets of a worker under way at most, where the system sums by blocks (512)",
    )
    parser.add_argument(
        "--leave-after",
        type=int,
        metavar="N",
        help="go on without a worker from which nothing came in N looks of ten age-outs, until it is back, "
        "where the system sums by blocks (never)",
    )
    parser.add_argument(
        "--strict-finite",
        action="store_true",
        help="make an error of gradients with NaN or infinity, which gloo sums otherwise",
    )
    parser.add_argument(
        "--init-group",
        action="store_true",
        help="make the process group before the script begins, for libraries that would make it of gloo",
    )
    parser.add_argument(
        "--folder-per-worker",
        action="store_true",
        help="start each worker in a folder of its own: worker-0, worker-1, ... in the working folder",
    )
    parser.add_argument(
        "--stragglers",
        metavar="p=P,seed=N",
        help="make workers slow on purpose: at three points an iteration, with probability P, for 0.5 "
        "to 2 iteration times; also iteration=TIME, workers=each|one",
    )
    parser.add_argument(
        "-m", "--module", action="store_true", help="run a module by its name, as python -m does, for SCRIPT"
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python script that calls torch.distributed")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="of the script")
    return parser


def main(argv: list[str]) -> int:
    """Return the exit code; see testbed/errors.py. 0 only if every worker exited with 0."""
    from testbed.client.caller import Caller
    from testbed.client.runtime import Runtime
    from testbed.discovery.registry import find
    from testbed.discovery.user_class import is_users
    from testbed.errors import OwnerError, RequestError, TestbedError
    from testbed.jobs.placement import parse_place, parse_server
    from testbed.jobs.request import (
        MOST_RESTARTS,
        age_out_ms,
        lanes,
        leave_after,
        recovery,
        stragglers,
        window,
    )
    from testbed.records.recorder import Asked, recording, store_of

    options = parser().parse_args(argv)
    if not is_users(options.sync):
        find(options.sync)
    if options.place is not None:
        parse_place(options.place)
    if options.ps is not None:
        parse_server(options.ps)
    if options.timeout is not None and not options.timeout > 0:
        raise RequestError(f"--timeout {options.timeout:g}: more than 0 seconds is accepted")
    if not 1 <= options.repeat <= MOST_REPEATS:
        raise RequestError(f"--repeat {options.repeat}: 1 to {MOST_REPEATS} are accepted")
    if not 0 <= options.restarts <= MOST_RESTARTS:
        raise RequestError(f"--restarts {options.restarts}: 0 to {MOST_RESTARTS} are accepted")
    lanes({"lanes": options.lanes}, "lanes", "--")
    recovery({"recovery": options.recovery}, "recovery", "--")
    stragglers({"stragglers": options.stragglers}, "--")
    age_out_ms({"age-out": options.age_out_ms}, "age-out", "--")
    window({"window": options.window}, "window", "--")
    leave_after({"leave-after": options.leave_after}, "leave-after", "--")
    caller = Caller.of_this_process()
    runtime = Runtime.of(options.name)
    try:
        runtime.require_alive()
    except OwnerError:
        raise
    except TestbedError as error:
        raise RequestError(str(error)) from error
    check_files(caller, options.script, options.json, options.logs, options.module)
    if options.python:
        if options.preload:
            raise RequestError("--python: with --preload workers are forks of the project's own Python")
        check_python(caller, options.python)
    store = store_of(options, caller)
    request = {
        "script": options.script,
        "module": options.module,
        "arguments": options.arguments,
        "sync": options.sync,
        "place": options.place,
        "server_at": options.ps,
        "limit_s": options.timeout,
        "restarts": options.restarts,
        "preload": options.preload,
        "lanes": options.lanes,
        "recovery": options.recovery,
        "age_out_ms": options.age_out_ms,
        "window": options.window,
        "leave_after": options.leave_after,
        "strict_finite": options.strict_finite,
        "init_group": options.init_group,
        "folder_per_worker": options.folder_per_worker,
        "stragglers": options.stragglers,
        "series": store is not None or options.json not in (None, STDOUT),
        "logs": str(options.logs.absolute()) if options.logs else None,
        "python": str(options.python.absolute()) if options.python else None,
        "uid": caller.uid,
        "cwd": str(Path.cwd()),
        "environ": dict(os.environ),
    }
    inputs = [("script", Path(options.script))] if not options.module else []
    if is_users(options.sync):
        inputs.append(("system", Path(options.sync.partition(":")[0])))
    asked = Asked("run", argv, vars(options), inputs, runtime)
    with recording(asked, store, caller) as record:
        return _runs(options, request, runtime, caller, record)


def _runs(
    options: argparse.Namespace,
    request: dict[str, Any],
    runtime: Runtime,
    caller: Caller,
    record: Recorder,
) -> int:
    """Run the job as often as it is asked for, until it fails or is interrupted; write and show the
    results.
    """
    from testbed.errors import TestbedError

    results: list[dict[str, Any]] = []
    interrupted = False
    output = sys.stderr if options.json == STDOUT else sys.stdout
    while len(results) < options.repeat and not interrupted and not (results and results[-1]["failure"]):
        with record.run() as run:
            if options.logs and options.repeat > 1:
                request["logs"] = str(_logs_of(options.logs, len(results) + 1, caller))
            result, interrupted = follow(runtime, request, output, run.hear)
            run.take(result, interrupted)
        results.append(result)
        if options.repeat > 1 and not result["failure"]:
            words = f"job {result['id']}: done in {result['wall_s']:.1f} s; {result['verdict']['line']}"
            print(f"testbed run: {len(results)} of {options.repeat}: {words}", file=sys.stderr)
    _write_results(options, results, caller)
    result = results[-1]
    if interrupted:
        print(f"testbed run: job {result['id']}: interrupted, its workers were ended", file=sys.stderr)
        return environment.INTERRUPTED
    if result["failure"]:
        raise TestbedError(f"job {result['id']} failed: {result['failure']}")
    if options.repeat > 1:
        from testbed.records.tables import means_lines  # SciPy, which takes long to import

        print("\n".join(means_lines("run", results)), file=sys.stderr)
        return 0
    print(f"testbed run: job {result['id']}: done in {result['wall_s']:.1f} s", file=sys.stderr)
    for note in result["verdict"]["notes"]:
        if note["text"] in result["notes"]:  # said already
            continue
        print(f"testbed run: note: {note['text']}", file=sys.stderr)
    print(result["verdict"]["line"], file=sys.stderr)
    return 0


def _logs_of(logs: Path, number: int, caller: Caller) -> Path:
    """Return the folder for the logs of a repeated run, made as the caller. HostError where it cannot be."""
    from testbed.errors import HostError

    folder = logs.absolute() / str(number)
    with caller.acting():
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise HostError(f"--logs {logs}: {folder.name}: {error.strerror}") from error
    return folder


def _write_results(options: argparse.Namespace, results: list[dict[str, Any]], caller: Caller) -> None:
    """Write what `--json` asks for: a job's result; of repeated runs, all of them and their means."""
    path = options.json
    if path == STDOUT:
        plain = [{key: value for key, value in result.items() if key != "series"} for result in results]
        print(json.dumps(plain[0] if options.repeat == 1 else _with_means(plain), indent=2))
    elif path and options.repeat == 1:
        with caller.acting():
            write_result(path, results[0])
    elif path:
        with caller.acting():
            for number, result in enumerate(results, 1):
                _write_series(series_path(path.with_suffix(f".{number}{path.suffix}")), path, result)
            _write_json(path, _with_means(results), results[-1])


def _with_means(results: list[dict[str, Any]]) -> dict[str, Any]:
    from testbed.records.tables import means_of

    return means_of("run", results)


def series_path(result: Path) -> Path:
    """Return the path of the file with all samples, beside a job's result."""
    return result.with_suffix(".telemetry.npz")


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write a result as JSON, and its samples, which came along in base64, as a file of NumPy arrays.
    HostError where they cannot be written.
    """
    _write_series(series_path(path), path, result)
    _write_json(path, result, result)


def _write_series(samples: Path, path: Path, result: dict[str, Any]) -> None:
    series = base64.b64decode(result.pop("series"))
    result["telemetry"]["file"] = samples.name
    _written(samples, series, path, result)


def _write_json(path: Path, content: dict[str, Any], result: dict[str, Any]) -> None:
    _written(path, (json.dumps(content, indent=2) + "\n").encode(), path, result)


def _written(file: Path, content: bytes, path: Path, result: dict[str, Any]) -> None:
    """Write a file of those that `--json` asks for. HostError, which says what became of the job."""
    from testbed.errors import HostError

    try:
        _replace(file, content)
    except OSError as error:
        became = f"failed: {result['failure']}" if result["failure"] else "ended"
        raise HostError(f"--json {path}: {error.strerror}; job {result['id']} {became}") from error


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole, or leave what is there: nothing, where there was none."""
    from testbed.jobs.file_host import replace

    is_new = not path.exists()
    path.touch()
    with path.open("r+b", buffering=0) as file:
        try:
            replace(file.fileno(), content)
        except OSError:
            if is_new:
                path.unlink()
            raise


def check_files(
    caller: Caller, script: str, result: Path | None, logs: Path | None, is_module: bool = False
) -> None:
    """Check, before the job starts, what its user must read and write. Makes the folder of logs. Raises
    RequestError or HostError.
    """
    from testbed.client.modules import check_module
    from testbed.errors import HostError, RequestError

    needed = (Path(sys.executable), environment.CHECKOUT / "workloads" / "__init__.py")
    with caller.acting():
        for path in needed:
            if not os.access(path, os.R_OK, effective_ids=True):
                raise HostError(
                    f"user {caller.user} cannot read {path}: the testbed must lie in a folder that its users "
                    f"can read"
                )
        folder = os.getcwd()
        try:
            os.stat(f"{folder}/.")
        except OSError as error:
            raise RequestError(
                f"working folder {folder}: user {caller.user} cannot enter it: {error.strerror}"
            ) from error
        if is_module:
            check_module(script, [folder, *sys.path])
        else:
            _check_script(caller, script)
        result = None if result == STDOUT else result
        if result is not None and not writable(result):
            raise RequestError(f"--json {result}: user {caller.user} cannot write it")
        if result is not None and not writable(series_path(result)):
            raise RequestError(
                f"--json {result}: user {caller.user} cannot write {series_path(result)} beside it"
            )
        if logs is not None:
            try:
                logs.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RequestError(
                    f"--logs {logs}: user {caller.user} cannot make it: {error.strerror}"
                ) from error
            if not os.access(logs, os.W_OK | os.X_OK, effective_ids=True):
                raise RequestError(f"--logs {logs}: user {caller.user} cannot write there")


def check_python(caller: Caller, python: Path) -> None:
    """Raise RequestError, which says what it lacks, where this is no Python with what a worker needs. It is
    asked as its user.
    """
    from testbed.errors import RequestError
    from testbed.jobs.environment import worker_environment

    environ = worker_environment(os.environ, caller, in_checkout=False)
    argv = [str(python.absolute()), "-c", _LACKS]
    try:
        asked = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            cwd="/",
            env=environ,
            timeout=_ASKED_S,
            check=False,
            **caller.of_a_child(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or f"no answer in {_ASKED_S:g} s"
        raise RequestError(f"--python {python}: user {caller.user} cannot run it: {why}") from error
    try:
        lacks = dict(json.loads(asked.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        raise RequestError(f"--python {python}: it is no Python") from None
    if lacks:
        source = str(environment.CHECKOUT) if environment.is_checkout() else "optinc"
        remedy = " ".join(source if each == "optinc" else each for each in lacks)
        named = " and ".join(f"{each} ({why})" for each, why in lacks.items())
        raise RequestError(f"--python {python}: it lacks {named}: {python} -m pip install {remedy}")


_ASKED_S = 60.0
_LACKS = """
import importlib.metadata, importlib.util, json
lacks = {}
if importlib.util.find_spec("torch") is None:
    lacks["torch"] = "not installed"
try:
    importlib.metadata.version("optinc")
except importlib.metadata.PackageNotFoundError:
    lacks["optinc"] = "this project, not installed"
print(json.dumps(lacks))
"""


def _check_script(caller: Caller, script: str) -> None:
    from testbed.errors import RequestError

    try:
        fd = os.open(script, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe's writer is not waited for
        ordinary = stat.S_ISREG(os.fstat(fd).st_mode)
        os.close(fd)
    except OSError as error:
        raise RequestError(f"script {script}: user {caller.user} cannot read it: {error.strerror}") from error
    if not ordinary:
        raise RequestError(f"script {script}: an ordinary file is accepted")


def writable(path: Path) -> bool:
    """Return whether the file could be written, by the effective user; makes nothing."""
    if path.exists():
        return path.is_file() and os.access(path, os.W_OK, effective_ids=True)
    return path.parent.is_dir() and os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True)


def missed(event: dict[str, int]) -> str:
    """Return what is said of output that came while nobody read."""
    lines, size = event["lines"], event["bytes"]
    amount = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size} bytes"
    counted = f"{lines} line{'s' * (lines != 1)} of output ({amount})"
    return f"{counted} came faster than they were read and are not shown; see the log"


class Follower:
    """Shows a job's output as it comes; knows its number once it has one."""

    def __init__(self, runtime: Runtime, output: TextIO) -> None:
        self._runtime, self._output = runtime, output
        self._job: int | None = None
        self._logs = ""
        self.interrupted = False

    def on_event(self, event: dict[str, Any]) -> None:
        if "output" in event:
            print(f"[{event['label']}] {event['output']}", file=self._output, flush=True)
        elif "job" in event:
            self._job, self._logs = int(event["job"]), str(event["logs"])
            ps = f", {event['service']} on {event['ps_host']}" if event["ps_host"] else ""
            print(
                f"testbed run: job {self._job} on {' '.join(event['hosts'])}{ps}", file=sys.stderr, flush=True
            )
        elif "missed" in event:
            print(
                f"testbed run: job {self._job}: {missed(event['missed'])}: {self._logs}",
                file=sys.stderr,
                flush=True,
            )
        elif "note" in event:
            print(f"testbed run: job {self._job}: {event['note']}", file=sys.stderr, flush=True)

    def interrupt(self, number: int, _frame: FrameType | None) -> None:
        """Ask for the job's end the first time, and go on listening; leave the second time, which ends the
        job as well.
        """
        from testbed.client import rpc
        from testbed.errors import RequestError

        if self._job is None or self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        with contextlib.suppress(RequestError):  # it has just ended by itself
            rpc.call(
                self._runtime.socket,
                "stop",
                job=self._job,
                reason=f"{signal.Signals(number).name} to testbed run",
            )


def follow(
    runtime: Runtime,
    request: dict[str, Any],
    output: TextIO,
    hear: Callable[[dict[str, Any]], None] = lambda event: None,
) -> tuple[dict[str, Any], bool]:
    """Run the job, with what it prints on `output`, and its events told to `hear`; return its result, and
    whether it was interrupted.
    """
    from testbed.client import rpc

    follower = Follower(runtime, output)

    def on_event(event: dict[str, Any]) -> None:
        hear(event)
        follower.on_event(event)

    with _handling(follower):
        result = rpc.call(runtime.socket, "run", on_event=on_event, timeout_s=None, **request)
    return dict(result), follower.interrupted


@contextlib.contextmanager
def _handling(follower: Follower) -> Iterator[None]:
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
