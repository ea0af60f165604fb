"""The acts of a process as /proc shows them. Owns no decision."""

from __future__ import annotations

import os
from pathlib import Path

from testbed.jobs.watch import Doing

_STATES = {"T": "stopped", "t": "stopped", "R": "running"}  # others may be of a moment
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def doing(pid: int) -> Doing:
    """Return what a process does, all its threads together; of one that has ended, nothing."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it is gone
        return Doing()
    fields = stat.rpartition(")")[2].split()  # from the third one, which is the state
    return Doing(_STATES.get(fields[0], ""), (int(fields[11]) + int(fields[12])) * _TICK_S)
