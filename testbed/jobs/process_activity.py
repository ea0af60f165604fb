"""Read a process's activity from /proc. Makes no decisions."""

from __future__ import annotations

import os
from pathlib import Path

from testbed.jobs.watch import Doing

_STATES = {"T": "stopped", "t": "stopped", "R": "running"}  # other states may be momentary
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def doing(pid: int) -> Doing:
    """Read a process's state and CPU time, of all its threads together; empty for a process that has
    ended.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return Doing()
    fields = stat.rpartition(")")[2].split()  # the fields from the third, the state, on
    return Doing(_STATES.get(fields[0], ""), (int(fields[11]) + int(fields[12])) * _TICK_S)
