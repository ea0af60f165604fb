"""The machine on which a result was measured."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The machine on which a report's times were measured."""

    kernel: str
    cores: int
    memory_bytes: int
    machine: str
    python: str


def facts() -> HostFacts:
    """Read the facts of this host."""
    return HostFacts(
        kernel=platform.release(),
        cores=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        machine=platform.machine(),
        python=platform.python_version(),
    )
