"""List the jobs of `testbed demo`, as the systems declare them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.aggregation.system import SERVER_ALWAYS
from testbed.plugins.registry import systems


@dataclass(frozen=True, slots=True)
class ShownJob:
    """A job of `testbed demo`: its system, its title, and whether its workers are in two units."""

    system: str
    title: str
    across: bool = False


def shown_jobs() -> dict[str, ShownJob]:
    """Return the demo's jobs by name. Systems with data-plane programs come first; after them, those that
    need no server host before those that always do. Jobs across two units come last.
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
