"""A job as `testbed run` has it: its options, checked, and the job until its result is there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.client import rpc
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.discovery.registry import find
from testbed.discovery.user_class import is_users
from testbed.errors import RequestError
from testbed.jobs import request as job_request
from testbed.jobs.placement import parse_place, parse_server
from testbed.library.files import check_job
from testbed.library.python import check_python

OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """A job, as the options of `testbed run` say it. Its script is a path, or the name of a module."""

    script: str
    arguments: tuple[str, ...]
    sync: str
    place: str | None = None
    ps: str | None = None
    python: Path | None = None
    logs: Path | None = None
    timeout_s: float | None = None
    restarts: int = 0
    preload: bool = False
    lanes: int | None = None
    recovery: str | None = None
    age_out_ms: float | None = None
    window: int | None = None
    leave_after: int | None = None
    strict_finite: bool = False
    error_feedback: bool = False
    fine_sums: bool = False
    init_group: bool = False
    folder_per_worker: bool = False
    stragglers: str | None = None
    module: bool = False
    series: bool = False  # the result comes with all samples

    def check(self, prefix: str = "") -> None:
        """Raise RequestError for what can be seen to be wrong without a testbed. `prefix` is "--" where
        options were typed.
        """
        typed = prefix == "--"
        if not is_users(self.sync):
            find(self.sync)
        if self.place is not None:
            parse_place(self.place)
        if self.ps is not None:
            parse_server(self.ps)
        if self.timeout_s is not None and not self.timeout_s > 0:
            name = "--timeout" if typed else "timeout_s"
            raise RequestError(f"{name} {self.timeout_s:g}: more than 0 seconds is accepted")
        if not 0 <= self.restarts <= job_request.MOST_RESTARTS:
            raise RequestError(
                f"{prefix}restarts {self.restarts}: 0 to {job_request.MOST_RESTARTS} are accepted"
            )
        age_out, leave_after = ("age-out", "leave-after") if typed else ("age_out_ms", "leave_after")
        job_request.lanes({"lanes": self.lanes}, "lanes", prefix)
        job_request.recovery({"recovery": self.recovery}, "recovery", prefix)
        job_request.stragglers({"stragglers": self.stragglers}, prefix)
        job_request.age_out_ms({age_out: self.age_out_ms}, age_out, prefix)
        job_request.window({"window": self.window}, "window", prefix)
        job_request.leave_after({leave_after: self.leave_after}, leave_after, prefix)

    def described(self) -> dict[str, Any]:
        """Return the options by the command's names, for the job's record."""
        options = asdict(self)
        del options["series"]
        timeout_s = options.pop("timeout_s")
        return {**options, "arguments": list(self.arguments), "timeout": timeout_s, "repeat": 1}

    def words(self) -> list[str]:
        """Return the words behind `testbed run` that ask for the same job."""
        options, words = self.described(), []
        script = [*(["-m"] if options.pop("module") else []), options.pop("script")]
        arguments = options.pop("arguments")
        for name, value in options.items():
            option = f"--{name.removesuffix('_ms').replace('_', '-')}"
            if value is True:
                words.append(option)
            elif value not in (None, False) and (name, value) not in (("restarts", 0), ("repeat", 1)):
                words += [option, str(value)]
        return [*words, *script, *arguments]

    def inputs(self) -> list[tuple[str, Path]]:
        """Return the files that it is made of, each with its role, for its record."""
        inputs = [] if self.module else [("script", Path(self.script))]
        if is_users(self.sync):
            inputs.append(("system", Path(self.sync.partition(":")[0])))
        return inputs

    def request(self, caller: Caller) -> dict[str, Any]:
        """Return the request to the daemon, for a job of `caller` that starts in the working folder."""
        return {
            "script": self.script,
            "module": self.module,
            "arguments": list(self.arguments),
            "sync": self.sync,
            "place": self.place,
            "server_at": self.ps,
            "limit_s": self.timeout_s,
            "restarts": self.restarts,
            "preload": self.preload,
            "lanes": self.lanes,
            "recovery": self.recovery,
            "age_out_ms": self.age_out_ms,
            "window": self.window,
            "leave_after": self.leave_after,
            "strict_finite": self.strict_finite,
            "error_feedback": self.error_feedback,
            "fine_sums": self.fine_sums,
            "init_group": self.init_group,
            "folder_per_worker": self.folder_per_worker,
            "stragglers": self.stragglers,
            "series": self.series,
            "logs": str(self.logs.absolute()) if self.logs else None,
            "python": str(self.python.absolute()) if self.python else None,
            "uid": caller.uid,
            "cwd": str(Path.cwd()),
            "environ": dict(os.environ),
        }


def check(runtime: Runtime, options: RunOptions, caller: Caller, prefix: str = "") -> None:
    """Raise a TestbedError for what is wrong with a job, before it starts."""
    options.check(prefix)
    runtime.require_alive()
    check_job(caller, options.script, options.logs, options.module, prefix)
    if options.python:
        if options.preload:
            raise RequestError(
                f"{prefix}python: with {prefix}preload workers are forks of the project's own Python"
            )
        check_python(caller, options.python, prefix)


def run(runtime: Runtime, options: RunOptions, caller: Caller, on_event: OnEvent) -> dict[str, Any]:
    """Run a job that was checked to its end, and return its result: that it failed is in there."""
    request = options.request(caller)
    return dict(rpc.call(runtime.socket, "run", on_event=on_event, timeout_s=None, **request))
