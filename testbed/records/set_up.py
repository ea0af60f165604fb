"""Gather the set-up of a record: inputs, versions, commits, host, and the testbed's own data.

Facts that cannot be determined are omitted, and fail nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from testbed.client import environment, rpc
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.errors import TestbedError
from testbed.messages.coding import as_json, decode
from testbed.messages.links import LinkSetting
from testbed.messages.status import Status
from testbed.records.facts import (
    RecordedFault,
    RecordedHost,
    RecordedLink,
    RecordedNetwork,
    RecordedSource,
    RecordedTestbed,
)
from testbed.records.record import INPUTS, Input
from testbed.report import host

MOST_INPUT_BYTES = 1 << 20
PACKAGES = ("optinc", "torch", "numpy", "scipy", "os-ken", "highspy", "simpy")
HEEDED = re.compile(
    r"(BLIS|CUDA|GLOO|GOMP|KMP|MALLOC|MKL|NCCL|NUMEXPR|OMP|OPENBLAS|PYTHON|PYTORCH|TORCH)[A-Z_]*"
)
ELSEWHERE = frozenset({"json", "logs", "name", "no_record", "out", "records", "repeat"})
"""Options that change no result: destinations, names, and the number of repetitions."""
CODE = ("script", "system")  # the roles of inputs that are programs
_GIT_S = 3.0
_ANSWER_S = 10.0
_SEED = re.compile(r"(?:^|[,;\s])(?:--)?seed[=\s]\s*(-?[0-9]+)")


def options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given or have a default value, as JSON data."""
    asked = {name: value for name, value in options.items() if name not in ELSEWHERE}
    return {name: _plain(value) for name, value in asked.items() if value not in (None, False, [])}


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | list | dict) else str(value)


def seeds_of(
    options: Mapping[str, Any],
    ocs_seed: int | None,
    faults: Iterable[RecordedFault] = (),
) -> dict[str, int]:
    """Return all known seeds, by their source; `ocs_seed` is the configuration's."""
    seeds: dict[str, int] = {}
    if ocs_seed is not None:
        seeds["ocs"] = ocs_seed
    submission = options.get("submission")
    queue = submission if isinstance(submission, dict) else {}
    drawn = options.get("traffic_seed") if options.get("traffic") else None
    asked = (("submission", queue.get("seed")), ("options", options.get("seed")), ("traffic", drawn))
    for source, value in asked:
        if isinstance(value, int):
            seeds[source] = value
    texts = {"stragglers": options.get("stragglers"), "arguments": options.get("arguments")}
    texts |= {f"arguments.{job.get('name')}": job.get("arguments") for job in queue.get("jobs", [])}
    for source, text in texts.items():
        words = " ".join(map(str, text)) if isinstance(text, list) else str(text or "")
        if match := _SEED.search(words):
            seeds[source] = int(match[1])
    for fault in faults:
        if isinstance(fault.seed, int):
            seeds[f"faults.{fault.link}.{fault.direction}"] = fault.seed
    return seeds


def copied(inputs: Iterable[tuple[str, Path]], folder: Path) -> tuple[Input, ...]:
    """Copy the input files, with their roles, into a record's folder, unless they are too long. A file that
    cannot be read has only its name. Raises OSError if a copy cannot be written.
    """
    return tuple(_copy(role, path, number, folder) for number, (role, path) in enumerate(inputs, 1))


def _copy(role: str, path: Path, number: int, folder: Path) -> Input:
    try:
        if not path.is_file():  # such as a pipe, which can be read only once
            return Input(role, str(path), None, None, None)
        size, digest = path.stat().st_size, _sha256(path)
        content = path.read_bytes() if size <= MOST_INPUT_BYTES else None
    except OSError:
        return Input(role, str(path), None, None, None)
    if content is None:
        return Input(role, str(path), size, digest, None)
    copy = Path(INPUTS) / (path.name if number == 1 else f"{number}-{path.name}")
    (folder / INPUTS).mkdir(exist_ok=True)
    (folder / copy).write_bytes(content)
    return Input(role, str(path), size, digest, str(copy))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def working_folder() -> str:
    """Return this process's working folder; empty if it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages on which a result depends."""
    by_package = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            by_package[package] = importlib.metadata.version(package)
    return by_package


def source(script: Path | None, caller: Caller) -> RecordedSource:
    """Return the commits of the project and of the script's repository, and whether their files differ from
    these.
    """
    project = _commit(environment.CHECKOUT, caller)
    return RecordedSource(*project, *(_commit(script.parent, caller) if script else ()))


def _commit(folder: Path, caller: Caller) -> tuple[str | None, bool | None]:
    """Return the commit of a folder's repository, and whether its files differ from it; None if unknown."""
    commit = _git(folder, caller, "rev-parse", "HEAD")
    changed = _git(folder, caller, "status", "--porcelain", "--untracked-files=no") if commit else None
    return commit, None if changed is None else bool(changed)


def _git(folder: Path, caller: Caller, *words: str) -> str | None:
    """Run git and return its output; None if it fails. Runs as the user, because a repository's settings may
    name programs to run.
    """
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        answer = subprocess.run(
            ["git", "-C", str(folder.absolute()), *words],
            capture_output=True,
            text=True,
            cwd="/",
            env={**os.environ, "HOME": caller.home, "GIT_OPTIONAL_LOCKS": "0"},
            timeout=_GIT_S,
            check=False,
            **caller.of_a_child(),
        )
        if answer.returncode == 0:
            return str(answer.stdout.strip())
    return None


def heeded(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that libraries read."""
    return {name: value for name, value in sorted(environ.items()) if HEEDED.fullmatch(name)}


def host_facts() -> RecordedHost:
    """Return the facts of this host for a record. Python is among the versions."""
    here = host.facts()
    return RecordedHost(
        platform.node(), _processor(), here.kernel, here.cores, here.memory_bytes, here.machine
    )


def _processor() -> str:
    with contextlib.suppress(OSError):
        match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if match:
            return match[1]
    return platform.machine()


def testbed_facts(runtime: Runtime) -> RecordedTestbed | None:
    """Return the testbed's name, main process's pid, and configuration's name."""
    with contextlib.suppress(TestbedError):
        if main := runtime.read_main():
            return RecordedTestbed(main.name, main.pid, main.configuration)
    return None


def configuration_of(runtime: Runtime) -> dict[str, Any] | None:
    """Return the testbed's topology as JSON data; None if it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(runtime.topology.read_text()))
    return None


def network_of(runtime: Runtime) -> RecordedNetwork:
    """Return a testbed's present circuits, faults and changed links; empty if it does not answer."""
    with contextlib.suppress(TestbedError, KeyError):
        status = decode(Status, rpc.call(runtime.socket, "status", timeout_s=_ANSWER_S), "status")
        answer = rpc.call(runtime.socket, "link", timeout_s=_ANSWER_S, action="list")
        links = [link for link in decode(tuple[LinkSetting, ...], answer, "links") if link.is_changed]
        return RecordedNetwork(
            circuits=tuple(sorted((min(pair), max(pair)) for pair in status.circuits or [])),
            faults=tuple(decode(RecordedFault, as_json(fault), "fault") for fault in status.faults),
            links=tuple(
                RecordedLink(link.link, link.by_hand_mbps, link.up, link.delay_ms, link.jitter_ms)
                for link in links
            ),
        )
    return RecordedNetwork()
