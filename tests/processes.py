"""Processes of this machine: test whether one still runs, and start one as the fabric would."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.emulation.enclosures import Enclosure, Enclosures
from testbed.emulation.spawner import Started

ENDED = (
    "Z",
    "X",
)  # states of a process that was not waited for yet, and of one that is being waited for now


def alive(pid: int) -> bool:
    """Return whether a process with this PID runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ENDED
    except (FileNotFoundError, ProcessLookupError):  # the second: it ended during the read
        return False


def no_namespace(host: str) -> int:
    """Return a descriptor in place of a host's network namespace; no process is in one."""
    return _NOTHING


_NOTHING = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
ENCLOSURES = Enclosures(None, {}, no_namespace)


def spawn(argv: Sequence[str], enclosure: Enclosure | None = None, **options: Any) -> Started:
    """Start a process as a fabric's `popen_in` does, but only ever as this user."""
    for name in ("uid", "gid", "groups"):
        options.pop(name, None)
    own = enclosure or ENCLOSURES.open("test", os.getuid())
    options["env"] = {**options.pop("env", os.environ), **own.mark}
    started = Started(argv, start_new_session=options.pop("new_session", False), **options)
    started.enclosure = own
    return started
