"""The load of the machine by others: how busy its cores are while nothing of a figure runs."""

from __future__ import annotations

import time

from testbed.local.counters import reading
from testbed.telemetry.counters import BUSY, STEAL

QUIET = 0.10
"""The share of all cores that others may use: beyond it they shape times that are measured here."""
SAMPLE_S = 1.0


def others(seconds: float = SAMPLE_S) -> tuple[float, float]:
    """Return the shares of all cores that are in use, and that the hypervisor takes of it, over the next
    seconds.
    """
    first, began = reading().cores, time.monotonic()
    time.sleep(seconds)
    used = (reading().cores - first).mean(axis=0) / (time.monotonic() - began)
    return min(1.0, float(used[BUSY])), min(1.0, float(used[STEAL]))


def said(used: float, stolen: float, cores: int) -> str:
    """Return what a user must know of such a load."""
    of = f"{cores} core{'s' * (cores != 1)}"
    part = f", {stolen:.0%} by the hypervisor" if stolen >= 0.01 else ""
    if used <= QUIET:
        return f"the machine is quiet: others use {used:.0%} of {of}"
    return (
        f"the machine is busy: others use {used:.0%} of {of}{part}; with {QUIET:.0%} or less its runs can be "
        "trusted, and those that are not give no verdicts and no headline"
    )
