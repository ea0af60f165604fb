"""A record: the folder that a `run`, `submit`, `script` or `reproduce` leaves, as frozen data. Reads
records; what writes them is testbed/records/recorder.py, and docs/records.md has the fields.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from testbed.client.runtime import Runtime
from testbed.errors import OwnerError, RequestError, TestbedError
from testbed.messages.coding import decode
from testbed.messages.script import StepOfRun

T = TypeVar("T")

FORMAT = 1
FILE = "record.json"
CONFIGURATION = "configuration.json"
INPUTS, RUNS, LOGS = "inputs", "runs", "logs"
RESULT, TELEMETRY = "result.json", "result.telemetry.npz"

RUNNING = "running"  # its command is at it
QUEUED = "queued"  # submitted with --detach: the testbed writes the result when the last job has ended
DONE, FAILED, INTERRUPTED = "done", "failed", "interrupted"
KILLED = "killed"  # its command, or the testbed that was to write its result, ended without a word
STATES = (RUNNING, QUEUED, DONE, FAILED, INTERRUPTED, KILLED)


@dataclass(frozen=True, slots=True)
class _Format:
    """The format of a record.json, which says whether the rest of it reads."""

    format: int


@dataclass(frozen=True, slots=True)
class Input:
    """A file that a command was given. `copy` is where the record has it, from the record's folder on; None
    for one that is too long to be kept, or did not read.
    """

    role: str  # script, jobs, steps, system, ...
    path: str
    bytes: int | None
    sha256: str | None
    copy: str | None


@dataclass(frozen=True, slots=True)
class SetUp:
    """All that is known beforehand and can make a result another."""

    options: Mapping[str, Any]  # what was asked for, by the names of options
    seeds: Mapping[str, int]
    inputs: tuple[Input, ...]
    testbed: Mapping[str, Any] | None  # name, pid, configuration
    network: Mapping[str, Any]  # circuits, faults and links set by hand, when it began
    versions: Mapping[str, str]
    source: Mapping[str, Any]  # commit and changed of the project, and of the input's repository
    environment: Mapping[str, str]  # variables that libraries heed
    host: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One of the runs of a record: `--repeat N` makes N, all else 1. Times are seconds since 1970.

    `steps` are those that a `testbed script` did meanwhile, as that command's `--json` has them, with
    `run_s`, in seconds from the run's begin.
    """

    number: int
    began: float
    ended: float | None = None
    failure: str | None = None
    verdict: str | None = None  # its line
    trustworthy: bool | None = None
    steps: tuple[StepOfRun, ...] = ()
    folder: Path = field(default=Path(), compare=False)

    @property
    def result(self) -> dict[str, Any] | None:
        """The result, as the command's `--json` writes it; None where it left none, or one that does not
        read.
        """
        try:
            return dict(json.loads((self.folder / RESULT).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def telemetry(self) -> Path | None:
        """The file with all samples, as `run --json` leaves it beside a result; None where there is none."""
        path = self.folder / TELEMETRY
        return path if path.is_file() else None

    @property
    def logs(self) -> tuple[Path, ...]:
        """The logs of its processes."""
        return tuple(sorted(path for path in (self.folder / LOGS).rglob("*") if path.is_file()))


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was when it was read. `name` is that of its folder."""

    command: str  # run, submit, script, reproduce
    words: tuple[str, ...]  # as it was typed, without `testbed`
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
        """The testbed's topology, as `Topology.to_json` has it; None of a command that asked no testbed."""
        try:
            return dict(json.loads((self.folder / CONFIGURATION).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def is_busy(self) -> bool:
        """True while somebody is at it: its command, or the testbed that is to write its result."""
        return self.state in (RUNNING, QUEUED) or is_held(self.folder)

    @property
    def size_bytes(self) -> int:
        """The bytes that its files have now."""
        return folder_bytes(self.folder)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a record. RequestError where the folder has none, or one that does not read.

        What a command that was killed could not write is found here: nobody holds its lock.
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
        """Return whether this host is the one that it was begun on: another one's locks and testbeds are not
        seen here, and what was written counts.
        """
        return bool(self.set_up.host.get("name") == platform.node())

    def to_json(self) -> dict[str, Any]:
        """Return what `record.json` has. The folder is where the record lies, and is not in it."""
        data = {"format": FORMAT, **asdict(self)}
        del data["folder"]
        for run in data["runs"]:
            del run["folder"]
        return data

    def _killed(self, failure: str = "the command was killed") -> Self:
        runs = tuple(run if run.ended is not None else replace(run, failure=failure) for run in self.runs)
        return replace(self, state=KILLED, failure=failure, runs=runs)

    def _with_result_of_queue(self) -> Self:
        """The record with what the testbed wrote after the command had returned."""
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


def _read(kind: type[T], data: Any, what: str) -> T:
    """Return a message of a record's file. RequestError for one of another form."""
    try:
        return decode(kind, data, what)
    except TestbedError as error:
        raise RequestError(str(error)) from error


def _lives(testbed: Mapping[str, Any] | None) -> bool:
    """Return whether the testbed that was asked runs still, by its name and its main process."""
    if testbed is None:
        return False
    try:
        runtime = Runtime.of(str(testbed["name"]))
        return runtime.alive() and runtime.read_main().get("pid") == testbed["pid"]
    except OwnerError:  # it runs, and is somebody else's
        return True
    except (TestbedError, KeyError):
        return False


def folder_bytes(top: Path) -> int:
    """Return the bytes that the files in a folder have, and in those below it."""
    size = 0
    for folder, _, files in os.walk(top):
        for file in files:
            with contextlib.suppress(OSError):  # a draft that has just become the file
                size += (Path(folder) / file).lstat().st_size
    return size


def is_held(folder: Path) -> bool:
    """Return whether a command is at this record still: it holds a lock on the folder."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: what was written counts
        return True
    finally:
        os.close(fd)
    return False
