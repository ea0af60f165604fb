"""The jobs by which systems are shown, as they say of themselves. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.aggregation.system import SERVER_ALWAYS
from testbed.plugins.registry import systems


@dataclass(frozen=True, slots=True)
class ShownJob:
    """A job of `testbed demo`: the system that sums it, the words for it, and whether it is across two
    units.
    """

    system: str
    title: str
    across: bool = False


def shown_jobs() -> dict[str, ShownJob]:
    """Return by name the jobs by which systems are shown: those whose places sum first, among the
    others those that need no host, and those across units last.
    """
    showing = sorted(
        ((name, system) for name, system in systems().items() if system.showing is not None),
        key=lambda named: (not named[1].programs, named[1].server == SERVER_ALWAYS),
    )
    jobs = {name: ShownJob(name, system.showing.title) for name, system in showing if system.showing}
    across = {
        f"{name}-across": ShownJob(name, f"{name} across two units", across=True)
        for name, system in showing
        if system.showing and system.showing.across
    }
    return jobs | across
