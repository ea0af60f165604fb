"""Write a record while its command runs, as the command's user. A failure to write is reported in a line,
once, and the command goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.client import environment, output
from testbed.client.atomic_write import write_whole
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.client.terminal_text import line
from testbed.errors import RequestError, TestbedError
from testbed.messages.events import BatchQueued, Event, JobBegun, OutputLine, OutputMissed
from testbed.messages.script import StepOfRun
from testbed.records import logs, set_up
from testbed.records.facts import RecordedNetwork
from testbed.records.record import (
    CONFIGURATION,
    DONE,
    FAILED,
    FILE,
    INTERRUPTED,
    LOGS,
    QUEUED,
    RESULT,
    RUNS,
    TELEMETRY,
    Record,
    Run,
    SetUp,
)
from testbed.records.steps import steps_within
from testbed.records.store import FOLDER, OFF, Store

if TYPE_CHECKING:
    from testbed.records.outcome import Outcome, RecordParts

_INTERRUPTED = "interrupted"
_OF_WORK = (OutputLine, OutputMissed, BatchQueued)  # events that show that a job's request was accepted

Say = Callable[[str], None]
_write = partial(write_whole, on_disk=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that set a record's folder, or switch records off."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--records",
        type=Path,
        metavar="DIR",
        help=f"leave the record there ({FOLDER}, or optinc/runs in your data folder)",
    )
    where.add_argument("--no-record", action="store_true", help=f"leave no record, as {FOLDER}={OFF} does")


def store_of(options: argparse.Namespace, caller: Caller) -> Store | None:
    """Return the store for the record of a command with these options; None if records are off."""
    return None if options.no_record else Store.of(caller, options.records)


@dataclass(frozen=True, slots=True)
class Asked:
    """A command's request: `words` as typed, its options by name, and its input files with their roles."""

    command: str
    words: Sequence[str]
    options: Mapping[str, Any]
    inputs: Sequence[tuple[str, Path]] = ()
    runtime: Runtime | None = None


@dataclass(frozen=True, slots=True)
class RecordFiles:
    """The files of a record that the testbed writes: the result, and the folder of bounded logs."""

    result: Path
    logs: Path | None = None


class RunRecorder:
    """The record of one run. The command passes its events to `hear` and its result to `take`."""

    def __init__(self, recorder: Recorder, run: Run) -> None:
        self._recorder, self.run = recorder, run
        self._logs: set[Path] = set()
        self._taken: RecordParts | None = None
        self.interrupted = False

    def hear(self, event: Event) -> None:
        """Note an event of the job, such as the folder of its logs. A job that only has its hosts can still
        be refused; a job whose workers print, or that is queued, cannot.
        """
        self._recorder.has_run |= isinstance(event, _OF_WORK)
        if isinstance(event, JobBegun):
            self._logs.add(Path(event.logs))

    def take(self, result: Outcome, interrupted: bool = False) -> None:
        """Store the result and its samples, and, for jobs, the failure and the verdict."""
        from testbed.records.outcome import split_result  # late, so that the job starts sooner

        self._taken = got = split_result(result, TELEMETRY)
        self._recorder.has_run, self.interrupted = True, self.interrupted or interrupted
        self.run = replace(self.run, failure=got.failure, verdict=got.verdict, trustworthy=got.trustworthy)

    def left_to_testbed(self, jobs: Sequence[str], with_logs: bool) -> RecordFiles | None:
        """Return the files of the record that the testbed writes, among them these jobs' logs; None without a
        record.
        """
        if self._recorder.folder is None:
            return None
        self._recorder.queue()
        if not with_logs:
            return RecordFiles(self.run.folder / RESULT)
        for job in jobs:
            self._recorder.write(
                "its logs", partial((self.run.folder / LOGS / job).mkdir, parents=True, exist_ok=True)
            )
        return RecordFiles(self.run.folder / RESULT, self.run.folder / LOGS)

    def keep_copy(self, file: Path) -> None:
        """Copy a file that the run made into the record."""
        self._recorder.write(file.name, partial(shutil.copyfile, file, self.run.folder / file.name))

    def fail(self, failure: str) -> None:
        """Set the run's failure."""
        self.run = replace(self.run, failure=failure)

    def keep(self) -> None:
        """Write the result so far."""
        if self._taken is None:
            return
        data, samples = self._taken.data, self._taken.samples
        self._recorder.write("its result", partial(_write, self.run.folder / RESULT, _text(data)))
        if samples is not None:
            self._recorder.write("its samples", partial(_write, self.run.folder / TELEMETRY, samples))

    def keep_logs(self) -> None:
        """Copy the logs that were written since the run began."""
        for folder, target in self._log_folders():
            self._recorder.write("its logs", partial(logs.copy, folder, target, self.run.began))

    def with_kept_log(self, failure: str) -> str:
        """Replace the log that a failure names by the record's copy of it, if there is one."""
        log = logs.named(failure)
        for folder, target in self._log_folders():
            if log is not None and log.parent == folder and self._recorder.has(target / log.name):
                return failure.replace(str(log), str(target / log.name))
        return failure

    def _log_folders(self) -> list[tuple[Path, Path]]:
        """Return the folders of its logs, each with its folder in the record."""
        run_logs = [("", folder) for folder in self._logs]
        folders = [*run_logs, *(self._taken.logs if self._taken else ())]
        return [(folder, self.run.folder / LOGS / name) for name, folder in folders]


class Recorder:
    """The record of a running command. Without a folder it does nothing."""

    def __init__(self, asked: Asked, store: Store | None, caller: Caller, say: Say | None = None) -> None:
        """`say` reports news of the record; without it, stderr gets them."""
        self._asked, self._store, self._caller, self._say = asked, store, caller, say
        self._record: Record | None = None
        self._lock = -1
        self.has_run = False  # whether work began, so that the request was not refused

    @property
    def folder(self) -> Path | None:
        """The record's folder; None where there is none."""
        return self._record.folder if self._record else None

    # ------------------------------------------------------------------ calls of its command

    @contextlib.contextmanager
    def run(self) -> Iterator[RunRecorder]:
        """Record one run of the command. An error in the block is recorded as its ending."""
        runs = self._record.runs if self._record else ()
        number = len(runs) + 1
        folder = (self.folder or Path()) / RUNS / str(number)
        run = RunRecorder(self, Run(number, time.time(), folder=folder))
        self.write("its runs", lambda: folder.mkdir(parents=True))
        self._save(runs=(*runs, run.run))
        try:
            yield run
        except TestbedError as error:
            run.fail(run.run.failure or str(error))
            raise
        except (KeyboardInterrupt, BrokenPipeError) as error:
            run.interrupted = _is_interruption(error)
            run.fail(_INTERRUPTED if run.interrupted else f"{type(error).__name__}: {error}")
            raise
        except Exception as error:
            run.fail(f"{type(error).__name__}: {error}")
            raise
        finally:
            self._end(run, runs)

    def _end(self, run: RunRecorder, before: tuple[Run, ...]) -> None:
        run.run = replace(run.run, ended=time.time())
        if self._record is None:
            return
        run.run = replace(run.run, steps=self._steps(run.run))
        state = {"state": INTERRUPTED} if run.interrupted else {"state": FAILED} if run.run.failure else {}
        self._record = replace(self._record, runs=(*before, run.run))
        self._save(**state)  # the short facts first: a full disk may have no room for the rest
        run.keep()
        run.keep_logs()

    def queue(self) -> None:
        """Note that the testbed writes the result when the last job has ended."""
        self._save(state=QUEUED)

    # ------------------------------------------------------------------ its begin and end

    def begin(self) -> None:
        """Make the folder, with everything known beforehand. If that fails, report it in a line, and record
        nothing.
        """
        if self._store is None:
            return
        asked, now, folder = self._asked, time.time(), None
        configuration = set_up.configuration_of(asked.runtime) if asked.runtime else None
        known = self._gather(None if configuration is None else int(configuration["ocs"]["seed"]))
        try:
            with self._caller.acting():
                folder = self._store.new(asked.command, now)
                self._lock = _lock_folder(folder)
                known = replace(known, inputs=set_up.copied(asked.inputs, folder))
                if configuration is not None:
                    _write(folder / CONFIGURATION, _text(configuration))
                words, cwd = (asked.command, *asked.words), set_up.working_folder()
                record = Record(asked.command, words, cwd, self._caller.user, now, known, folder=folder)
                _write(folder / FILE, _text(record.to_json()))
        except OSError as error:
            self.say(f"not recorded: {error.filename or self._store.folder}: {error.strerror}")
            if folder is not None:
                with self._caller.acting():
                    shutil.rmtree(folder, ignore_errors=True)
            self._unlock()
            return
        self._record = record

    def end(self, error: BaseException | None) -> None:
        """Write how the command ended, and remove the oldest records beyond the limits. A refused request ran
        nothing, so its record is removed.
        """
        if self._record is None or self._store is None:
            return
        if isinstance(error, RequestError) and not self.has_run:
            with self._caller.acting():
                shutil.rmtree(self._record.folder, ignore_errors=True)
            self._unlock()
            return
        state, failure, code = self._record.state, None, 0
        if error is not None and _is_interruption(error):
            state, code = INTERRUPTED, environment.INTERRUPTED
        elif isinstance(error, TestbedError):
            state, failure, code = FAILED, str(error), error.exit_code
        elif error is not None:
            state, failure, code = FAILED, f"{type(error).__name__}: {error}", 1
        elif state == INTERRUPTED:
            code = environment.INTERRUPTED
        elif state not in (QUEUED, FAILED):
            state = DONE
        failure = failure or next((run.failure for run in self._record.runs if run.failure), None)
        ended = None if state == QUEUED else time.time()
        code = output.code_as_read(code)
        self._save(state=state, failure=failure, exit_code=code, ended=ended)
        self.say(f"recorded as {self._record.name}")
        self._unlock()
        with self._caller.acting():
            removed = self._store.make_room(self._record.folder)
        if removed:
            self.say(
                f"removed the {len(removed)} oldest record{'s' * (len(removed) != 1)}: "
                f"{self._store.limit_bytes / 1e9:g} GB and {self._store.most} records are kept at most"
            )

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _gather(self, ocs_seed: int | None) -> SetUp:
        """Gather everything known beforehand, except the inputs, which are copied later."""
        asked = self._asked
        options = set_up.options_of(asked.options)
        network = set_up.network_of(asked.runtime) if asked.runtime else RecordedNetwork()
        script = next((path for role, path in asked.inputs if role in set_up.CODE), None)
        return SetUp(
            options=options,
            seeds=set_up.seeds_of(options, ocs_seed, network.faults or ()),
            inputs=(),
            testbed=set_up.testbed_facts(asked.runtime) if asked.runtime else None,
            network=network,
            versions=set_up.versions(),
            source=set_up.source(script, self._caller),
            environment=set_up.heeded(os.environ),
            host=set_up.host_facts(),
        )

    # ------------------------------------------------------------------ writing

    def say(self, text: str) -> None:
        """Report a line on the record, through `say` or to stderr."""
        if self._say is not None:
            self._say(text)
            return
        print(f"testbed {self._asked.command}: {line(text)}", file=sys.stderr, flush=True)

    def write(self, what: str, work: Callable[[], Any]) -> None:
        """Run `work`, which writes as the user. A failure becomes a note, and the first is reported."""
        if self._record is None:
            return
        try:
            with self._caller.acting():
                work()
        except OSError as error:
            self._note(what, error)

    def has(self, file: Path) -> bool:
        """Return whether there is a record that has this file."""
        with self._caller.acting():
            return self._record is not None and file.is_file()

    def _note(self, what: str, error: OSError) -> None:
        assert self._record is not None
        note = f"lacks {what}: {error.strerror}"
        if not self._record.notes:
            self.say(f"record {self._record.folder}: {note}")
        if note not in self._record.notes:
            self._record = replace(self._record, notes=(*self._record.notes, note))

    def _save(self, **changes: Any) -> None:
        """Write record.json. If the disk is full, remove the runs' files until it fits: first the large ones,
        then all.
        """
        if self._record is None:
            return
        self._record = replace(self._record, **changes)
        try:
            with self._caller.acting():
                self._write_file()
        except OSError as error:
            for what, with_results in (("samples and logs", False), ("what its runs left", True)):
                self._note(what, error)
                with self._caller.acting(), contextlib.suppress(OSError):
                    self._drop(with_results)
                    self._write_file()
                    return

    def _drop(self, with_results: bool) -> None:
        assert self._record is not None
        for run in self._record.runs:
            (run.folder / TELEMETRY).unlink(missing_ok=True)
            shutil.rmtree(run.folder if with_results else run.folder / LOGS, ignore_errors=True)

    def _write_file(self) -> None:
        assert self._record is not None
        _write(self._record.folder / FILE, _text(self._record.to_json()))

    def _steps(self, run: Run) -> tuple[StepOfRun, ...]:
        """Return the steps that scripts did on the same testbed meanwhile, from their records."""
        assert self._record is not None
        assert self._store is not None
        from testbed.records.outcome import steps_of

        testbed = self._record.set_up.testbed
        if testbed is None or self._asked.command == "script":
            return ()
        with self._caller.acting():
            scripts = [
                script
                for script in self._store.records("script")
                if script.set_up.testbed == testbed and (script.ended is None or script.ended >= run.began)
            ]
            return steps_within(run, steps_of(scripts))


@contextlib.contextmanager
def recording(
    asked: Asked, store: Store | None, caller: Caller, say: Say | None = None
) -> Iterator[Recorder]:
    """Record a command around all that it does. An error in the block is recorded as its ending."""
    recorder = Recorder(asked, store, caller, say)
    recorder.begin()
    try:
        yield recorder
    except BaseException as error:
        recorder.end(error)
        raise
    recorder.end(None)


@contextlib.contextmanager
def none_below() -> Iterator[None]:
    """Switch records off for commands that the block starts: this command's record covers them."""
    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = OFF
    try:
        yield
    finally:
        if before is None:
            del os.environ[FOLDER]
        else:
            os.environ[FOLDER] = before


def _is_interruption(error: BaseException) -> bool:
    """Return whether a command ends by Ctrl-C, or because the reader of its output has gone."""
    gone = isinstance(error, BrokenPipeError) and output.reader_has_gone()
    return gone or isinstance(error, KeyboardInterrupt)


def _text(data: object) -> bytes:
    return (json.dumps(data, indent=1) + "\n").encode()


def _lock_folder(folder: Path) -> int:
    """Open the folder and lock it, if its file system has locks; return the descriptor. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd
