"""The options of `testbed run`, their checks, and the request that runs the job and waits for its result."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.api.files import check_job
from testbed.api.python import check_python
from testbed.client import rpc
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.errors import RequestError
from testbed.jobs.option_table import AS_USUAL
from testbed.jobs.options import CommonOptions
from testbed.jobs.placement import parse_place, parse_server
from testbed.jobs.request import system_name
from testbed.messages.coding import UNSET, UnsetType, decode
from testbed.messages.events import Event, event_of
from testbed.plugins.user_class import is_users

if TYPE_CHECKING:
    from testbed.messages.result import RunResult

OnEvent = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """A job, described by the options of `testbed run`. `script` is a path or the name of a module."""

    script: str
    arguments: tuple[str, ...]
    sync: str
    place: str | None = None
    ps: str | None = None
    python: Path | None = None
    logs: Path | None = None
    timeout_s: float | None = None
    preload: bool = False
    options: CommonOptions = AS_USUAL
    series: bool = False  # include all samples in the result

    def check(self, prefix: str = "") -> None:
        """Raise RequestError for each error that shows without a testbed. `prefix` is "--" if options were
        typed.
        """
        typed = prefix == "--"
        system_name(self.sync)
        if self.place is not None:
            parse_place(self.place)
        if self.ps is not None:
            parse_server(self.ps)
        if self.timeout_s is not None and not self.timeout_s > 0:
            name = "--timeout" if typed else "timeout_s"
            raise RequestError(f"{name} {self.timeout_s:g}: more than 0 seconds is accepted")

    def repeated(self, earlier: Sequence[RunResult]) -> RunOptions:
        """Return the options of a job's next run. If AUTO chose for the first run, the system that summed it,
        which may have replaced the chosen one, sums in the others too: their means are of one system.
        """
        chosen = earlier[0].automatic if earlier else UNSET
        return self if isinstance(chosen, UnsetType) else replace(self, sync=earlier[0].sync)

    def described(self) -> dict[str, Any]:
        """Return the options under the command's names, for the job's record."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("options", "series"):
            del values[name]
        values |= {"arguments": list(self.arguments), "timeout": values.pop("timeout_s"), "repeat": 1}
        return values | self.options.as_json()

    def words(self) -> list[str]:
        """Return the words after `testbed run` that request the same job."""
        options: dict[str, object] = {
            "--sync": self.sync,
            "--place": self.place,
            "--ps": self.ps,
            "--python": self.python,
        }
        options |= {"--logs": self.logs, "--timeout": self.timeout_s}
        words = [
            word for option, value in options.items() if value is not None for word in (option, str(value))
        ]
        words += ["--preload"] if self.preload else []
        return [*words, *self.options.words(), self.script, *self.arguments]

    def inputs(self) -> list[tuple[str, Path]]:
        """Return the job's input files, each with its role, for its record."""
        inputs = [] if self.options.module else [("script", Path(self.script))]
        if is_users(self.sync):
            inputs.append(("system", Path(self.sync.partition(":")[0])))
        return inputs

    def request(self, caller: Caller) -> dict[str, Any]:
        """Return the request to the daemon for a job of `caller` that starts in the working folder."""
        return {
            "script": self.script,
            "arguments": list(self.arguments),
            "sync": self.sync,
            "place": self.place,
            "server_at": self.ps,
            "limit_s": self.timeout_s,
            "preload": self.preload,
            **self.options.as_json(),
            "series": self.series,
            "logs": str(self.logs.absolute()) if self.logs else None,
            "python": str(self.python.absolute()) if self.python else None,
            "uid": caller.uid,
            "cwd": str(Path.cwd()),
            "environ": dict(os.environ),
        }


def check(runtime: Runtime, options: RunOptions, caller: Caller, prefix: str = "") -> None:
    """Check a job before it starts. Raises a TestbedError."""
    options.check(prefix)
    runtime.require_alive()
    check_job(caller, options.script, options.logs, options.options.module, prefix)
    if options.python:
        if options.preload:
            raise RequestError(
                f"{prefix}python: with {prefix}preload workers are forks of the project's own Python"
            )
        check_python(caller, options.python, prefix)


def decoded(on_event: OnEvent) -> Callable[[Any, int | None], None]:
    """Wrap `on_event` so that it gets decoded events; events that this version does not know are dropped."""

    def on_data(data: Any, fd: int | None) -> None:
        if fd is not None:  # no event that this version knows has a descriptor
            os.close(fd)
        if event := event_of(data):
            on_event(event)

    return on_data


def run(runtime: Runtime, options: RunOptions, caller: Caller, on_event: OnEvent) -> RunResult:
    """Run a checked job to its end, and return its result, which also says whether the job failed."""
    from testbed.messages.result import RunResult  # late, so that the job starts sooner

    request = options.request(caller)
    answer = rpc.call(runtime.socket, "run", on_event=decoded(on_event), timeout_s=None, **request)
    return decode(RunResult, answer, "result")
