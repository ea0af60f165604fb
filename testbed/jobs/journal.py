"""The journal of a testbed: what became of its jobs, its links and its processes, the newest of it, for who
looks later. Owns nothing else; the optical switch's reconfigurations are in the controller's history.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from testbed.jobs.life import Job
from testbed.topology import addresses

ENDED = "ended"  # the kind of an entry on a job that is over, which has a `job`
_FAULTS = ("loss", "duplicate", "reorder", "corrupt")
MOST = 2000  # entries; of the longest queue of a study the last third


class Journaling(Protocol):
    """Take an entry; Journal.add does."""

    def __call__(self, kind: str, text: str, **more: Any) -> None: ...


class Journal:
    """Thread-safe. Entries are `{"number", "time", "kind", "text"}` and more, by their kind; numbers begin
    with 1, times are seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.time, most: int = MOST) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._entries: deque[dict[str, Any]] = deque(maxlen=most)
        self._last = 0

    def add(self, kind: str, text: str, **more: Any) -> None:
        """Take an entry: `text` is a line for people, `more` is for programs."""
        with self._lock:
            self._last += 1
            entry = {"number": self._last, "time": round(self._clock(), 3), "kind": kind, "text": text}
            self._entries.append(entry | more)

    def after(self, number: int) -> list[dict[str, Any]]:
        """Return the entries after that one, the oldest first, as far as they are kept."""
        with self._lock:
            return [entry for entry in self._entries if entry["number"] > number]


def silent(kind: str, text: str, **more: Any) -> None:
    """Keep no entry."""


def circumstances(job: Job) -> dict[str, Any]:
    """Return since when a job is, and which pairs of units it joins: by these it uses circuits."""
    pairs = [[addresses.unit_name(a), addresses.unit_name(b)] for a, b in job.layout.demands]
    return {"id": job.id, "began": round(job.began_unix, 3), "pairs": pairs}


def epitaph(job: Job, failure: str | None, outcome: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what the journal keeps of a job that is over. `outcome` is its result, if it has any."""
    verdict = outcome["verdict"] if outcome else None
    return {
        **circumstances(job),
        "sync": job.layout.system,
        "user": job.request.caller.user,
        "script": " ".join(job.request.arguments_of_python),
        "hosts": job.hosts,
        "ps_host": job.ps_host,
        "failure": failure,
        "verdict": verdict,
        "notes": job.notes[-20:],
    }


def ended_in_words(job: Job, failure: str | None) -> str:
    return f"job {job.id} failed: {failure}" if failure else f"job {job.id} is done"


def by_hand_in_words(what: str, request: Mapping[str, Any]) -> str:
    """Return what an accepted request `link` or `fault` did to which links."""
    links = " ".join(request.get("links") or ["all"])
    if request["action"] != "set":
        return f"{what} {request['action']}: {links}"
    if what == "fault":
        fault = request["fault"]
        shares = [f"{name} {100 * fault[name]:g}%" for name in _FAULTS if fault.get(name)]
        return f"fault set: {links} {request.get('direction', 'both')}, {', '.join(shares) or 'none'}"
    rate, is_up = request.get("rate_mbps"), request.get("up")
    done = [f"{rate:g} Mb/s"] if rate is not None else []
    done += [f"{name} {request[name]}" for name in ("delay", "jitter") if request.get(name) is not None]
    done += [] if is_up is None else ["up" if is_up else "down"]
    return f"link set: {links}, {', '.join(done)}"
