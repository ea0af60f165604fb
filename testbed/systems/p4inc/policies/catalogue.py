"""Make the paper's policies by name. Owns no policy."""

from __future__ import annotations

from testbed.errors import RequestError
from testbed.scheduling.model import ALL, NEEDED, Policy

TITLES = {
    "noinc-fcfs": "noINC-FCFS",
    "inc-fcfs": "INC-FCFS",
    "noinc-tw": "noINC-TW",
    "inc-tw": "INC-TW",
    "inc-tw-norecon": "INC-TW-NoRecon",
    "noinc-tw+": "noINC-TW+",
    "inc-tw+": "INC-TW+",
}
"""Titles by name, as in the paper's tables."""

NAMES = tuple(TITLES)


def make(name: str, seed: int = 0, steps: str | None = None) -> Policy:
    """Make a new policy object, for one run. `seed` seeds the policies that draw. RequestError lists the
    policies.

    `steps`, one of `model.STEPS`, says how many steps FCFS and TW give a job; by default TW gives the needed
    ones and FCFS all.
    """
    inc = name.startswith("inc-")
    match name:
        case "noinc-fcfs" | "inc-fcfs":
            from testbed.systems.p4inc.policies.fcfs import Fcfs

            return Fcfs(inc=inc, steps=steps or ALL)
        case "noinc-tw" | "inc-tw" | "inc-tw-norecon":
            from testbed.systems.p4inc.policies.time_window import TimeWindow

            return TimeWindow(inc=inc, reconfigures=not name.endswith("-norecon"), steps=steps or NEEDED)
        case "noinc-tw+" | "inc-tw+":
            from testbed.systems.p4inc.policies.time_window_plus import TimeWindowPlus

            return TimeWindowPlus(inc=inc, seed=seed)
    raise RequestError(f"policy {name!r}: there is no such policy; there are {', '.join(NAMES)}")
