"""`testbed systems`: list the aggregation systems by name, with what each needs and brings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from testbed.aggregation.figure import Figure
from testbed.aggregation.system import System
from testbed.client import environment
from testbed.plugins.papers import papers
from testbed.plugins.policies import policies, usual
from testbed.plugins.registry import systems


def main(argv: list[str]) -> int:
    """Run the command and return the exit code; see testbed/errors.py."""
    parser = environment.Parser(
        prog="testbed systems",
        description="List the aggregation systems that `run --sync` and `sync:` in a file of jobs take, "
        "what each needs, and the policies and figures that it brings. A system of your own is FILE.py:CLASS "
        "(docs/your-own-system.md).",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    policies(), papers(), usual()  # these raise if two systems declare the same name
    if options.json:
        print(json.dumps({name: asdict(described(system)) for name, system in systems().items()}, indent=2))
        return 0
    width = max(map(len, systems()))
    for name, system in systems().items():
        print(f"{name:<{width}}  {system.summary}")
        for line in lines(system):
            print(f"{'':<{width}}  {line}")
    return 0


def lines(system: System) -> Iterator[str]:
    """Yield a line each about what a system needs of units and hosts, and about its policies and figures."""
    if system.programs:
        room = f"is summed by {system.instead}" if system.instead else "is refused"
        yield f"engines: {' or '.join(sorted(system.programs))}; without room there a job {room}"
    else:
        yield "engines: none needed"
    yield f"server: {system.server}"
    yield f"policies: {', '.join(system.policies.factories) if system.policies else 'none'}"
    figures = figures_beside(system)
    if not figures:
        yield "figures: none"
        return
    simulated = [figure.name for figure in figures if not figure.on_testbed]
    live = [f"{figure.name} (as root)" for figure in figures if figure.on_testbed]
    yield f"figures of {system.paper}: {', '.join([*simulated, *live])}"


def figures_beside(system: System) -> tuple[Figure, ...]:
    """Return the available figures of a system's paper: the system's own, and those of packages."""
    return tuple(papers().get(system.paper, {}).values()) if system.paper else ()


@dataclass(frozen=True, slots=True)
class ListedFigure:
    """A figure of a system's paper."""

    name: str
    on_testbed: bool


@dataclass(frozen=True, slots=True)
class ListedSystem:
    """A system, as --json describes it. `instead` is the system that sums a job when its engines have no
    room.
    """

    summary: str
    engines: list[str]
    instead: str | None
    server: str
    policies: list[str]
    paper: str | None
    figures: list[ListedFigure]


def described(system: System) -> ListedSystem:
    """Describe a system for --json."""
    return ListedSystem(
        system.summary,
        sorted(system.programs),
        system.instead,
        system.server,
        list(system.policies.factories) if system.policies else [],
        system.paper,
        [ListedFigure(figure.name, figure.on_testbed) for figure in figures_beside(system)],
    )
