"""Check the files that a job reads and writes before it starts, and write its result, all as the job's
user.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.client import environment
from testbed.client.caller import Caller
from testbed.client.modules import check_module
from testbed.errors import HostError, RequestError
from testbed.jobs.file_host import replace
from testbed.messages.coding import as_json

if TYPE_CHECKING:
    from testbed.messages.result import RepeatedRuns, RunResult

STDOUT = Path("-")  # as the file: standard output


def check_job(
    caller: Caller, script: str, logs: Path | None = None, is_module: bool = False, prefix: str = "--"
) -> None:
    """Check, before a job starts, that its user can read its script or module and the project's own files,
    and can enter the working folder. Makes the folder of logs. Raises HostError, or RequestError with
    `prefix` before the names of options.
    """
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
        if logs is not None:
            try:
                logs.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RequestError(
                    f"{prefix}logs {logs}: user {caller.user} cannot make it: {error.strerror}"
                ) from error
            if not os.access(logs, os.W_OK | os.X_OK, effective_ids=True):
                raise RequestError(f"{prefix}logs {logs}: user {caller.user} cannot write there")


def check_result(caller: Caller, path: Path | None, with_series: bool = False) -> None:
    """Raise RequestError if the result file, or the samples file beside it, could not be written. Makes
    nothing.
    """
    if path in (None, STDOUT):
        return
    assert path is not None
    with caller.acting():
        if not writable(path):
            raise RequestError(f"--json {path}: user {caller.user} cannot write it")
        if with_series and not writable(series_path(path)):
            raise RequestError(
                f"--json {path}: user {caller.user} cannot write {series_path(path)} beside it"
            )


def series_path(result: Path) -> Path:
    """Return the path of the file that holds all samples, beside the job's result."""
    return result.with_suffix(".telemetry.npz")


def write_result(path: Path, result: RunResult) -> None:
    """Write a result as JSON, and its samples (base64 in the result) as a file of NumPy arrays. Raises
    HostError if they cannot be written.
    """
    kept = _write_series(series_path(path), path, result)
    _write_json(path, kept, result)


def write_repeated(
    path: Path, results: Sequence[RunResult], with_means: Callable[[Sequence[RunResult]], RepeatedRuns]
) -> None:
    """Write the results of repeated runs with their means, and a samples file for each run. Raises HostError
    if they cannot be written.
    """
    kept = [
        _write_series(series_path(path.with_suffix(f".{number}{path.suffix}")), path, result)
        for number, result in enumerate(results, 1)
    ]
    _write_json(path, with_means(kept), results[-1])


def _write_series(samples: Path, path: Path, result: RunResult) -> RunResult:
    """Write a result's samples to a file; return the result with that file's name in place of the samples."""
    if result.samples is None:
        return result
    _write_file(samples, result.samples, path, result)
    return result.with_samples_in(samples.name)


def _write_json(path: Path, content: RunResult | RepeatedRuns, result: RunResult) -> None:
    _write_file(path, (json.dumps(as_json(content), indent=2) + "\n").encode(), path, result)


def _write_file(file: Path, content: bytes, path: Path, result: RunResult) -> None:
    """Write one of the files that `--json` asks for. Raises HostError, which says how the job ended."""
    try:
        _replace(file, content)
    except OSError as error:
        became = f"failed: {result.failure}" if result.failure else "ended"
        raise HostError(f"--json {path}: {error.strerror}; job {result.id} {became}") from error


def writable(path: Path) -> bool:
    """Return whether the effective user could write the file; makes nothing."""
    if path.exists():
        return path.is_file() and os.access(path, os.W_OK, effective_ids=True)
    return path.parent.is_dir() and os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True)


def _replace(path: Path, content: bytes) -> None:
    """Replace a file's content completely; after an error the old content stays, or no file if there was
    none.
    """
    is_new = not path.exists()
    path.touch()
    with path.open("r+b", buffering=0) as file:
        try:
            replace(file.fileno(), content)
        except OSError:
            if is_new:
                path.unlink()
            raise


def _check_script(caller: Caller, script: str) -> None:
    try:
        fd = os.open(script, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # does not wait for a pipe's writer
        ordinary = stat.S_ISREG(os.fstat(fd).st_mode)
        os.close(fd)
    except OSError as error:
        raise RequestError(f"script {script}: user {caller.user} cannot read it: {error.strerror}") from error
    if not ordinary:
        raise RequestError(f"script {script}: an ordinary file is accepted")
