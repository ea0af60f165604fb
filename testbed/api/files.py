"""Files of a job's user: what a job reads and writes is looked at before it starts, and its result is
written, all as that user.
"""

from __future__ import annotations

import base64
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.client import environment
from testbed.client.caller import Caller
from testbed.client.modules import check_module
from testbed.errors import HostError, RequestError
from testbed.jobs.file_host import replace

STDOUT = Path("-")  # in the place of a file


def check_job(
    caller: Caller, script: str, logs: Path | None = None, is_module: bool = False, prefix: str = "--"
) -> None:
    """Check, before the job starts, what its user must read. Makes the folder of logs. Raises RequestError,
    which has `prefix` before the names of options, or HostError.
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
    """Raise RequestError where a result, and its samples beside it, could not be written there. Makes
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
    """Return the path of the file with all samples, beside a job's result."""
    return result.with_suffix(".telemetry.npz")


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write a result as JSON, and its samples, which came along in base64, as a file of NumPy arrays.
    HostError where they cannot be written.
    """
    _write_series(series_path(path), path, result)
    _write_json(path, result, result)


def write_repeated(
    path: Path, results: list[dict[str, Any]], with_means: Callable[[list[dict[str, Any]]], dict[str, Any]]
) -> None:
    """Write the results of repeated runs, with their means, and the samples of each. HostError where they
    cannot be written.
    """
    for number, result in enumerate(results, 1):
        _write_series(series_path(path.with_suffix(f".{number}{path.suffix}")), path, result)
    _write_json(path, with_means(results), results[-1])


def _write_series(samples: Path, path: Path, result: dict[str, Any]) -> None:
    series = base64.b64decode(result.pop("series"))
    result["telemetry"]["file"] = samples.name
    _written(samples, series, path, result)


def _write_json(path: Path, content: dict[str, Any], result: dict[str, Any]) -> None:
    _written(path, (json.dumps(content, indent=2) + "\n").encode(), path, result)


def _written(file: Path, content: bytes, path: Path, result: dict[str, Any]) -> None:
    """Write a file of those that `--json` asks for. HostError, which says what became of the job."""
    try:
        _replace(file, content)
    except OSError as error:
        became = f"failed: {result['failure']}" if result["failure"] else "ended"
        raise HostError(f"--json {path}: {error.strerror}; job {result['id']} {became}") from error


def writable(path: Path) -> bool:
    """Return whether the file could be written, by the effective user; makes nothing."""
    if path.exists():
        return path.is_file() and os.access(path, os.W_OK, effective_ids=True)
    return path.parent.is_dir() and os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True)


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole, or leave what is there: nothing, where there was none."""
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
        fd = os.open(script, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe's writer is not waited for
        ordinary = stat.S_ISREG(os.fstat(fd).st_mode)
        os.close(fd)
    except OSError as error:
        raise RequestError(f"script {script}: user {caller.user} cannot read it: {error.strerror}") from error
    if not ordinary:
        raise RequestError(f"script {script}: an ordinary file is accepted")
