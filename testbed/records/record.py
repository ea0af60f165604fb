"""A record, the folder that a `run`, `submit`, `script` or `reproduce` leaves, as frozen data. Reads records;
testbed/records/recorder.py writes them, and docs/records.md lists the fields.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from testbed.client.runtime import Runtime
from testbed.errors import OwnerError, RequestError, TestbedError
from testbed.messages.coding import as_json, decode
from testbed.messages.script import StepOfRun
from testbed.records.facts import RecordedHost, RecordedNetwork, RecordedSource, RecordedTestbed

T = TypeVar("T")

FORMAT = 1
FILE = "record.json"
CONFIGURATION = "configuration.json"
INPUTS, RUNS, LOGS = "inputs", "runs", "logs"
RESULT, TELEMETRY = "result.json", "result.telemetry.npz"

RUNNING = "running"  # its command still runs
QUEUED = "queued"  # submitted with --detach: the testbed writes the result when the last job has ended
DONE, FAILED, INTERRUPTED = "done", "failed", "interrupted"
KILLED = "killed"  # its command, or the testbed that had to write its result, ended without writing it
STATES = (RUNNING, QUEUED, DONE, FAILED, INTERRUPTED, KILLED)


@dataclass(frozen=True, slots=True)
class _Format:
    """The format number of a record.json, which says whether this version can read the rest."""

    format: int


@dataclass(frozen=True, slots=True)
class Input:
    """An input file of a command. `copy` is the path of its copy, relative to the record's folder; None if
    the file was too long or could not be read.
    """

    role: str  # script, jobs, steps, system, ...
    path: str
    bytes: int | None
    sha256: str | None
    copy: str | None


@dataclass(frozen=True, slots=True)
class SetUp:
    """Everything known before the run that can change its result."""

    options: Mapping[str, Any]  # the requested options, by name
    seeds: Mapping[str, int]
    inputs: tuple[Input, ...]
    testbed: RecordedTestbed | None
    network: RecordedNetwork  # at its start
    versions: Mapping[str, str]
    source: RecordedSource
    environment: Mapping[str, str]  # variables that libraries read
    host: RecordedHost


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a record: `--repeat N` makes N, every other command 1. Times are seconds since 1970.

    `steps` are the steps that a `testbed script` did meanwhile, as in that command's `--json`, with `run_s`,
    in seconds from the run's start.
    """

    number: int
    began: float
    ended: float | None = None
    failure: str | None = None
    verdict: str | None = None  # the verdict's line
    trustworthy: bool | None = None
    steps: tuple[StepOfRun, ...] = ()
    folder: Path = field(default=Path(), compare=False)

    @property
    def result(self) -> dict[str, Any] | None:
        """The result, in the form of the command's `--json`; None if there is none, or it cannot be read."""
        try:
            return dict(json.loads((self.folder / RESULT).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def telemetry(self) -> Path | None:
        """The file with all samples, as from `run --json`; None if there is none."""
        path = self.folder / TELEMETRY
        return path if path.is_file() else None

    @property
    def logs(self) -> tuple[Path, ...]:
        """The logs of its processes."""
        return tuple(sorted(path for path in (self.folder / LOGS).rglob("*") if path.is_file()))


@dataclass(frozen=True, slots=True)
class Record:
    """A record, as of the time when it was read. `name` is its folder's name."""

    command: str  # run, submit, script, reproduce
    words: tuple[str, ...]  # the typed command line, without `testbed`
    cwd: str
    user: str
    began: float
    set_up: SetUp
    state: str = RUNNING
    ended: float | None = None
    exit_code: int | None = None
    failure: str | None = None
    notes: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    folder: Path = field(default=Path(), compare=False)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def configuration(self) -> dict[str, Any] | None:
        """The testbed's topology, in the form of `Topology.to_json`; None for a command that used no
        testbed.
        """
        try:
            return dict(json.loads((self.folder / CONFIGURATION).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def is_busy(self) -> bool:
        """Return whether it is still written, by its command or by the testbed that will write its result."""
        return self.state in (RUNNING, QUEUED) or is_held(self.folder)

    @property
    def size_bytes(self) -> int:
        """The present size of its files in bytes."""
        return folder_bytes(self.folder)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a record. Raises RequestError if the folder has none, or one that cannot be read.

        Also detects that its command was killed before it could write that: the record's lock is free.
        """
        folder = folder.absolute()
        is_none = f"record {folder}: {FILE} is no record"
        try:
            data = json.loads((folder / FILE).read_bytes())
            written = _read(_Format, data, is_none).format
            if written != FORMAT:
                raise RequestError(f"record {folder}: format {written}; format {FORMAT} is accepted")
            record = _read(cls, data, is_none)
        except OSError as error:
            raise RequestError(f"record {folder}: {FILE}: {error.strerror}") from error
        except ValueError as error:
            raise RequestError(f"{is_none}: {error}") from error
        if record.state not in STATES:
            raise RequestError(f"{is_none}: state {record.state!r}")
        runs = tuple(replace(run, folder=folder / RUNS / str(run.number)) for run in record.runs)
        record = replace(record, folder=folder, runs=runs)
        if record.state == RUNNING and record._is_of_here and not is_held(folder):
            return record._killed()
        return record._with_result_of_queue() if record.state == QUEUED else record

    @property
    def _is_of_here(self) -> bool:
        """Return whether it was made on this host. Another host's locks and testbeds are not visible here, so
        its written state counts.
        """
        return bool(self.set_up.host.name == platform.node())

    def to_json(self) -> dict[str, Any]:
        """Return the content of `record.json`, which does not include the record's folder."""
        runs = [dict(_without_folder(run)) for run in self.runs]
        return {"format": FORMAT, **dict(_without_folder(replace(self, runs=()))), "runs": runs}

    def _killed(self, failure: str = "the command was killed") -> Self:
        runs = tuple(run if run.ended is not None else replace(run, failure=failure) for run in self.runs)
        return replace(self, state=KILLED, failure=failure, runs=runs)

    def _with_result_of_queue(self) -> Self:
        """Add the result that the testbed wrote after the command had returned."""
        from testbed.messages.submission import SubmissionResult  # late: few records need it

        (run,) = self.runs
        result = run.result
        if result is None:
            lives = not self._is_of_here or _lives(self.set_up.testbed)
            return self if lives else self._killed("the testbed ended without a word")
        ended = (run.folder / RESULT).stat().st_mtime
        submitted = _read(SubmissionResult, result, f"record {self.folder}: {RESULT}")
        failure = submitted.why_failed
        line, trustworthy = submitted.verdict()
        run = replace(run, ended=ended, failure=failure, verdict=line, trustworthy=trustworthy)
        state = FAILED if failure else INTERRUPTED if submitted.cancelled else DONE
        return replace(self, state=state, ended=ended, failure=failure, runs=(run,))


def _without_folder(message: Run | Record) -> Iterator[tuple[str, Any]]:
    """Yield the fields but for the folder, as JSON data."""
    for each in fields(message):
        if each.name != "folder":
            yield each.name, as_json(getattr(message, each.name))


def _read(kind: type[T], data: Any, what: str) -> T:
    """Decode a message of a record's file. Raises RequestError for another form."""
    try:
        return decode(kind, data, what)
    except TestbedError as error:
        raise RequestError(str(error)) from error


def _lives(testbed: RecordedTestbed | None) -> bool:
    """Return whether the record's testbed still runs, by its name and main process."""
    if testbed is None:
        return False
    try:
        runtime = Runtime.of(str(testbed.name))
        main = runtime.read_main()
        return runtime.alive() and main is not None and main.pid == testbed.pid
    except OwnerError:  # it runs, and is another user's
        return True
    except TestbedError:
        return False


def folder_bytes(top: Path) -> int:
    """Count the bytes of all files below a folder."""
    size = 0
    for folder, _, files in os.walk(top):
        for file in files:
            with contextlib.suppress(OSError):  # a draft that was just renamed to its file
                size += (Path(folder) / file).lstat().st_size
    return size


def is_held(folder: Path) -> bool:
    """Return whether a command still writes this record: it holds a lock on the folder."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: the written state counts
        return True
    finally:
        os.close(fd)
    return False
