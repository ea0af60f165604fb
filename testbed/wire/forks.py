"""The messages between the daemon and the process that workers are forks of (testbed/emulation/template.py,
workloads/template.py). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A request for a new fork, or with `wait` for the exit code of the fork of that number, which ended."""

    wait: int | None = None


@dataclass(frozen=True, slots=True)
class ForkReply:
    """The number of a new fork, or why the kernel `refused` it; or the exit `code` that was asked for."""

    pid: int | None = None
    refused: str | None = None
    code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedWorker:
    """The worker that a fork becomes: its words and environment, its working folder, its user, and the
    numbers that its descriptors get.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    fds: tuple[int, ...]
