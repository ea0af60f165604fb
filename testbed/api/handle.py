"""`Testbed`: a testbed in a Python script or notebook, brought up for the script or already running."""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO, TypeVar

from testbed.api.batch import BatchResult
from testbed.api.capturing import COUNT, SECONDS, CapturedFrames, capture
from testbed.api.circuits import CircuitControl
from testbed.api.down import end
from testbed.api.executing import execute
from testbed.api.links import FaultControl, LinkControl
from testbed.api.result import JobError, JobResult
from testbed.api.running import RunOptions, check, run
from testbed.api.state import status
from testbed.api.submitting import Jobs, QueueRequest, cancel, queue, submit
from testbed.api.telemetry import Telemetry
from testbed.api.traffic import DRAIN_S, carry_out, planned
from testbed.api.traffic import SECONDS as TRAFFIC_S
from testbed.api.up import Config, bring_up, file_with, run_command
from testbed.client.caller import Caller
from testbed.client.runtime import DEFAULT_NAME, Runtime
from testbed.client.temporary import ENDING, handling
from testbed.errors import RequestError, TestbedError
from testbed.jobs.option_table import AS_USUAL, DEFAULTS, OPTIONS
from testbed.jobs.options import CommonOptions
from testbed.messages.coding import encoded
from testbed.messages.events import Event, JobBegun, OutputLine
from testbed.messages.status import LivingStatus, Status
from testbed.messages.traffic import TrafficResult
from testbed.records.recorder import Asked, Recorder, RunRecorder, recording
from testbed.records.store import Store
from testbed.topology.fields import shown
from testbed.topology.yaml_text import plain, read_yaml

_LOG = logging.getLogger("testbed")
_END_S = 10.0  # a job whose client is gone ends sooner than this


Method = TypeVar("Method", bound=Callable[..., Any])


def _with_job_options(method: Method) -> Method:
    """List the options of `JobOptions` in a method's signature, in place of its `**keywords`."""
    signature = inspect.signature(method)
    parameters = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS[name]) for name in OPTIONS
    ]
    method.__dict__["__signature__"] = signature.replace(parameters=[*parameters, *options])
    return method


class Testbed:
    """A testbed, controlled by the same functions as the commands. Every failure is a TestbedError.

    `with Testbed("default") as testbed:` brings one up, as root, and ends it with the block, also after an
    error; at the latest it ends with this process. `Testbed.connect()` connects, as the user who brought it
    up, to a testbed that runs; that one stays after the block.
    """

    __test__ = False  # the name starts with "Test"; pytest must not collect it

    def __init__(
        self,
        config: Config = "default",
        *,
        name: str = DEFAULT_NAME,
        controller: str | None = None,
        log_packets: bool = False,
        scale: int | str | None = None,
    ) -> None:
        """Describe a testbed; `up`, or a `with` block, brings it up. `config` is the name of a ready-made
        configuration, a YAML file, FILE.py:CLASS, or the content of such a file. `scale`, a number or "auto",
        replaces the configuration's. Raises RequestError for a
        bad name.
        """
        self._runtime = Runtime.of(name)
        self._config, self._controller, self._log_packets = config, controller, log_packets
        self._scale = scale
        self._pid: int | None = None  # of the main process that this object brought up
        self._connected = False
        self.circuits = CircuitControl(self._runtime)
        self.links = LinkControl(self._runtime)
        self.faults = FaultControl(self._runtime)

    @classmethod
    def connect(cls, name: str | None = None) -> Testbed:
        """Connect to the running testbed of this name; without a name, to the only one that runs."""
        testbed = cls(name=Runtime.meant(name).name)
        testbed._runtime.require_alive()
        testbed._connected = True
        return testbed

    @property
    def name(self) -> str:
        """The testbed's name, which commands use too: `testbed status --name NAME`."""
        return self._runtime.name

    def up(self) -> Self:
        """Bring the testbed up, and return it. Needs root. Does nothing if it is up."""
        if self._pid is None and not self._connected:
            self._pid = bring_up(self._config, self.name, self._controller, self._log_packets, self._scale)
        return self

    def down(self) -> None:
        """End the testbed and all that runs on it, also one that was connected to. Does nothing if it has
        ended.
        """
        pid, self._pid = self._pid, None
        main = self._runtime.read_main()
        is_it = pid is not None and main is not None and main.pid == pid
        if (is_it or self._connected) and self._runtime.alive():
            end(self._runtime, lambda _: None)

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connected:
            return
        with _undisturbed():
            self.down()

    def __repr__(self) -> str:
        state = "connected" if self._connected else "not up" if self._pid is None else f"pid {self._pid}"
        return f"<Testbed {self.name!r}: {state}>"

    @_with_job_options
    def run(
        self,
        script: str | Path,
        *arguments: object,
        place: str | None = None,
        ps: str | None = None,
        sync: str | None = None,
        python: str | Path | None = None,
        logs: str | Path | None = None,
        timeout_s: float | None = None,
        preload: bool = False,
        show: TextIO | None = None,
        record: bool = True,
        options: CommonOptions | None = None,
        **job_options: Any,
    ) -> JobResult:
        """Run a training script with these arguments, wait for its end, and return its result. The options
        are those of `testbed run`; those of `JobOptions` are given as keywords, or all in `options`. The
        workers' output is in the result, and is written to `show` while the job runs. Raises JobError, with
        the result, if the job failed; an interrupt ends the job. Leaves a record, as the command does, unless
        `record` is False.
        """
        if unknown := sorted(job_options.keys() - OPTIONS.keys()):
            raise TypeError(f"Testbed.run() got an unexpected keyword argument {unknown[0]!r}")
        if not isinstance(options, CommonOptions | None):
            raise RequestError(f"options: {shown(options)}; a JobOptions is accepted")
        asked_for = RunOptions(
            script=str(script),
            arguments=tuple(map(str, arguments)),
            sync=sync or _usual_system(),
            place=place,
            ps=ps,
            python=None if python is None else Path(python),
            logs=None if logs is None else Path(logs),
            timeout_s=timeout_s,
            preload=preload,
            options=(options or AS_USUAL).but(job_options),
            series=True,
        )
        output: list[tuple[str, str]] = []
        jobs: list[int] = []

        def on_event(event: Event) -> None:
            recorded.hear(event)
            if isinstance(event, JobBegun):
                jobs.append(event.job)
            elif isinstance(event, OutputLine):
                output.append((event.label, event.output))
                if show is not None:
                    print(f"[{event.label}] {event.output}", file=show, flush=True)

        caller = Caller.of_this_process()
        check(self._runtime, asked_for, caller)
        asked = Asked(
            "run", self._named(*asked_for.words()), asked_for.described(), asked_for.inputs(), self._runtime
        )
        with self._recording(asked, record) as recorder:
            with recorder.run() as recorded:
                try:
                    ended = run(self._runtime, asked_for, caller, on_event)
                except KeyboardInterrupt:
                    self._await_end(jobs)
                    raise
                recorded.take(ended)
            result = JobResult.of(ended, output, recorder.folder)
            if result.failure:  # copy the testbed's own log, which disappears with the testbed
                raise JobError(replace(result, failure=recorded.with_kept_log(result.failure)))
        return result

    def submit(
        self,
        jobs: Jobs,
        *,
        preload: bool = False,
        logs: str | Path | None = None,
        record: bool = True,
    ) -> BatchResult:
        """Queue the jobs of a jobs file, or of its content, and return their results when the last has ended.
        An interrupt cancels them.
        """
        with self._queueing(jobs, preload, logs, record, wait=True) as (batch, recorded):
            result = submit(self._runtime, batch, Caller.of_this_process(), recorded.hear)
            recorded.take(result)
        return BatchResult.of(result)

    def queue(
        self,
        jobs: Jobs,
        *,
        preload: bool = False,
        logs: str | Path | None = None,
        record: bool = True,
    ) -> tuple[int, ...]:
        """Queue jobs as `submit` does, and return their numbers at once."""
        with self._queueing(jobs, preload, logs, record, wait=False) as (batch, recorded):
            testbeds_part = recorded.left_to_testbed(batch.names, batch.logs is None)
            return queue(self._runtime, batch, Caller.of_this_process(), recorded.hear, testbeds_part)

    def cancel(self, *jobs: int) -> tuple[int, ...]:
        """End queued jobs; without numbers, all that this user queued. Return the numbers of those that had
        not ended.
        """
        caller = Caller.of_this_process()
        return tuple(cancel(self._runtime, caller, jobs, "cancelled by a script"))

    def script(self, steps: str | Path | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Carry out the steps of a `testbed script` file, or of a list such as [{"at": 5, "do": "link set
        u1h1 --down"}], each at its time. Return the steps with the times at which they ran. Raises
        TestbedError if a step failed.
        """
        with contextlib.ExitStack() as stack:
            if not isinstance(steps, str | Path):
                steps = stack.enter_context(file_with(steps, "steps.yaml"))
            record = json.loads(run_command("script", "--name", self.name, "--json", "-", str(steps)))
        return list(record["steps"])

    def traffic(
        self,
        traffic: str | Path | Sequence[Mapping[str, Any]],
        *,
        seconds: float = TRAFFIC_S,
        seed: int = 1,
        drain_s: float = DRAIN_S,
        record: bool = True,
    ) -> TrafficResult:
        """Send the flows of a `testbed traffic` file, or of its content, between hosts, and return their
        counts and completion times. Leaves a record, as the command does, unless `record` is False. Another
        thread may run a job meanwhile.
        """
        caller = Caller.of_this_process()
        plan = planned(self._runtime, caller, traffic, seconds, seed, drain_s)
        options = {"seconds": seconds, "seed": seed, "drain": drain_s}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        inputs = [("traffic", Path(traffic))] if isinstance(traffic, str | Path) else []
        asked = Asked("traffic", self._named(*words, plan.file), options, inputs, self._runtime)
        with self._recording(asked, record) as recorder, recorder.run() as recorded:
            result = carry_out(self._runtime, caller, plan)
            recorded.take(result)
        return result

    def exec(
        self, host: str, *command: object, timeout_s: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a host as this process's user, and wait for its end. Return its `returncode`,
        `stdout` and `stderr`. Raises TestbedError if it could not be run, or has not ended after `timeout_s`.
        """
        return execute(self._runtime, host, tuple(map(str, command)), timeout_s)

    def capture(
        self, link: str, output: str | Path, *, count: int = COUNT, seconds: float = SECONDS
    ) -> CapturedFrames:
        """Write a link's frames to a pcap file until `count` frames or `seconds` seconds are reached."""
        caller = Caller.of_this_process()
        return capture(self._runtime, caller, link, str(output), count, seconds, lambda *_: None)

    def status(self) -> dict[str, Any]:
        """Return the data that `testbed status --json` prints (docs/schemas/status.json)."""
        return dict(json.loads(encoded(self._status())))

    def telemetry(self) -> Telemetry:
        """Return the counters of all links since the testbed came up, as arrays."""
        state = self._status()
        if not isinstance(state, Status):
            raise TestbedError(f"testbed {self.name!r} is {state.state}: {state.error}")
        return Telemetry.of(state)

    def _status(self) -> LivingStatus:
        self._runtime.require_alive()
        return status(self._runtime)

    @contextlib.contextmanager
    def _queueing(
        self,
        jobs: Jobs,
        preload: bool,
        logs: str | Path | None,
        record: bool,
        wait: bool,
    ) -> Iterator[tuple[QueueRequest, RunRecorder]]:
        """Check jobs, then record them while the block, which queues them, runs."""
        caller = Caller.of_this_process()
        files: list[tuple[str, Path]] = []
        if isinstance(jobs, Mapping):
            data: Any = plain(jobs)
        else:
            files = [("jobs", Path(jobs))]
            with caller.acting():
                data = read_yaml(Path(jobs))
        folder = None if logs is None else Path(logs)
        batch = QueueRequest.of(data, wait=wait, preload=preload, logs=folder)
        batch.check(self._runtime, caller)
        words = self._named(*([] if wait else ["--detach"]), *(str(file) for _, file in files))
        asked = Asked("submit", words, {"submission": data}, [*files, *batch.inputs()], self._runtime)
        with self._recording(asked, record) as recorder, recorder.run() as recorded:
            yield batch, recorded

    def _await_end(self, jobs: Sequence[int]) -> None:
        """Wait up to _END_S until jobs have released their hosts, so that the next job can have them."""
        deadline = time.monotonic() + _END_S
        with _undisturbed(), contextlib.suppress(TestbedError):
            while {job.id for job in self._status().jobs} & set(jobs) and time.monotonic() < deadline:
                time.sleep(0.05)

    def _named(self, *words: str) -> list[str]:
        """Add `--name` to a command's words, unless this testbed has the default name."""
        return [*([] if self.name == DEFAULT_NAME else ["--name", self.name]), *words]

    def _recording(self, asked: Asked, record: bool) -> AbstractContextManager[Recorder]:
        caller = Caller.of_this_process()
        return recording(asked, Store.of(caller) if record else None, caller, _LOG.info)


def _usual_system() -> str:
    from testbed.plugins.policies import choice, usual

    return choice(usual()).with_inc.name


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore the signals that end a process while the block runs. Signals can only be set in the main thread:
    in others this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with handling(ENDING, signal.SIG_IGN):
        yield
