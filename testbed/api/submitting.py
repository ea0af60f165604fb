"""Queue jobs as `testbed submit` does: check them, queue them, and follow them until the last has ended."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.api.files import check_job, check_result
from testbed.api.running import OnEvent, decoded
from testbed.client import rpc
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.errors import RequestError
from testbed.messages.coding import decode
from testbed.plugins.user_class import is_users
from testbed.queue import submission
from testbed.queue.submission import Submission

if TYPE_CHECKING:
    from testbed.messages.submission import SubmissionResult
    from testbed.records.recorder import RecordFiles


Jobs = str | Path | Mapping[str, Any]  # a jobs file, or its content


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """Jobs to queue: a jobs file's content, the submission parsed from it, and the options of `testbed
    submit`. `result` is the file that the testbed writes the jobs' result to when the last has ended.
    """

    data: Any
    wanted: Submission
    wait: bool = True
    preload: bool = False
    result: Path | None = None
    logs: Path | None = None

    @classmethod
    def of(cls, data: Any, **choices: Any) -> QueueRequest:
        """Parse the content of a jobs file. Raises RequestError for an error in it."""
        return cls(data, submission.parse(data), **choices)

    @property
    def names(self) -> list[str]:
        return [job.name for job in self.wanted.jobs]

    def check(self, runtime: Runtime, caller: Caller, prefix: str = "") -> None:
        """Check the jobs before they are queued. Raises a TestbedError."""
        runtime.require_alive()
        check_files(caller, self.wanted, self.result, self.logs, prefix)

    def inputs(self) -> list[tuple[str, Path]]:
        """Return the jobs' input files, each with its role: scripts, and a user's policy and systems."""
        scripts = [("script", job.script) for job in self.wanted.jobs if not job.options.module]
        systems = [("system", job.sync) for job in self.wanted.jobs if job.sync]
        named = [("policy", self.wanted.policy), *systems]
        files = [(role, name.partition(":")[0]) for role, name in named if is_users(name) and ".py:" in name]
        return [(role, Path(file)) for role, file in dict.fromkeys([*scripts, *files])]

    def request(self, caller: Caller) -> dict[str, Any]:
        """Return the request to the daemon for jobs of `caller` that start in the working folder."""
        return {
            "submission": self.data,
            "wait": self.wait,
            "preload": self.preload,
            "json": str(self.result.absolute()) if self.result else None,
            "logs": str(self.logs.absolute()) if self.logs else None,
            "uid": caller.uid,
            "cwd": str(Path.cwd()),
            "environ": dict(os.environ),
        }


def submit(
    runtime: Runtime,
    batch: QueueRequest,
    caller: Caller,
    on_event: OnEvent,
) -> SubmissionResult:
    """Queue checked jobs, and return their result when the last has ended."""
    from testbed.messages.submission import SubmissionResult  # late, so that jobs start sooner

    answer = _send(runtime, on_event, **batch.request(caller))
    return decode(SubmissionResult, answer, "result")


def queue(
    runtime: Runtime, batch: QueueRequest, caller: Caller, on_event: OnEvent, left: RecordFiles | None
) -> tuple[int, ...]:
    """Queue checked jobs, and return their numbers at once. `left` are the files of their record that
    the testbed writes.
    """
    from testbed.messages.submission import QueuedJobs

    request = batch.request(caller)
    if left is not None:
        request["record"] = str(left.result)
        if left.logs is not None:
            request |= {"logs": str(left.logs), "bounded_logs": True}
    answer = _send(runtime, on_event, **request)
    return decode(QueuedJobs, answer, "queued jobs").jobs


def _send(runtime: Runtime, on_event: OnEvent, **request: Any) -> Any:
    return rpc.call(runtime.socket, "submit", on_event=decoded(on_event), timeout_s=None, **request)


def check_files(
    caller: Caller, wanted: Submission, result: Path | None, logs: Path | None, prefix: str = "--"
) -> None:
    """Check, before jobs are queued, the files that their user must read and write. Makes the folders of
    logs. Raises RequestError or HostError.
    """
    for script, is_module in dict.fromkeys((job.script, job.options.module) for job in wanted.jobs):
        check_job(caller, script, logs, is_module, prefix)
    check_result(caller, result)
    if logs is None:
        return
    with caller.acting():
        for job in wanted.jobs:
            try:
                (logs / job.name).mkdir(exist_ok=True)
            except OSError as error:
                raise RequestError(
                    f"{prefix}logs {logs}: user {caller.user} cannot make {job.name} there: {error.strerror}"
                ) from error


def cancel(runtime: Runtime, caller: Caller, jobs: Sequence[int], reason: str) -> list[int]:
    """End queued jobs, waiting or running; without numbers, all that the caller queued. Return those that had
    not ended.
    """
    runtime.require_alive()
    return list(rpc.call(runtime.socket, "cancel", jobs=list(jobs), reason=reason, uid=caller.uid))
